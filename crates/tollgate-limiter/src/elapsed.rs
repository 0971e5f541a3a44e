//! The run: how long ago the counter was first used, forgotten some time after its last use.
//!
//! The limit's amount and a charge are milliseconds: a charge fits iff `elapsed + charge ≤ limit`. Nothing
//! is added up, so there is nothing to give back: a charge says how much time a request needs at least.
//! Uses, generations and forgetting are those of a session ([`crate::Rule::Idle`]).

use crate::{
    Amount, DurationMs, ExactAmount, Outcome, TimestampMs,
    counter::{Booking, Slot, Tally, Transitions},
};

/// When one generation was first used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Elapsed {
    after: DurationMs,
    /// Names the generation.
    began: TimestampMs,
    /// Its first use: before `began` where that came to be known later.
    first: TimestampMs,
    /// The moment it is forgotten: `began` as long as it is unused.
    until: TimestampMs,
}

impl Elapsed {
    pub(crate) const fn new(after: DurationMs, now: TimestampMs) -> Self {
        Self { after, began: now, first: now, until: now }
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

    /// What is used now is forgotten so much later, and not at once.
    fn touch(&mut self, at: TimestampMs) {
        self.until = self.until.max(self.forgotten_after(at));
    }

    fn forgotten_after(&self, at: TimestampMs) -> TimestampMs {
        at.saturating_add(self.after.max(DurationMs::new(1)))
    }

    fn elapsed(&self, now: TimestampMs) -> Amount {
        Amount::new(now.since(self.rolled(now).first).get())
    }
}

impl Transitions for Elapsed {
    /// A charge that does not fit now fits when the run is forgotten.
    fn when(&self, limit: Amount, charge: Amount, now: TimestampMs) -> Outcome {
        if charge <= limit { Outcome::Wait(self.rolled(now).until.since(now)) } else { Outcome::Never }
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
        (now < self.until && !self.is_unused()).then_some(self.until)
    }

    fn can_extend(&self, admitted: Slot, now: TimestampMs) -> bool {
        now < self.until && Slot(self.began.get()) == admitted
    }

    fn book(&mut self, _limit: Amount, _charge: Amount, now: TimestampMs) -> Slot {
        self.roll_to(now);
        self.touch(now.max(self.began));
        Slot(self.began.get())
    }

    /// The end of a reservation is a use, if its run is not forgotten.
    fn settle(
        &mut self,
        _limit: Amount,
        mut latest_first: impl Iterator<Item = Booking> + Clone,
        _actual: ExactAmount,
        now: TimestampMs,
    ) {
        let is_own = |Booking { slot, .. }| slot == Slot(self.began.get());
        if now < self.until && latest_first.next().is_some_and(is_own) {
            self.touch(now);
        }
    }

    /// A use from before this generation began belongs to it if the run would have lasted so long.
    fn record(&mut self, _limit: Amount, at: TimestampMs, _actual: ExactAmount) {
        if self.forgotten_after(at) <= self.began {
            return;
        }
        self.roll_to(at);
        self.first = self.first.min(at);
        self.touch(at);
    }

    fn is_idle(&self, now: TimestampMs) -> bool {
        now >= self.until
    }
}
