//! Reads the usage file before the first request: what was spent in the current periods comes back.

use std::path::Path;

use tollgate_limiter::Rule;
use tollgate_store::MemoryStore;
use tollgate_usage::{ReplaySummary, UsageError, replay};

use crate::policy::{Measure, Policy};

/// Replays the file at `path` into `store`. A file that is not there is an empty one.
///
/// Budgets come back; rate limits start at zero. Spend of a tenant that is no longer configured is
/// skipped: there is no budget to hold it against.
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
        for limit in policy.tenant_limits(event.tenant) {
            let is_budget =
                limit.measure == Measure::MicroUsd && matches!(limit.limit.rule, Rule::Calendar(_));
            if is_budget {
                store.restore(&limit.limit, event.ts, event.cost);
            }
        }
    })
}
