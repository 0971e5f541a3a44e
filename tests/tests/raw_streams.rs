//! Streams that are not as providers send them: unlabelled, unreadable, in events of any size, with a length. They are
//! held to their reservations all the same (SPEC §4.1).
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use serde_json::{Value, json};
use tollgate_tests::{Answer, Client, Gateway, GatewayOptions, UNIT_PRICES, eventually};

/// Far more than a connection's buffers hold.
const EVENTS: usize = 200_000;

/// A provider that answers every request with what `answer` writes.
fn provider(answer: impl Fn(&mut TcpStream) -> io::Result<()> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            take_request(&stream);
            // Ends early where the other side has had enough.
            let _ = answer(&mut stream);
        }
    });
    format!("http://{address}")
}

fn take_request(stream: &TcpStream) {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
}

fn head(headers: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{headers}connection: close\r\n\r\n")
}

/// A chunk with so many words.
fn chunk(words: usize) -> String {
    let delta = json!({"content": "word ".repeat(words)});
    format!("data: {}\n\n", json!({"model": "unit", "choices": [{"index": 0, "delta": delta}]}))
}

/// Sends a stream of so many words an event, until it is cut off.
fn endless(stream: &mut TcpStream, headers: &str, words: usize) -> io::Result<()> {
    let event = chunk(words);
    stream.write_all(head(headers).as_bytes())?;
    (0..EVENTS).try_for_each(|_| stream.write_all(event.as_bytes()))
}

/// What a client gets from a provider under a budget of 0.002 USD, and the event of it.
async fn answered(provider: &str, protocol: &str) -> (Answer, Value) {
    let gateway = Gateway::start(GatewayOptions {
        config: format!(
            "[[providers]]\nid = \"raw\"\nprotocol = \"{protocol}\"\nbase_url = \"{provider}\"\napi_key_env = \"RAW\"\n\
             [[tenants]]\nid = \"t\"\n[[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = 0.002\n\
             [[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n"
        ),
        prices: Some(UNIT_PRICES.to_owned()),
        reservation: "output_tokens = 100\nextend_tokens = 100".to_owned(),
        ..GatewayOptions::default()
    });
    let body = json!({"model": "unit", "max_tokens": 100_000, "stream": true,
        "messages": [{"role": "user", "content": "Hello"}]});
    let path = if protocol == "openai" { "/v1/chat/completions" } else { "/v1/messages" };
    let path = format!("/provider/raw{path}");
    let answer = Client::new(gateway.address()).post(&path, "key_of_t", &body, &[]).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    eventually("the call is settled", || !gateway.usage_events().is_empty()).await;
    (answer, gateway.usage_events().remove(0))
}

/// The event of a stream from a provider that sends `headers`, and whether the client got an end.
async fn event(headers: &'static str) -> (Value, bool) {
    let provider = provider(move |stream| endless(stream, headers, 20));
    let (answer, event) = answered(&provider, "openai").await;
    (event, answer.complete)
}

#[tokio::test]
async fn a_stream_of_whatever_type_is_cut_off_where_its_budget_ends() {
    for headers in ["", "content-type: text/plain\r\n", "content-type: application/x-ndjson\r\n"] {
        let (event, is_complete) = event(headers).await;
        assert_eq!((&event["outcome"], is_complete), (&json!("cut_off"), true), "{headers}{event}");
    }
    let (event, is_complete) = event("content-type: application/json\r\n").await;
    assert_eq!(
        (&event["outcome"], is_complete),
        (&json!("cut_off"), false),
        "no event follows JSON: {event}"
    );
}

#[tokio::test]
async fn a_stream_that_nobody_can_read_is_cut_off_at_once_under_a_hard_budget() {
    for coding in ["content-encoding: dcz\r\n", "content-encoding: gzip, gzip\r\n"] {
        let (event, is_complete) = event(coding).await;
        assert_eq!((&event["outcome"], is_complete), (&json!("cut_off"), false), "{coding}{event}");
        assert_eq!(event["flags"], json!(["unread_part"]), "{event}");
    }
}

#[tokio::test]
async fn c7_a_stream_of_events_of_any_size_is_cut_off_near_its_budget() {
    for words in [20, 20_000, 300_000] {
        let provider = provider(move |stream| endless(stream, "content-type: text/event-stream\r\n", words));
        let (answer, event) = answered(&provider, "openai").await;
        assert_eq!(
            (&event["outcome"], &event["usage_estimated"]),
            (&json!("cut_off"), &json!(true)),
            "{event}"
        );
        assert!(event["output_tokens"].as_u64().unwrap() > 1_500, "what came counts: {event}");
        // Only what follows a whole event can be read as one.
        let text = answer.text();
        let told = text.contains("budget_exceeded");
        assert!(told || !answer.complete, "{words} words: {} bytes look whole", text.len());
        assert!(text.len() < 4_000_000, "{words} words: {} bytes passed", text.len());
    }
}

#[tokio::test]
async fn c7_a_stream_that_announces_its_length_is_cut_off_with_an_error_event() {
    let length = EVENTS * chunk(20).len();
    let headers = format!("content-type: text/event-stream\r\ncontent-length: {length}\r\n");
    let provider = provider(move |stream| endless(stream, &headers, 20));
    let (answer, event) = answered(&provider, "openai").await;
    assert_eq!((&event["outcome"], answer.complete), (&json!("cut_off"), true), "{event}");
    assert_eq!(answer.header("content-length"), "");
    let text = answer.text();
    assert!(text.ends_with("\n\n") && text.rsplit("data: ").next().unwrap().contains("budget_exceeded"));
}

#[tokio::test]
async fn c110_nothing_follows_an_error_of_the_provider_s_own() {
    let anthropic = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"unit\",\"usage\":\
                     {\"input_tokens\":9,\"output_tokens\":1}}}\n\nevent: error\ndata: {\"type\":\"error\",\"error\":\
                     {\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    let openai = format!(
        "{}data: {{\"error\":{{\"message\":\"overloaded\",\"type\":\"server_error\"}}}}\n\n",
        chunk(3)
    );
    for (protocol, stream) in [("anthropic", anthropic.to_owned()), ("openai", openai)] {
        for length in [None, Some(stream.len()), Some(stream.len() + 1)] {
            let length = length.map_or_else(String::new, |length| format!("content-length: {length}\r\n"));
            let whole = head(&format!("content-type: text/event-stream\r\n{length}")) + &stream;
            let provider = provider(move |stream| stream.write_all(whole.as_bytes()));
            let (answer, event) = answered(&provider, protocol).await;
            assert_eq!(answer.text(), stream, "{protocol} {length}");
            assert_eq!(event["outcome"], "upstream_broken", "{event}");
        }
    }
}
