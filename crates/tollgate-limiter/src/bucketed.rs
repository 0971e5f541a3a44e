//! The bucketed window: 60 buckets a window, the last 61 counted whole.
//!
//! A charge fits iff `counted + charge ≤ limit`, where `counted` is what the bucket of now and the
//! 60 before it have admitted. Any period of one window's length touches at most 61 buckets, and the
//! last charge in it was decided over all of them: no such period holds more than the limit. Steady
//! overload gets the limit in every 61 buckets: 60/61 of it in a window.

use alloc::boxed::Box;

use crate::{
    Amount, DurationMs, ExactAmount, Outcome, TimestampMs,
    counter::{Booking, Slot, Tally, Transitions, give_back},
    counts::narrow,
    ring::{Cut, Ring},
};

const BUCKETS: u64 = 60;
/// A bucket more: the oldest one is partly out of sight, and counted whole.
const COUNTED: usize = 61;

/// Counts of the latest 61 buckets, out of line so that other counters stay small.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct BucketedWindow {
    window: DurationMs,
    buckets: Box<Ring<COUNTED>>,
}

impl BucketedWindow {
    pub(crate) fn new(window: DurationMs, now: TimestampMs) -> Self {
        Self { window, buckets: Box::new(Ring::new(cut(window).part(now))) }
    }

    pub(crate) const fn window(&self) -> DurationMs {
        self.window
    }

    fn bucket(&self, at: TimestampMs) -> u64 {
        cut(self.window).part(at)
    }

    fn roll_to(&mut self, at: TimestampMs) {
        self.buckets.roll_to(self.bucket(at));
    }

    fn used(&self, now: TimestampMs) -> u128 {
        self.buckets.sums_at(self.bucket(now)).0
    }
}

impl Transitions for BucketedWindow {
    fn when(&self, limit: Amount, charge: Amount, now: TimestampMs) -> Outcome {
        match limit.get().checked_sub(charge.get()) {
            Some(room) => {
                let first = self.buckets.first_within(room.into());
                Outcome::Wait(cut(self.window).start(first).since(now))
            }
            None => Outcome::Never,
        }
    }

    fn tally(&self, _limit: Amount, now: TimestampMs) -> Tally {
        let (used, held) = self.buckets.sums_at(self.bucket(now));
        Tally {
            spent: ExactAmount::whole(narrow(used.saturating_sub(held))),
            held: Amount::new(narrow(held.min(used))),
        }
    }

    fn remaining(&self, limit: Amount, now: TimestampMs) -> Amount {
        limit.saturating_sub(Amount::new(narrow(self.used(now))))
    }

    /// When nothing counts any more that counts now.
    fn resets_at(&self, _limit: Amount, now: TimestampMs) -> Option<TimestampMs> {
        let last = self.buckets.last_used().map(|bucket| bucket.saturating_add(COUNTED as u64));
        Some(last.map_or(now, |over| cut(self.window).start(over).max(now)))
    }

    fn can_extend(&self, _admitted: Slot, _now: TimestampMs) -> bool {
        true
    }

    fn book(&mut self, _limit: Amount, charge: Amount, now: TimestampMs) -> Slot {
        self.roll_to(now);
        let latest = self.buckets.latest();
        self.buckets.change(latest, |counts| counts.book(charge.get()));
        Slot(latest)
    }

    /// What was not used goes back to the buckets it was booked in, latest first, where they still
    /// count. What was used beyond is charged to the current one.
    fn settle(
        &mut self,
        _limit: Amount,
        latest_first: impl Iterator<Item = Booking> + Clone,
        actual: ExactAmount,
        now: TimestampMs,
    ) {
        let beyond = give_back(latest_first, actual.rounded_up(), |Booking { slot, charge }, back| {
            self.buckets.change(slot.0, |counts| counts.settle(charge.get(), back.get()));
        });
        if beyond > Amount::ZERO {
            self.roll_to(now);
            self.buckets.change(self.buckets.latest(), |counts| counts.add(beyond.get()));
        }
    }

    fn record(&mut self, _limit: Amount, at: TimestampMs, actual: ExactAmount) {
        self.roll_to(at);
        self.buckets.change(self.bucket(at), |counts| counts.add(actual.rounded_up().get()));
    }

    fn is_idle(&self, now: TimestampMs) -> bool {
        self.buckets.last_used().is_none() || self.buckets.is_over(self.bucket(now))
    }
}

const fn cut(window: DurationMs) -> Cut {
    Cut { window, parts: BUCKETS }
}
