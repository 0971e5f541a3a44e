//! Runs: what one agent loop may use, and what it is told when that is used up.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use serde_json::{Value, json};
use tollgate_limiter::DurationMs;
use tollgate_tests::{Answer, Client, Gateway, GatewayOptions, UNIT_PRICES, count, parallel};

const KEYS: &str = "[[tenants]]\nid = \"t\"\n[[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n\
                    [[tenants.keys]]\nid = \"k2\"\nkey_env = \"other_key\"\n\
                    [[tenants]]\nid = \"u\"\n[[tenants.keys]]\nid = \"k3\"\nkey_env = \"key_of_u\"\n";
const SESSION: &[&str] = &["x-tollgate-session: s", "x-mock-input-tokens: 10", "x-mock-output-tokens: 30"];

fn options(runs: &str) -> GatewayOptions {
    GatewayOptions {
        config: format!("{KEYS}{runs}"),
        prices: Some(UNIT_PRICES.to_owned()),
        ..GatewayOptions::default()
    }
}

fn body() -> Value {
    json!({"model": "unit", "max_tokens": 10, "messages": [{"role": "user", "content": "Hello"}]})
}

async fn post(gateway: &Gateway, key: &str, headers: &[&str]) -> Answer {
    Client::new(gateway.address()).post("/v1/messages", key, &body(), headers).await
}

/// Checks that a loop is over, in the words of its protocol, and why.
fn check(refused: &Answer, why: &[&str]) {
    assert_eq!(
        (refused.status, refused.header("x-tollgate-reason")),
        (402, "run_exhausted"),
        "{}",
        refused.text()
    );
    assert_eq!((refused.header("x-should-retry"), refused.header("retry-after")), ("false", ""));
    assert_eq!(refused.json()["error"]["type"], "budget_exceeded");
    for word in why {
        assert!(refused.text().contains(word), "{word}: {}", refused.text());
    }
}

#[tokio::test]
async fn each_limit_of_a_run_ends_its_session_and_no_other() {
    for (limit, why) in [
        ("max_steps = 2", ["out of steps: limit 2 steps, used 2 steps", "`max_steps`"]),
        ("max_tokens = 70", ["out of tokens: limit 70 tokens, used 80 tokens", "`max_tokens`"]),
        ("budget_usd = 0.00007", ["out of USD: limit 0.000070 USD, used 0.000080 USD", "`budget_usd`"]),
        ("max_seconds = 90", ["may last 90.000 s, and began 120.000 s ago", "`max_seconds`"]),
    ] {
        let gateway = Gateway::start(options(&format!("[[runs]]\n{limit}\n")));
        for _ in 0..2 {
            assert_eq!(post(&gateway, "key_of_t", SESSION).await.status, 200, "{limit}");
            gateway.manual_clock().advance(DurationMs::new(60_000));
        }
        let refused = post(&gateway, "key_of_t", SESSION).await;
        check(&refused, &[why[0], why[1], "session `s`"]);
        let event = gateway.events().pop().expect("an event");
        assert_eq!((&event["type"], &event["reason"]), (&json!("refusal"), &json!("run_exhausted")));
        assert_eq!((&event["limit"]["scope"], &event["limit"]["window"]), (&json!("session"), &json!("run")));
        for (key, headers) in [("key_of_t", &["x-tollgate-session: other"][..]), ("key_of_u", SESSION)] {
            assert_eq!(post(&gateway, key, headers).await.status, 200, "{limit}");
        }
        // It is forgotten a day after its last call.
        gateway.manual_clock().advance(DurationMs::new(86_400_000));
        assert_eq!(post(&gateway, "key_of_t", SESSION).await.status, 200, "{limit}");
    }
}

#[tokio::test]
async fn a_run_is_for_everybody_or_for_a_tenant_or_a_key() {
    let limits = "[[runs]]\nmax_steps = 3\n[[runs]]\ntenant = \"t\"\nmax_steps = 2\n\
                  [[runs]]\ntenant = \"t\"\nkey = \"k\"\nmax_steps = 1\n";
    let gateway = Gateway::start(options(limits));
    // Keys of a tenant share its session.
    let mut statuses = Vec::new();
    for key in
        ["key_of_t", "key_of_t", "other_key", "other_key", "key_of_u", "key_of_u", "key_of_u", "key_of_u"]
    {
        statuses.push(post(&gateway, key, SESSION).await.status);
    }
    assert_eq!(statuses, [200, 402, 200, 402, 200, 200, 200, 402]);
}

#[tokio::test]
async fn a_run_bounds_a_loop_that_names_no_session_and_counts_no_call_that_costs_nothing() {
    let gateway = Gateway::start(options("[[runs]]\nmax_steps = 2\n"));
    let client = Client::new(gateway.address());
    for _ in 0..3 {
        let counted = client.post("/v1/messages/count_tokens", "key_of_t", &body(), &[]).await;
        assert_eq!(counted.status, 200);
    }
    let statuses = parallel(&[&gateway], 6, &body(), &[]).await;
    assert_eq!((count(&statuses, 200), count(&statuses, 402)), (2, 4));
    let chat = client.post("/v1/chat/completions", "key_of_t", &body(), &[]).await;
    assert_eq!((chat.status, &chat.json()["error"]["code"]), (402, &json!("run_exhausted")));
}

#[tokio::test]
async fn a_run_with_a_budget_blocks_models_without_a_price() {
    for (limit, status) in [("budget_usd = 1", 402), ("max_steps = 1", 200)] {
        let gateway = Gateway::start(options(&format!("[[runs]]\n{limit}\n")));
        let mut unpriced = body();
        unpriced["model"] = json!("nobody");
        let answer =
            Client::new(gateway.address()).post("/v1/messages", "key_of_t", &unpriced, SESSION).await;
        assert_eq!(answer.status, status, "{limit}: {}", answer.text());
    }
}

#[tokio::test]
async fn what_open_calls_hold_of_a_run_may_come_back() {
    let gateway = Gateway::start(options("[[runs]]\nmax_tokens = 60\n"));
    let open = json!({"model": "unit", "max_tokens": 40, "messages": [{"role": "user", "content": "Hello"}]});
    let client = Client::new(gateway.address());
    let mut first = client.connect().await;
    let held = ["x-tollgate-session: s", "x-mock-first-byte-delay-ms: 60000"];
    first.write(&tollgate_tests::json_request("/v1/messages", "key_of_t", &open, &held)).await;
    tollgate_tests::eventually("the first call is open", || gateway.store.open_reservations() == 1).await;
    let refused = client.post("/v1/messages", "key_of_t", &open, SESSION).await;
    assert_eq!(
        (refused.status, refused.header("x-tollgate-reason")),
        (402, "run_exhausted"),
        "{}",
        refused.text()
    );
    assert_eq!(refused.header("retry-after"), "5");
    assert!(refused.text().contains("once open requests are settled"), "{}", refused.text());
}

#[tokio::test]
async fn a_run_goes_on_after_a_restart() {
    let all = ["max_steps = 2", "max_tokens = 79", "budget_usd = 0.000079", "max_seconds = 90"];
    let more = "[[runs]]\nmax_steps = 3\nmax_tokens = 200\nbudget_usd = 0.0002\nmax_seconds = 900\n";
    let first = Gateway::start(options(more));
    for _ in 0..2 {
        assert_eq!(post(&first, "key_of_t", SESSION).await.status, 200);
        first.manual_clock().advance(DurationMs::new(44_000));
    }
    let unbilled =
        Client::new(first.address()).post("/v1/messages/count_tokens", "key_of_t", &body(), SESSION).await;
    assert_eq!(unbilled.status, 200);
    first.stop();
    let again = |runs: &str| {
        Gateway::start(GatewayOptions { directory: Some(first.directory.clone()), ..options(runs) })
    };
    for limit in all {
        let gateway = again(&format!("[[runs]]\n{limit}\n"));
        // The clock of each gateway begins at the system's time, which is the time of the first call.
        gateway.manual_clock().advance(DurationMs::new(90_000));
        check(&post(&gateway, "key_of_t", SESSION).await, &["The run of session `s`"]);
        gateway.stop();
    }
    assert_eq!(post(&again(more), "key_of_t", SESSION).await.status, 200, "counting tokens is no step");
}
