//! A failover that a sentinel decides on: the store follows, with what was replicated.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

use std::{sync::Arc, time::Duration};

use tollgate_limiter::{
    Amount, CounterKey, Enforcement, Entry, ExactAmount, Limit, Period, Plan, ReservationId, Rule, Verdict,
};
use tollgate_store::{Attempt, Held, Settled, Store};
use tollgate_store_redis::{RedisStore, Settings, testing::RedisServer};

const PATIENCE: Duration = Duration::from_secs(30);

fn plan(charge: u64) -> Arc<Plan> {
    let limit = Arc::new(Limit {
        key: CounterKey::new("acme", "usd"),
        rule: Rule::Calendar(Period::Total),
        amount: Amount::new(100),
        enforcement: Enforcement::Hard,
    });
    Arc::new(Plan::new(vec![Entry { limit, charge: Amount::new(charge) }]).unwrap())
}

/// Waits until `words` to a server are answered with what `is_wanted`.
async fn until(server: &RedisServer, words: &[&str], is_wanted: impl Fn(&str) -> bool) {
    let wanted = async {
        while !server.command(words).is_ok_and(|answer| is_wanted(&answer)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, wanted).await.is_ok(), "{words:?}");
}

/// The same reserve again and again, until it is answered.
async fn reserve(store: &RedisStore, id: u128, plan: &Arc<Plan>) -> Verdict {
    let id = ReservationId::new(id);
    let answered = async {
        let mut attempt = Attempt::First;
        loop {
            match store.reserve(id, Arc::clone(plan), attempt).await {
                Ok(verdict) => return verdict,
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
            attempt = Attempt::Retry;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.expect("an answer")
}

#[tokio::test]
async fn a_store_behind_a_sentinel_follows_a_failover_with_all_that_was_replicated() {
    let mut primary = RedisServer::start().unwrap();
    let port = primary.port().to_string();
    let replica = RedisServer::start_with(&["--save", "", "--replicaof", "127.0.0.1", &port]).unwrap();
    let sentinel = RedisServer::start_sentinel(&primary).unwrap();
    until(&replica, &["INFO", "replication"], |info| info.contains("master_link_status:up")).await;
    until(&sentinel, &["INFO", "sentinel"], |info| info.contains("slaves=1")).await;

    let url = format!("redis-sentinel://127.0.0.1:{}/0?sentinelServiceName=main", sentinel.port());
    let store = RedisStore::connect(&Settings { url, ..primary.settings("tollgate") }).unwrap();
    store.connected().await.unwrap();
    let Verdict::Admitted(admission) = reserve(&store, 1, &plan(60)).await else { panic!("60 of 100 fit") };
    // Acknowledged by the replica.
    until(&primary, &["WAIT", "1", "1000"], |replicas| replicas == "1").await;

    primary.kill();
    assert!(matches!(reserve(&store, 2, &plan(50)).await, Verdict::Refused(_)), "60 are held");
    assert!(matches!(reserve(&store, 3, &plan(40)).await, Verdict::Admitted(_)));
    let held = Held { id: ReservationId::new(1), plan: plan(60), at: admission.at };
    assert_eq!(store.settle(&held, &[ExactAmount::whole(1)]).await.unwrap(), Settled::Applied);
    until(&replica, &["INFO", "replication"], |info| info.contains("role:master")).await;
}
