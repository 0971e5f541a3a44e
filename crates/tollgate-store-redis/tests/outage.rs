//! What an outage costs once it is over.

#![expect(
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

use std::{cell::Cell, future::Future, net::Ipv4Addr, num::NonZeroU64, sync::Arc, time::Duration};

use tokio::net::TcpListener;
use tollgate_limiter::{
    Amount, CounterKey, Enforcement, Entry, ExactAmount, Limit, Period, Plan, ReservationId, Rule, Verdict,
};
use tollgate_store::{
    Attempt, Clock as _, FailurePolicy, FallbackStore, Held, Store, StoreError, SystemClock,
};
use tollgate_store_redis::{Guard, RedisStore, Settings, SharedStore, testing::RedisServer};

const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);

async fn until<F: Future<Output = bool>>(is_so: impl Fn() -> F) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
}

const A_DAY: Duration = Duration::from_secs(86_400);

/// So short a time-out that a silence is found out at once.
fn settings(server: &RedisServer) -> Settings {
    Settings { timeout: Duration::from_millis(200), ..server.settings("tollgate") }
}

fn share(server: &RedisServer, retry: Duration) -> SharedStore {
    let policy = FailurePolicy {
        retry,
        local_share: NonZeroU64::MIN,
        closed: false,
        remembered: Duration::from_secs(540),
    };
    let guard = Guard { copy: "one".into(), copies: NonZeroU64::MIN, spent: Arc::new(|_| Ok(())) };
    SharedStore::start(&settings(server), policy, Some(guard), Arc::new(SystemClock::new())).unwrap()
}

async fn decide(store: &FallbackStore) -> Option<Held> {
    let (key, rule) = (CounterKey::new("acme", "usd"), Rule::Calendar(Period::Day));
    let limit = Arc::new(Limit { key, rule, amount: Amount::new(10), enforcement: Enforcement::Hard });
    let plan = Arc::new(Plan::new(vec![Entry { limit, charge: Amount::new(1) }]).unwrap());
    let id = ReservationId::new(1);
    match store.reserve(id, Arc::clone(&plan), Attempt::First).await {
        Ok(Verdict::Admitted(admission)) => Some(Held { id, plan, at: admission.at }),
        _ => None,
    }
}

async fn is_decided(store: &FallbackStore) -> bool {
    decide(store).await.is_some()
}

/// How many connections the server has taken, without the one that asks.
fn taken(server: &RedisServer) -> u64 {
    let stats = server.command(&["INFO", "stats"]).unwrap();
    let line = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:")).unwrap();
    line.trim().parse::<u64>().unwrap() - 1
}

/// In place of a server: ends so many connections at once that ever later come. What is asked meanwhile has no answer.
async fn refuse(port: u16, attempts: usize) {
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.unwrap();
    for _ in 0..attempts {
        drop(nobody.accept().await.unwrap());
    }
}

/// The longer the outage, the more there was that could have asked for a new connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_was_asked_in_an_outage_asks_for_no_connections_after_it() {
    // Of the store's own connection and that of this runtime; pauses double from a tenth of a second.
    const ATTEMPTS: usize = 9;
    let mut server = RedisServer::start_with(&["--save", "", "--appendonly", "yes"]).unwrap();
    let shared = share(&server, Duration::from_millis(20));
    let store = shared.store();
    until(|| async { is_decided(&store).await && shared.has_own_connection() }).await;
    server.kill();
    let asking = {
        let store = store.clone();
        tokio::spawn(async move { until(|| async { is_decided(&store).await }).await })
    };
    refuse(server.port(), ATTEMPTS).await;
    server.restart().unwrap();
    asking.await.unwrap();
    until(|| async { is_decided(&store).await && shared.has_own_connection() }).await;
    for _ in 0..20 {
        assert!(is_decided(&store).await, "it was back");
        tokio::time::sleep(PAUSE).await;
    }
    let taken = taken(&server);
    // The start asks on one. That of the runtime is made anew once another server was seen to answer.
    assert!(taken <= 5, "{taken} connections");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn settlements_that_wait_show_that_the_store_is_back_when_there_is_a_connection() {
    let mut server = RedisServer::start_with(&["--save", "", "--appendonly", "yes"]).unwrap();
    let shared = share(&server, A_DAY);
    let store = shared.store();
    until(|| is_decided(&store)).await;
    let held = decide(&store).await.unwrap();
    server.kill();
    assert!(store.settle(&held, &[ExactAmount::whole(1)]).await.is_err());
    refuse(server.port(), 3).await;
    assert!(!is_decided(&store).await && store.waiting() == 1);
    server.restart().unwrap();
    until(|| is_decided(&store)).await;
    assert_eq!(store.waiting(), 0);
}

#[tokio::test]
async fn without_a_connection_nothing_waits_for_one() {
    let mut server = RedisServer::start().unwrap();
    let store = RedisStore::connect(&settings(&server)).unwrap();
    store.connected().await.unwrap();
    assert_eq!(store.evicting_policy().await.unwrap(), None);
    server.kill();
    until(|| async { matches!(store.evicting_policy().await, Err(StoreError::NotApplied(_))) }).await;
    let clock = SystemClock::new();
    for _ in 0..1_000 {
        assert!(matches!(store.evicting_policy().await, Err(StoreError::NotApplied(_))));
    }
    let took = clock.elapsed();
    assert!(took < Duration::from_secs(10), "a thousand time-outs would take 100 s: {took:?}");
}

/// A server that is there and cannot be used is not asked again and again without a pause.
#[tokio::test]
async fn attempts_at_a_server_that_is_no_cluster_are_paced() {
    const ATTEMPTS: u64 = 6;
    let server = RedisServer::start().unwrap();
    let url = format!("redis-cluster://127.0.0.1:{}", server.port());
    let clock = SystemClock::new();
    let before = taken(&server);
    let _store = RedisStore::connect(&Settings { url, ..settings(&server) }).unwrap();
    let asked = Cell::new(0);
    until(|| async {
        asked.set(asked.get() + 1);
        taken(&server) - before - asked.get() >= ATTEMPTS
    })
    .await;
    let took = clock.elapsed();
    assert!(took > Duration::from_millis(2_500), "{ATTEMPTS} attempts in {took:?}");
}
