//! One shape for every rule: what a counter holds and how it changes.
//!
//! A rule is one file with a state that implements [`Transitions`]. A state holds counts and the
//! rule's own shape (a window's length, a period), never the limit's amount: that comes with each
//! request, so a changed limit needs no migration.

use core::iter;

use crate::{
    Amount, ExactAmount, Limit, Outcome, Rule, TimestampMs, bucketed::BucketedWindow, budget::Budget,
    concurrent::Concurrent, elapsed::Elapsed, idle::Idle, per_request::PerRequest, token_bucket::TokenBucket,
    window::SlidingWindow,
};

/// The state of one limit for one scope value.
///
/// It counts by one [`Rule`]. Charged under another one it goes on by that, with what it has counted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Counter(State);

#[derive(Clone, Debug, Eq, PartialEq)]
enum State {
    SlidingWindow(SlidingWindow),
    BucketedWindow(BucketedWindow),
    TokenBucket(TokenBucket),
    Calendar(Budget),
    Idle(Idle),
    Elapsed(Elapsed),
    Concurrent(Concurrent),
    PerRequest(PerRequest),
}

/// The number of the window, part of a window, period or generation a charge was booked in.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Slot(pub(crate) u64);

impl Slot {
    /// Where time plays no part.
    pub(crate) const ONLY: Self = Self(0);
}

/// A charge and where it was booked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Booking {
    pub(crate) slot: Slot,
    pub(crate) charge: Amount,
}

/// What a counter has counted, as far as it still counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Tally {
    /// By settled requests.
    pub(crate) spent: ExactAmount,
    /// By open reservations.
    pub(crate) held: Amount,
}

/// What each rule answers and does under a limit's amount. `now` may lie before the state's window
/// or period: the clock was set back, and the state is treated as at its start.
pub(crate) trait Transitions {
    /// When a charge fits that is more than what [remains](Self::remaining): later or never.
    fn when(&self, limit: Amount, charge: Amount, now: TimestampMs) -> Outcome;

    /// How it stands.
    fn tally(&self, limit: Amount, now: TimestampMs) -> Tally;

    /// The largest charge that fits now. A charge of zero always fits.
    fn remaining(&self, limit: Amount, now: TimestampMs) -> Amount;

    /// When the window or period of `now` ends.
    fn resets_at(&self, limit: Amount, now: TimestampMs) -> Option<TimestampMs>;

    /// Whether a reservation booked in `admitted` may still be extended here.
    fn can_extend(&self, admitted: Slot, now: TimestampMs) -> bool;

    /// Charges a reservation and says where.
    fn book(&mut self, limit: Amount, charge: Amount, now: TimestampMs) -> Slot;

    /// Replaces a reservation's bookings, latest first, by what was used.
    fn settle(
        &mut self,
        limit: Amount,
        latest_first: impl Iterator<Item = Booking> + Clone,
        actual: ExactAmount,
        now: TimestampMs,
    );

    /// Charges for good: a reservation that is settled at once for what it reserved.
    fn charge(&mut self, limit: Amount, charge: Amount, now: TimestampMs) {
        let slot = self.book(limit, charge, now);
        self.settle(limit, iter::once(Booking { slot, charge }), charge.into(), now);
    }

    /// Charges a use that nobody reserved to the window or period of `at`.
    fn record(&mut self, limit: Amount, at: TimestampMs, actual: ExactAmount);

    /// Whether the state can no longer influence a decision at `now` or later.
    fn is_idle(&self, now: TimestampMs) -> bool;
}

macro_rules! dispatch {
    ($state:expr, $rule:ident => $answer:expr) => {
        match $state {
            State::SlidingWindow($rule) => $answer,
            State::BucketedWindow($rule) => $answer,
            State::TokenBucket($rule) => $answer,
            State::Calendar($rule) => $answer,
            State::Idle($rule) => $answer,
            State::Elapsed($rule) => $answer,
            State::Concurrent($rule) => $answer,
            State::PerRequest($rule) => $answer,
        }
    };
}

impl Counter {
    /// A counter without charges, in the window or period of `now`.
    pub fn new(rule: Rule, now: TimestampMs) -> Self {
        Self(match rule {
            Rule::SlidingWindow { window } => State::SlidingWindow(SlidingWindow::new(window, now)),
            Rule::BucketedWindow { window } => State::BucketedWindow(BucketedWindow::new(window, now)),
            Rule::TokenBucket { window } => State::TokenBucket(TokenBucket::new(window, now)),
            Rule::Calendar(period) => State::Calendar(Budget::new(period, now)),
            Rule::Idle { after } => State::Idle(Idle::new(after, now)),
            Rule::Elapsed { after } => State::Elapsed(Elapsed::new(after, now)),
            Rule::Concurrent => State::Concurrent(Concurrent::default()),
            Rule::PerRequest => State::PerRequest(PerRequest),
        })
    }

    /// The rule this counter counts by.
    #[inline]
    pub const fn rule(&self) -> Rule {
        match &self.0 {
            State::SlidingWindow(state) => Rule::SlidingWindow { window: state.window() },
            State::BucketedWindow(state) => Rule::BucketedWindow { window: state.window() },
            State::TokenBucket(state) => Rule::TokenBucket { window: state.window() },
            State::Calendar(state) => Rule::Calendar(state.period()),
            State::Idle(state) => Rule::Idle { after: state.after() },
            State::Elapsed(state) => Rule::Elapsed { after: state.after() },
            State::Concurrent(_) => Rule::Concurrent,
            State::PerRequest(_) => Rule::PerRequest,
        }
    }

    /// Whether it can no longer influence a decision at `now` or later, and may be forgotten.
    pub fn is_idle(&self, now: TimestampMs) -> bool {
        dispatch!(&self.0, state => state.is_idle(now))
    }

    /// Whether a new counter would stand just like it, wherever the clock is: no reason to keep it.
    pub(crate) fn is_blank(&self) -> bool {
        match &self.0 {
            State::Idle(state) => state.is_unused(),
            State::Elapsed(state) => state.is_unused(),
            State::Concurrent(state) => *state == Concurrent::default(),
            State::PerRequest(_) => true,
            State::SlidingWindow(_)
            | State::BucketedWindow(_)
            | State::TokenBucket(_)
            | State::Calendar(_) => false,
        }
    }

    /// Charges a use that nobody reserved, to the window, period or session of `at`. What is too old
    /// to count changes nothing.
    pub fn record(&mut self, limit: Amount, at: TimestampMs, actual: ExactAmount) {
        dispatch!(&mut self.0, state => state.record(limit, at, actual));
    }

    /// What is spent of `limit`, rounded up, and what is held of it.
    pub fn in_use(&self, limit: &Limit, now: TimestampMs) -> Amount {
        let Tally { spent, held } = self.tally(limit.amount, now);
        spent.rounded_up().saturating_add(held)
    }

    /// How the counter stands against `limit`.
    pub fn view(&self, limit: &Limit, now: TimestampMs) -> crate::CounterView {
        let Tally { spent, held } = self.tally(limit.amount, now);
        crate::CounterView {
            key: limit.key.clone(),
            spent,
            held,
            remaining: self.remaining(limit.amount, now),
            resets_at: self.resets_at(limit.amount, now),
        }
    }

    pub(crate) fn when(&self, limit: Amount, charge: Amount, now: TimestampMs) -> Outcome {
        dispatch!(&self.0, state => state.when(limit, charge, now))
    }

    pub(crate) fn tally(&self, limit: Amount, now: TimestampMs) -> Tally {
        dispatch!(&self.0, state => state.tally(limit, now))
    }

    #[inline]
    pub(crate) fn remaining(&self, limit: Amount, now: TimestampMs) -> Amount {
        dispatch!(&self.0, state => state.remaining(limit, now))
    }

    #[inline]
    pub(crate) fn resets_at(&self, limit: Amount, now: TimestampMs) -> Option<TimestampMs> {
        dispatch!(&self.0, state => state.resets_at(limit, now))
    }

    pub(crate) fn can_extend(&self, admitted: Slot, now: TimestampMs) -> bool {
        dispatch!(&self.0, state => state.can_extend(admitted, now))
    }

    /// The same count under the rule of `limit`: what counts now counts as used now, in one piece.
    pub(crate) fn under(&self, limit: &Limit, now: TimestampMs) -> Self {
        let Tally { spent, held } = self.tally(limit.amount, now);
        let mut counter = Self::new(limit.rule, now);
        counter.record(limit.amount, now, spent.saturating_add(held.into()));
        counter
    }

    /// Charges a new reservation. From here on the counter counts by the limit's rule.
    #[inline]
    pub(crate) fn book(&mut self, limit: &Limit, charge: Amount, now: TimestampMs) -> Slot {
        if self.rule() != limit.rule {
            *self = self.under(limit, now);
        }
        dispatch!(&mut self.0, state => state.book(limit.amount, charge, now))
    }

    /// Charges for good. From here on the counter counts by the limit's rule.
    #[inline]
    pub(crate) fn charge(&mut self, limit: &Limit, charge: Amount, now: TimestampMs) {
        if self.rule() != limit.rule {
            *self = self.under(limit, now);
        }
        dispatch!(&mut self.0, state => state.charge(limit.amount, charge, now));
    }

    /// Charges more for a reservation. Where the limit's rule has changed since it was made, the rule
    /// of today counts, and nothing will go back.
    pub(crate) fn book_more(&mut self, limit: &Limit, charge: Amount, now: TimestampMs) -> Slot {
        if self.rule() != limit.rule {
            self.record(limit.amount, now, charge.into());
            return Slot::ONLY;
        }
        self.book(limit, charge, now)
    }

    /// Replaces what was booked, latest first, by what was used. Where the limit's rule has changed
    /// since, what was booked counts as used, and only what was used beyond it is charged.
    #[inline]
    pub(crate) fn settle(
        &mut self,
        limit: &Limit,
        latest_first: impl Iterator<Item = Booking> + Clone,
        actual: ExactAmount,
        now: TimestampMs,
    ) {
        if self.rule() != limit.rule {
            let beyond = actual.saturating_sub(total(latest_first).into());
            if beyond != ExactAmount::ZERO {
                self.record(limit.amount, now, beyond);
            }
            return;
        }
        dispatch!(&mut self.0, state => state.settle(limit.amount, latest_first, actual, now));
    }
}

/// The sum of the charges.
pub(crate) fn total(bookings: impl Iterator<Item = Booking>) -> Amount {
    bookings.fold(Amount::ZERO, |sum, booking| sum.saturating_add(booking.charge))
}

/// Ends bookings of which `used` was used: each is told what of it goes back, the latest first.
/// Returns what was used beyond them all.
pub(crate) fn give_back(
    latest_first: impl Iterator<Item = Booking> + Clone,
    used: Amount,
    mut end: impl FnMut(Booking, Amount),
) -> Amount {
    let booked = total(latest_first.clone());
    let mut unused = booked.saturating_sub(used);
    for booking in latest_first {
        let back = unused.min(booking.charge);
        unused = unused.saturating_sub(back);
        end(booking, back);
    }
    used.saturating_sub(booked)
}
