//! The largest request: a charge fits iff it is not above the limit.
//!
//! Nothing is counted. An extension is asked together with all that its reservation has charged.

use crate::{
    Amount, ExactAmount, Outcome, TimestampMs,
    counter::{Booking, Slot, Tally, Transitions},
};

/// No state at all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PerRequest;

impl Transitions for PerRequest {
    fn when(&self, _limit: Amount, _charge: Amount, _now: TimestampMs) -> Outcome {
        Outcome::Never
    }

    fn tally(&self, _limit: Amount, _now: TimestampMs) -> Tally {
        Tally { spent: ExactAmount::ZERO, held: Amount::ZERO }
    }

    fn remaining(&self, limit: Amount, _now: TimestampMs) -> Amount {
        limit
    }

    fn resets_at(&self, _limit: Amount, _now: TimestampMs) -> Option<TimestampMs> {
        None
    }

    fn can_extend(&self, _admitted: Slot, _now: TimestampMs) -> bool {
        true
    }

    fn book(&mut self, _limit: Amount, _charge: Amount, _now: TimestampMs) -> Slot {
        Slot::ONLY
    }

    fn settle(
        &mut self,
        _limit: Amount,
        _latest_first: impl Iterator<Item = Booking> + Clone,
        _actual: ExactAmount,
        _now: TimestampMs,
    ) {
    }

    fn record(&mut self, _limit: Amount, _at: TimestampMs, _actual: ExactAmount) {}

    fn is_idle(&self, _now: TimestampMs) -> bool {
        true
    }
}
