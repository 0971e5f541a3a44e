//! The session: everything since the counter began, forgotten some time after its last use.
//!
//! A charge fits iff `committed + charge ≤ limit`. Reserving, extending and settling are uses; a
//! refusal is none. A reservation belongs to the generation of its admission, and its settlement changes
//! nothing of another.

use crate::{
    Amount, DurationMs, ExactAmount, Outcome, TimestampMs,
    counter::{Booking, Slot, Tally, Transitions},
    generation::Generation,
    spend::Spend,
};

/// What one generation has committed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Idle {
    generation: Generation,
    spend: Spend,
}

impl Idle {
    pub(crate) const fn new(after: DurationMs, now: TimestampMs) -> Self {
        let spend = Spend { committed: ExactAmount::ZERO, held: Amount::ZERO };
        Self { generation: Generation::new(after, now), spend }
    }

    pub(crate) const fn after(&self) -> DurationMs {
        self.generation.after()
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.generation.is_unused()
    }

    /// The generation of `now`.
    fn rolled(mut self, now: TimestampMs) -> Self {
        self.roll_to(now);
        self
    }

    fn roll_to(&mut self, now: TimestampMs) {
        if self.generation.is_forgotten(now) {
            *self = Self::new(self.after(), now);
        }
    }
}

impl Transitions for Idle {
    /// A charge that does not fit now fits when the session is forgotten.
    fn when(&self, limit: Amount, charge: Amount, now: TimestampMs) -> Outcome {
        if charge <= limit { Outcome::Wait(self.rolled(now).generation.rest(now)) } else { Outcome::Never }
    }

    fn tally(&self, _limit: Amount, now: TimestampMs) -> Tally {
        let state = self.rolled(now);
        Tally { spent: state.spend.settled(), held: state.spend.held }
    }

    fn remaining(&self, limit: Amount, now: TimestampMs) -> Amount {
        self.rolled(now).spend.remaining(limit)
    }

    /// When the session is forgotten, if it has begun.
    fn resets_at(&self, _limit: Amount, now: TimestampMs) -> Option<TimestampMs> {
        self.generation.resets_at(now)
    }

    fn can_extend(&self, admitted: Slot, now: TimestampMs) -> bool {
        !self.generation.is_forgotten(now) && self.generation.slot() == admitted
    }

    fn book(&mut self, _limit: Amount, charge: Amount, now: TimestampMs) -> Slot {
        self.roll_to(now);
        self.spend.book(charge);
        self.generation.touch_now(now);
        self.generation.slot()
    }

    fn settle(
        &mut self,
        _limit: Amount,
        latest_first: impl Iterator<Item = Booking> + Clone,
        actual: ExactAmount,
        now: TimestampMs,
    ) {
        // All bookings of one reservation lie in the generation of its admission.
        let Some(Booking { slot, .. }) = latest_first.clone().next() else { return };
        if slot != self.generation.slot() {
            return;
        }
        self.spend.settle(latest_first, actual);
        // What is forgotten is not remembered by a late settle.
        if !self.generation.is_forgotten(now) {
            self.generation.touch(now);
        }
    }

    fn record(&mut self, _limit: Amount, at: TimestampMs, actual: ExactAmount) {
        if !self.generation.has(at) {
            return;
        }
        self.roll_to(at);
        self.spend.add(actual);
        self.generation.touch(at);
    }

    fn is_idle(&self, now: TimestampMs) -> bool {
        self.generation.is_forgotten(now)
    }
}
