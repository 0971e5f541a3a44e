//! Streams whose reservation grows in a store that takes its time, loses its answers, or is away.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tollgate_limiter::{Amount, ExactAmount, Limit, Plan, ReservationId, Verdict};
use tollgate_store::{Attempt, CounterView, Held, MemoryStore, Settled, Store, StoreError, StoreFuture};
use tollgate_tests::{
    BeforeStore, Client, Gateway, GatewayOptions, PATIENCE, UNIT_PRICES, eventually, json_request,
};

const LONG: [&str; 3] = ["x-mock-output-tokens: 4000", "x-mock-events: 200", "x-mock-interval-ms: 1"];

/// A store in memory, of which an extension goes another way.
struct Before {
    store: Arc<MemoryStore>,
    extend: fn(&Arc<MemoryStore>, Held, u32, Vec<Amount>) -> StoreFuture<'static, Verdict>,
}

impl Store for Before {
    fn reserve(&self, id: ReservationId, plan: Arc<Plan>, attempt: Attempt) -> StoreFuture<'_, Verdict> {
        self.store.reserve(id, plan, attempt)
    }

    fn extend(&self, held: &Held, step: u32, charges: &[Amount]) -> StoreFuture<'_, Verdict> {
        (self.extend)(&self.store, held.clone(), step, charges.to_vec())
    }

    fn settle(&self, held: &Held, actuals: &[ExactAmount]) -> StoreFuture<'static, Settled> {
        self.store.settle(held, actuals)
    }

    fn inspect(&self, limits: &[Arc<Limit>]) -> StoreFuture<'_, Vec<CounterView>> {
        self.store.inspect(limits)
    }
}

/// Waits for a hundred turns of the other tasks, and has then made the step.
fn slow(
    store: &Arc<MemoryStore>,
    held: Held,
    step: u32,
    charges: Vec<Amount>,
) -> StoreFuture<'static, Verdict> {
    let store = store.clone();
    StoreFuture::waiting(async move {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        store.extend(&held, step, &charges).await
    })
}

/// Makes the step, and loses two of three answers.
fn forgetful(
    store: &Arc<MemoryStore>,
    held: Held,
    step: u32,
    charges: Vec<Amount>,
) -> StoreFuture<'static, Verdict> {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let store = store.clone();
    StoreFuture::waiting(async move {
        let answer = store.extend(&held, step, &charges).await;
        let is_lost = !ASKED.fetch_add(1, Ordering::SeqCst).is_multiple_of(3);
        if is_lost { Err(StoreError::Unknown("lost".to_owned())) } else { answer }
    })
}

fn away(_: &Arc<MemoryStore>, _: Held, _: u32, _: Vec<Amount>) -> StoreFuture<'static, Verdict> {
    StoreFuture::ready(Err(StoreError::NotApplied("away".to_owned())))
}

/// A store that has answered no more for a while: what it is asked for it does, and tells nobody, or late.
struct Frozen(Arc<MemoryStore>);

/// Longer than the drain that it outlasts.
const FROZEN_FOR: Duration = Duration::from_millis(1_500);

impl Store for Frozen {
    fn reserve(&self, id: ReservationId, plan: Arc<Plan>, attempt: Attempt) -> StoreFuture<'_, Verdict> {
        let verdict = self.0.reserve(id, plan, attempt);
        StoreFuture::waiting(async move {
            drop(verdict);
            std::future::pending().await
        })
    }

    fn extend(&self, held: &Held, step: u32, charges: &[Amount]) -> StoreFuture<'_, Verdict> {
        self.0.extend(held, step, charges)
    }

    fn settle(&self, held: &Held, actuals: &[ExactAmount]) -> StoreFuture<'static, Settled> {
        let (store, held, actuals) = (self.0.clone(), held.clone(), actuals.to_vec());
        StoreFuture::waiting(async move {
            tokio::time::sleep(FROZEN_FOR).await;
            store.settle(&held, &actuals).await
        })
    }

    fn inspect(&self, limits: &[Arc<Limit>]) -> StoreFuture<'_, Vec<CounterView>> {
        self.0.inspect(limits)
    }
}

static ASKED: AtomicU64 = AtomicU64::new(0);
static ANSWERS: Semaphore = Semaphore::const_new(0);

/// Answers when it is allowed to.
fn gated(
    store: &Arc<MemoryStore>,
    held: Held,
    step: u32,
    charges: Vec<Amount>,
) -> StoreFuture<'static, Verdict> {
    let store = store.clone();
    StoreFuture::waiting(async move {
        ASKED.fetch_add(1, Ordering::SeqCst);
        ANSWERS.acquire().await.expect("open").forget();
        store.extend(&held, step, &charges).await
    })
}

fn gateway(limit_usd: &str, before: BeforeStore, more: &str) -> Gateway {
    Gateway::start(options(limit_usd, before, more))
}

fn options(limit_usd: &str, before: BeforeStore, more: &str) -> GatewayOptions {
    GatewayOptions {
        config: format!(
            "[[tenants]]\nid = \"t\"\n[[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = {limit_usd}\n\
             [[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n"
        ),
        prices: Some(UNIT_PRICES.to_owned()),
        reservation: format!(
            "output_tokens = 100\nextend_tokens = {}",
            if more.is_empty() { "100" } else { more }
        ),
        before_store: Some(before),
        ..GatewayOptions::default()
    }
}

fn asking() -> Value {
    json!({"model": "unit", "max_tokens": 100_000, "stream": true, "messages": [{"role": "user", "content": "Hello"}]})
}

async fn stream(gateway: &Gateway) -> (String, Value) {
    let answer = Client::new(gateway.address()).post("/v1/messages", "key_of_t", &asking(), &LONG).await;
    assert_eq!((answer.status, answer.complete), (200, true));
    eventually("the call is settled", || gateway.store.open_reservations() == 0).await;
    let counter = gateway.counter("t", "micro_usd", "day", 1_000_000).await;
    assert_eq!((counter.spent.as_millionths(), counter.held.get()), (gateway.cost_pico_usd("t"), 0));
    (answer.text(), gateway.usage_events().pop().expect("an event"))
}

#[tokio::test]
async fn a_slow_store_delays_a_stream_and_changes_nothing_of_it() {
    let plain = gateway("1", |store| store, "");
    let slowed = gateway("1", |store| Arc::new(Before { store, extend: slow }), "");
    let ((expected, _), (text, event)) = (stream(&plain).await, stream(&slowed).await);
    assert_eq!(text, expected);
    assert!(event["reserved_micro_usd"].as_u64().unwrap() > 3_500, "{event}");
    let cut = gateway("0.002", |store| Arc::new(Before { store, extend: slow }), "");
    let (text, event) = stream(&cut).await;
    assert!(text.contains("budget_exceeded") && text.ends_with("\n\n"), "{text}");
    assert_eq!(event["outcome"], "cut_off");
}

#[tokio::test]
async fn a_step_whose_answer_is_lost_is_asked_for_again_and_charged_once() {
    // Enough for what the stream uses, and not for the half of its steps twice.
    let gateway = gateway("0.0045", |store| Arc::new(Before { store, extend: forgetful }), "");
    let (text, event) = stream(&gateway).await;
    assert!(text.contains("message_stop"), "{text}");
    assert!(event["reserved_micro_usd"].as_u64().unwrap() > 3_000, "{event}");
}

#[tokio::test]
async fn a_store_that_is_away_cuts_off_what_a_hard_budget_holds() {
    let gateway = gateway("1", |store| Arc::new(Before { store, extend: away }), "");
    let (text, event) = stream(&gateway).await;
    assert!(text.contains("store_unavailable") && text.contains("event: error"), "{text}");
    assert_eq!((&event["outcome"], &event["usage_estimated"]), (&json!("cut_off"), &json!(true)));
}

#[tokio::test]
async fn with_cutoff_off_a_stream_outlives_a_store_that_is_away() {
    let gateway = gateway("1", |store| Arc::new(Before { store, extend: away }), "2000\ncutoff = false");
    let (text, event) = stream(&gateway).await;
    assert!(text.contains("message_stop"), "{text}");
    assert_eq!(event["output_tokens"], 4_000);
}

#[tokio::test]
async fn while_the_store_is_asked_nothing_more_is_passed_on() {
    let gateway = gateway("1", |store| Arc::new(Before { store, extend: gated }), "");
    let mut connection = Client::new(gateway.address()).connect().await;
    connection.write(&json_request("/v1/messages", "key_of_t", &asking(), &LONG)).await;
    // All that the provider has is on its way, and the first step is asked for.
    gateway.mock.wait_for(PATIENCE, |counts| counts.events_sent > 200).await.expect("it is all sent");
    eventually("the store is asked", || ASKED.load(Ordering::SeqCst) == 1).await;
    connection.read_until("content_block_delta").await.expect("the first events");
    let passed = connection.read_so_far();
    assert!(passed.matches("content_block_delta").count() < 20, "{passed}");
    assert_eq!(ASKED.load(Ordering::SeqCst), 1);
    ANSWERS.add_permits(1_000);
    let answer = connection.answer().await.expect("the rest");
    assert!(answer.complete && answer.text().contains("message_stop"));
}

#[tokio::test]
async fn a_call_that_the_drain_cuts_while_the_store_is_asked_is_given_back_however_late() {
    let gateway = Arc::new(Gateway::start(GatewayOptions {
        server: "drain_seconds = 0".to_owned(),
        ..options("1", |store| Arc::new(Frozen(store)), "100")
    }));
    let mut connection = Client::new(gateway.address()).connect().await;
    connection.write(&json_request("/v1/messages", "key_of_t", &asking(), &LONG)).await;
    eventually("the call is reserved", || gateway.store.open_reservations() == 1).await;
    let stopping = gateway.clone();
    let stopped = tokio::task::spawn_blocking(move || stopping.stop()).await.expect("no panic");
    assert_eq!((stopped.connections_cut, gateway.store.open_reservations()), (1, 0));
    assert_eq!(gateway.counter("t", "micro_usd", "day", 1_000_000).await.held.get(), 0);
}
