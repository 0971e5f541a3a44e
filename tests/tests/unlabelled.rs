//! Streams whose head does not say what they are, or says it of what nobody can read: they are held to their
//! reservations all the same (SPEC §4.1).
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use serde_json::{Value, json};
use tollgate_tests::{Client, Gateway, GatewayOptions, UNIT_PRICES, eventually};

/// Far more than a connection's buffers hold.
const EVENTS: usize = 200_000;

/// A provider that answers every request with a long stream under a head with `headers`.
fn provider(headers: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().flatten().for_each(|stream| answer(stream, headers)));
    format!("http://{address}")
}

fn answer(mut stream: TcpStream, headers: &str) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
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
    let event = json!({"model": "unit", "choices": [{"index": 0, "delta": {"content": "word ".repeat(20)}}]});
    let head = format!("HTTP/1.1 200 OK\r\n{headers}connection: close\r\n\r\n");
    // Ends early where the other side has had enough.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| {
        (0..EVENTS).try_for_each(|_| stream.write_all(format!("data: {event}\n\n").as_bytes()))
    });
}

/// The event of a stream from a provider that sends `headers`, and whether the client got an end.
async fn event(headers: &'static str) -> (Value, bool) {
    let gateway = Gateway::start(GatewayOptions {
        config: format!(
            "[[providers]]\nid = \"raw\"\nprotocol = \"openai\"\nbase_url = \"{}\"\napi_key_env = \"RAW\"\n\
             [[tenants]]\nid = \"t\"\n[[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = 0.002\n\
             [[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n",
            provider(headers)
        ),
        prices: Some(UNIT_PRICES.to_owned()),
        reservation: "output_tokens = 100\nextend_tokens = 100".to_owned(),
        ..GatewayOptions::default()
    });
    let body = json!({"model": "unit", "max_tokens": 100_000, "stream": true,
        "messages": [{"role": "user", "content": "Hello"}]});
    let path = "/provider/raw/v1/chat/completions";
    let answer = Client::new(gateway.address()).post(path, "key_of_t", &body, &[]).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    eventually("the call is settled", || !gateway.usage_events().is_empty()).await;
    (gateway.usage_events().remove(0), answer.complete)
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
