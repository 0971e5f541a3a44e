//! What a Redis server does to the store, and what the store leaves behind in it.

#![expect(
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

use std::{num::NonZeroU64, sync::Arc, time::Duration};

use tollgate_limiter::{
    Amount, CounterKey, DurationMs, Enforcement, Entry, ExactAmount, Limit, Period, Plan, ReservationId,
    Rule, TimestampMs, Verdict,
};
use tollgate_store::{
    Attempt, Clock, FailurePolicy, Held, ManualClock, Settled, Store, StoreError, SystemClock,
};
use tollgate_store_redis::{
    ConnectError, Guard, RedisStore, Settings, SharedStore, Spend, testing::RedisServer,
};

const MINUTE: DurationMs = DurationMs::new(60_000);

fn limit(name: &str, rule: Rule, amount: u64) -> Arc<Limit> {
    let key = CounterKey::new("acme", name);
    Arc::new(Limit { key, rule, amount: Amount::new(amount), enforcement: Enforcement::Hard })
}

fn plan(entries: &[(&Arc<Limit>, u64)]) -> Arc<Plan> {
    let entry = |&(limit, charge): &(&Arc<Limit>, u64)| Entry {
        limit: Arc::clone(limit),
        charge: Amount::new(charge),
    };
    Arc::new(Plan::new(entries.iter().map(entry).collect()).unwrap())
}

async fn connect(server: &RedisServer) -> RedisStore {
    let store = RedisStore::connect(&server.settings("tollgate")).unwrap();
    store.connected().await.unwrap();
    store
}

async fn reserve(store: &dyn Store, id: u128, plan: &Arc<Plan>) -> Option<Held> {
    let id = ReservationId::new(id);
    match store.reserve(id, Arc::clone(plan), Attempt::First).await.unwrap() {
        Verdict::Admitted(admission) => Some(Held { id, plan: Arc::clone(plan), at: admission.at }),
        Verdict::Refused(_) => None,
    }
}

/// Every key with the milliseconds it has to live.
fn lives_ms(server: &RedisServer) -> Vec<(String, i64)> {
    let keys = server.command(&["KEYS", "*"]).unwrap();
    let life = |key: &str| server.command(&["PTTL", key]).unwrap().parse().unwrap();
    keys.lines().map(|key| (key.to_owned(), life(key))).collect()
}

#[tokio::test]
async fn every_key_has_a_time_to_live() {
    let server = RedisServer::start().unwrap();
    let store = connect(&server).await;
    let limits = [
        limit("sliding", Rule::SlidingWindow { window: MINUTE }, 100),
        limit("bucketed", Rule::BucketedWindow { window: MINUTE }, 100),
        limit("token bucket", Rule::TokenBucket { window: MINUTE }, 100),
        limit("total", Rule::Calendar(Period::Total), 100),
        limit("month", Rule::Calendar(Period::Month), 100),
        limit("session", Rule::Idle { after: MINUTE }, 100),
        limit("run", Rule::Elapsed { after: MINUTE }, 100_000),
        limit("open", Rule::Concurrent, 100),
        limit("size", Rule::PerRequest, 100),
    ];
    let entries: Vec<_> = limits.iter().map(|limit| (limit, 10)).collect();
    let plan = plan(&entries);
    let open = reserve(&store, 1, &plan).await.unwrap();
    assert!(matches!(store.extend(&open, 1, &[Amount::new(1); 9]).await.unwrap(), Verdict::Admitted(_)));
    let over = reserve(&store, 2, &plan).await.unwrap();
    assert_eq!(store.settle(&over, &[ExactAmount::whole(3); 9]).await.unwrap(), Settled::Applied);
    let unseen = Held { id: ReservationId::new(3), ..over };
    assert_eq!(store.settle(&unseen, &[ExactAmount::ZERO; 9]).await.unwrap(), Settled::WithoutReservation);

    let lives_ms = lives_ms(&server);
    assert_eq!(lives_ms.len(), 8 + 3 + 1, "counters, records and extensions: {lives_ms:?}");
    for (key, life_ms) in lives_ms {
        assert!(life_ms > 0, "{key} lives {life_ms} ms");
    }
    // A reservation that was extended leaves only its end behind.
    store.settle(&open, &[ExactAmount::whole(1); 9]).await.unwrap();
    assert!(!server.command(&["KEYS", "*:x:*"]).unwrap().contains(":x:"));
}

/// An open reservation is known for a day, one that is over and a refusal that was repeated for ten minutes: by the quick
/// way of scripts and by the long one.
#[tokio::test]
async fn records_live_for_a_day_while_they_are_open_and_ten_minutes_afterwards() {
    const SOME_MS: i64 = 30_000;
    let server = RedisServer::start().unwrap();
    let store = connect(&server).await;
    let (quick, long) = (
        limit("day", Rule::Calendar(Period::Day), 100),
        limit("token bucket", Rule::TokenBucket { window: MINUTE }, 100),
    );
    let lives = |id: u128, wanted_ms: i64| {
        let id = format!("{id:032x}");
        let records: Vec<_> = lives_ms(&server).into_iter().filter(|(key, _)| key.contains(&id)).collect();
        assert_eq!(records.len(), 1, "{records:?}");
        for (key, life_ms) in records {
            assert!((wanted_ms - SOME_MS..=wanted_ms).contains(&life_ms), "{key} lives {life_ms} ms");
        }
    };
    // The first call makes the counter, the long way.
    for (first, limit) in [(10, &quick), (20, &quick), (30, &long)] {
        let one = plan(&[(limit, 1)]);
        let held = reserve(&store, first, &one).await.unwrap();
        lives(first, 86_400_000);
        store.settle(&held, &[ExactAmount::whole(1)]).await.unwrap();
        lives(first, 600_000);
        let unseen = Held { id: ReservationId::new(first + 1), ..held };
        store.settle(&unseen, &[ExactAmount::whole(1)]).await.unwrap();
        lives(first + 1, 600_000);
        let refused = store.reserve(ReservationId::new(first + 2), plan(&[(limit, 101)]), Attempt::Retry);
        assert!(matches!(refused.await.unwrap(), Verdict::Refused(_)));
        lives(first + 2, 600_000);
    }
}

#[tokio::test]
async fn a_refused_first_attempt_writes_nothing() {
    let server = RedisServer::start().unwrap();
    let store = connect(&server).await;
    let none = limit("none", Rule::Calendar(Period::Day), 0);
    assert!(reserve(&store, 1, &plan(&[(&none, 1)])).await.is_none());
    assert_eq!(server.command(&["DBSIZE"]).unwrap(), "0");
}

#[tokio::test]
async fn scripts_that_the_server_has_forgotten_are_sent_again() {
    let server = RedisServer::start().unwrap();
    let store = connect(&server).await;
    let day = limit("day", Rule::Calendar(Period::Day), 100);
    for id in 0..3 {
        server.command(&["SCRIPT", "FLUSH"]).unwrap();
        assert!(reserve(&store, id, &plan(&[(&day, 10)])).await.is_some());
    }
    let views = store.inspect(&[day]).await.unwrap();
    assert_eq!(views[0].held, Amount::new(30));
}

#[tokio::test]
async fn what_is_no_counter_is_told_and_left_alone() {
    let server = RedisServer::start().unwrap();
    let store = connect(&server).await;
    let (day, hour) =
        (limit("day", Rule::Calendar(Period::Day), 100), limit("hour", Rule::Calendar(Period::Hour), 100));
    server.command(&["SET", "tollgate:{acme}:c:hour", "something else"]).unwrap();
    let answer = store.reserve(ReservationId::new(1), plan(&[(&day, 1), (&hour, 1)]), Attempt::First).await;
    assert!(matches!(answer, Err(StoreError::Corrupt(_))), "{answer:?}");
    assert_eq!(server.command(&["DBSIZE"]).unwrap(), "1");
}

#[tokio::test]
async fn a_full_server_has_run_nothing_and_one_that_evicts_is_told() {
    let server = RedisServer::start().unwrap();
    let store = connect(&server).await;
    assert_eq!(store.evicting_policy().await.unwrap(), None);
    let (day, hour) =
        (limit("day", Rule::Calendar(Period::Day), 100), limit("hour", Rule::Calendar(Period::Hour), 100));
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let answer = store.reserve(ReservationId::new(1), plan(&[(&day, 1), (&hour, 1)]), Attempt::First).await;
    assert!(matches!(answer, Err(StoreError::NotApplied(_))), "{answer:?}");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    assert_eq!(server.command(&["DBSIZE"]).unwrap(), "0");
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap();
    assert_eq!(store.evicting_policy().await.unwrap().as_deref(), Some("allkeys-lru"));
}

#[tokio::test]
async fn a_read_only_replica_has_run_nothing() {
    let server = RedisServer::start().unwrap();
    let store = connect(&server).await;
    server.command(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
    let day = limit("day", Rule::Calendar(Period::Day), 100);
    let answer = store.reserve(ReservationId::new(1), plan(&[(&day, 1)]), Attempt::First).await;
    assert!(matches!(answer, Err(StoreError::NotApplied(_))), "{answer:?}");
}

/// The commands that docs/redis.md says a user needs, as an access list grants them.
fn documented_rights() -> Vec<String> {
    let docs = include_str!("../../../docs/redis.md");
    let (_, list) = docs.split_once("needs `~<prefix>:*` and the commands ").unwrap();
    let (list, _) = list.split_once("\n- ").unwrap();
    list.split('`').skip(1).step_by(2).map(|command| format!("+{}", command.to_lowercase())).collect()
}

#[tokio::test]
async fn a_user_of_an_access_list_needs_what_the_docs_say_and_may_be_confined_to_the_prefix() {
    let server = RedisServer::start().unwrap();
    let rights = documented_rights();
    assert!(rights.len() > 10, "{rights:?}");
    let user = ["ACL", "SETUSER", "gate", "on", ">secret", "~tollgate:*"];
    server.command(&user.into_iter().chain(rights.iter().map(String::as_str)).collect::<Vec<_>>()).unwrap();
    let url = format!("redis://gate:secret@127.0.0.1:{}/0", server.port());
    let settings = Settings { url, ..server.settings("tollgate") };
    assert!(!format!("{settings:?}").contains("secret"));
    let day = limit("day", Rule::Calendar(Period::Day), 100);
    let now = TimestampMs::new(1_795_996_823_456);
    let policy = FailurePolicy {
        retry: Duration::from_millis(100),
        local_share: NonZeroU64::MIN,
        closed: false,
        remembered: Duration::from_secs(540),
    };
    let told = Arc::clone(&day);
    let spent = move |each: Spend<'_>| {
        each(None, &told, now..=now, ExactAmount::whole(7));
        Ok(())
    };
    let guard = Guard { copy: "one".into(), copies: NonZeroU64::MIN, spent: Arc::new(spent) };
    let shared = SharedStore::start(&settings, policy, Some(guard), Arc::new(SystemClock::new())).unwrap();
    let store = shared.store();
    for _ in 0..10_000 {
        if server.command(&["EXISTS", "tollgate:ready"]).unwrap() == "1" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let entries = [(&day, 10), (&limit("open", Rule::Concurrent, 2), 1)];
    let verdict = store.reserve(ReservationId::new(1), plan(&entries), Attempt::First).await;
    let Ok(Verdict::Admitted(admission)) = verdict else { panic!("{verdict:?}") };
    let held = Held { id: ReservationId::new(1), plan: plan(&entries), at: admission.at };
    let more = store.extend(&held, 1, &[Amount::new(5), Amount::ZERO]).await;
    assert!(matches!(more, Ok(Verdict::Admitted(_))), "{more:?}");
    let settled = store.settle(&held, &[ExactAmount::whole(3), ExactAmount::ZERO]).await;
    assert_eq!(settled.unwrap(), Settled::Applied);
    let denied = server.command(&["ACL", "LOG"]).unwrap();
    assert!(denied.is_empty(), "{denied}");

    let elsewhere = Settings { prefix: "other".to_owned(), ..settings };
    let store = RedisStore::connect(&elsewhere).unwrap();
    store.connected().await.unwrap();
    let answer = store.reserve(ReservationId::new(2), plan(&[(&day, 1)]), Attempt::First).await;
    assert!(matches!(answer, Err(StoreError::NotApplied(_))), "{answer:?}");
}

#[tokio::test]
async fn without_a_server_a_call_fails_at_once_and_has_not_run() {
    let mut server = RedisServer::start().unwrap();
    let store = connect(&server).await;
    server.kill();
    let day = limit("day", Rule::Calendar(Period::Day), 100);
    let ask = || store.reserve(ReservationId::new(1), plan(&[(&day, 10)]), Attempt::First);
    // The first one may be sent before the end of the connection is noticed.
    assert!(ask().await.unwrap_err().is_transient());
    assert!(matches!(ask().await, Err(StoreError::NotApplied(_))));
    server.restart().unwrap();
    store.connected().await.unwrap();
    assert!(reserve(&store, 1, &plan(&[(&day, 10)])).await.is_some());
}

#[tokio::test]
async fn a_frozen_server_is_given_up_in_time_and_what_it_ran_late_counts_once() {
    let server = RedisServer::start().unwrap();
    let settings = Settings { timeout: Duration::from_millis(200), ..server.settings("tollgate") };
    let store = RedisStore::connect(&settings).unwrap();
    store.connected().await.unwrap();
    let day = limit("day", Rule::Calendar(Period::Day), 100);
    let (id, plan) = (ReservationId::new(1), plan(&[(&day, 10)]));
    server.freeze().unwrap();
    let clock = SystemClock::new();
    let begun = clock.elapsed();
    let answer = store.reserve(id, Arc::clone(&plan), Attempt::First).await;
    assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
    let took = clock.elapsed().saturating_sub(begun);
    assert!(took >= settings.timeout && took < 10 * settings.timeout, "{took:?}");
    server.thaw().unwrap();
    // Whether it ran or not, the same call charges once.
    store.connected().await.unwrap();
    let mut answer = store.reserve(id, Arc::clone(&plan), Attempt::Retry).await;
    for _ in 0..100 {
        if answer.is_ok() {
            break;
        }
        tokio::task::yield_now().await;
        let _ = tokio::time::timeout(Duration::from_millis(50), store.connected()).await;
        answer = store.reserve(id, Arc::clone(&plan), Attempt::Retry).await;
    }
    assert!(matches!(answer, Ok(Verdict::Admitted(_))), "{answer:?}");
    assert_eq!(store.inspect(&[day]).await.unwrap()[0].held, Amount::new(10));
}

#[tokio::test]
async fn limits_that_scripts_cannot_count_exactly_are_refused() {
    let server = RedisServer::start().unwrap();
    let store = connect(&server).await;
    let week = DurationMs::new(7 * 86_400_000);
    for limit in [
        limit("large", Rule::Calendar(Period::Day), u64::MAX),
        limit("long", Rule::TokenBucket { window: week }, 10),
    ] {
        let answer = store.reserve(ReservationId::new(1), plan(&[(&limit, 1)]), Attempt::First).await;
        assert!(matches!(answer, Err(StoreError::Mismatch(_))), "{answer:?}");
    }
}

#[tokio::test]
async fn a_url_that_is_none_is_refused() {
    let settings = |url: &str| {
        let (url, prefix) = (url.to_owned(), "tollgate".to_owned());
        Settings { url, prefix, timeout: Duration::from_millis(250) }
    };
    for url in [
        "http://127.0.0.1",
        "redis://",
        "redis://127.0.0.1:99999",
        "redis://127.0.0.1/abc",
        "redis://user:p@ss/word@127.0.0.1",
        "redis-sentinel://127.0.0.1",
        "redis-cluster://127.0.0.1?node=junk",
        "redis-cluster://user:ss/word@127.0.0.1",
        "redis-cluster://user:ss%2Fword@127.0.0.1/1",
        "redis://us er:ss%2Fword@127.0.0.1",
        "redis://127.0.0.1?ss/word=1",
        "redis-sentinel://127.0.0.1?sentinelServiceName=",
    ] {
        assert!(matches!(RedisStore::connect(&settings(url)), Err(ConnectError::Url(_))), "{url}");
        let Err(ConnectError::Url(reason)) = settings(url).check() else { panic!("{url}") };
        assert!(!reason.contains("ss/word"), "{reason}");
    }
    assert!(settings("redis://user:p%40ss%2Fword@127.0.0.1:6379/2").check().is_ok());
}

#[tokio::test]
async fn c49_a_counter_that_has_lost_its_time_to_live_gets_it_back() {
    let server = RedisServer::start().unwrap();
    let clock = Arc::new(ManualClock::new(TimestampMs::new(1_795_996_800_000)));
    let time = Arc::clone(&clock) as Arc<dyn Clock>;
    let store = RedisStore::connect_with_clock(&server.settings("tollgate"), time).unwrap();
    store.connected().await.unwrap();
    let minute = limit("minute", Rule::SlidingWindow { window: MINUTE }, 100);
    reserve(&store, 1, &plan(&[(&minute, 10)])).await.unwrap();
    assert_eq!(server.command(&["PERSIST", "tollgate:{acme}:c:minute"]).unwrap(), "1");
    // With its next window: within one the time to live is not touched.
    clock.advance(MINUTE);
    reserve(&store, 2, &plan(&[(&minute, 10)])).await.unwrap();
    assert!(lives_ms(&server).iter().all(|(_, life_ms)| *life_ms > 0));
}

#[tokio::test]
async fn a_counter_outlives_what_it_counts_though_calls_leave_its_time_to_live_as_it_was() {
    const DAY_MS: i64 = 86_400_000;
    let server = RedisServer::start().unwrap();
    let clock = Arc::new(ManualClock::new(TimestampMs::new(1_795_996_800_000)));
    let time = Arc::clone(&clock) as Arc<dyn Clock>;
    let store = RedisStore::connect_with_clock(&server.settings("tollgate"), time).unwrap();
    store.connected().await.unwrap();
    // For how long each counts from its last use on, when that is after its first one, and whether its life begins anew
    // with it, which is most of it over by then. What does not begin anew has lived so much longer, though the server's own
    // clock stood still.
    let counters = [
        (limit("sliding", Rule::SlidingWindow { window: MINUTE }, 100), 120_000, 59_999, false),
        (limit("bucketed", Rule::BucketedWindow { window: MINUTE }, 100), 61_000, 999, false),
        (limit("day", Rule::Calendar(Period::Day), 100), 1, DAY_MS - 1, false),
        (limit("total", Rule::Calendar(Period::Total), 100), 3_650 * DAY_MS, DAY_MS, true),
        (limit("session", Rule::Idle { after: MINUTE }, 100), 60_000, 59_999, true),
        (limit("open", Rule::Concurrent, 100), DAY_MS, 3_599_999, false),
        (limit("open since long", Rule::Concurrent, 100), DAY_MS, 3_600_000, true),
    ];
    for (number, (limit, counts_ms, later_ms, is_anew)) in (0..).zip(&counters) {
        let (key, first) = (format!("tollgate:{{acme}}:c:{}", limit.key.name()), 10 * number);
        let plan = plan(&[(limit, 1)]);
        clock.set(TimestampMs::new(1_795_996_800_000));
        let held = reserve(&store, first, &plan).await.unwrap();
        if *is_anew {
            server.command(&["PEXPIRE", &key, "30000"]).unwrap();
        }
        clock.advance(DurationMs::new(u64::try_from(*later_ms).unwrap()));
        reserve(&store, first + 1, &plan).await.unwrap();
        store.settle(&held, &[ExactAmount::whole(1)]).await.unwrap();
        let life_ms: i64 = server.command(&["PTTL", &key]).unwrap().parse().unwrap();
        let left_ms = life_ms - if *is_anew { 0 } else { *later_ms };
        assert!(left_ms > *counts_ms, "{key} has {left_ms} ms left and counts for {counts_ms} ms");
    }
}

/// One copy's clock is three days behind, the other's a year ahead.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn copies_whose_clocks_differ_share_one_window() {
    const DAY_MS: u64 = 86_400_000;
    let server = RedisServer::start().unwrap();
    let now_ms = || SystemClock::new().now().get();
    let copy = |at_ms: u64| {
        let policy = FailurePolicy {
            retry: Duration::from_secs(5),
            local_share: NonZeroU64::MIN,
            closed: false,
            remembered: Duration::from_secs(540),
        };
        let clock = Arc::new(ManualClock::new(TimestampMs::new(at_ms)));
        SharedStore::start(&server.settings("tollgate"), policy, None, clock).unwrap()
    };
    let (slow, fast) = (copy(now_ms() - 3 * DAY_MS), copy(now_ms() + 365 * DAY_MS));
    let window = DurationMs::new(30 * DAY_MS);
    let limits = [
        limit("window", Rule::SlidingWindow { window }, 10),
        limit("buckets", Rule::BucketedWindow { window }, 10),
        limit("total", Rule::Calendar(Period::Total), 10),
        limit("session", Rule::Idle { after: window }, 10),
    ];
    for (number, limit) in (0..).zip(&limits) {
        let before_ms = now_ms();
        let held = reserve(&slow.store(), 10 * number, &plan(&[(limit, 6)])).await.unwrap();
        assert!((before_ms..=now_ms()).contains(&held.at.get()), "{held:?} at {before_ms}");
        assert!(reserve(&fast.store(), 10 * number + 1, &plan(&[(limit, 5)])).await.is_none());
        let more = reserve(&fast.store(), 10 * number + 2, &plan(&[(limit, 4)])).await.unwrap();
        fast.store().settle(&more, &[ExactAmount::whole(1)]).await.unwrap();
        slow.store().settle(&held, &[ExactAmount::whole(6)]).await.unwrap();
        assert!(reserve(&slow.store(), 10 * number + 3, &plan(&[(limit, 4)])).await.is_none());
        assert!(reserve(&slow.store(), 10 * number + 4, &plan(&[(limit, 3)])).await.is_some());
    }
}

#[tokio::test]
async fn what_is_not_settled_stays_charged_and_a_late_settle_corrects_it() {
    let server = RedisServer::start().unwrap();
    let day = limit("day", Rule::Calendar(Period::Total), 10);
    let abandoned = {
        let store = connect(&server).await;
        reserve(&store, 1, &plan(&[(&day, 6)])).await.unwrap()
    };
    let store = connect(&server).await;
    assert!(reserve(&store, 2, &plan(&[(&day, 5)])).await.is_none());
    assert_eq!(store.settle(&abandoned, &[ExactAmount::whole(1)]).await.unwrap(), Settled::Applied);
    let held = reserve(&store, 3, &plan(&[(&day, 9)])).await.unwrap();
    assert_eq!(store.settle_held(&held, &[ExactAmount::whole(2)]).await.unwrap(), Settled::Applied);
    assert!(reserve(&store, 4, &plan(&[(&day, 7)])).await.is_some());
}
