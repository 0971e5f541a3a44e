//! The calendar budget: all that falls into one period, to the millionth of a unit.
//!
//! A charge fits iff `committed + charge ≤ limit`, where `committed` is what settled requests used
//! and open reservations hold. Reservations are whole units, settled amounts carry what is below
//! one: ten thousand settles of 0.24 commit exactly 2,400. A reservation and its settlement belong
//! to the period of the admission; once that has ended, its settlement changes nothing.

use crate::{
    Amount, ExactAmount, Outcome, Period, TimestampMs,
    counter::{Booking, Slot, Tally, Transitions, total},
};

/// What one calendar period has committed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Budget {
    period: Period,
    index: u64,
    committed: ExactAmount,
    /// The part of `committed` that open reservations hold. Reported, never compared.
    held: Amount,
}

impl Budget {
    pub(crate) const fn new(period: Period, now: TimestampMs) -> Self {
        Self { period, index: period.index(now), committed: ExactAmount::ZERO, held: Amount::ZERO }
    }

    pub(crate) const fn period(&self) -> Period {
        self.period
    }

    /// The state in the period of `now`, which is never an earlier one.
    fn rolled(mut self, now: TimestampMs) -> Self {
        self.roll_to(Slot(self.period.index(now)));
        self
    }

    fn roll_to(&mut self, Slot(index): Slot) {
        if index > self.index {
            *self = Self { index, committed: ExactAmount::ZERO, held: Amount::ZERO, ..*self };
        }
    }

    fn fits(&self, limit: Amount, charge: Amount) -> bool {
        let needed = ExactAmount::from(charge).as_millionths();
        self.committed.as_millionths().saturating_add(needed) <= ExactAmount::from(limit).as_millionths()
    }
}

impl Transitions for Budget {
    /// A charge that is too large for now fits in the next period, when nothing is committed there
    /// yet. Without a next period no passing of time helps: never. (Open reservations may still be
    /// settled below what they hold; [`EntryRefusal::fits_without_holds`](crate::EntryRefusal::fits_without_holds)
    /// tells.)
    fn outcome(&self, limit: Amount, charge: Amount, now: TimestampMs) -> Outcome {
        let state = self.rolled(now);
        if charge == Amount::ZERO || state.fits(limit, charge) {
            return Outcome::Admit;
        }
        match state.period.end_of(state.index) {
            Some(end) if charge <= limit => Outcome::Wait(end.since(now)),
            _ => Outcome::Never,
        }
    }

    fn tally(&self, limit: Amount, now: TimestampMs) -> Tally {
        let state = self.rolled(now);
        Tally {
            spent: state.committed.saturating_sub(state.held.into()),
            held: state.held,
            remaining: state.remaining(limit, now),
            resets_at: state.resets_at(now),
        }
    }

    fn remaining(&self, limit: Amount, now: TimestampMs) -> Amount {
        limit.saturating_sub(self.rolled(now).committed.rounded_up())
    }

    fn resets_at(&self, now: TimestampMs) -> Option<TimestampMs> {
        self.period.end_of(self.rolled(now).index)
    }

    fn can_extend(&self, admitted: Slot, now: TimestampMs) -> bool {
        Slot(self.rolled(now).index) == admitted
    }

    fn book(&mut self, charge: Amount, now: TimestampMs) -> Slot {
        self.roll_to(Slot(self.period.index(now)));
        self.committed = self.committed.saturating_add(charge.into());
        self.held = self.held.saturating_add(charge);
        Slot(self.index)
    }

    fn settle(
        &mut self,
        latest_first: impl Iterator<Item = Booking> + Clone,
        actual: ExactAmount,
        _now: TimestampMs,
    ) {
        // All bookings of one reservation lie in the period of its admission.
        let Some(Booking { slot, .. }) = latest_first.clone().next() else { return };
        self.roll_to(slot);
        if slot != Slot(self.index) {
            return;
        }
        let booked = total(latest_first);
        self.held = self.held.saturating_sub(booked);
        self.committed = self.committed.saturating_sub(booked.into()).saturating_add(actual);
    }

    fn record(&mut self, slot: Slot, actual: ExactAmount) {
        self.roll_to(slot);
        if slot == Slot(self.index) {
            self.committed = self.committed.saturating_add(actual);
        }
    }

    fn is_idle(&self, now: TimestampMs) -> bool {
        self.committed == ExactAmount::ZERO || self.period.index(now) > self.index
    }
}
