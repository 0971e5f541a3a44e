//! Another configuration in place of the running one: all of it, or nothing, and no count is lost.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use std::sync::Arc;

use serde_json::{Value, json};
use tollgate_mock::{Mock, Options};
use tollgate_proxy::ReloadError;
use tollgate_tests::{Client, Gateway, GatewayOptions, PROVIDER_KEY, UNIT_PRICES, eventually, json_request};

fn body(stream: bool) -> Value {
    json!({"model": "unit", "max_tokens": 300, "stream": stream, "messages": [{"role": "user", "content": "Hello"}]})
}

/// One tenant with `limits` and a key for each of `keys`.
fn options(limits: &str, keys: &[&str]) -> GatewayOptions {
    let keys = keys.iter().map(|key| format!("[[tenants.keys]]\nid = \"{key}\"\nkey_env = \"{key}\"\n"));
    GatewayOptions {
        config: format!("[[tenants]]\nid = \"t\"\n{limits}\n{}", keys.collect::<String>()),
        prices: Some(UNIT_PRICES.to_owned()),
        ..GatewayOptions::default()
    }
}

async fn status(gateway: &Gateway, key: &str) -> u16 {
    Client::new(gateway.address()).post("/v1/messages", key, &body(false), &[]).await.status
}

async fn readiness(gateway: &Gateway) -> Value {
    let answer = Client::new(gateway.admin_address()).get("/readyz", &[]).await;
    assert_eq!(answer.status, 200, "the proxy serves, whatever became of the reload");
    answer.json()
}

#[tokio::test]
async fn a_raised_limit_keeps_what_was_spent_and_a_lowered_one_too() {
    let gateway = Gateway::start(options("requests_per_minute = 2", &["k"]));
    for expected in [200, 200, 429] {
        assert_eq!(status(&gateway, "k").await, expected);
    }
    gateway.reload(&options("requests_per_minute = 3", &["k"])).expect("taken over");
    assert_eq!(status(&gateway, "k").await, 200, "the third of three");
    assert_eq!(status(&gateway, "k").await, 429);
    gateway.reload(&options("requests_per_minute = 1", &["k"])).expect("taken over");
    assert_eq!(status(&gateway, "k").await, 429);
    gateway.reload(&options("", &["k"])).expect("taken over");
    assert_eq!(status(&gateway, "k").await, 200, "no limit");
}

#[tokio::test]
async fn a_limit_that_changes_its_algorithm_keeps_its_count() {
    let by = |algorithm: &str| {
        let keyed = options("", &["k"]);
        let limit = format!(
            "[[limits]]\nscope = \"tenant\"\nid = \"t\"\nrequests_per_hour = 2\nalgorithm = \"{algorithm}\"\n"
        );
        GatewayOptions { config: keyed.config.clone() + &limit, ..keyed }
    };
    let gateway = Gateway::start(by("sliding-window"));
    assert_eq!(status(&gateway, "k").await, 200);
    gateway.reload(&by("bucketed-window")).expect("taken over");
    assert_eq!(status(&gateway, "k").await, 200);
    for algorithm in ["token-bucket", "sliding-window", "bucketed-window"] {
        gateway.reload(&by(algorithm)).expect("taken over");
        assert_eq!(status(&gateway, "k").await, 429, "{algorithm}");
    }
}

#[tokio::test]
async fn keys_come_and_go_at_once_and_open_calls_end_as_they_began() {
    let gateway = Gateway::start(options("requests_per_minute = 50", &["old"]));
    let mut open = Client::new(gateway.address()).connect().await;
    let headers = ["x-mock-events: 6", "x-mock-interval-ms: 50", "x-mock-output-tokens: 100"];
    open.write(&json_request("/v1/messages", "old", &body(true), &headers)).await;
    open.read_until("message_start").await.expect("a beginning");

    let dearer = "models:\n  unit:\n    input: 7\n    output: 7\n".to_owned();
    gateway
        .reload(&GatewayOptions { prices: Some(dearer), ..options("requests_per_minute = 50", &["new"]) })
        .expect("taken over");
    assert_eq!(status(&gateway, "old").await, 401);
    assert_eq!(status(&gateway, "new").await, 200);
    open.read_until("message_stop").await.expect("an end");
    eventually("both calls are settled", || gateway.usage_events().len() == 2).await;
    let events = gateway.usage_events();
    let event = |key: &str| events.iter().find(|event| event["key"] == key).expect("an event").clone();
    let tokens = |event: &Value| {
        event["input_tokens"].as_u64().expect("a count") + event["output_tokens"].as_u64().expect("a count")
    };
    let (old, new) = (event("old"), event("new"));
    assert_eq!(old["cost_micro_usd"], tokens(&old), "at the price of its admission");
    assert_eq!(new["cost_micro_usd"], 7 * tokens(&new));
    assert_eq!(gateway.store.open_reservations(), 0);
}

#[tokio::test]
async fn a_provider_that_moves_is_called_where_it_is_now() {
    let gateway = Gateway::start(options("", &["k"]));
    assert_eq!(status(&gateway, "k").await, 200);
    let other = Mock::start(Options { api_key: Some(PROVIDER_KEY.to_owned()), ..Options::default() })
        .expect("a second mock");
    gateway.reload_towards(&options("", &["k"]), &other.base_url()).expect("taken over");
    assert_eq!(status(&gateway, "k").await, 200);
    assert_eq!((gateway.mock.requests().len(), other.requests().len()), (1, 1));
}

#[tokio::test]
async fn what_cannot_be_taken_over_whole_changes_nothing() {
    let gateway = Gateway::start(options("requests_per_minute = 50", &["k"]));
    assert_eq!(readiness(&gateway).await["config"], "ok");
    let moved = GatewayOptions { server: "max_connections = 7".to_owned(), ..options("", &["k", "new"]) };
    let error = gateway.reload(&moved).expect_err("the listener cannot follow");
    assert!(matches!(&error, ReloadError::NeedsRestart { sections } if *sections == ["[server]"]));
    let told = readiness(&gateway).await;
    assert_eq!(told["config"], "rejected");
    assert!(told["config_problem"].as_str().is_some_and(|problem| problem.contains("[server]")), "{told}");
    assert_eq!(status(&gateway, "new").await, 401, "no part of it is in use");
    assert_eq!(status(&gateway, "k").await, 200);

    gateway.reload(&options("requests_per_minute = 50", &["k", "new"])).expect("taken over");
    assert_eq!(readiness(&gateway).await["config"], "ok");
    assert_eq!(status(&gateway, "new").await, 200);
}

#[tokio::test]
async fn reloads_under_load_lose_no_request_and_no_count() {
    const CALLS: u64 = 120;
    let limits = |amount: u64| options(&format!("requests_per_minute = {amount}"), &["k"]);
    let gateway = Arc::new(Gateway::start(GatewayOptions { workers: 2, ..limits(CALLS) }));
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..CALLS {
        let gateway = gateway.clone();
        calls.spawn(async move { status(&gateway, "k").await });
    }
    for amount in 0..20 {
        gateway.reload(&limits(CALLS + amount)).expect("taken over");
        tokio::task::yield_now().await;
    }
    while let Some(status) = calls.join_next().await {
        assert_eq!(status.expect("no panic"), 200);
    }
    let counter = gateway.counter("t", "requests", "minute", CALLS).await;
    assert_eq!((counter.spent.units(), counter.held.get()), (CALLS, 0));
    gateway.reload(&limits(CALLS)).expect("taken over");
    assert_eq!(status(&gateway, "k").await, 429);
}
