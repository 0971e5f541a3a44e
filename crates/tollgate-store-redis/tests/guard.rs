//! What a copy tells a Redis that knows nothing, and what it says of one that it cannot see.

#![expect(
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

use std::{
    future::Future,
    num::NonZeroU64,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::task::JoinSet;
use tollgate_limiter::{
    Admission, Amount, CounterKey, Enforcement, Entry, ExactAmount, Limit, Period, Plan, ReservationId, Rule,
    TimestampMs, Verdict,
};
use tollgate_store::{Attempt, Clock as _, FailurePolicy, Held, Store, SystemClock};
use tollgate_store_redis::{Guard, SharedStore, Spend, Told, testing::RedisServer};

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
        (0..budgets).for_each(|number| each(None, &budget(number), now..=now, ExactAmount::whole(7)));
        Ok(())
    };
    start(server, Arc::new(spent), clock)
}

/// The only copy.
fn start(server: &RedisServer, spent: Arc<Told>, clock: Arc<SystemClock>) -> SharedStore {
    let guard = Guard { copy: "one".into(), copies: NonZeroU64::MIN, spent };
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

/// Calls without a hard budget go on while Redis is emptied and told what was spent, again and again: each counts once,
/// whether it ended before, between or after.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_that_pass_while_an_emptied_redis_is_told_count_once() {
    let server = RedisServer::start().unwrap();
    let soft = Arc::new(Limit { enforcement: Enforcement::Soft, ..Limit::clone(&budget(0)) });
    let events: Arc<Mutex<Vec<(ReservationId, TimestampMs)>>> = Arc::default();
    let clock = Arc::new(SystemClock::new());
    let spent = {
        let (soft, events) = (Arc::clone(&soft), Arc::clone(&events));
        move |each: Spend<'_>| {
            let events = events.lock().unwrap();
            events.iter().for_each(|(call, at)| each(Some(*call), &soft, *at..=*at, ExactAmount::whole(3)));
            Ok(())
        }
    };
    let shared = start(&server, Arc::new(spent), clock);
    let store = shared.store();
    let is_ready = async || says(&server, &["EXISTS", "tollgate:ready"], |exists| exists == "1");
    until(is_ready).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for client in 0..4 {
        let (store, soft, events, is_over) = (store.clone(), soft.clone(), events.clone(), is_over.clone());
        clients.spawn(async move {
            for call in 0.. {
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
                let id = ReservationId::new(client << 32 | call);
                let entry = Entry { limit: Arc::clone(&soft), charge: Amount::new(5) };
                let plan = Arc::new(Plan::new(vec![entry]).unwrap());
                let verdict = store.reserve(id, Arc::clone(&plan), Attempt::First).await;
                let Ok(Verdict::Admitted(Admission { at, .. })) = verdict else { continue };
                tokio::time::sleep(PAUSE).await;
                // As a call that ends: its event is written, and then it is settled.
                events.lock().unwrap().push((id, at));
                let _ = store.settle(&Held { id, plan, at }, &[ExactAmount::whole(3)]).await;
            }
        });
    }
    for _ in 0..3 {
        let before = events.lock().unwrap().len();
        until(async || events.lock().unwrap().len() > before + 20).await;
        server.command(&["FLUSHALL"]).unwrap();
        until(is_ready).await;
    }
    is_over.store(true, Ordering::SeqCst);
    while clients.join_next().await.is_some() {}
    until(async || store.waiting() == 0).await;
    let view = store.inspect(&[soft]).await.unwrap().remove(0);
    let ended = u64::try_from(events.lock().unwrap().len()).unwrap();
    assert_eq!((view.spent, view.held), (ExactAmount::whole(3 * ended), Amount::ZERO), "{ended} calls");
    assert!(store.status().available && store.status().outages == 0);
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
