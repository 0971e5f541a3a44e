//! What was spent, to the millionth of a unit, with what open reservations hold of it.

use crate::{
    Amount, ExactAmount,
    counter::{Booking, total},
};

/// Reservations are whole units, settled amounts carry what is below one: ten thousand settles of
/// 0.24 commit exactly 2,400.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Spend {
    /// What settled requests used and open reservations hold.
    pub(crate) committed: ExactAmount,
    /// The part of `committed` that open reservations hold. Reported, never compared.
    pub(crate) held: Amount,
}

impl Spend {
    /// The largest charge with `committed + charge ≤ limit`.
    pub(crate) fn remaining(&self, limit: Amount) -> Amount {
        limit.saturating_sub(self.committed.rounded_up())
    }

    pub(crate) fn settled(&self) -> ExactAmount {
        self.committed.saturating_sub(self.held.into())
    }

    pub(crate) fn book(&mut self, charge: Amount) {
        self.committed = self.committed.saturating_add(charge.into());
        self.held = self.held.saturating_add(charge);
    }

    /// Replaces all bookings of one reservation by what was used.
    pub(crate) fn settle(&mut self, bookings: impl Iterator<Item = Booking>, actual: ExactAmount) {
        let booked = total(bookings);
        self.held = self.held.saturating_sub(booked);
        self.committed = self.committed.saturating_sub(booked.into()).saturating_add(actual);
    }

    /// Adds what nobody holds.
    pub(crate) fn add(&mut self, actual: ExactAmount) {
        self.committed = self.committed.saturating_add(actual);
    }
}
