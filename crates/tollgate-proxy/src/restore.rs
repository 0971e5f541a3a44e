//! Reads the usage file, or a checkpoint and what is beyond it, before the first request: what was spent in the current periods comes back, and
//! with it what an earlier process had reserved when it was killed.

use std::sync::Arc;

use tollgate_limiter::{ExactAmount, ReservationId, TimestampMs};
use tollgate_store::{Backlog, FallbackStore, Held, Left, MemoryStore};
use tollgate_usage::{Journal, ReplaySummary, Settlement, UsageError};

use crate::{estimates::Estimates, policy::Policy};

/// Replays the usage file of `journal`, and what the journal holds, into `store`.
///
/// Budgets of every scope and runs come back; rate limits start at zero. Spend that no budget of today's
/// configuration is for is skipped. Estimates learn from the calls once more. A call that made use of several models comes back as spent on the
/// one that answered: an event has one cost.
pub(crate) fn restore(
    journal: &mut Journal,
    policy: &Policy,
    estimates: &Estimates,
    store: &MemoryStore,
    progress: impl FnMut(u64, u64),
) -> Result<ReplaySummary, UsageError> {
    journal.restore(store.now(), progress, |event| {
        estimates.learn_again(policy, event);
        policy.spent_of(event, |limit, spent| store.restore(limit, event.ts..=event.last_use(), spent));
    })
}

/// What an earlier process left to one with a shared store.
#[derive(Debug)]
#[must_use = "settlements have to reach the store"]
pub struct Recovered {
    summary: ReplaySummary,
    journal: Arc<Journal>,
    unsettled: Vec<Settlement>,
}

impl Recovered {
    pub(crate) const fn new(
        summary: ReplaySummary,
        journal: Arc<Journal>,
        unsettled: Vec<Settlement>,
    ) -> Self {
        Self { summary, journal, unsettled }
    }

    /// What was read.
    pub const fn summary(&self) -> &ReplaySummary {
        &self.summary
    }

    /// Has `store` settle what an earlier process left, and keep in the journal from now on what it has not settled. How
    /// many were left: those that were settled before change nothing. `told` is when the store was last told what was spent
    /// until then, as it had forgotten it; `None`: nobody knows.
    pub fn settle_in(self, store: &FallbackStore, told: Option<TimestampMs>) -> usize {
        let left = self.unsettled.into_iter().map(|settlement| {
            let Settlement { held, actuals, ended } = settlement;
            Left { held, actuals, ended }
        });
        let left: Vec<_> = left.collect();
        let settlements = left.len();
        store.keep_waiting_in(Arc::new(InJournal(self.journal)), left, told);
        settlements
    }
}

/// Settlements outlive the process in the journal.
struct InJournal(Arc<Journal>);

impl Backlog for InJournal {
    fn keep(&self, held: &Held, actuals: &[ExactAmount]) {
        // The journal has when a call ended that is in it. Of others the admission errs towards what is still held.
        let (held, actuals, ended) = (held.clone(), actuals.to_vec(), held.at);
        self.0.keep(&Settlement { held, actuals, ended });
    }

    fn settled(&self, id: ReservationId) {
        self.0.settled(id);
    }

    fn written_through(&self, id: ReservationId) {
        self.0.written_through(id);
    }
}

#[cfg(test)]
mod tests;
