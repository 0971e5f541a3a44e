//! The run: how long ago the counter was first used, forgotten some time after its last use.
//!
//! The limit's amount and a charge are milliseconds: a charge fits iff `elapsed + charge ≤ limit`. Nothing
//! is added up, so there is nothing to give back: a charge says how much time a request needs at least.
//! Uses, generations and forgetting are those of a session ([`crate::Rule::Idle`]).

use crate::{
    Amount, DurationMs, ExactAmount, Outcome, TimestampMs,
    counter::{Booking, Slot, Tally, Transitions},
    generation::Generation,
};

/// When one generation was first used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Elapsed {
    generation: Generation,
    /// Its first use: before it began where that came to be known later.
    first: TimestampMs,
}

impl Elapsed {
    pub(crate) const fn new(after: DurationMs, now: TimestampMs) -> Self {
        Self { generation: Generation::new(after, now), first: now }
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

    fn elapsed(&self, now: TimestampMs) -> Amount {
        Amount::new(now.since(self.rolled(now).first).get())
    }
}

impl Transitions for Elapsed {
    /// A charge that does not fit now fits when the run is forgotten.
    fn when(&self, limit: Amount, charge: Amount, now: TimestampMs) -> Outcome {
        if charge <= limit { Outcome::Wait(self.rolled(now).generation.rest(now)) } else { Outcome::Never }
    }

    /// The time that has passed counts as spent.
    fn tally(&self, _limit: Amount, now: TimestampMs) -> Tally {
        Tally { spent: self.elapsed(now).into(), held: Amount::ZERO }
    }

    fn remaining(&self, limit: Amount, now: TimestampMs) -> Amount {
        limit.saturating_sub(self.elapsed(now))
    }

    /// When the run is forgotten, if it has begun.
    fn resets_at(&self, _limit: Amount, now: TimestampMs) -> Option<TimestampMs> {
        self.generation.resets_at(now)
    }

    fn can_extend(&self, admitted: Slot, now: TimestampMs) -> bool {
        !self.generation.is_forgotten(now) && self.generation.slot() == admitted
    }

    fn book(&mut self, _limit: Amount, _charge: Amount, now: TimestampMs) -> Slot {
        self.roll_to(now);
        self.generation.touch_now(now);
        self.generation.slot()
    }

    /// The end of a reservation is a use, if its run is not forgotten.
    fn settle(
        &mut self,
        _limit: Amount,
        mut latest_first: impl Iterator<Item = Booking> + Clone,
        _actual: ExactAmount,
        now: TimestampMs,
    ) {
        let is_own = |Booking { slot, .. }| slot == self.generation.slot();
        if !self.generation.is_forgotten(now) && latest_first.next().is_some_and(is_own) {
            self.generation.touch(now);
        }
    }

    fn record(&mut self, _limit: Amount, at: TimestampMs, _actual: ExactAmount) {
        if !self.generation.has(at) {
            return;
        }
        self.roll_to(at);
        self.first = self.first.min(at);
        self.generation.touch(at);
    }

    fn is_idle(&self, now: TimestampMs) -> bool {
        self.generation.is_forgotten(now)
    }
}
