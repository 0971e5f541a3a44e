//! What the benches share: a tenant with limits, its plans, and a store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tollgate_limiter::{
    Amount, Attempt, CounterKey, DurationMs, Enforcement, Entry, ExactAmount, Held, Limit, Period, Plan,
    ReservationId, Rule, Settled, TimestampMs, Verdict,
};
use tollgate_store::{Clock, MemoryStore, Store, SystemClock};

/// Enough for any bench to be admitted.
pub const PLENTY: u64 = 10_000_000_000;

/// What each entry of a plan charges, and what is used of it.
const CHARGES: [(u64, u64); 6] = [(1, 1), (1_200, 700), (900, 500), (300, 200), (100, 90), (100, 90)];

/// A store that reads the system's clock.
pub fn store() -> MemoryStore {
    store_with(SystemClock::new())
}

/// A store that reads another clock.
pub fn store_with(clock: impl Clock) -> MemoryStore {
    MemoryStore::new(Arc::new(clock) as Arc<dyn Clock>)
}

/// A clock that reads the processor's counter, as `governor` does by default: it follows no change of the
/// system's time.
pub struct QuantaClock {
    counter: quanta::Clock,
    start: quanta::Instant,
    start_ms: u64,
}

impl QuantaClock {
    /// A clock that starts with the system's time.
    pub fn new() -> Self {
        let counter = quanta::Clock::new();
        Self { start: counter.now(), counter, start_ms: SystemClock::new().now().get() }
    }
}

impl Default for QuantaClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for QuantaClock {
    fn now(&self) -> TimestampMs {
        TimestampMs::new(self.start_ms + self.elapsed().as_millis() as u64)
    }

    fn elapsed(&self) -> Duration {
        self.counter.now() - self.start
    }
}

/// A tenant's limits as a proxy has them: requests and tokens by the minute, money by day and month.
pub struct Tenant {
    limits: Vec<Arc<Limit>>,
    actuals: Vec<ExactAmount>,
}

impl Tenant {
    /// The first `limits` of six.
    pub fn new(name: &str, limits: usize) -> Self {
        let minute = Rule::SlidingWindow { window: DurationMs::new(60_000) };
        let rules = [
            ("requests/minute", minute),
            ("tokens/minute", minute),
            ("input tokens/minute", minute),
            ("output tokens/minute", minute),
            ("usd/day", Rule::Calendar(Period::Day)),
            ("usd/month", Rule::Calendar(Period::Month)),
        ];
        let partition: Arc<str> = name.into();
        let limit = |(name, rule)| {
            let key = CounterKey::new(Arc::clone(&partition), name);
            Arc::new(Limit { key, rule, amount: Amount::new(PLENTY), enforcement: Enforcement::Hard })
        };
        let actuals = CHARGES.iter().take(limits).map(|(_, used)| ExactAmount::whole(*used)).collect();
        Self { limits: rules.into_iter().take(limits).map(limit).collect(), actuals }
    }

    /// The plan of one request.
    pub fn plan(&self) -> Arc<Plan> {
        let entry = |(limit, (charge, _)): (&Arc<Limit>, (u64, u64))| Entry {
            limit: Arc::clone(limit),
            charge: Amount::new(charge),
        };
        Arc::new(Plan::new(self.limits.iter().zip(CHARGES).map(entry).collect()).expect("six limits differ"))
    }

    /// Reserves a plan under an id of its own.
    pub fn reserve(&self, store: &MemoryStore, plan: Arc<Plan>) -> Held {
        let id = new_id();
        let answer = store.reserve(id, Arc::clone(&plan), Attempt::First).now_or_later();
        match answer.expect("a memory store answers at once").expect("the id is new") {
            Verdict::Admitted(admission) => Held { id, plan, at: admission.at },
            Verdict::Refused(refusal) => panic!("there is plenty: {refusal:?}"),
        }
    }

    /// Settles it below what it reserved.
    pub fn settle(&self, store: &MemoryStore, held: &Held) {
        let answer = store.settle(held, &self.actuals).now_or_later();
        assert_eq!(answer.expect("at once").expect("it is held"), Settled::Applied);
    }

    /// All of one request: plan, reserve, settle.
    pub fn call(&self, store: &MemoryStore) {
        let held = self.reserve(store, self.plan());
        self.settle(store, &held);
    }
}

/// An id as far from the others as a random one.
fn new_id() -> ReservationId {
    // Threads take ids by the thousand, so that they do not wait for each other here.
    const TAKEN: u64 = 4_096;
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local!(static MINE: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
    let number = MINE.with(|mine| {
        let mut number = mine.get();
        if number % TAKEN == 0 {
            number = NEXT.fetch_add(TAKEN, Ordering::Relaxed) + 1;
        }
        mine.set(number + 1);
        number
    });
    ReservationId::new(u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}
