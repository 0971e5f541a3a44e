//! Budgets tell how far they are used up, whatever becomes of the receiver and of the proxy.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tollgate_limiter::DurationMs;
use tollgate_tests::{Client, Gateway, GatewayOptions, UNIT_PRICES, eventually};

/// What a receiver does with a post.
#[derive(Clone, Copy, Debug)]
enum Does {
    /// Answers with this status.
    Answer(u16),
    /// Closes without an answer.
    Close,
    /// Reads and never answers.
    Hang,
}

/// A receiver of alerts: does what it is told, then answers 200.
struct Receiver {
    address: SocketAddr,
    posts: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Receiver {
    async fn start(does: Vec<Does>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let posts = Arc::new(Mutex::new(Vec::new()));
        let (kept, mut does) = (posts.clone(), does.into_iter());
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let Some((head, body)) = read(&mut stream).await else { continue };
                kept.lock().unwrap().push((head, body));
                match does.next().unwrap_or(Does::Answer(200)) {
                    Does::Answer(status) => {
                        let answer = format!(
                            "HTTP/1.1 {status} x\r\nlocation: http://{address}/elsewhere\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                        );
                        let _ = stream.write_all(answer.as_bytes()).await;
                    }
                    Does::Close => {}
                    Does::Hang => {
                        tokio::spawn(async move {
                            let _ = stream.read(&mut [0; 1]).await;
                        });
                    }
                }
            }
        });
        Self { address, posts }
    }

    fn posts(&self) -> Vec<(String, Value)> {
        self.posts.lock().unwrap().clone()
    }

    /// Waits for so many posts and returns their bodies.
    async fn bodies(&self, count: usize) -> Vec<Value> {
        eventually(&format!("{count} posts"), || self.posts().len() >= count).await;
        self.posts().into_iter().map(|(_, body)| body).collect()
    }
}

async fn read(stream: &mut tokio::net::TcpStream) -> Option<(String, Value)> {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && let Ok(body) = serde_json::from_str(body)
        {
            return Some((head.to_ascii_lowercase(), body));
        }
    }
}

fn options(window: &str, alerts: &str) -> GatewayOptions {
    GatewayOptions {
        config: format!(
            "[[tenants]]\nid = \"t\"\n[[tenants.budgets]]\nwindow = \"{window}\"\nlimit_usd = \"0.001\"\nmode = \"soft\"\n\
             [[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n{alerts}"
        ),
        prices: Some(UNIT_PRICES.to_owned()),
        ..GatewayOptions::default()
    }
}

fn to(receiver: &Receiver) -> String {
    format!("[[alerts]]\nurl = \"http://{}/hook?token=x\"\n", receiver.address)
}

/// One call that costs so many micro-USD.
async fn spend(gateway: &Gateway, micro_usd: u64) {
    let body = json!({"model": "unit", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]});
    let output = format!("x-mock-output-tokens: {}", micro_usd - 1);
    let headers = ["x-mock-input-tokens: 1", output.as_str()];
    let answer = Client::new(gateway.address()).post("/v1/messages", "key_of_t", &body, &headers).await;
    assert_eq!(answer.status, 200);
}

fn percent(bodies: &[Value]) -> Vec<u64> {
    bodies.iter().map(|body| body["threshold_percent"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn each_threshold_is_told_once_in_a_period_with_all_that_a_receiver_needs() {
    let receiver = Receiver::start(Vec::new()).await;
    let signed = format!("{}secret_env = \"sesame\"\n", to(&receiver));
    let gateway = Gateway::start(options("day", &signed));
    for cost in [499, 1, 100, 1, 1] {
        spend(&gateway, cost).await;
    }
    assert_eq!(percent(&receiver.bodies(1).await), [50]);
    // Several at a time, then beyond all of them.
    spend(&gateway, 380).await;
    spend(&gateway, 500).await;
    let bodies = receiver.bodies(4).await;
    assert_eq!(percent(&bodies), [50, 80, 95, 100]);
    let first = &bodies[0];
    assert_eq!(
        (&first["scope"], &first["id"], &first["tenant"]),
        (&json!("tenant"), &json!("t"), &json!("t"))
    );
    assert_eq!((&first["window"], &first["mode"]), (&json!("day"), &json!("soft")));
    assert_eq!((&first["limit_micro_usd"], &first["spent_micro_usd"]), (&json!(1_000), &json!(500)));
    assert!(first["period_start"].as_str().unwrap().ends_with("T00:00:00.000Z"), "{first}");
    let head = &receiver.posts()[0].0;
    assert!(
        head.contains("content-type: application/json") && head.contains("x-tollgate-signature: sha256="),
        "{head}"
    );
    // The next day is another period.
    gateway.manual_clock().advance(DurationMs::new(86_400_000));
    spend(&gateway, 600).await;
    let again = receiver.bodies(5).await;
    assert_eq!(again[4]["threshold_percent"], 50);
    assert_ne!(again[4]["alert_id"], again[0]["alert_id"]);
    let metrics = Client::new(gateway.admin_address()).get("/metrics", &[]).await.text();
    assert!(
        metrics.contains(
            "tollgate_budget_thresholds_total{scope=\"tenant\",id=\"t\",window=\"day\",percent=\"50\"} 2"
        ),
        "{metrics}"
    );
}

#[tokio::test]
async fn a_receiver_that_fails_gets_the_same_alert_until_it_takes_it() {
    // A redirection is a failure: it is not followed.
    let receiver = Receiver::start(vec![Does::Answer(503), Does::Close, Does::Answer(302)]).await;
    let hanging = Receiver::start(vec![Does::Hang]).await;
    let gateway = Gateway::start(options("day", &format!("{}{}", to(&receiver), to(&hanging))));
    spend(&gateway, 500).await;
    let bodies = receiver.bodies(4).await;
    assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:?}");
    assert!(receiver.posts().iter().all(|(head, _)| head.starts_with("post /hook?token=x ")));
    // One that hangs keeps neither calls nor other receivers waiting.
    spend(&gateway, 300).await;
    assert_eq!(receiver.bodies(5).await[4]["threshold_percent"], 80);
    assert_eq!(hanging.bodies(1).await[0], bodies[0]);
}

#[tokio::test]
async fn no_crossing_is_missed_in_a_minute_that_is_over_at_once() {
    let receiver = Receiver::start(Vec::new()).await;
    let gateway = Gateway::start(options("minute", &to(&receiver)));
    for _ in 0..20 {
        spend(&gateway, 500).await;
        gateway.manual_clock().advance(DurationMs::new(60_000));
    }
    let mut ids: Vec<_> = receiver.bodies(20).await.iter().map(|body| body["alert_id"].to_string()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 20);
}

#[tokio::test]
async fn what_was_not_taken_before_a_stop_is_posted_after_the_next_start() {
    let down = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = format!("[[alerts]]\nurl = \"http://{}/\"\n", down.local_addr().unwrap());
    let first = Gateway::start(options("month", &nobody));
    spend(&first, 500).await;
    spend(&first, 300).await;
    first.stop();
    let receiver = Receiver::start(Vec::new()).await;
    let start = |directory| Gateway::start(GatewayOptions { directory, ..options("month", &to(&receiver)) });
    let second = start(Some(first.directory.clone()));
    assert_eq!(percent(&receiver.bodies(2).await), [50, 80]);
    // What was taken is not told again; what the file has lost is found by what is spent.
    second.stop();
    let third = start(Some(first.directory.clone()));
    spend(&third, 150).await;
    assert_eq!(percent(&receiver.bodies(3).await), [50, 80, 95]);
    third.stop();
    std::fs::remove_file(first.directory.path().join("usage.jsonl.alerts")).unwrap();
    let fourth = start(Some(first.directory.clone()));
    let bodies = receiver.bodies(6).await;
    assert_eq!(percent(&bodies[3..]), [50, 80, 95]);
    assert_eq!(bodies[3]["alert_id"], bodies[0]["alert_id"]);
    fourth.stop();
}

#[tokio::test]
async fn a_reload_brings_other_receivers_and_thresholds() {
    let (first, second) = (Receiver::start(Vec::new()).await, Receiver::start(Vec::new()).await);
    let gateway = Gateway::start(options("day", &to(&first)));
    spend(&gateway, 600).await;
    assert_eq!(percent(&first.bodies(1).await), [50]);
    let other = format!("{}thresholds = [60, 90]\nscope = \"tenant\"\nid = \"t\"\n", to(&second));
    let elsewhere = format!("{}scope = \"tenant\"\nid = \"u\"\n", to(&first));
    gateway.reload(&options("day", &format!("{other}{elsewhere}"))).unwrap();
    assert_eq!(percent(&second.bodies(1).await), [60]);
    spend(&gateway, 350).await;
    assert_eq!(percent(&second.bodies(2).await), [60, 90]);
    assert_eq!(first.posts().len(), 1, "it asks for another tenant now");
}
