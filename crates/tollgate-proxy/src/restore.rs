//! Reads the usage file before the first request: what was spent in the current periods comes back.

use std::path::Path;

use tollgate_store::MemoryStore;
use tollgate_usage::{ReplaySummary, UsageError, replay};

use crate::policy::Policy;

/// Replays the file at `path` into `store`. A file that is not there is an empty one.
///
/// Budgets of every scope come back; rate limits start at zero. Spend that no budget of today's
/// configuration is for is skipped. A call that made use of several models comes back as spent on the
/// one that answered: an event has one cost.
pub(crate) fn restore(
    path: &Path,
    policy: &Policy,
    store: &MemoryStore,
    mut progress: impl FnMut(u64, u64),
) -> Result<ReplaySummary, UsageError> {
    if !path.exists() {
        return Ok(ReplaySummary::default());
    }
    replay(path, &mut progress, |event| {
        policy.budgets_of(event, |limit| store.restore(limit, event.ts, event.cost));
    })
}
