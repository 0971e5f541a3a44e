//! The sliding-window counter: the current window, and the part of the previous one still in sight.
//!
//! A charge fits iff
//!
//! ```text
//! prev · (S − e) + (cur + charge) · S ≤ limit · S
//! ```
//!
//! where `S` is the number of parts a window is cut into and `e` how many of them have passed.
//! Windows up to a minute are cut into milliseconds, longer ones into 60,000 parts, so that with
//! limits up to [`WINDOW_AMOUNT_MAX`](crate::WINDOW_AMOUNT_MAX) every product stays exact in a
//! double, for stores that compute in those. A part counts as passed when it is over, so cutting
//! errs towards refusing. Nothing else is rounded. A count is at most 2⁶⁴ and `S` at most 60,000:
//! 128 bits hold every term.

use crate::{
    Amount, DurationMs, ExactAmount, Outcome, TimestampMs,
    counter::{Booking, Slot, Tally, Transitions, give_back},
    counts::{Counts, narrow, quotient, wide},
};

const PARTS_MAX: u64 = 60_000;

/// Counts of two neighbouring windows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SlidingWindow {
    window: DurationMs,
    index: u64,
    prev: Counts,
    cur: Counts,
}

impl SlidingWindow {
    pub(crate) fn new(window: DurationMs, now: TimestampMs) -> Self {
        let index = now.get().checked_div(window.get()).unwrap_or(now.get());
        Self { window, index, prev: Counts::default(), cur: Counts::default() }
    }

    pub(crate) const fn window(&self) -> DurationMs {
        self.window
    }

    /// The window that `at` falls into.
    fn index_at(&self, at: TimestampMs) -> u64 {
        // Mostly it is the current one: a product costs less than a quotient.
        match at.get().checked_sub(self.start_ms()) {
            Some(elapsed_ms) if elapsed_ms < self.window_ms() => self.index,
            _ => at.get().checked_div(self.window_ms()).unwrap_or(0),
        }
    }

    /// The state in the window of `now`, which is never an earlier one.
    fn rolled(mut self, now: TimestampMs) -> Self {
        self.roll_to(self.index_at(now));
        self
    }

    fn roll_to(&mut self, index: u64) {
        match index.checked_sub(self.index) {
            None | Some(0) => return,
            Some(1) => self.prev = self.cur,
            Some(_) => self.prev = Counts::default(),
        }
        self.cur = Counts::default();
        self.index = index;
    }

    /// The counts of a window, if it still counts.
    fn counts_mut(&mut self, Slot(index): Slot) -> Option<&mut Counts> {
        match self.index.checked_sub(index) {
            Some(0) => Some(&mut self.cur),
            Some(1) => Some(&mut self.prev),
            _ => None,
        }
    }

    /// The window's length. A window of nothing is one of a millisecond.
    fn window_ms(&self) -> u64 {
        self.window.get().max(1)
    }

    fn parts(&self) -> u64 {
        self.window_ms().min(PARTS_MAX)
    }

    fn start_ms(&self) -> u64 {
        self.index.saturating_mul(self.window_ms())
    }

    /// How many parts of the current window are still to come: the weight of the previous one.
    fn parts_left(&self, now: TimestampMs) -> u64 {
        let elapsed_ms = now.get().saturating_sub(self.start_ms());
        self.parts().saturating_sub(self.parts_in(elapsed_ms))
    }

    /// The whole parts in a span of the window.
    fn parts_in(&self, elapsed_ms: u64) -> u64 {
        if self.window_ms() <= PARTS_MAX {
            return elapsed_ms;
        }
        narrow(quotient(wide(elapsed_ms, PARTS_MAX), self.window_ms()))
    }

    /// The first millisecond of the window at which `parts` have passed.
    fn ms_after(&self, parts: u64) -> u64 {
        if self.window_ms() <= PARTS_MAX {
            return parts;
        }
        narrow(wide(parts, self.window_ms()).div_ceil(PARTS_MAX.into()))
    }

    /// What is left of the limit now, in parts of a unit; `None` if it is exceeded.
    fn room(&self, limit: Amount, now: TimestampMs) -> Option<u128> {
        wide(limit.get(), self.parts())
            .checked_sub(wide(self.cur.used, self.parts()))?
            .checked_sub(wide(self.prev.used, self.parts_left(now)))
    }

    /// The first moment at which `charge ≤ limit` fits if nothing else comes, given that it does
    /// not fit now.
    fn first_fit_ms(&self, limit: u64, charge: u64) -> u64 {
        let spare = limit.saturating_sub(charge);
        if let Some(room) = spare.checked_sub(self.cur.used) {
            let parts = self.parts_until(self.prev.used, room);
            if parts < self.parts() {
                return self.start_ms().saturating_add(self.ms_after(parts));
            }
        }
        let next_ms = self.start_ms().saturating_add(self.window_ms());
        let parts = self.parts_until(self.cur.used, spare);
        next_ms.saturating_add(if parts < self.parts() { self.ms_after(parts) } else { self.window_ms() })
    }

    /// How many parts must pass until a previous window of `count` weighs no more than `room`.
    fn parts_until(&self, count: u64, room: u64) -> u64 {
        match wide(room, self.parts()).checked_div(count.into()) {
            Some(weight) => self.parts().saturating_sub(narrow(weight)),
            None => 0,
        }
    }

    /// What `count` of the previous window still weighs, rounded up.
    fn weighed(&self, count: u64, parts_left: u64) -> u64 {
        narrow(wide(count, parts_left).div_ceil(self.parts().into()))
    }
}

impl Transitions for SlidingWindow {
    fn when(&self, limit: Amount, charge: Amount, now: TimestampMs) -> Outcome {
        if charge > limit {
            return Outcome::Never;
        }
        let first_fit_ms = self.rolled(now).first_fit_ms(limit.get(), charge.get());
        Outcome::Wait(TimestampMs::new(first_fit_ms).since(now))
    }

    fn tally(&self, _limit: Amount, now: TimestampMs) -> Tally {
        let state = self.rolled(now);
        let parts_left = state.parts_left(now);
        let used = state.cur.used.saturating_add(state.weighed(state.prev.used, parts_left));
        let spent = state.cur.settled().saturating_add(state.weighed(state.prev.settled(), parts_left));
        Tally { spent: ExactAmount::whole(spent), held: Amount::new(used.saturating_sub(spent)) }
    }

    #[inline]
    fn remaining(&self, limit: Amount, now: TimestampMs) -> Amount {
        let state = self.rolled(now);
        let room = state.room(limit, now).unwrap_or(0);
        // Of a minute, and of all that is longer: a division by a constant is a product.
        let units = match state.parts() {
            PARTS_MAX => quotient(room, PARTS_MAX),
            parts => quotient(room, parts),
        };
        Amount::new(narrow(units))
    }

    fn resets_at(&self, _limit: Amount, now: TimestampMs) -> Option<TimestampMs> {
        let state = self.rolled(now);
        Some(TimestampMs::new(state.start_ms().saturating_add(state.window_ms())))
    }

    fn can_extend(&self, _admitted: Slot, _now: TimestampMs) -> bool {
        true
    }

    fn book(&mut self, _limit: Amount, charge: Amount, now: TimestampMs) -> Slot {
        self.roll_to(self.index_at(now));
        self.cur.book(charge.get());
        Slot(self.index)
    }

    /// What was not used goes back to the windows it was booked in, latest first, where they still
    /// count; it is never taken from a later one. What was used beyond is charged to the current one.
    fn settle(
        &mut self,
        _limit: Amount,
        latest_first: impl Iterator<Item = Booking> + Clone,
        actual: ExactAmount,
        now: TimestampMs,
    ) {
        let beyond = give_back(latest_first, actual.rounded_up(), |Booking { slot, charge }, back| {
            if let Some(counts) = self.counts_mut(slot) {
                counts.settle(charge.get(), back.get());
            }
        });
        if beyond > Amount::ZERO {
            self.roll_to(self.index_at(now));
            self.cur.add(beyond.get());
        }
    }

    fn record(&mut self, _limit: Amount, at: TimestampMs, actual: ExactAmount) {
        let index = self.index_at(at);
        self.roll_to(index);
        if let Some(counts) = self.counts_mut(Slot(index)) {
            counts.add(actual.rounded_up().get());
        }
    }

    fn is_idle(&self, now: TimestampMs) -> bool {
        let index = self.index_at(now);
        let empty = self.prev.used == 0 && self.cur.used == 0;
        empty || index.saturating_sub(self.index) >= 2
    }
}
