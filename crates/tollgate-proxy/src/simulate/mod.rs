//! What would have become of past calls under this configuration: recorded calls, put to the limits again.
//!
//! Calls come in the order of their admission. Each reserves what it reserved then and is settled when it
//! ended, to what it came to cost; the policy, the limiter and the store are those of the request path, on a
//! clock that the calls move. What usage events do not say is not guessed: see [`Simulation`].

mod calls;
mod clock;
mod judge;
mod run;
mod tally;
#[cfg(test)]
mod tests;

use std::{path::Path, sync::Arc};

use tollgate_limiter::{Amount, ExactAmount, TimestampMs};
use tollgate_store::MemoryStore;
use tollgate_usage::{Past, ReplaySummary, UsageError, replay_all};

use crate::policy::{KeyLimit, Policy};

use self::{calls::Calls, clock::CallClock, run::Run};

/// The most calls that one simulation holds: some 150 bytes each.
const CALLS_MAX: usize = 20_000_000;

/// What would have become of past calls.
///
/// It holds as far as events tell. Calls after a refused one are as they were, though an agent might have
/// ended, or tried again. Reservations are those recorded: `[reservation]` of the new configuration plays no
/// part, streams hold what they were admitted at until they end and are not cut off, and a request's size is
/// what was reserved for it. A call
/// goes to the provider that it went to, and counts for the model that answered. Times are exact to the
/// millisecond: a call ends as much later as its request took to arrive.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// What was put to the limits.
    pub calls: SimulatedCalls,
    /// What was spent before the first of them and counts in budgets, as at a restart.
    pub spent_before: SimulatedCalls,
    /// Of the calls, those that would have been refused.
    pub refused: SimulatedCalls,
    /// When the first call was admitted, and the last.
    pub span: Option<(TimestampMs, TimestampMs)>,
    /// Why, and whose: the largest saving first.
    pub refusals: Vec<SimulatedRefusals>,
    /// Every limit that a call met: those that refuse first, then by how far they were used up.
    pub limits: Vec<SimulatedLimit>,
    /// Refusals of the past. What was never made cannot be made again: they are counted alone.
    pub past_refusals: u64,
    /// Calls of lines that do not say how much output was reserved: as much as was used counts as reserved.
    pub without_reserved_output: u64,
    /// What was read.
    pub summary: ReplaySummary,
}

/// Some calls.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SimulatedCalls {
    /// How many.
    pub count: u64,
    /// What they cost then, in micro-USD and millionths of one.
    pub cost: ExactAmount,
}

/// Calls of one key that would have been refused for one reason.
#[derive(Clone, Debug)]
pub struct SimulatedRefusals {
    /// What `x-tollgate-reason` would have said, or `limit`.
    pub reason: &'static str,
    /// The limit that binds; `None`: none refused.
    pub limit: Option<KeyLimit>,
    /// The tenant.
    pub tenant: Arc<str>,
    /// The key.
    pub key: Arc<str>,
    /// The calls: their cost would have been saved.
    pub calls: SimulatedCalls,
    /// When the first of them was refused, and the last.
    pub span: (TimestampMs, TimestampMs),
}

/// How a limit was used.
#[derive(Clone, Debug)]
pub struct SimulatedLimit {
    /// The limit, with the value of its scope; `*` for all values that callers choose.
    pub limit: KeyLimit,
    /// How many calls met it.
    pub calls: u64,
    /// Those that it would have refused, be it alone or with others.
    pub refused: SimulatedCalls,
    /// Those that it would have let pass beyond its amount, with a warning.
    pub over_soft: SimulatedCalls,
    /// The most that was used and held of it at a time, in its unit, by one counter.
    pub peak: Amount,
    /// When that was.
    pub peak_at: TimestampMs,
}

/// How far a simulation has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SimulateProgress {
    /// So many bytes of so many are read.
    Reading(u64, u64),
    /// So many calls of so many are decided.
    Deciding(u64, u64),
}

/// Past calls could not be simulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// A usage file cannot be read.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// The calls do not fit into the memory that a simulation may take.
    #[error("more than {CALLS_MAX} calls: simulate a part of the files, or the time since a later moment")]
    TooManyCalls,
}

/// Puts the calls of `paths` to `policy`. Those before `since` are taken as they were: what they cost counts
/// in budgets.
pub(crate) fn simulate<P: AsRef<Path>>(
    policy: &Policy,
    paths: &[P],
    since: Option<TimestampMs>,
    mut progress: impl FnMut(SimulateProgress),
) -> Result<Simulation, SimulateError> {
    let since = since.unwrap_or(TimestampMs::new(0));
    let clock = Arc::new(CallClock::new(since));
    let store = MemoryStore::new(clock.clone());
    let (mut calls, mut spent_before) = (Calls::default(), SimulatedCalls::default());
    let mut past_refusals = 0;
    let reading = |done, total| progress(SimulateProgress::Reading(done, total));
    let summary = replay_all(paths, reading, |past| match past {
        Past::Refusal(refusal) => past_refusals += u64::from(refusal.ts >= since),
        Past::Usage(event) if event.ts < since => {
            spent_before.add(event.cost);
            policy.spent_of(event, |limit, spent| store.restore(limit, event.ts..=event.ts, spent));
        }
        Past::Usage(event) => {
            if calls.len() <= CALLS_MAX {
                calls.push(policy, event);
            }
        }
    })?;
    if calls.len() > CALLS_MAX {
        return Err(SimulateError::TooManyCalls);
    }
    let without_reserved_output = calls.without_reserved_output();
    let decided = Run::new(policy, &store, &clock, &calls).through(&calls, &mut progress);
    Ok(Simulation {
        calls: decided.calls,
        spent_before,
        refused: decided.refused,
        span: calls.span(),
        refusals: decided.refusals(),
        limits: decided.limits(),
        past_refusals,
        without_reserved_output,
        summary,
    })
}

impl SimulatedCalls {
    fn add(&mut self, cost: ExactAmount) {
        self.count = self.count.saturating_add(1);
        self.cost = self.cost.saturating_add(cost);
    }
}
