//! Counts of the latest parts of time, for windows that are cut into parts.
//!
//! A window of `W` ms cut into `P` parts has part `⌊t · P / W⌋` at `t` ms. Parts need not be whole
//! milliseconds: nothing is rounded, and any period of one window's length touches at most `P + 1`.

use crate::{
    DurationMs, TimestampMs,
    counts::{Counts, narrow, wide},
};

/// How a window is cut.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Cut {
    pub(crate) window: DurationMs,
    pub(crate) parts: u64,
}

impl Cut {
    /// The part that `at` falls into.
    pub(crate) fn part(self, at: TimestampMs) -> u64 {
        narrow(wide(at.get(), self.parts).checked_div(self.window_ms().into()).unwrap_or(0))
    }

    /// The first millisecond of a part.
    pub(crate) fn start(self, part: u64) -> TimestampMs {
        let start_ms = wide(part, self.window_ms()).div_ceil(u128::from(self.parts).max(1));
        TimestampMs::new(narrow(start_ms))
    }

    /// The window's length. A window of nothing is one of a millisecond.
    pub(crate) fn window_ms(self) -> u64 {
        self.window.get().max(1)
    }
}

/// The counts of the latest `N` parts. What is older is forgotten.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Ring<const N: usize> {
    latest: u64,
    /// Part `n` is at `n mod N`.
    counts: [Counts; N],
    used: u128,
    held: u128,
}

impl<const N: usize> Ring<N> {
    pub(crate) const fn new(latest: u64) -> Self {
        Self { latest, counts: [Counts { used: 0, held: 0 }; N], used: 0, held: 0 }
    }

    pub(crate) const fn latest(&self) -> u64 {
        self.latest
    }

    /// Moves on to `part`, if that is later.
    pub(crate) fn roll_to(&mut self, part: u64) {
        if part.saturating_sub(self.latest) >= N as u64 {
            *self = Self::new(part);
        }
        while self.latest < part {
            self.latest = self.latest.saturating_add(1);
            self.change(self.latest, |counts| *counts = Counts::default());
        }
    }

    /// Changes the counts of a part, if they are still there.
    pub(crate) fn change(&mut self, part: u64, change: impl FnOnce(&mut Counts)) {
        if self.is_forgotten(part) {
            return;
        }
        let Some(counts) = self.counts.get_mut(Self::place(part)) else { return };
        let before = *counts;
        change(counts);
        let replaced =
            |sum: u128, old: u64, new: u64| sum.saturating_sub(old.into()).saturating_add(new.into());
        self.used = replaced(self.used, before.used, counts.used);
        self.held = replaced(self.held, before.held, counts.held);
    }

    /// What is used and held in all when `part`, or a later one, is the latest.
    pub(crate) fn sums_at(&self, part: u64) -> (u128, u128) {
        if part <= self.latest {
            return (self.used, self.held);
        }
        let left = self.parts().filter(|(old, _)| Self::has_left(*old, part));
        left.fold((self.used, self.held), |(used, held), (_, counts)| {
            (used.saturating_sub(counts.used.into()), held.saturating_sub(counts.held.into()))
        })
    }

    /// What is used in `part` and all later ones.
    pub(crate) fn used_since(&self, part: u64) -> u128 {
        let since = self.parts().filter(|(number, _)| *number >= part);
        since.fold(0, |used, (_, counts)| used.saturating_add(counts.used.into()))
    }

    /// The first part at which no more than `room` is used in all, if nothing else comes.
    pub(crate) fn first_within(&self, room: u128) -> u64 {
        let mut used = self.used;
        for (part, counts) in self.parts() {
            if used <= room {
                return part.saturating_add(N as u64).saturating_sub(1);
            }
            used = used.saturating_sub(counts.used.into());
        }
        self.latest.saturating_add(N as u64)
    }

    /// The latest part in which something is used.
    pub(crate) fn last_used(&self) -> Option<u64> {
        self.parts().filter(|(_, counts)| counts.used > 0).map(|(part, _)| part).last()
    }

    /// Whether nothing that is counted here counts at `part`.
    pub(crate) fn is_over(&self, part: u64) -> bool {
        Self::has_left(self.latest, part)
    }

    /// Whether a part is not, or no longer, among the latest.
    pub(crate) fn is_forgotten(&self, part: u64) -> bool {
        part > self.latest || Self::has_left(part, self.latest)
    }

    fn has_left(part: u64, latest: u64) -> bool {
        latest.saturating_sub(part) >= N as u64
    }

    /// The parts in order, the oldest first.
    fn parts(&self) -> impl Iterator<Item = (u64, Counts)> {
        let oldest = self.latest.saturating_add(1).saturating_sub(N as u64);
        (oldest..=self.latest).filter_map(|part| Some((part, *self.counts.get(Self::place(part))?)))
    }

    fn place(part: u64) -> usize {
        usize::try_from(part.checked_rem(N as u64).unwrap_or(0)).unwrap_or(0)
    }
}
