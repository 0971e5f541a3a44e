//! What passes, waits and is counted while a shared store is away.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

mod passing;
mod waiting;

use std::{
    future::Future,
    num::NonZeroU64,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use tollgate_limiter::{
    Amount, CounterKey, DurationMs, Enforcement, Entry, ExactAmount, Limit, Period, Plan, ReservationId,
    Rule, TimestampMs, Verdict,
};
use tollgate_store::{
    Attempt, Backlog, Clock, CounterView, FailurePolicy, FallbackStore, Fault, FaultyStore, Held, Left,
    ManualClock, MemoryStore, SentAgain, Settled, Store, StoreError, StoreFuture,
};

const START: TimestampMs = TimestampMs::new(1_795_996_800_000);
const MINUTE: Rule = Rule::SlidingWindow { window: DurationMs::new(60_000) };
const RETRY_MS: u64 = 5_000;

struct World {
    clock: Arc<ManualClock>,
    memory: Arc<MemoryStore>,
    faulty: Arc<FaultyStore>,
    store: FallbackStore,
}

impl World {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut FailurePolicy)) -> Self {
        let mut policy = FailurePolicy {
            retry: Duration::from_millis(RETRY_MS),
            local_share: NonZeroU64::new(3).unwrap(),
            closed: false,
            remembered: Duration::from_secs(540),
        };
        change(&mut policy);
        let clock = Arc::new(ManualClock::new(START));
        let memory = Arc::new(MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>));
        let faulty = Arc::new(FaultyStore::new(Arc::clone(&memory) as Arc<dyn Store>));
        let shared = Arc::clone(&faulty) as Arc<dyn Store>;
        let store = FallbackStore::new(shared, Arc::clone(&clock) as Arc<dyn Clock>, policy);
        Self { clock, memory, faulty, store }
    }

    fn advance(&self, ms: u64) {
        self.clock.advance(DurationMs::new(ms));
    }

    fn reserve(&self, id: u128, plan: &Arc<Plan>) -> Result<Verdict, StoreError> {
        now(self.store.reserve(ReservationId::new(id), Arc::clone(plan), Attempt::First))
    }

    fn held(&self, id: u128, plan: &Arc<Plan>) -> Option<Held> {
        match self.reserve(id, plan).unwrap() {
            Verdict::Admitted(admission) => {
                Some(Held { id: ReservationId::new(id), plan: Arc::clone(plan), at: admission.at })
            }
            Verdict::Refused(_) => None,
        }
    }

    fn settle(&self, held: &Held, used: &[u64]) -> Result<Settled, StoreError> {
        let used: Vec<_> = used.iter().copied().map(ExactAmount::whole).collect();
        now(self.store.settle(held, &used))
    }

    /// (spent, held) in the shared store itself.
    fn shared(&self, limit: &Arc<Limit>) -> (u64, u64) {
        let view = now(self.memory.inspect(&[Arc::clone(limit)])).unwrap().remove(0);
        (view.spent.units(), view.held.get())
    }
}

/// What a future says that waits for nothing.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("a store in memory answers at once"),
    }
}

fn limit(name: &str, rule: Rule, amount: u64, enforcement: Enforcement) -> Arc<Limit> {
    Arc::new(Limit { key: CounterKey::new("acme", name), rule, amount: Amount::new(amount), enforcement })
}

fn hard(name: &str, rule: Rule, amount: u64) -> Arc<Limit> {
    limit(name, rule, amount, Enforcement::Hard)
}

fn plan(entries: &[(&Arc<Limit>, u64)]) -> Arc<Plan> {
    let entry = |&(limit, charge): &(&Arc<Limit>, u64)| Entry {
        limit: Arc::clone(limit),
        charge: Amount::new(charge),
    };
    Arc::new(Plan::new(entries.iter().map(entry).collect()).unwrap())
}

fn is_admitted(verdict: &Result<Verdict, StoreError>) -> bool {
    matches!(verdict, Ok(Verdict::Admitted(_)))
}
