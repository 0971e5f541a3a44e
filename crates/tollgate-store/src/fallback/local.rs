//! The limits of one copy alone: the shared ones divided by the number of copies, over counters that begin at
//! nothing. Budgets are not among them: a copy knows only its own part of what was spent.

use std::{
    collections::HashMap,
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use foldhash::quality::RandomState;
use tollgate_limiter::{
    Amount, Attempt, Entry, ExactAmount, Held, Limit, Plan, ReservationId, Rule, Settled, Verdict,
};

use super::is_budget;
use crate::{
    MemoryStore, Store as _, StoreError, StoreFuture,
    sync::{Mutex, lock},
};

type OpenPlans = HashMap<ReservationId, Arc<Plan>, RandomState>;

/// Calls that were admitted here and are not settled yet.
pub(super) struct Local {
    memory: MemoryStore,
    share: NonZeroU64,
    open: Mutex<OpenPlans>,
    /// How many are open: mostly none, and then nobody needs the lock.
    count: AtomicUsize,
}

impl Local {
    pub(super) fn new(memory: MemoryStore, share: NonZeroU64) -> Self {
        Self { memory, share, open: Mutex::new(HashMap::default()), count: AtomicUsize::new(0) }
    }

    /// Decides over the local counterpart of a plan, entry by entry.
    pub(super) fn reserve(
        &self,
        id: ReservationId,
        plan: Arc<Plan>,
        attempt: Attempt,
    ) -> Result<Verdict, StoreError> {
        let local = Arc::new(self.counterpart(&plan)?);
        let verdict = at_once(self.memory.reserve(id, Arc::clone(&local), attempt))?;
        if matches!(verdict, Verdict::Admitted(_)) {
            let mut open = lock(&self.open);
            open.insert(id, local);
            self.count.store(open.len(), Ordering::SeqCst);
        }
        Ok(verdict)
    }

    /// `None` for a reservation that was not made here.
    pub(super) fn extend(
        &self,
        held: &Held,
        step: u32,
        charges: &[Amount],
    ) -> Option<Result<Verdict, StoreError>> {
        let plan = self.find(|open| open.get(&held.id).cloned())?;
        let charges: Vec<_> = plan.entries().iter().zip(charges).map(own_charge).collect();
        Some(at_once(self.memory.extend(&Held { plan, ..held.clone() }, step, &charges)))
    }

    /// `None` for a reservation that was not made here.
    pub(super) fn settle(&self, held: &Held, actuals: &[ExactAmount]) -> Option<Result<Settled, StoreError>> {
        let plan = self.find(|open| open.remove(&held.id))?;
        let own = |(entry, actual): (&Entry, &ExactAmount)| {
            if is_budget(entry.limit.rule) { ExactAmount::ZERO } else { *actual }
        };
        let actuals: Vec<_> = plan.entries().iter().zip(actuals).map(own).collect();
        Some(at_once(self.memory.settle(&Held { plan, ..held.clone() }, &actuals)))
    }

    fn find(&self, find: impl FnOnce(&mut OpenPlans) -> Option<Arc<Plan>>) -> Option<Arc<Plan>> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut open = lock(&self.open);
        let found = find(&mut open);
        self.count.store(open.len(), Ordering::SeqCst);
        found
    }

    /// The same entries in the same places, so that a verdict names the right ones.
    fn counterpart(&self, plan: &Plan) -> Result<Plan, StoreError> {
        let entries = plan.entries().iter().map(|entry| Entry {
            limit: Arc::new(Limit { amount: self.part(&entry.limit), ..Limit::clone(&entry.limit) }),
            charge: own_charge((entry, &entry.charge)),
        });
        Plan::new(entries.collect()).map_err(|error| StoreError::Mismatch(error.to_string()))
    }

    /// This copy's part of a limit: at least one of something, since nothing would block the copy for good.
    fn part(&self, limit: &Limit) -> Amount {
        match limit.rule {
            Rule::PerRequest => limit.amount,
            _ if limit.amount == Amount::ZERO => Amount::ZERO,
            _ => Amount::new((limit.amount.get() / self.share).max(1)),
        }
    }
}

/// Budgets are not counted here.
fn own_charge((entry, charge): (&Entry, &Amount)) -> Amount {
    if is_budget(entry.limit.rule) { Amount::ZERO } else { *charge }
}

/// The memory store's answers are there.
fn at_once<T>(future: StoreFuture<'_, T>) -> Result<T, StoreError> {
    let late = |_| Err(StoreError::Corrupt("the local store did not answer at once".to_owned()));
    future.now_or_later().unwrap_or_else(late)
}
