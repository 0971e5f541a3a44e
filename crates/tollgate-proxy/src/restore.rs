//! Reads the usage file, or a checkpoint and what is beyond it, before the first request: what was spent in the current periods comes back, and
//! with it what an earlier process had reserved when it was killed.

use tollgate_store::MemoryStore;
use tollgate_usage::{Journal, ReplaySummary, UsageError};

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

#[cfg(test)]
mod tests;
