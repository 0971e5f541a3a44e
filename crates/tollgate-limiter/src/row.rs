//! Counters in a row, for whoever keeps their places by key.

use alloc::vec::Vec;
use core::{
    mem,
    ops::{Index, IndexMut},
};

use crate::{Counter, Rule, TimestampMs};

/// Counters by place. It says when idle ones are dropped, and where one begins that may have been
/// dropped before.
///
/// To forget a counter is the same as to have looked at it at the time of the sweep: if the clock
/// steps back afterwards, the new one still begins where the old one would have been.
#[derive(Clone, Debug, Default)]
pub struct CounterRow {
    kept: Vec<Counter>,
    /// Since the last sweep.
    calls: usize,
    /// After the last sweep.
    was_kept: usize,
    /// The latest sweep.
    latest: TimestampMs,
}

impl CounterRow {
    /// The fewest calls between two sweeps.
    const CALLS_MIN: usize = 256;

    /// Room that is kept when a sweep has emptied the row.
    const CAPACITY_KEPT: usize = 64;

    /// How many counters there are.
    pub const fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Adds a counter and says where.
    pub fn push(&mut self, counter: Counter) -> usize {
        self.kept.push(counter);
        self.kept.len().saturating_sub(1)
    }

    /// A counter that is not there.
    pub fn new_counter(&self, rule: Rule, now: TimestampMs) -> Counter {
        Counter::new(rule, now.max(self.latest))
    }

    /// Counts one call, and drops the counters that [are idle](Counter::is_idle) at `now` when it is
    /// time: after as many calls, or as many new counters, as the last sweep had kept. So its share
    /// of a call is constant, and there are never more than about twice as many counters as are in
    /// use.
    ///
    /// When it is time, `retain_places` hands every place there is to its argument once, which moves
    /// it or says that it is gone.
    pub fn sweep(
        &mut self,
        now: TimestampMs,
        retain_places: impl FnOnce(&mut dyn FnMut(&mut usize) -> bool),
    ) {
        self.calls = self.calls.saturating_add(1);
        let pace = self.was_kept.max(Self::CALLS_MIN);
        if self.calls < pace && self.kept.len() < pace.saturating_mul(2) {
            return;
        }
        let mut all: Vec<_> = mem::take(&mut self.kept).into_iter().map(Some).collect();
        retain_places(&mut |place| {
            let counter = all.get_mut(*place).and_then(Option::take);
            let Some(counter) = counter.filter(|counter| !counter.is_idle(now)) else { return false };
            *place = self.push(counter);
            true
        });
        self.kept.shrink_to(self.kept.len().saturating_mul(2).max(Self::CAPACITY_KEPT));
        (self.calls, self.was_kept, self.latest) = (0, self.kept.len(), self.latest.max(now));
    }
}

impl Index<usize> for CounterRow {
    type Output = Counter;

    fn index(&self, place: usize) -> &Counter {
        &self.kept[place]
    }
}

impl IndexMut<usize> for CounterRow {
    fn index_mut(&mut self, place: usize) -> &mut Counter {
        &mut self.kept[place]
    }
}
