//! Stop, start, go on: what was spent comes back; what is draining is settled.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use std::{io::Write, sync::Arc};

use serde_json::{Value, json};
use tollgate_limiter::DurationMs;
use tollgate_tests::{Client, Gateway, GatewayOptions, PATIENCE, UNIT_PRICES, json_request};

const TENANT: &str = "[[tenants]]\nid = \"t\"\nrequests_per_minute = 5\n\
                      [[tenants.budgets]]\nwindow = \"total\"\nlimit_usd = 0.0009\n\
                      [[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n";

fn body(stream: bool) -> Value {
    json!({"model": "unit", "max_tokens": 300, "stream": stream, "messages": [{"role": "user", "content": "Hello"}]})
}

fn start(directory: Option<Arc<tempfile::TempDir>>) -> Gateway {
    Gateway::start(GatewayOptions {
        config: TENANT.to_owned(),
        prices: Some(UNIT_PRICES.to_owned()),
        directory,
        ..GatewayOptions::default()
    })
}

async fn spent(gateway: &Gateway) -> u128 {
    gateway.counter("t", "micro_usd", "total", 900).await.spent.as_millionths()
}

#[tokio::test]
async fn spend_comes_back_duplicates_count_once_and_a_torn_line_is_skipped() {
    let first = start(None);
    let client = Client::new(first.address());
    for _ in 0..2 {
        let headers = ["x-mock-input-tokens: 27", "x-mock-output-tokens: 200"];
        assert_eq!(client.post("/v1/messages", "key_of_t", &body(false), &headers).await.status, 200);
    }
    first.stop();
    let lines = std::fs::read_to_string(first.usage_file()).expect("the file");
    let mut file = std::fs::File::options().append(true).open(first.usage_file()).expect("the file");
    let again = lines.lines().next().expect("a line");
    write!(file, "{again}\n{}", &again[..again.len() / 2]).expect("written");

    let second = start(Some(first.directory.clone()));
    assert_eq!(spent(&second).await, 2 * 227 * 1_000_000);
    let requests = second.counter("t", "requests", "minute", 5).await;
    assert_eq!(requests.spent.units(), 0, "rate limits start at zero");
    let client = Client::new(second.address());
    let headers = ["x-mock-input-tokens: 27", "x-mock-output-tokens: 200"];
    assert_eq!(client.post("/v1/messages", "key_of_t", &body(false), &headers).await.status, 200);
    let refused = client.post("/v1/messages", "key_of_t", &body(false), &[]).await;
    assert_eq!(refused.status, 402, "681 spent of 900, over 300 needed");
    second.stop();
    let third = start(Some(first.directory.clone()));
    assert_eq!(spent(&third).await, 3 * 227 * 1_000_000, "the torn line did not swallow the next one");
}

#[tokio::test]
async fn spend_comes_back_from_files_of_earlier_days_and_waits_for_the_disk() {
    let start = |directory| {
        Gateway::start(GatewayOptions {
            config: TENANT.to_owned(),
            prices: Some(UNIT_PRICES.to_owned()),
            usage: "fsync = \"always\"\nrotate_daily = true".to_owned(),
            directory,
            ..GatewayOptions::default()
        })
    };
    let first = start(None);
    let client = Client::new(first.address());
    let headers = ["x-mock-input-tokens: 27", "x-mock-output-tokens: 200"];
    assert_eq!(client.post("/v1/messages", "key_of_t", &body(false), &headers).await.status, 200);
    assert_eq!(first.usage_events().len(), 1);
    first.manual_clock().advance(DurationMs::new(86_400_000));
    assert_eq!(client.post("/v1/messages", "key_of_t", &body(true), &headers).await.status, 200);
    first.stop();
    let lines = std::fs::read_to_string(first.usage_file()).expect("the file");
    assert_eq!(lines.lines().count(), 1, "the first day's is in a file of its own");
    assert_eq!(spent(&start(Some(first.directory.clone()))).await, 2 * 227 * 1_000_000);
}

#[tokio::test]
async fn what_is_open_at_the_stop_signal_is_finished_and_settled() {
    let gateway = Arc::new(start(None));
    let mut connection = Client::new(gateway.address()).connect().await;
    let headers = [
        "x-mock-events: 20",
        "x-mock-interval-ms: 20",
        "x-mock-input-tokens: 27",
        "x-mock-output-tokens: 47",
    ];
    connection.write(&json_request("/v1/messages", "key_of_t", &body(true), &headers)).await;
    connection.read_until("message_start").await.expect("it has begun");
    let stopping = gateway.clone();
    let stopped = tokio::task::spawn_blocking(move || stopping.stop());
    let answer = connection.answer().await.expect("an answer");
    assert!(answer.complete && answer.text().contains("message_stop"), "{}", answer.text());
    assert_eq!(stopped.await.expect("no panic").connections_cut, 0);
    assert_eq!(spent(&gateway).await, 74 * 1_000_000);
    assert!(tokio::net::TcpStream::connect(gateway.address()).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn what_outlasts_the_drain_is_cut_and_settled_at_its_reservation() {
    let gateway = Arc::new(Gateway::start(GatewayOptions {
        config: TENANT.to_owned(),
        prices: Some(UNIT_PRICES.to_owned()),
        server: "drain_seconds = 1".to_owned(),
        ..GatewayOptions::default()
    }));
    let mut connection = Client::new(gateway.address()).connect().await;
    connection.write(&json_request("/v1/messages", "key_of_t", &body(true), &["x-mock-hang-after: 3"])).await;
    connection.read_until("message_start").await.expect("it has begun");
    let stopping = gateway.clone();
    let stopped = tokio::task::spawn_blocking(move || stopping.stop()).await.expect("no panic");
    assert_eq!((stopped.connections_cut, gateway.store.open_reservations()), (1, 0));
    let events = gateway.usage_events();
    assert_eq!(events[0]["cost_micro_usd"], events[0]["reserved_micro_usd"]);
    gateway
        .mock
        .wait_for(PATIENCE, |counts| counts.client_disconnects == 1)
        .await
        .expect("the upstream is dropped");
}

#[tokio::test]
async fn readiness_tells_of_the_drain_and_health_goes_on() {
    let gateway = Arc::new(start(None));
    let admin = Client::new(gateway.admin_address());
    assert_eq!(admin.get("/healthz", &[]).await.status, 200);
    let ready = admin.get("/readyz", &[]).await;
    assert_eq!(
        (ready.status, &ready.json()["status"], &ready.json()["store"]),
        (200, &json!("ready"), &json!("ok"))
    );
    let mut connection = Client::new(gateway.address()).connect().await;
    connection.write(&json_request("/v1/messages", "key_of_t", &body(false), &["x-mock-start: hang"])).await;
    gateway.mock.wait_for_requests(1, PATIENCE).await.expect("it was forwarded");
    let stopping = gateway.clone();
    let stopped = tokio::task::spawn_blocking(move || stopping.stop());
    let draining = async {
        while admin.get("/readyz", &[]).await.status != 503 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, draining).await.expect("readiness tells of the drain");
    assert_eq!(admin.get("/healthz", &[]).await.status, 200);
    drop(connection);
    stopped.await.expect("no panic");
}

#[tokio::test]
async fn a_call_that_cannot_be_written_down_is_sent_only_where_no_hard_budget_applies() {
    let directory = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::symlink("/dev/full", directory.path().join("usage.jsonl.open")).expect("a link");
    let soft = TENANT
        .replace("\"t\"", "\"s\"")
        .replace("\"key_of_t\"", "\"key_of_s\"")
        .replace("id = \"k\"", "id = \"l\"");
    let soft = soft.replace("limit_usd = 0.0009\n", "limit_usd = 0.0009\nmode = \"soft\"\n");
    let gateway = Gateway::start(GatewayOptions {
        config: format!("{TENANT}{soft}"),
        prices: Some(UNIT_PRICES.to_owned()),
        directory: Some(Arc::new(directory)),
        ..GatewayOptions::default()
    });
    let client = Client::new(gateway.address());
    let refused = client.post("/v1/messages", "key_of_t", &body(false), &[]).await;
    let refused_with = (refused.status, refused.header("x-tollgate-reason"), refused.header("retry-after"));
    assert_eq!(refused_with, (503, "store_unavailable", "5"));
    assert_eq!(gateway.mock.counts().requests, 0, "nothing was sent");
    let counter = gateway.counter("t", "micro_usd", "total", 900).await;
    assert_eq!((counter.spent.units(), counter.held.get()), (0, 0), "nothing is charged");
    let admin = Client::new(gateway.admin_address());
    assert_eq!(admin.get("/readyz", &[]).await.json()["usage"], "failing");
    assert!(admin.get("/metrics", &[]).await.text().contains("tollgate_journal_failures_total 1\n"));

    let headers = ["x-mock-input-tokens: 27", "x-mock-output-tokens: 200"];
    assert_eq!(client.post("/v1/messages", "key_of_s", &body(false), &headers).await.status, 200);
    let counter = gateway.counter("s", "micro_usd", "total", 900).await;
    assert_eq!(counter.spent.units(), 227);
    assert_eq!(gateway.usage_events().len(), 1);
}
