//! What a copy tells a Redis that knows nothing, and what it says of one that it cannot see.

#![expect(
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

use std::{future::Future, num::NonZeroU64, sync::Arc, time::Duration};

use tollgate_limiter::{
    Amount, CounterKey, Enforcement, Entry, ExactAmount, Limit, Period, Plan, ReservationId, Rule, Verdict,
};
use tollgate_store::{Attempt, Clock as _, FailurePolicy, Store, SystemClock};
use tollgate_store_redis::{Guard, SharedStore, Spend, testing::RedisServer};

const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(1);

fn budget(number: usize) -> Arc<Limit> {
    let (key, rule) =
        (CounterKey::new(format!("tenant {number}"), "micro_usd:day"), Rule::Calendar(Period::Day));
    Arc::new(Limit { key, rule, amount: Amount::new(1_000), enforcement: Enforcement::Hard })
}

/// A copy that has spent 7 of each of so many budgets.
fn copy(server: &RedisServer, budgets: usize) -> SharedStore {
    let clock = Arc::new(SystemClock::new());
    let now = clock.now();
    let spent = move |each: Spend<'_>| {
        (0..budgets).for_each(|number| each(&budget(number), now..=now, ExactAmount::whole(7)));
        Ok(())
    };
    let guard = Guard { copy: "one".into(), copies: NonZeroU64::MIN, spent: Arc::new(spent) };
    let policy = FailurePolicy {
        retry: Duration::from_millis(100),
        local_share: NonZeroU64::MIN,
        closed: false,
        remembered: Duration::from_secs(540),
    };
    SharedStore::start(&server.settings("tollgate"), policy, Some(guard), clock).unwrap()
}

async fn until<F: Future<Output = bool>>(is_so: impl Fn() -> F) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
}

fn says(server: &RedisServer, words: &[&str], wanted: impl Fn(&str) -> bool) -> bool {
    server.command(words).is_ok_and(|answer| wanted(answer.trim()))
}

/// All that a copy told is lost before it has told the rest: it tells everything once more, and each once.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_lost_while_it_is_told_is_told_again() {
    const BUDGETS: usize = 10_000;
    let server = RedisServer::start().unwrap();
    let shared = copy(&server, BUDGETS);
    let store = shared.store();
    until(async || {
        says(&server, &["HLEN", "tollgate:told:one"], |parts| parts.parse::<u32>().unwrap() > 100)
    })
    .await;
    server.command(&["FLUSHALL"]).unwrap();
    until(async || says(&server, &["EXISTS", "tollgate:ready"], |exists| exists == "1")).await;

    let all: Vec<_> = (0..BUDGETS).map(budget).collect();
    for some in all.chunks(500) {
        for view in store.inspect(some).await.unwrap() {
            assert_eq!(view.spent, ExactAmount::whole(7));
        }
    }
    assert!(says(&server, &["EXISTS", "tollgate:told:one"], |exists| exists == "0"), "it is needed no more");
    let entry = Entry { limit: budget(1), charge: Amount::new(994) };
    let plan = Arc::new(Plan::new(vec![entry]).unwrap());
    let verdict = store.reserve(ReservationId::new(1), plan, Attempt::First).await.unwrap();
    assert!(matches!(verdict, Verdict::Refused(_)), "7 of 1,000 are spent: {verdict:?}");
}

/// Nobody has to call for it to be known that there is no Redis.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_redis_that_is_away_is_noticed_without_a_call() {
    let mut server = RedisServer::start().unwrap();
    let shared = copy(&server, 1);
    let store = shared.store();
    until(async || store.status().available).await;
    server.freeze().unwrap();
    until(async || !store.status().available).await;
    server.thaw().unwrap();
    until(async || store.status().available).await;
    server.kill();
    until(async || !store.status().available).await;
    server.restart().unwrap();
    until(async || store.status().available).await;
    assert_eq!(store.status().outages, 0, "no call has failed");
}

/// What a full Redis does may be set while it runs, for the worse and for the better.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_policy_that_evicts_is_warned_of_for_as_long_as_it_is_set() {
    let server = RedisServer::start().unwrap();
    let shared = copy(&server, 1);
    let store = shared.store();
    until(async || store.status().available).await;
    assert_eq!(store.status().warning, None);
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap();
    until(async || store.status().warning.is_some_and(|warning| warning.contains("allkeys-lru"))).await;
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap();
    until(async || store.status().warning.is_none()).await;
}
