//! The token bucket: a burst up to the limit at once, then as much in a window as the limit.
//!
//! Charges fill a level that drains by `limit` in each window, continuously. A charge fits iff
//!
//! ```text
//! level + charge · W ≤ limit · W
//! ```
//!
//! where `W` is the window in milliseconds and the level is in units · milliseconds: it drains by
//! `limit` in each millisecond, and nothing is rounded. So a bucket of capacity `C` that refills by
//! `r` a second is a limit of `C` over a window of `1,000 · C / r` ms, and in any period `T` it
//! admits at most `C + r · T`.
//!
//! What a reservation did not use is taken from the level, as far as it is still there. How much has
//! drained cannot be told from the level alone: so the charges of the last window are kept too, in
//! eight parts, and the level never falls below what was charged since the part of the reservation.
//! That is at least the level as it would be if only what was used had been charged at the time, so
//! the bound holds for what is used and held as well.

use alloc::boxed::Box;

use crate::{
    Amount, DurationMs, ExactAmount, Outcome, TimestampMs,
    counter::{Booking, Slot, Tally, Transitions, give_back},
    counts::{narrow, wide},
    ring::{Cut, Ring},
};

const PARTS: u64 = 8;
/// A part more: the oldest one has begun more than a window ago.
const KEPT: usize = 9;

/// A bucket's level, out of line so that other counters stay small.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct TokenBucket {
    window: DurationMs,
    state: Box<Level>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Level {
    /// Units · milliseconds at `at`.
    level: u128,
    at: TimestampMs,
    /// When the level is zero, by the limit it was last changed under.
    empty_at: TimestampMs,
    recent: Ring<KEPT>,
}

impl TokenBucket {
    pub(crate) fn new(window: DurationMs, now: TimestampMs) -> Self {
        let recent = Ring::new(cut(window).part(now));
        Self { window, state: Box::new(Level { level: 0, at: now, empty_at: now, recent }) }
    }

    pub(crate) const fn window(&self) -> DurationMs {
        self.window
    }

    fn window_ms(&self) -> u64 {
        cut(self.window).window_ms()
    }

    /// Units in units · milliseconds.
    fn scaled(&self, units: u64) -> u128 {
        wide(units, self.window_ms())
    }

    fn level(&self, limit: Amount, now: TimestampMs) -> u128 {
        self.state.level.saturating_sub(wide(limit.get(), now.since(self.state.at).get()))
    }

    /// What is in the bucket, in whole units, rounded up.
    fn used(&self, limit: Amount, now: TimestampMs) -> u64 {
        narrow(self.level(limit, now).div_ceil(self.window_ms().into()))
    }

    fn drain(&mut self, limit: Amount, now: TimestampMs) {
        let level = self.level(limit, now);
        self.state.recent.roll_to(cut(self.window).part(now));
        self.state.at = self.state.at.max(now);
        self.set_level(limit, level);
    }

    fn set_level(&mut self, limit: Amount, level: u128) {
        self.state.level = level;
        self.state.empty_at = self.state.at.saturating_add(self.drained_in(limit, level));
    }

    /// How long a level takes to drain. Under a limit of zero, where no level matters, a window.
    fn drained_in(&self, limit: Amount, level: u128) -> DurationMs {
        let limit = u128::from(limit.get());
        if limit == 0 { self.window } else { DurationMs::new(narrow(level.div_ceil(limit))) }
    }

    /// Charges what nobody holds.
    fn add(&mut self, limit: Amount, units: Amount) {
        let level = self.state.level.saturating_add(self.scaled(units.get()));
        self.set_level(limit, level);
    }

    /// Takes from the level what a booking did not use, as far as it has not drained.
    fn take_back(&mut self, limit: Amount, Booking { slot, charge }: Booking, back: Amount) {
        if self.state.recent.is_forgotten(slot.0) {
            return;
        }
        self.state.recent.change(slot.0, |counts| counts.settle(charge.get(), back.get()));
        let kept = u128::from(charge.saturating_sub(back).get());
        let later = self.state.recent.used_since(slot.0).saturating_sub(kept);
        let level = self.state.level;
        let floor = later.saturating_mul(self.window_ms().into()).min(level);
        self.set_level(limit, level.saturating_sub(self.scaled(back.get())).max(floor));
    }
}

impl Transitions for TokenBucket {
    fn when(&self, limit: Amount, charge: Amount, now: TimestampMs) -> Outcome {
        let Some(room) = limit.get().checked_sub(charge.get()) else { return Outcome::Never };
        let over = self.level(limit, now).saturating_sub(self.scaled(room));
        // A clock that was set back has yet to come to the moment of the level.
        let drains_from = self.state.at.max(now);
        Outcome::Wait(drains_from.saturating_add(self.drained_in(limit, over)).since(now))
    }

    fn tally(&self, limit: Amount, now: TimestampMs) -> Tally {
        let used = self.used(limit, now);
        let (_, held) = self.state.recent.sums_at(cut(self.window).part(now));
        let held = narrow(held).min(used);
        Tally { spent: ExactAmount::whole(used.saturating_sub(held)), held: Amount::new(held) }
    }

    fn remaining(&self, limit: Amount, now: TimestampMs) -> Amount {
        limit.saturating_sub(Amount::new(self.used(limit, now)))
    }

    /// When the bucket has room for all of its limit again.
    fn resets_at(&self, limit: Amount, now: TimestampMs) -> Option<TimestampMs> {
        let level = self.level(limit, now);
        let drained_in = if level == 0 { DurationMs::ZERO } else { self.drained_in(limit, level) };
        Some(self.state.at.max(now).saturating_add(drained_in))
    }

    fn can_extend(&self, _admitted: Slot, _now: TimestampMs) -> bool {
        true
    }

    fn book(&mut self, limit: Amount, charge: Amount, now: TimestampMs) -> Slot {
        self.drain(limit, now);
        let latest = self.state.recent.latest();
        self.state.recent.change(latest, |counts| counts.book(charge.get()));
        self.add(limit, charge);
        Slot(latest)
    }

    fn settle(
        &mut self,
        limit: Amount,
        latest_first: impl Iterator<Item = Booking> + Clone,
        actual: ExactAmount,
        now: TimestampMs,
    ) {
        self.drain(limit, now);
        let beyond = give_back(latest_first, actual.rounded_up(), |booking, back| {
            self.take_back(limit, booking, back);
        });
        let latest = self.state.recent.latest();
        self.state.recent.change(latest, |counts| counts.add(beyond.get()));
        self.add(limit, beyond);
    }

    fn record(&mut self, limit: Amount, at: TimestampMs, actual: ExactAmount) {
        self.drain(limit, at);
        let part = cut(self.window).part(at);
        if !self.state.recent.is_forgotten(part) {
            let used = actual.rounded_up();
            self.state.recent.change(part, |counts| counts.add(used.get()));
            self.add(limit, used);
        }
    }

    /// Not before its charges of the last window are over: a reservation among them would give back
    /// what was never taken from a new level.
    fn is_idle(&self, now: TimestampMs) -> bool {
        now >= self.state.empty_at && self.state.recent.is_over(cut(self.window).part(now))
    }
}

const fn cut(window: DurationMs) -> Cut {
    Cut { window, parts: PARTS }
}
