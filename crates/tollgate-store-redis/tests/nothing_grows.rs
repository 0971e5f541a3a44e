//! A day of traffic in virtual time. The server's own clock stands still beside it, so the test lets keys die when
//! their time to live has passed in virtual time, as a server that had lived through the day would have.

#![expect(
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

use std::{collections::HashMap, sync::Arc};

use tollgate_limiter::{
    Amount, CounterKey, DurationMs, Enforcement, Entry, ExactAmount, Limit, Period, Plan, ReservationId,
    Rule, TimestampMs, Verdict,
};
use tollgate_store::{Attempt, Clock, Held, ManualClock, Store};
use tollgate_store_redis::{RedisStore, testing::RedisServer};

/// A Monday, at midnight.
const START: TimestampMs = TimestampMs::new(1_795_996_800_000);
const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

/// Every key with what it has to live, in milliseconds, and a hash of its value.
const ALL_KEYS: &str = "local all = {} for _, key in ipairs(redis.call('KEYS', '*')) do \
                        all[#all + 1] = key .. ' ' .. redis.call('PTTL', key) .. ' ' .. \
                        redis.sha1hex(redis.call('DUMP', key)) end return all";

/// A server in virtual time.
struct Day {
    server: RedisServer,
    clock: Arc<ManualClock>,
    store: RedisStore,
    /// When each key dies, and its value as it was written.
    ends: HashMap<String, (u64, String)>,
}

impl Day {
    /// Deletes what has died by now, and notes what was written since.
    fn pass(&mut self) {
        let now = self.clock.now().get();
        let mut seen = HashMap::new();
        for line in self.server.command(&["EVAL", ALL_KEYS, "0"]).unwrap().lines() {
            let (rest, value) = line.rsplit_once(' ').unwrap();
            let (key, life_ms) = rest.rsplit_once(' ').unwrap();
            let life_ms: i64 = life_ms.parse().unwrap();
            assert!(life_ms > 0, "{key} lives for ever");
            let end = match self.ends.get(key) {
                Some((end, before)) if before == value => *end,
                _ => now + u64::try_from(life_ms).unwrap(),
            };
            if end > now {
                seen.insert(key.to_owned(), (end, value.to_owned()));
            } else {
                self.server.command(&["DEL", key]).unwrap();
            }
        }
        self.ends = seen;
    }

    fn count(&self, kind: &str) -> usize {
        self.ends.keys().filter(|key| key.contains(kind)).count()
    }
}

fn limit(tenant: u64, name: &str, rule: Rule, amount: u64) -> Entry {
    let (key, amount) = (CounterKey::new(format!("t{tenant}"), name), Amount::new(amount));
    let limit = Arc::new(Limit { key, rule, amount, enforcement: Enforcement::Hard });
    Entry { limit, charge: Amount::new(2) }
}

/// What a call of one of five tenants meets, in a session of its own for every third call.
fn plan(call: u64) -> Arc<Plan> {
    let (tenant, session, hour) = (call % 5, call / 3, DurationMs::new(HOUR_MS));
    let minute = DurationMs::new(MINUTE_MS);
    Arc::new(
        Plan::new(vec![
            limit(tenant, "requests", Rule::SlidingWindow { window: minute }, 60),
            limit(tenant, "tokens", Rule::BucketedWindow { window: minute }, 60),
            limit(tenant, "burst", Rule::TokenBucket { window: minute }, 60),
            limit(tenant, "day", Rule::Calendar(Period::Day), 5_000),
            limit(tenant, &format!("session/{session}"), Rule::Idle { after: hour }, 20),
            limit(tenant, &format!("run/{session}"), Rule::Elapsed { after: hour }, HOUR_MS),
            limit(tenant, "open", Rule::Concurrent, 1_000),
        ])
        .unwrap(),
    )
}

/// One call: most are settled at once, some are extended before, some refused, one in fifty is abandoned.
async fn call(store: &RedisStore, number: u64) {
    let (id, plan) = (ReservationId::new(number.into()), plan(number));
    let attempt = if number.is_multiple_of(7) { Attempt::Retry } else { Attempt::First };
    let Verdict::Admitted(admission) = store.reserve(id, Arc::clone(&plan), attempt).await.unwrap() else {
        return;
    };
    let held = Held { id, plan, at: admission.at };
    if number.is_multiple_of(4) {
        store.extend(&held, 1, &[Amount::new(1); 7]).await.unwrap();
    }
    if !number.is_multiple_of(50) {
        store.settle(&held, &[ExactAmount::whole(1); 7]).await.unwrap();
    }
}

#[tokio::test]
async fn a_day_of_traffic_leaves_only_what_counts() {
    const CALLS_A_MINUTE: u64 = 1;
    let server = RedisServer::start().unwrap();
    let clock = Arc::new(ManualClock::new(START));
    let settings = server.settings("tollgate");
    let store = RedisStore::connect_with_clock(&settings, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
    store.connected().await.unwrap();
    let mut day = Day { server, clock, store, ends: HashMap::new() };
    let mut most = 0;
    for minute in 0..24 * 60 {
        for number in 0..CALLS_A_MINUTE {
            call(&day.store, minute * CALLS_A_MINUTE + number).await;
        }
        day.clock.advance(DurationMs::new(MINUTE_MS));
        if (minute + 1).is_multiple_of(10) {
            day.pass();
            // Of sessions and runs those of the latest hour, of records those of ten minutes and the abandoned ones.
            let abandoned = usize::try_from(minute * CALLS_A_MINUTE / 50 + 1).unwrap();
            let sessions = [":c:session/", ":c:run/"].map(|kind| day.count(kind));
            assert!(sessions.iter().all(|count| *count <= 2 * 72), "minute {minute}: {sessions:?}");
            assert!(
                day.count(":r:") <= 60 + abandoned && day.count(":x:") <= 20 + abandoned,
                "minute {minute}"
            );
            most = most.max(day.ends.len());
        }
    }
    assert!(most < 500, "{most} keys at most, of {} calls", 24 * 60 * CALLS_A_MINUTE);
    // What a day leaves is gone two days later, but for what nobody has settled and no window forgets.
    day.clock.advance(DurationMs::new(49 * HOUR_MS));
    day.pass();
    assert!(day.ends.is_empty(), "{:?}", day.ends.keys());
}
