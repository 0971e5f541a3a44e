//! A failover that a sentinel decides on: the store follows, with what was replicated.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

use std::{num::NonZeroU64, sync::Arc, time::Duration};

use tollgate_limiter::{
    Amount, CounterKey, Enforcement, Entry, ExactAmount, Limit, Period, Plan, ReservationId, Rule, Verdict,
};
use tollgate_store::{Attempt, FailurePolicy, FallbackStore, Held, Settled, Store, SystemClock};
use tollgate_store_redis::{Guard, RedisStore, Settings, SharedStore, testing::RedisServer};

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

/// Waits until the replica has all that the primary has.
async fn replicated(primary: &RedisServer, replica: &RedisServer) {
    let replicated = async {
        while !primary.is_replicated_by(replica).unwrap() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, replicated).await.expect("the replica has all of it");
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

/// A server with a replica, and a sentinel that knows both.
struct Watched {
    primary: RedisServer,
    replica: RedisServer,
    sentinel: RedisServer,
    settings: Settings,
}

impl Watched {
    async fn start() -> Self {
        let primary = RedisServer::start().unwrap();
        let port = primary.port().to_string();
        let replica = RedisServer::start_with(&["--save", "", "--replicaof", "127.0.0.1", &port]).unwrap();
        let sentinel = RedisServer::start_sentinel(&primary).unwrap();
        until(&replica, &["INFO", "replication"], |info| info.contains("master_link_status:up")).await;
        until(&sentinel, &["INFO", "sentinel"], |info| info.contains("slaves=1")).await;
        let url = format!("redis-sentinel://127.0.0.1:{}/0?sentinelServiceName=main", sentinel.port());
        let settings = Settings { url, ..primary.settings("tollgate") };
        Self { primary, replica, sentinel, settings }
    }
}

#[tokio::test]
async fn a_store_behind_a_sentinel_follows_a_failover_with_all_that_was_replicated() {
    let Watched { mut primary, replica, sentinel: _sentinel, settings } = Watched::start().await;
    let store = RedisStore::connect(&settings).unwrap();
    store.connected().await.unwrap();
    let Verdict::Admitted(admission) = reserve(&store, 1, &plan(60)).await else { panic!("60 of 100 fit") };
    replicated(&primary, &replica).await;

    primary.kill();
    assert!(matches!(reserve(&store, 2, &plan(50)).await, Verdict::Refused(_)), "60 are held");
    assert!(matches!(reserve(&store, 3, &plan(40)).await, Verdict::Admitted(_)));
    let held = Held { id: ReservationId::new(1), plan: plan(60), at: admission.at };
    assert_eq!(store.settle(&held, &[ExactAmount::whole(1)]).await.unwrap(), Settled::Applied);
    until(&replica, &["INFO", "replication"], |info| info.contains("role:master")).await;
}

/// The store of the only copy, which has spent nothing before.
fn one_copy(settings: &Settings) -> SharedStore {
    let policy = FailurePolicy {
        retry: Duration::from_millis(100),
        local_share: NonZeroU64::MIN,
        closed: false,
        remembered: Duration::from_secs(540),
    };
    let guard = Guard { copy: "one".into(), copies: NonZeroU64::MIN, spent: Arc::new(|_| Ok(())) };
    SharedStore::start(settings, policy, Some(guard), Arc::new(SystemClock::new())).unwrap()
}

/// A primary that comes back before it knows that it is one no more: whoever still spoke to it would spend beside the
/// budget. A runtime without calls has nothing that tells it.
#[tokio::test]
async fn an_idle_runtime_does_not_stay_with_a_primary_that_was_replaced() {
    let Watched { primary, replica, sentinel: _sentinel, settings } = Watched::start().await;
    let settings = Settings { timeout: Duration::from_millis(250), ..settings };
    let shared = one_copy(&settings);
    let store = shared.store();
    let spend = async |id: u128| {
        let held = admitted(&store, id, &plan(1)).await;
        while store.settle(&held, &[ExactAmount::whole(1)]).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    for id in 0..10 {
        spend(id).await;
    }
    let own = async {
        while !shared.has_own_connection() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, own).await.expect("a connection of this runtime's own");
    spend(10).await;
    replicated(&primary, &replica).await;

    primary.freeze().unwrap();
    until(&replica, &["INFO", "replication"], |info| info.contains("role:master")).await;
    // Another runtime has an answer, while the old primary gives none: the store's own thread has moved. This runtime
    // has not noticed.
    let elsewhere = store.clone();
    let moved = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let answered = async {
                while spent(&elsewhere).await.is_none() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            tokio::time::timeout(PATIENCE, answered).await.is_ok()
        })
    });
    assert!(moved.await.unwrap());
    primary.thaw().unwrap();
    let before = stored(&primary);
    for id in 11..31 {
        spend(id).await;
    }
    assert_eq!(stored(&primary), before, "nothing more was spent there");
    assert_eq!(spent(&store).await, Some((31, 0)));
}

/// The counter of the budget as it is stored.
fn stored(server: &RedisServer) -> String {
    server.command(&["GETRANGE", "tollgate:{acme}:c:usd", "17", "48"]).unwrap_or_default()
}

/// Calls that were settled while the replica was too slow to hear of it, and some that are open meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_a_failover_loses_is_sent_again_and_counted_once() {
    let Watched { mut primary, replica, sentinel: _sentinel, settings } = Watched::start().await;
    let shared = one_copy(&settings);
    let store = shared.store();
    let spend = async |id: u128| {
        let held = admitted(&store, id, &plan(1)).await;
        store.settle(&held, &[ExactAmount::whole(1)]).await.unwrap();
    };
    for id in 0..10 {
        spend(id).await;
    }
    replicated(&primary, &replica).await;
    // One whose reservation is replicated, and its end is not.
    let half = admitted(&store, 50, &plan(5)).await;
    replicated(&primary, &replica).await;
    // From now on nothing reaches it.
    replica.freeze().unwrap();
    primary.command(&["CLIENT", "KILL", "TYPE", "replica"]).unwrap();
    store.settle(&half, &[ExactAmount::whole(2)]).await.unwrap();
    for id in 10..30 {
        spend(id).await;
    }
    let open = admitted(&store, 100, &plan(3)).await;
    assert_eq!(spent(&store).await, Some((32, 3)));
    primary.kill();
    replica.thaw().unwrap();

    let repaired = async {
        while spent(&store).await != Some((32, 0)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, repaired).await.is_ok(), "{:?}", spent(&store).await);
    assert_eq!(store.repaired(), 21);
    // A call that is open has its use counted when it ends.
    while store.settle(&open, &[ExactAmount::whole(4)]).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(spent(&store).await, Some((36, 0)));
    assert_eq!(store.status().settlements_lost, 0);
}

/// The same reserve until it is answered.
async fn admitted(store: &FallbackStore, id: u128, plan: &Arc<Plan>) -> Held {
    let id = ReservationId::new(id);
    let answered = async {
        loop {
            match store.reserve(id, Arc::clone(plan), Attempt::Retry).await {
                Ok(Verdict::Admitted(admission)) => return admission.at,
                Ok(Verdict::Refused(refusal)) => panic!("{refusal:?}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let at = tokio::time::timeout(PATIENCE, answered).await.expect("an answer");
    Held { id, plan: Arc::clone(plan), at }
}

/// What is spent and held of the budget, if the store answers.
async fn spent(store: &FallbackStore) -> Option<(u64, u64)> {
    let limits = [Arc::clone(&plan(1).entries()[0].limit)];
    let view = store.inspect(&limits).await.ok()?.pop()?;
    Some((view.spent.units(), view.held.get()))
}
