//! The latest settlements that the store has taken, in case it loses them: a replica that takes over has not what was
//! on its way to it.

use std::{collections::VecDeque, time::Duration};

use tollgate_limiter::{ExactAmount, Held, ReservationId};

use crate::sync::{Mutex, lock};

/// For how long they are kept while the store is seen to be the one that took them: far longer than a replica lags, and
/// far shorter than the store remembers them.
const KEPT: Duration = Duration::from_secs(60);
/// The most that are kept.
const KEPT_MAX: usize = 65_536;

/// Settlements in the order in which they were taken.
#[derive(Debug, Default)]
pub(super) struct Recent {
    taken: Mutex<VecDeque<Taken>>,
}

#[derive(Debug)]
struct Taken {
    at: Duration,
    held: Held,
    actuals: Vec<ExactAmount>,
}

impl Recent {
    pub(super) fn push(&self, held: Held, actuals: Vec<ExactAmount>, now: Duration) {
        let mut taken = lock(&self.taken);
        while taken.len() >= KEPT_MAX {
            taken.pop_front();
        }
        taken.push_back(Taken { at: now, held, actuals });
    }

    /// The store is the one that it was: what it took long ago has reached its replicas.
    pub(super) fn forget_old(&self, now: Duration) {
        let mut taken = lock(&self.taken);
        while taken.front().is_some_and(|first| now.saturating_sub(first.at) > KEPT) {
            taken.pop_front();
        }
    }

    /// Those of calls that `is_asked_for`, and that were taken at `moment` or after.
    pub(super) fn since(
        &self,
        moment: Duration,
        is_asked_for: impl Fn(ReservationId) -> bool,
    ) -> Vec<(Held, Vec<ExactAmount>)> {
        let taken = lock(&self.taken);
        let since = taken.iter().filter(|taken| taken.at >= moment && is_asked_for(taken.held.id));
        since.map(|taken| (taken.held.clone(), taken.actuals.clone())).collect()
    }

    /// All of them, with when they were taken.
    pub(super) fn take(&self) -> impl Iterator<Item = (Duration, Held, Vec<ExactAmount>)> + use<> {
        let taken = std::mem::take(&mut *lock(&self.taken));
        taken.into_iter().map(|Taken { at, held, actuals }| (at, held, actuals))
    }
}
