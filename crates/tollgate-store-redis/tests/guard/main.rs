//! What a copy tells a Redis that knows nothing, and what it says of one that it cannot see.

#![expect(
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

mod telling;

use std::{future::Future, num::NonZeroU64, sync::Arc, time::Duration};

use tollgate_limiter::{
    Amount, CounterKey, Enforcement, Entry, ExactAmount, Limit, Period, Plan, ReservationId, Rule, Verdict,
};
use tollgate_store::{Attempt, Clock as _, FailurePolicy, Store, SystemClock};
use tollgate_store_redis::{
    Guard, Settings, SharedStore, Spend,
    testing::{RedisCluster, RedisServer},
};

const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(1);

fn budget(number: usize) -> Arc<Limit> {
    let (key, rule) =
        (CounterKey::new(format!("tenant {number}"), "micro_usd:day"), Rule::Calendar(Period::Day));
    Arc::new(Limit { key, rule, amount: Amount::new(1_000), enforcement: Enforcement::Hard })
}

/// A copy that has spent 7 of each of so many budgets.
fn copy(server: &RedisServer, budgets: usize) -> SharedStore {
    copy_of(&server.settings("tollgate"), "one", NonZeroU64::MIN, budgets)
}

/// One of several.
fn copy_of(settings: &Settings, name: &str, copies: NonZeroU64, budgets: usize) -> SharedStore {
    let clock = Arc::new(SystemClock::new());
    let now = clock.now();
    let spent = move |each: Spend<'_>| {
        (0..budgets).for_each(|number| each(None, &budget(number), now..=now, ExactAmount::whole(7)));
        Ok(())
    };
    start(settings, Guard { copy: name.into(), copies, spent: Arc::new(spent) }, clock)
}

fn start(settings: &Settings, guard: Guard, clock: Arc<SystemClock>) -> SharedStore {
    let policy = FailurePolicy {
        retry: Duration::from_millis(100),
        local_share: NonZeroU64::MIN,
        closed: false,
        remembered: Duration::from_secs(540),
    };
    SharedStore::start(settings, policy, Some(guard), clock).unwrap()
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
    assert!(
        says(&server, &["HLEN", "tollgate:told:one"], |parts| parts == "1"),
        "a note that it has told all"
    );
    let entry = Entry { limit: budget(1), charge: Amount::new(994) };
    let plan = Arc::new(Plan::new(vec![entry]).unwrap());
    let verdict = store.reserve(ReservationId::new(1), plan, Attempt::First).await.unwrap();
    assert!(matches!(verdict, Verdict::Refused(_)), "7 of 1,000 are spent: {verdict:?}");
}

/// What is spent of the first budget.
async fn spent(store: &impl Store) -> u64 {
    store.inspect(&[budget(0)]).await.unwrap()[0].spent.units()
}

/// The mark says that what the copies told is there: those that were told of are only gone from among them.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn copies_that_are_gone_while_the_mark_is_there_are_not_told_again() {
    let server = RedisServer::start().unwrap();
    let two = NonZeroU64::new(2).unwrap();
    let settings = server.settings("tollgate");
    let shared = ["one", "two"].map(|name| copy_of(&settings, name, two, 1));
    let store = shared[0].store();
    let has_copies =
        async |wanted: &str| says(&server, &["HLEN", "tollgate:copies"], |copies| copies == wanted);
    until(async || says(&server, &["EXISTS", "tollgate:ready"], |exists| exists == "1")).await;
    assert_eq!(spent(&store).await, 14);
    // As left by a version that leaves no notes: they are there before anything is lost.
    server.command(&["DEL", "tollgate:told:one", "tollgate:told:two"]).unwrap();
    let notes = ["EXISTS", "tollgate:told:one", "tollgate:told:two"];
    until(async || says(&server, &notes, |notes| notes == "2")).await;
    for _ in 0..2 {
        server.command(&["DEL", "tollgate:copies"]).unwrap();
        until(async || has_copies("2").await).await;
    }
    server.command(&["HDEL", "tollgate:copies", "two"]).unwrap();
    until(async || has_copies("2").await).await;
    assert_eq!(spent(&store).await, 14);

    // A copy that is new tells.
    let three = copy_of(&settings, "three", two, 1);
    until(async || has_copies("3").await).await;
    assert_eq!(spent(&store).await, 21);
    drop(three);

    // Deleted one after the other, whichever is first, all is told again.
    let counter = "tollgate:{tenant 0}:c:micro_usd:day";
    for [first, other] in [["copies", "ready"], ["ready", "copies"]] {
        server.command(&["DEL", &format!("tollgate:{first}")]).unwrap();
        let is_back = if first == "copies" { "2" } else { "1" };
        let command = if first == "copies" { "HLEN" } else { "EXISTS" };
        until(async || says(&server, &[command, &format!("tollgate:{first}")], |found| found == is_back))
            .await;
        server.command(&["DEL", &format!("tollgate:{other}"), counter]).unwrap();
        until(async || has_copies("2").await && spent(&store).await == 14).await;
        until(async || says(&server, &["EXISTS", "tollgate:ready"], |exists| exists == "1")).await;
    }
    assert_eq!(spent(&store).await, 14);
    // And in one command.
    server.command(&["DEL", "tollgate:ready", "tollgate:copies", counter]).unwrap();
    until(async || says(&server, &["EXISTS", "tollgate:ready"], |exists| exists == "1")).await;
    assert_eq!(spent(&store).await, 14);
}

/// Each tag has copies and a mark of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn copies_that_are_gone_in_a_cluster_are_not_told_again() {
    let cluster = RedisCluster::start(3).unwrap();
    let shared = copy_of(&cluster.settings("tollgate"), "one", NonZeroU64::MIN, 20);
    let of_kind = |kind: &str| {
        let mut keys = cluster.keys().unwrap();
        keys.retain(|(_, key)| key.ends_with(kind));
        keys
    };
    until(async || of_kind(":ready").len() == 256).await;
    for (node, key) in of_kind(":copies") {
        cluster.nodes()[node].command(&["DEL", &key]).unwrap();
    }
    until(async || of_kind(":copies").len() == 256).await;
    let budgets: Vec<_> = (0..20).map(budget).collect();
    for view in shared.store().inspect(&budgets).await.unwrap() {
        assert_eq!(view.spent, ExactAmount::whole(7), "{:?}", view.key);
    }
}

/// Where neither copies nor a note of one is there, what the mark says counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_copy_that_finds_the_mark_only_tells_nothing() {
    let server = RedisServer::start().unwrap();
    let shared = copy(&server, 1);
    let store = shared.store();
    let is_among = async || says(&server, &["HEXISTS", "tollgate:copies", "one"], |is| is == "1");
    until(is_among).await;
    server.command(&["DEL", "tollgate:copies", "tollgate:told:one"]).unwrap();
    until(is_among).await;
    assert_eq!(spent(&store).await, 7);
}

/// What lies under a counter's key is not replaced by what a copy tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_told_does_not_replace_what_is_no_counter() {
    let server = RedisServer::start().unwrap();
    let counter = "tollgate:{tenant 0}:c:micro_usd:day";
    server.command(&["HSET", counter, "field", "value"]).unwrap();
    let shared = copy(&server, 1);
    // Nothing else looks whether a key is there.
    until(async || says(&server, &["INFO", "commandstats"], |calls| calls.contains("cmdstat_exists:"))).await;
    assert_eq!(server.command(&["HGET", counter, "field"]).unwrap(), "value");
    assert!(says(&server, &["EXISTS", "tollgate:ready"], |exists| exists == "0"));
    server.command(&["DEL", counter]).unwrap();
    until(async || says(&server, &["EXISTS", "tollgate:ready"], |exists| exists == "1")).await;
    assert_eq!(spent(&shared.store()).await, 7);
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

/// Nor has anybody for it to be known that it is back, of what a call has found out.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_end_of_an_outage_that_a_call_has_found_is_noticed_without_another() {
    let mut server = RedisServer::start().unwrap();
    let shared = copy(&server, 1);
    let store = shared.store();
    until(async || store.status().available).await;
    server.kill();
    let plan = Arc::new(Plan::new(vec![Entry { limit: budget(0), charge: Amount::new(1) }]).unwrap());
    let refused = async || {
        store.reserve(ReservationId::new(1), Arc::clone(&plan), Attempt::First).await.is_err()
            && store.status().outages == 1
    };
    until(refused).await;
    server.restart().unwrap();
    until(async || store.status().available).await;
    assert_eq!((store.status().outages, store.waiting()), (1, 0));
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
