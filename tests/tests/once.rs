//! Requests that name themselves with `idempotency-key`.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use serde_json::{Value, json};
use tollgate_tests::{Client, Gateway, GatewayOptions, UNIT_PRICES, eventually, json_request};

const PATH: &str = "/v1/messages";
const HANGING: [&str; 2] = ["idempotency-key: one", "x-mock-first-byte-delay-ms: 60000"];
const ANSWERED: [&str; 3] = ["idempotency-key: one", "x-mock-input-tokens: 10", "x-mock-output-tokens: 10"];

fn gateway() -> Gateway {
    Gateway::start(GatewayOptions {
        config: "[[tenants]]\nid = \"t\"\n[[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = 1\n\
                 [[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n\
                 [[tenants.keys]]\nid = \"k2\"\nkey_env = \"other_key\"\n"
            .to_owned(),
        prices: Some(UNIT_PRICES.to_owned()),
        ..GatewayOptions::default()
    })
}

fn body() -> Value {
    json!({"model": "unit", "max_tokens": 10, "messages": [{"role": "user", "content": "Hello"}]})
}

async fn held(gateway: &Gateway) -> (u64, u64) {
    let counter = gateway.counter("t", "micro_usd", "day", 1_000_000).await;
    (counter.held.get(), counter.spent.units())
}

#[tokio::test]
async fn c130_a_retry_with_the_same_key_while_the_first_is_open_reserves_and_sends_nothing() {
    let gateway = gateway();
    let client = Client::new(gateway.address());
    let mut first = client.connect().await;
    first.write(&json_request(PATH, "key_of_t", &body(), &HANGING)).await;
    eventually("the first is open", || gateway.mock.counts().requests == 1).await;
    let (once, _) = held(&gateway).await;
    assert!(once > 0);
    let retry = client.post(PATH, "key_of_t", &body(), &ANSWERED).await;
    assert_eq!((retry.status, retry.header("x-tollgate-reason")), (429, "request_in_flight"));
    assert_eq!((retry.header("retry-after"), retry.header("x-should-retry")), ("1", ""));
    assert_eq!((held(&gateway).await, gateway.mock.counts().requests), ((once, 0), 1));
    // Another name, the same name of another key, no name, and what costs nothing are other requests.
    let other = ["idempotency-key: two", ANSWERED[1], ANSWERED[2]];
    assert_eq!(client.post(PATH, "key_of_t", &body(), &other).await.status, 200);
    assert_eq!(client.post(PATH, "other_key", &body(), &ANSWERED).await.status, 200);
    assert_eq!(client.post(PATH, "key_of_t", &body(), &ANSWERED[1..]).await.status, 200);
    let counting = client.post("/v1/messages/count_tokens", "key_of_t", &body(), &ANSWERED).await;
    assert_eq!(counting.status, 200);
    assert_eq!(held(&gateway).await, (once, 60));
}

#[tokio::test]
async fn c130_each_attempt_that_the_provider_may_bill_is_settled_once_and_a_failed_one_is_free() {
    let gateway = gateway();
    let client = Client::new(gateway.address());
    let mut first = client.connect().await;
    first.write(&json_request(PATH, "key_of_t", &body(), &HANGING)).await;
    eventually("the first is open", || gateway.mock.counts().requests == 1).await;
    let (reserved, _) = held(&gateway).await;
    drop(first);
    eventually("the first is settled", || gateway.store.open_reservations() == 0).await;
    // It has gone to the provider, which may bill it; the repetition has a reservation of its own.
    assert_eq!(held(&gateway).await, (0, reserved));
    let failing = ["idempotency-key: one", "x-mock-status: 500"];
    assert_eq!(client.post(PATH, "key_of_t", &body(), &failing).await.status, 500);
    assert_eq!(client.post(PATH, "key_of_t", &body(), &ANSWERED).await.status, 200);
    assert_eq!(held(&gateway).await, (0, reserved + 20));
    let sent = gateway.mock.requests();
    let name =
        |index: usize| sent[index].headers.get("idempotency-key").map(|value| value.as_bytes().to_vec());
    assert!((0..3).all(|index| name(index) == Some(b"one".to_vec())), "the provider gets the name too");
}
