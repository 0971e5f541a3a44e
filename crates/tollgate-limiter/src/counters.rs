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
    latest: TimestampMs,
}

impl Sweep {
    /// The fewest calls between two sweeps.
    const CALLS_MIN: usize = 256;

    /// Counts one call. True after as many calls as there are counters, which makes a sweep's share
    /// of a call constant; the caller then drops every counter that
    /// [is idle](Counter::is_idle) at `now`.
    pub fn is_due(&mut self, counters: usize, now: TimestampMs) -> bool {
        self.calls = self.calls.saturating_add(1);
        if self.calls < counters.max(Self::CALLS_MIN) {
            return false;
        }
        self.calls = 0;
        self.latest = self.latest.max(now);
        true
    }

    /// A counter that is not there.
    pub fn new_counter(&self, rule: Rule, now: TimestampMs) -> Counter {
        Counter::new(rule, now.max(self.latest))
    }
}
