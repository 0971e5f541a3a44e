//! The latest settlements that the store has taken, in case it loses them: a replica that takes over has not what was
//! on its way to it.

use std::{collections::VecDeque, time::Duration};

use tollgate_limiter::{ExactAmount, Held};

use crate::sync::{Mutex, lock};

/// For how long they are kept: far longer than a replica lags, and far shorter than the store remembers them.
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
        let is_old = |first: &Taken| now.saturating_sub(first.at) > KEPT;
        while taken.len() >= KEPT_MAX || taken.front().is_some_and(is_old) {
            taken.pop_front();
        }
        taken.push_back(Taken { at: now, held, actuals });
    }

    /// All that are not too old, with when they were taken.
    pub(super) fn take(
        &self,
        now: Duration,
    ) -> impl Iterator<Item = (Duration, Held, Vec<ExactAmount>)> + use<> {
        let taken = std::mem::take(&mut *lock(&self.taken));
        let is_new = move |one: &Taken| now.saturating_sub(one.at) <= KEPT;
        taken.into_iter().filter(is_new).map(|Taken { at, held, actuals }| (at, held, actuals))
    }
}
