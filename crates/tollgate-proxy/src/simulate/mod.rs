//! What would have become of past calls under this configuration: recorded calls, put to the limits again.
//!
//! Calls come in the order of their admission. Each reserves what it reserved then and is settled when it
//! ended, to what it came to cost; the policy, the limiter and the store are those of the request path, on a
//! clock that the calls move. What usage events do not say is not guessed: see [`Simulation`].

mod calls;
mod clock;
mod judge;
mod run;
mod shrink;
mod tally;
#[cfg(test)]
mod tests;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tollgate_limiter::{Amount, ExactAmount, TimestampMs};
use tollgate_store::MemoryStore;
use tollgate_usage::{ReplaySummary, UsageError, digest_all};

use crate::policy::{KeyLimit, Policy};

use self::{
    calls::{Calls, PastCall},
    clock::CallClock,
    run::Run,
    shrink::{Shrink, Shrunk},
};

/// The most calls that one simulation holds: some 180 bytes each.
const CALLS_MAX: usize = 20_000_000;

/// The bytes of a short line.
const LINE_BYTES_MIN: u64 = 400;

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
    let (mut calls, mut spent_before) = (Vec::new(), SimulatedCalls::default());
    // Only room: it grows without, where the system does not promise so much.
    let _ = calls.try_reserve(calls_at_most(paths));
    let (mut past_refusals, mut without_reserved_output) = (0, 0);
    let is_full = AtomicBool::new(false);
    let reading = |done, total| progress(SimulateProgress::Reading(done, total));
    let take = |reader, shrunk| match shrunk {
        Shrunk::Nothing => {}
        Shrunk::Refusal => past_refusals += 1,
        Shrunk::Before(at, cost, spent_of) => {
            spent_before.add(cost);
            spent_of.iter().for_each(|(limit, spent)| store.restore(limit, at..=at, *spent));
        }
        Shrunk::Call(_, _) if calls.len() >= CALLS_MAX => is_full.store(true, Ordering::Relaxed),
        Shrunk::Call(call, says_output) => {
            without_reserved_output += u64::from(!says_output);
            calls.push(PastCall { reader, ..call });
        }
    };
    let (summary, readers) = digest_all(paths, reading, || Shrink::new(policy, since, &is_full), take)?;
    if is_full.load(Ordering::Relaxed) {
        return Err(SimulateError::TooManyCalls);
    }
    let calls = Calls::new(calls, readers);
    let decided = Run::new(&store, &clock, &calls).through(policy, &mut progress);
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

/// Room for as many calls as the files can have of usual lines: what is not filled takes no memory, and what
/// is filled is not moved.
fn calls_at_most<P: AsRef<Path>>(paths: &[P]) -> usize {
    let bytes = paths.iter().filter_map(|path| path.as_ref().metadata().ok()).map(|found| found.len());
    let calls = bytes.sum::<u64>() / LINE_BYTES_MIN;
    usize::try_from(calls).map_or(CALLS_MAX, |calls| calls.min(CALLS_MAX))
}

impl SimulatedCalls {
    fn add(&mut self, cost: ExactAmount) {
        self.count = self.count.saturating_add(1);
        self.cost = self.cost.saturating_add(cost);
    }
}
