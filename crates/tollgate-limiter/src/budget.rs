//! The calendar budget: all that falls into one period, to the millionth of a unit.
//!
//! A charge fits iff `committed + charge ≤ limit`, where `committed` is what settled requests used
//! and open reservations hold. A reservation and its settlement belong to the period of the
//! admission; once that has ended, its settlement changes nothing.

use crate::{
    Amount, ExactAmount, Outcome, Period, TimestampMs,
    counter::{Booking, Slot, Tally, Transitions},
    spend::Spend,
};

/// What one calendar period has committed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Budget {
    period: Period,
    index: u64,
    /// The end of period `index`: to find a month anew takes longer than all the rest.
    end: Option<TimestampMs>,
    spend: Spend,
}

impl Budget {
    pub(crate) const fn new(period: Period, now: TimestampMs) -> Self {
        Self::of(period, period.index(now))
    }

    const fn of(period: Period, index: u64) -> Self {
        let spend = Spend { committed: ExactAmount::ZERO, held: Amount::ZERO };
        Self { period, index, end: period.end_of(index), spend }
    }

    pub(crate) const fn period(&self) -> Period {
        self.period
    }

    /// The state in the period of `now`, which is never an earlier one.
    fn rolled(&self, now: TimestampMs) -> Self {
        if self.is_over(now) { Self::new(self.period, now) } else { *self }
    }

    fn is_over(&self, now: TimestampMs) -> bool {
        // The last period there is ends with the numbers, and is never over.
        self.end.is_some_and(|end| end <= now) && self.period.index(now) > self.index
    }

    fn roll_to(&mut self, index: u64) {
        if index > self.index {
            *self = Self::of(self.period, index);
        }
    }
}

impl Transitions for Budget {
    /// A charge that is too large for now fits in the next period, when nothing is committed there
    /// yet. Without a next period no passing of time helps: never. (Open reservations may still be
    /// settled below what they hold; [`EntryRefusal::fits_without_holds`](crate::EntryRefusal::fits_without_holds)
    /// tells.)
    fn when(&self, limit: Amount, charge: Amount, now: TimestampMs) -> Outcome {
        match self.rolled(now).end {
            Some(end) if charge <= limit => Outcome::Wait(end.since(now)),
            _ => Outcome::Never,
        }
    }

    fn tally(&self, _limit: Amount, now: TimestampMs) -> Tally {
        let state = self.rolled(now);
        Tally { spent: state.spend.settled(), held: state.spend.held }
    }

    fn remaining(&self, limit: Amount, now: TimestampMs) -> Amount {
        if self.is_over(now) { limit } else { self.spend.remaining(limit) }
    }

    fn resets_at(&self, _limit: Amount, now: TimestampMs) -> Option<TimestampMs> {
        self.rolled(now).end
    }

    fn can_extend(&self, admitted: Slot, now: TimestampMs) -> bool {
        Slot(self.rolled(now).index) == admitted
    }

    fn book(&mut self, _limit: Amount, charge: Amount, now: TimestampMs) -> Slot {
        *self = self.rolled(now);
        self.spend.book(charge);
        Slot(self.index)
    }

    fn settle(
        &mut self,
        _limit: Amount,
        latest_first: impl Iterator<Item = Booking> + Clone,
        actual: ExactAmount,
        _now: TimestampMs,
    ) {
        // All bookings of one reservation lie in the period of its admission.
        let Some(Booking { slot, .. }) = latest_first.clone().next() else { return };
        self.roll_to(slot.0);
        if slot == Slot(self.index) {
            self.spend.settle(latest_first, actual);
        }
    }

    fn record(&mut self, _limit: Amount, at: TimestampMs, actual: ExactAmount) {
        let index = self.period.index(at);
        self.roll_to(index);
        if index == self.index {
            self.spend.add(actual);
        }
    }

    fn is_idle(&self, now: TimestampMs) -> bool {
        self.spend.committed == ExactAmount::ZERO || self.is_over(now)
    }
}
