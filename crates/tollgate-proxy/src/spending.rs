//! What a proxy has spent, out of its own usage files: for a shared store that has forgotten it.

use std::{ops::RangeInclusive, path::PathBuf, sync::Weak};

use tollgate_limiter::{ExactAmount, Limit, ReservationId, TimestampMs};
use tollgate_usage::{Replayed, StandsFor, UsageError, replay_kept};

use crate::server::Shared;

/// Tells what a proxy has spent, for as long as it runs.
#[derive(Clone)]
pub struct Spending {
    pub(crate) shared: Weak<Shared>,
    pub(crate) usage_file: PathBuf,
}

impl Spending {
    /// Calls `each` with every budget, session and run that a settled call was spent from, as the running
    /// configuration has them: the call, the limit, the moment of the call, what was spent; for what a checkpoint sums
    /// up, no call, the first moment and the last one. In the order of time, and what has just ended last. Blocks. Whether
    /// the proxy still runs.
    ///
    /// # Errors
    ///
    /// The usage file cannot be written to its end or read.
    pub fn each(
        &self,
        mut each: impl FnMut(Option<ReservationId>, &Limit, RangeInclusive<TimestampMs>, ExactAmount),
    ) -> Result<bool, UsageError> {
        let Some(shared) = self.shared.upgrade() else { return Ok(false) };
        let app = shared.app.load_full();
        app.usage.flush()?;
        let nobody = |_done, _total| {};
        replay_kept(&self.usage_file, app.clock.now(), nobody, |event| {
            let call = call(event);
            app.policy.spent_of(event, |limit, spent| each(call, limit, event.ts..=event.last_use(), spent));
        })?;
        Ok(true)
    }
}

/// The call that is told of, where it is one.
fn call(event: &Replayed<'_>) -> Option<ReservationId> {
    match event.stands_for {
        StandsFor::Call => u128::from_str_radix(event.request_id, 16).ok().map(ReservationId::new),
        _ => None,
    }
}

impl std::fmt::Debug for Spending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spending").field("usage_file", &self.usage_file).finish_non_exhaustive()
    }
}
