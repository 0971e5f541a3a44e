//! Where a ledger's counters live: whatever finds them by key.

use crate::{Counter, Limit, Rule, TimestampMs};

/// Finds counters. One call into a ledger sees no change but its own.
pub trait Counters {
    /// The counter of `limit`: the one that is there if it counts by the same rule, or else a
    /// [new one](Sweep::new_counter).
    fn get(&self, limit: &Limit, now: TimestampMs) -> Counter;

    /// Changes the same counter, and keeps it if it was new.
    fn change<T>(&mut self, limit: &Limit, now: TimestampMs, change: impl FnOnce(&mut Counter) -> T) -> T;
}

/// Says when to drop idle counters, and where a counter begins that may have been dropped before.
///
/// To forget a counter is the same as to have looked at it at the time of the sweep: if the clock
/// steps back afterwards, the new one still begins where the old one would have been.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sweep {
    calls: usize,
    kept: usize,
    latest: TimestampMs,
}

impl Sweep {
    /// The fewest calls between two sweeps.
    const CALLS_MIN: usize = 256;

    /// Counts one call on a collection of `counters`, and sweeps when it is time: after as many
    /// calls, or as many new counters, as the last sweep had kept. So its share of a call is
    /// constant, and there are never more than about twice as many counters as are in use.
    ///
    /// `drop_idle` drops each counter that [is idle](Counter::is_idle) at `now` and says how many
    /// it kept.
    pub fn call(&mut self, now: TimestampMs, counters: usize, drop_idle: impl FnOnce() -> usize) {
        self.calls = self.calls.saturating_add(1);
        let pace = self.kept.max(Self::CALLS_MIN);
        if self.calls >= pace || counters >= pace.saturating_mul(2) {
            *self = Self { calls: 0, kept: drop_idle(), latest: self.latest.max(now) };
        }
    }

    /// A counter that is not there.
    pub fn new_counter(&self, rule: Rule, now: TimestampMs) -> Counter {
        Counter::new(rule, now.max(self.latest))
    }
}
