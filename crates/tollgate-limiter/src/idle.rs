//! The session: everything since the counter began, forgotten some time after its last use.
//!
//! A charge fits iff `committed + charge ≤ limit`. Reserving, extending and settling are uses; a
//! refusal is none. What begins after the counter was forgotten is a new generation, told from the
//! old one by the moment it began: a reservation belongs to the generation of its admission, and its
//! settlement changes nothing of another.

use crate::{
    Amount, DurationMs, ExactAmount, Outcome, TimestampMs,
    counter::{Booking, Slot, Tally, Transitions},
    spend::Spend,
};

/// What one generation has committed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Idle {
    after: DurationMs,
    began: TimestampMs,
    /// The moment it is forgotten: `began` as long as it is unused.
    until: TimestampMs,
    spend: Spend,
}

impl Idle {
    pub(crate) const fn new(after: DurationMs, now: TimestampMs) -> Self {
        let spend = Spend { committed: ExactAmount::ZERO, held: Amount::ZERO };
        Self { after, began: now, until: now, spend }
    }

    pub(crate) const fn after(&self) -> DurationMs {
        self.after
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.until == self.began
    }

    /// The generation of `now`.
    fn rolled(mut self, now: TimestampMs) -> Self {
        self.roll_to(now);
        self
    }

    fn roll_to(&mut self, now: TimestampMs) {
        if now >= self.until {
            *self = Self::new(self.after, now);
        }
    }

    /// What is used now is forgotten so much later. Nothing is forgotten at once: two generations
    /// begin at different moments.
    fn touch(&mut self, at: TimestampMs) {
        self.until = self.until.max(self.forgotten_after(at));
    }

    fn forgotten_after(&self, at: TimestampMs) -> TimestampMs {
        at.saturating_add(self.after.max(DurationMs::new(1)))
    }
}

impl Transitions for Idle {
    /// A charge that does not fit now fits when the session is forgotten.
    fn when(&self, limit: Amount, charge: Amount, now: TimestampMs) -> Outcome {
        if charge <= limit { Outcome::Wait(self.rolled(now).until.since(now)) } else { Outcome::Never }
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
        (now < self.until && !self.is_unused()).then_some(self.until)
    }

    fn can_extend(&self, admitted: Slot, now: TimestampMs) -> bool {
        now < self.until && Slot(self.began.get()) == admitted
    }

    fn book(&mut self, _limit: Amount, charge: Amount, now: TimestampMs) -> Slot {
        self.roll_to(now);
        self.spend.book(charge);
        self.touch(now.max(self.began));
        Slot(self.began.get())
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
        if slot != Slot(self.began.get()) {
            return;
        }
        self.spend.settle(latest_first, actual);
        // What is forgotten is not remembered by a late settle.
        if now < self.until {
            self.touch(now);
        }
    }

    /// A use from before this generation began belongs to it if the session would have lasted so
    /// long: another generation would have been forgotten in between.
    fn record(&mut self, _limit: Amount, at: TimestampMs, actual: ExactAmount) {
        if self.forgotten_after(at) <= self.began {
            return;
        }
        self.roll_to(at);
        self.spend.add(actual);
        self.touch(at);
    }

    fn is_idle(&self, now: TimestampMs) -> bool {
        now >= self.until
    }
}
