//! Short ways to talk to a store under test.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tollgate_limiter::{
    Amount, Attempt, CounterKey, CounterView, DurationMs, Enforcement, Entry, ExactAmount, Held, Limit,
    Outcome, Period, Plan, Refusal, ReservationId, Rule, Settled, TimestampMs, Verdict,
};

use super::Harness;
use crate::{Store, StoreError, StoreFuture};

pub(super) const MINUTE_MS: u64 = 60_000;
pub(super) const DAY_MS: u64 = 86_400_000;

/// A day that starts a week: 2026-11-30.
pub(super) const MONDAY: TimestampMs = TimestampMs::new(1_795_996_800_000);

pub(super) fn limit(partition: &str, name: &str, rule: Rule, amount: u64) -> Arc<Limit> {
    let key = CounterKey::new(partition, name);
    Arc::new(Limit { key, rule, amount: Amount::new(amount), enforcement: Enforcement::Hard })
}

pub(super) fn per_minute(name: &str, amount: u64) -> Arc<Limit> {
    limit("acme", name, Rule::SlidingWindow { window: DurationMs::new(MINUTE_MS) }, amount)
}

pub(super) fn budget(name: &str, period: Period, amount: u64) -> Arc<Limit> {
    limit("acme", name, Rule::Calendar(period), amount)
}

pub(super) fn plan(entries: &[(&Arc<Limit>, u64)]) -> Arc<Plan> {
    let entry = |&(limit, charge): &(&Arc<Limit>, u64)| Entry {
        limit: Arc::clone(limit),
        charge: Amount::new(charge),
    };
    Arc::new(Plan::new(entries.iter().map(entry).collect()).unwrap())
}

pub(super) fn whole(amounts: &[u64]) -> Vec<ExactAmount> {
    amounts.iter().copied().map(ExactAmount::whole).collect()
}

/// One handle to the store, with ids that no other desk uses.
pub(super) struct Desk<'a> {
    harness: &'a dyn Harness,
    store: Arc<dyn Store>,
    number: u64,
    ids: AtomicU64,
}

impl<'a> Desk<'a> {
    pub(super) fn open(harness: &'a dyn Harness) -> Self {
        static DESKS: AtomicU64 = AtomicU64::new(0);
        let number = DESKS.fetch_add(1, Ordering::SeqCst);
        Self { harness, store: harness.store(), number, ids: AtomicU64::new(0) }
    }

    /// The desk of a test that begins on a Monday.
    pub(super) fn on_monday(harness: &'a dyn Harness) -> Self {
        harness.clock().set(MONDAY);
        Self::open(harness)
    }

    pub(super) fn advance(&self, ms: u64) {
        self.harness.clock().advance(DurationMs::new(ms));
    }

    pub(super) fn new_id(&self) -> ReservationId {
        let id = self.ids.fetch_add(1, Ordering::SeqCst);
        ReservationId::new(u128::from(self.number) << 64 | u128::from(id))
    }

    pub(super) fn answer<T: Unpin>(&self, future: StoreFuture<'_, T>) -> Result<T, StoreError> {
        let mut answer = None;
        self.harness.run(Box::pin(async { answer = Some(future.await) }));
        answer.unwrap()
    }

    pub(super) fn reserve_as(
        &self,
        id: ReservationId,
        plan: &Arc<Plan>,
        attempt: Attempt,
    ) -> Result<Verdict, StoreError> {
        self.answer(self.store.reserve(id, Arc::clone(plan), attempt))
    }

    pub(super) fn reserve(&self, plan: &Arc<Plan>) -> Result<Held, Box<Refusal>> {
        let id = self.new_id();
        match self.reserve_as(id, plan, Attempt::First).unwrap() {
            Verdict::Admitted(admission) => Ok(Held { id, plan: Arc::clone(plan), at: admission.at }),
            Verdict::Refused(refusal) => Err(Box::new(refusal)),
        }
    }

    pub(super) fn outcome(&self, limit: &Arc<Limit>, charge: u64) -> Outcome {
        self.reserve(&plan(&[(limit, charge)]))
            .map_or_else(|refusal| refusal.binding.outcome, |_| Outcome::Admit)
    }

    pub(super) fn admits(&self, limit: &Arc<Limit>, charge: u64) -> bool {
        self.outcome(limit, charge) == Outcome::Admit
    }

    pub(super) fn extend(&self, held: &Held, step: u32, charges: &[u64]) -> Result<Verdict, StoreError> {
        let charges: Vec<_> = charges.iter().copied().map(Amount::new).collect();
        self.answer(self.store.extend(held, step, &charges))
    }

    pub(super) fn settle_exactly(&self, held: &Held, actuals: &[ExactAmount]) -> Result<Settled, StoreError> {
        self.answer(self.store.settle(held, actuals))
    }

    pub(super) fn settle(&self, held: &Held, actuals: &[u64]) -> Settled {
        self.settle_exactly(held, &whole(actuals)).unwrap()
    }

    pub(super) fn settle_held(&self, held: &Held, actuals: &[u64]) -> Settled {
        self.answer(self.store.settle_held(held, &whole(actuals))).unwrap()
    }

    pub(super) fn views(&self, limits: &[&Arc<Limit>]) -> Vec<CounterView> {
        let limits: Vec<_> = limits.iter().map(|limit| Arc::clone(limit)).collect();
        self.answer(self.store.inspect(&limits)).unwrap()
    }

    /// (spent, held) in whole units.
    pub(super) fn stands(&self, limit: &Arc<Limit>) -> (u64, u64) {
        let view = self.views(&[limit]).remove(0);
        assert_eq!(view.spent.remainder(), 0);
        (view.spent.units(), view.held.get())
    }
}

/// Whether a verdict admits.
pub(super) fn admitted(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Admitted(_))
}
