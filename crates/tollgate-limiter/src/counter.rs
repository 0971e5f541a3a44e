//! One shape for every rule: what a counter holds and how it changes.
//!
//! A rule is one file with a state that implements [`Transitions`]. A state holds counts and the
//! rule's own shape (a window's length, a period), never the limit's amount: that comes with each
//! request, so a changed limit needs no migration.

use crate::{Amount, ExactAmount, Limit, Outcome, Rule, TimestampMs, budget::Budget, window::SlidingWindow};

/// The state of one limit for one scope value.
///
/// It belongs to one [`Rule`]. Met with another rule it counts as new.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Counter(State);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    SlidingWindow(SlidingWindow),
    Calendar(Budget),
}

/// The number of the window or period a charge was booked in.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Slot(pub(crate) u64);

/// A charge and where it was booked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Booking {
    pub(crate) slot: Slot,
    pub(crate) charge: Amount,
}

/// How a counter stands against a limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Tally {
    pub(crate) spent: ExactAmount,
    pub(crate) held: Amount,
    pub(crate) remaining: Amount,
    pub(crate) resets_at: Option<TimestampMs>,
}

/// What each rule answers and does. `now` may lie before the state's window or period: the clock
/// was set back, and the state is treated as at its start.
pub(crate) trait Transitions {
    /// Whether `charge` fits now, later or never. A charge of zero always fits.
    fn outcome(&self, limit: Amount, charge: Amount, now: TimestampMs) -> Outcome;

    /// How it stands.
    fn tally(&self, limit: Amount, now: TimestampMs) -> Tally;

    /// The largest charge that fits now.
    fn remaining(&self, limit: Amount, now: TimestampMs) -> Amount;

    /// When the window or period of `now` ends.
    fn resets_at(&self, now: TimestampMs) -> Option<TimestampMs>;

    /// Whether a reservation booked in `admitted` may still be extended here.
    fn can_extend(&self, admitted: Slot, now: TimestampMs) -> bool;

    /// Charges a reservation and says where.
    fn book(&mut self, charge: Amount, now: TimestampMs) -> Slot;

    /// Replaces a reservation's bookings, latest first, by what was used.
    fn settle(
        &mut self,
        latest_first: impl Iterator<Item = Booking> + Clone,
        actual: ExactAmount,
        now: TimestampMs,
    );

    /// Charges a use that nobody reserved to the window or period it belongs to.
    fn record(&mut self, slot: Slot, actual: ExactAmount);

    /// Whether the state can no longer influence a decision at `now` or later.
    fn is_idle(&self, now: TimestampMs) -> bool;
}

macro_rules! dispatch {
    ($state:expr, $rule:ident => $answer:expr) => {
        match $state {
            State::SlidingWindow($rule) => $answer,
            State::Calendar($rule) => $answer,
        }
    };
}

impl Counter {
    /// A counter without charges, in the window or period of `now`.
    pub fn new(rule: Rule, now: TimestampMs) -> Self {
        Self(match rule {
            Rule::SlidingWindow { window } => State::SlidingWindow(SlidingWindow::new(window, now)),
            Rule::Calendar(period) => State::Calendar(Budget::new(period, now)),
        })
    }

    /// The rule this counter counts by.
    pub const fn rule(&self) -> Rule {
        match &self.0 {
            State::SlidingWindow(state) => Rule::SlidingWindow { window: state.window() },
            State::Calendar(state) => Rule::Calendar(state.period()),
        }
    }

    /// Whether it can no longer influence a decision at `now` or later, and may be forgotten.
    pub fn is_idle(&self, now: TimestampMs) -> bool {
        dispatch!(&self.0, state => state.is_idle(now))
    }

    /// Charges a use that nobody reserved, to the window or period of `at`. What is too old to
    /// count changes nothing.
    pub fn record(&mut self, at: TimestampMs, actual: ExactAmount) {
        let slot = slot_of(self.rule(), at);
        dispatch!(&mut self.0, state => state.record(slot, actual));
    }

    /// How the counter stands against `limit`.
    pub fn view(&self, limit: &Limit, now: TimestampMs) -> crate::CounterView {
        let Tally { spent, held, remaining, resets_at } = self.tally(limit.amount, now);
        crate::CounterView { key: limit.key.clone(), spent, held, remaining, resets_at }
    }

    pub(crate) fn outcome(&self, limit: Amount, charge: Amount, now: TimestampMs) -> Outcome {
        dispatch!(&self.0, state => state.outcome(limit, charge, now))
    }

    pub(crate) fn tally(&self, limit: Amount, now: TimestampMs) -> Tally {
        dispatch!(&self.0, state => state.tally(limit, now))
    }

    pub(crate) fn remaining(&self, limit: Amount, now: TimestampMs) -> Amount {
        dispatch!(&self.0, state => state.remaining(limit, now))
    }

    pub(crate) fn resets_at(&self, now: TimestampMs) -> Option<TimestampMs> {
        dispatch!(&self.0, state => state.resets_at(now))
    }

    pub(crate) fn can_extend(&self, admitted: Slot, now: TimestampMs) -> bool {
        dispatch!(&self.0, state => state.can_extend(admitted, now))
    }

    pub(crate) fn book(&mut self, charge: Amount, now: TimestampMs) -> Slot {
        dispatch!(&mut self.0, state => state.book(charge, now))
    }

    pub(crate) fn settle(
        &mut self,
        latest_first: impl Iterator<Item = Booking> + Clone,
        actual: ExactAmount,
        now: TimestampMs,
    ) {
        dispatch!(&mut self.0, state => state.settle(latest_first, actual, now));
    }
}

/// The window or period that `at` falls into by the clock alone.
pub(crate) fn slot_of(rule: Rule, at: TimestampMs) -> Slot {
    match rule {
        Rule::SlidingWindow { window } => SlidingWindow::slot(window, at),
        Rule::Calendar(period) => Slot(period.index(at)),
    }
}

/// The sum of the charges.
pub(crate) fn total(bookings: impl Iterator<Item = Booking>) -> Amount {
    bookings.fold(Amount::ZERO, |sum, booking| sum.saturating_add(booking.charge))
}
