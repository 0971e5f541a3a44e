//! Concurrency: what open reservations hold, and nothing else.
//!
//! A charge fits iff `open + charge ≤ limit`. A settle frees what was charged, whatever was used; no
//! passing of time does. A reservation that is never settled stays open.

use crate::{
    Amount, ExactAmount, Outcome, TimestampMs,
    counter::{Booking, Slot, Tally, Transitions, total},
};

/// What is open.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Concurrent {
    open: Amount,
}

impl Transitions for Concurrent {
    fn when(&self, _limit: Amount, _charge: Amount, _now: TimestampMs) -> Outcome {
        Outcome::Never
    }

    fn tally(&self, _limit: Amount, _now: TimestampMs) -> Tally {
        Tally { spent: ExactAmount::ZERO, held: self.open }
    }

    fn remaining(&self, limit: Amount, _now: TimestampMs) -> Amount {
        limit.saturating_sub(self.open)
    }

    fn resets_at(&self, _limit: Amount, _now: TimestampMs) -> Option<TimestampMs> {
        None
    }

    fn can_extend(&self, _admitted: Slot, _now: TimestampMs) -> bool {
        true
    }

    fn book(&mut self, _limit: Amount, charge: Amount, _now: TimestampMs) -> Slot {
        self.open = self.open.saturating_add(charge);
        Slot::ONLY
    }

    fn settle(
        &mut self,
        _limit: Amount,
        latest_first: impl Iterator<Item = Booking> + Clone,
        _actual: ExactAmount,
        _now: TimestampMs,
    ) {
        self.open = self.open.saturating_sub(total(latest_first));
    }

    /// What is over is not open.
    fn record(&mut self, _limit: Amount, _at: TimestampMs, _actual: ExactAmount) {}

    fn is_idle(&self, _now: TimestampMs) -> bool {
        self.open == Amount::ZERO
    }
}
