//! Estimates of the input that learn from what was reported.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use serde_json::{Value, json};
use tollgate_proxy::Question;
use tollgate_store::Clock;
use tollgate_tests::{Client, Gateway, GatewayOptions, UNIT_PRICES, setup};

/// Calls that name no session are calls of loops.
fn options() -> GatewayOptions {
    with("")
}

/// Calls that name no session belong to no loop.
fn apart() -> GatewayOptions {
    with("[sessions]\nderive = false\n")
}

fn with(sessions: &str) -> GatewayOptions {
    let keys = "[[tenants]]\nid = \"t\"\n[[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n";
    GatewayOptions {
        config: format!("{sessions}{keys}"),
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
    let first = Gateway::start(apart());
    let untaught = estimate(&first, &body(), 1).await;
    first.stop();
    std::fs::remove_file(first.usage_file()).expect("what it has learned is forgotten");
    let first = Gateway::start(apart());
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
    let again = Gateway::start(GatewayOptions { directory: Some(first.directory.clone()), ..apart() });
    assert_eq!(estimate(&again, &body(), reported).await, latest);
    again.stop();
}

#[tokio::test]
async fn what_is_explained_is_corrected_by_what_earlier_calls_have_taught() {
    let gateway = Gateway::start(apart());
    let untaught = estimate(&gateway, &body(), 1).await;
    let reported = untaught * 13 / 10;
    for _ in 0..40 {
        estimate(&gateway, &body(), reported).await;
    }
    let latest = estimate(&gateway, &body(), reported).await;
    let setup = setup(&apart(), "http://127.0.0.1:1", gateway.directory.path());
    let text = body().to_string();
    let question = Question { key: "k", path: Some("/v1/messages"), headers: &[], body: text.as_bytes() };
    let explained = || {
        let explained = setup.explain(&question, gateway.manual_clock().now()).unwrap();
        (explained.uncorrected_input_tokens.get(), explained.input_tokens.get())
    };
    assert_eq!(explained(), (untaught, untaught));
    // The proxy goes on: nothing is taken from it.
    setup.learn(gateway.manual_clock().now(), |_, _| ()).unwrap();
    assert_eq!(explained(), (untaught, latest));
    assert_eq!(estimate(&gateway, &body(), reported).await, latest);
}

#[tokio::test]
async fn what_the_body_does_not_show_teaches_nothing() {
    let gateway = Gateway::start(apart());
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

/// The calls of an agent loop: each sends the whole of the one before, an answer and a tool's output.
fn turns() -> Vec<Value> {
    let mut messages = vec![json!({"role": "user", "content": "Repair the harbour's crane. ".repeat(100)})];
    let mut turns = Vec::new();
    for turn in 0..10 {
        turns.push(json!({"model": "unit", "max_tokens": 10, "messages": messages}));
        messages.push(json!({"role": "assistant", "content": format!("I look at part {turn} of it now.")}));
        messages.push(json!({"role": "user", "content": format!("Part {turn} is worn. ").repeat(20)}));
    }
    turns
}

/// What each call of a loop is estimated at where its provider reports `percent` of the uncorrected estimate,
/// with what was reported.
async fn loop_of(percent: u64) -> Vec<(u64, u64)> {
    let (uncorrected, gateway) = (Gateway::start(apart()), Gateway::start(options()));
    let mut calls = Vec::new();
    for body in turns() {
        let reported = estimate(&uncorrected, &body, 1).await * percent / 100;
        calls.push((estimate(&gateway, &body, reported).await, reported));
    }
    calls
}

#[tokio::test]
async fn an_agent_loop_is_estimated_from_what_its_latest_call_came_to() {
    for (percent, error_percent_max) in [(70, 8), (100, 1), (160, 1)] {
        let calls = loop_of(percent).await;
        let error = |(estimated, reported): &(u64, u64)| estimated.abs_diff(*reported) * 100 / reported;
        println!("{percent} %: {:?}", calls.iter().map(error).collect::<Vec<_>>());
        assert!(percent == 100 || error(&calls[0]) >= 30, "the first is estimated as ever: {calls:?}");
        assert!(calls[1..].iter().all(|call| error(call) <= error_percent_max), "{percent}: {calls:?}");
        assert!(calls[1..].iter().all(|(estimated, reported)| estimated >= reported), "{percent}: {calls:?}");
    }
}

#[tokio::test]
async fn another_loop_a_shorter_request_and_a_guessed_usage_go_on_from_nothing() {
    let gateway = Gateway::start(options());
    let [turns, mut other] = [turns(), turns()];
    let plain = estimate(&gateway, &turns[5], 1).await;
    let session = |body: Value, reported: &'static str| {
        let client = Client::new(gateway.address());
        let headers = ["x-tollgate-session: s", reported];
        let gateway = &gateway;
        async move {
            client.post("/v1/messages", "key_of_t", &body, &headers).await;
            gateway.usage_events().pop().expect("an event")["estimated_input_tokens"]
                .as_u64()
                .expect("a number")
        }
    };
    assert_eq!(session(turns[5].clone(), "x-mock-usage: missing").await, plain);
    assert_eq!(session(turns[5].clone(), "x-mock-input-tokens: 9").await, plain, "nobody has reported any");
    assert_eq!(session(turns[5].clone(), "x-mock-input-tokens: 9").await, plain.div_ceil(2));
    other[5]["messages"][0]["content"] = "Repair the harbour's quay. ".repeat(200).into();
    assert!(session(other[5].clone(), "x-mock-input-tokens: 9").await > plain);
    let shorter = session(turns[3].clone(), "x-mock-input-tokens: 9").await;
    assert!(shorter > plain / 2 && shorter < plain, "{shorter}");
}
