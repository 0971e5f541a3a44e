//! Where a ledger's counters live: whatever finds them by key.

use alloc::vec::Vec;

use crate::{Counter, Limit, Plan, TimestampMs, slots::FEW};

/// Finds counters. One call into a ledger sees no change but its own.
pub trait Counters {
    /// Where a counter is, for the length of one call: it is looked up once.
    type Place: Copy;

    /// The place of the counter that `limit` names, if there is one, whatever rule it counts by.
    fn find(&self, limit: &Limit) -> Option<Self::Place>;

    /// The counter at a place that was found in this call.
    fn at(&self, place: Self::Place) -> &Counter;

    /// The same, to change it.
    fn at_mut(&mut self, place: Self::Place) -> &mut Counter;

    /// A [new counter](crate::CounterRow::new_counter) for a limit that has none.
    fn new_counter(&self, limit: &Limit, now: TimestampMs) -> Counter;

    /// Keeps a counter that was new. Places found before stay as they are.
    fn keep(&mut self, limit: &Limit, counter: Counter);

    /// Reads the counter of `limit`, as it is or would be under the limit's rule, or a new one.
    fn read<T>(&self, limit: &Limit, now: TimestampMs, read: impl FnOnce(&Counter) -> T) -> T {
        read_at(self, self.find(limit), limit, now, read)
    }

    /// Changes the counter of `limit`, or a new one.
    fn change<T>(&mut self, limit: &Limit, now: TimestampMs, change: impl FnOnce(&mut Counter) -> T) -> T {
        change_at(self, self.find(limit), limit, now, change)
    }
}

/// The counters of one plan, each looked up once.
pub(crate) struct Found<'a, C: Counters> {
    pub(crate) counters: &'a mut C,
    pub(crate) now: TimestampMs,
    plan: &'a Plan,
    few: [Option<C::Place>; FEW],
    more: Vec<Option<C::Place>>,
}

impl<'a, C: Counters> Found<'a, C> {
    /// Looks the counters up for the length of `call`.
    pub(crate) fn of<T>(
        counters: &'a mut C,
        now: TimestampMs,
        plan: &'a Plan,
        call: impl FnOnce(&mut Self) -> T,
    ) -> T {
        // Filled where it stays: to move it takes as long as to find.
        let mut found = Self { counters, now, plan, few: [None; FEW], more: Vec::new() };
        let mut entries = plan.entries().iter();
        for (place, entry) in found.few.iter_mut().zip(&mut entries) {
            *place = found.counters.find(&entry.limit);
        }
        found.more.extend(entries.map(|entry| found.counters.find(&entry.limit)));
        call(&mut found)
    }

    /// The limits of the plan with their places in it.
    pub(crate) fn limits(&self) -> impl Iterator<Item = (usize, &'a Limit)> + Clone + use<'a, C> {
        self.plan.entries().iter().map(|entry| &*entry.limit).enumerate()
    }

    pub(crate) fn read<T>(&self, index: usize, limit: &Limit, read: impl FnOnce(&Counter) -> T) -> T {
        read_at(self.counters, self.place(index), limit, self.now, read)
    }

    pub(crate) fn change<T>(
        &mut self,
        index: usize,
        limit: &Limit,
        change: impl FnOnce(&mut Counter) -> T,
    ) -> T {
        let place = self.place(index);
        change_at(self.counters, place, limit, self.now, change)
    }

    fn place(&self, index: usize) -> Option<C::Place> {
        let more = || self.more.get(index.checked_sub(FEW)?).copied().flatten();
        self.few.get(index).copied().unwrap_or_else(more)
    }
}

#[inline]
fn read_at<C: Counters + ?Sized, T>(
    counters: &C,
    place: Option<C::Place>,
    limit: &Limit,
    now: TimestampMs,
    read: impl FnOnce(&Counter) -> T,
) -> T {
    match place {
        Some(place) => match counters.at(place) {
            counter if counter.rule() == limit.rule => read(counter),
            counter => read(&counter.under(limit, now)),
        },
        None => read(&counters.new_counter(limit, now)),
    }
}

fn change_at<C: Counters + ?Sized, T>(
    counters: &mut C,
    place: Option<C::Place>,
    limit: &Limit,
    now: TimestampMs,
    change: impl FnOnce(&mut Counter) -> T,
) -> T {
    if let Some(place) = place {
        return change(counters.at_mut(place));
    }
    let mut counter = counters.new_counter(limit, now);
    let changed = change(&mut counter);
    if !counter.is_blank() {
        counters.keep(limit, counter);
    }
    changed
}
