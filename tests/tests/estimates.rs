//! Estimates of the input that learn from what was reported.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use serde_json::{Value, json};
use tollgate_tests::{Client, Gateway, GatewayOptions, UNIT_PRICES};

fn options() -> GatewayOptions {
    GatewayOptions {
        config: "[[tenants]]\nid = \"t\"\n[[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n".to_owned(),
        prices: Some(UNIT_PRICES.to_owned()),
        ..GatewayOptions::default()
    }
}

fn body() -> Value {
    let text = "The committee met again on Tuesday to discuss the harbour. ".repeat(40);
    json!({"model": "unit", "max_tokens": 10, "messages": [{"role": "user", "content": text}]})
}

/// The estimate of the latest call.
async fn estimate(gateway: &Gateway, body: &Value, reported: u64) -> u64 {
    let reported = format!("x-mock-input-tokens: {reported}");
    let answer = Client::new(gateway.address()).post("/v1/messages", "key_of_t", body, &[&reported]).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    gateway.usage_events().pop().expect("an event")["estimated_input_tokens"].as_u64().expect("a number")
}

#[tokio::test]
async fn reported_input_corrects_later_estimates_also_after_a_restart_and_never_its_own_corrections() {
    let first = Gateway::start(options());
    let untaught = estimate(&first, &body(), 1).await;
    first.stop();
    std::fs::remove_file(first.usage_file()).expect("what it has learned is forgotten");
    let first = Gateway::start(options());
    let reported = untaught * 7 / 10;
    let mut latest = 0;
    for _ in 0..60 {
        latest = estimate(&first, &body(), reported).await;
    }
    // By the bucket of 0.7, which is 5 % wide: not 0.7 of 0.7 again.
    assert!((reported..=reported * 106 / 100).contains(&latest), "{latest}: {untaught} was {reported}");
    let event = first.usage_events().pop().expect("an event");
    assert_eq!(event["uncorrected_input_tokens"], untaught);
    first.stop();
    let again = Gateway::start(GatewayOptions { directory: Some(first.directory.clone()), ..options() });
    assert_eq!(estimate(&again, &body(), reported).await, latest);
    again.stop();
}

#[tokio::test]
async fn what_the_body_does_not_show_teaches_nothing() {
    let gateway = Gateway::start(options());
    let mut hidden = body();
    hidden["messages"][0]["content"] =
        json!([{"type": "image", "source": {"type": "url", "url": "https://a.example/i"}}]);
    let mut searching = body();
    searching["tools"] = json!([{"type": "web_search_20250305", "name": "web_search"}]);
    let untaught = estimate(&gateway, &body(), 1).await;
    for _ in 0..30 {
        estimate(&gateway, &hidden, 90_000).await;
        estimate(&gateway, &searching, 90_000).await;
    }
    assert_eq!(estimate(&gateway, &body(), 1).await, untaught);
    let taught = |event: &Value| event.get("uncorrected_input_tokens").is_some();
    assert_eq!(gateway.usage_events().iter().filter(|event| taught(event)).count(), 2);
}
