//! What a decision answers.

use alloc::vec::Vec;

use crate::{Amount, DurationMs, Rule, TimestampMs, decide::is_smaller_part};

/// The decision over a whole plan.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Every entry was charged.
    Admitted(Admission),
    /// No entry was charged.
    Refused(Refusal),
}

/// A plan that was charged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Admission {
    /// The moment the charges were booked at; settling refers to it.
    pub at: TimestampMs,
    /// Entries with [`Enforcement::Soft`](crate::Enforcement::Soft) that did not fit and were
    /// charged all the same.
    pub over_soft: EntrySet,
    /// The rate limit with the smallest part left after this charge.
    pub tightest: Option<Standing>,
}

/// A plan that was not charged.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refusal {
    /// The entry to answer for: one that can never fit, else the one with the longest wait, else one
    /// that only waits for open reservations to end ([`EntryRefusal::fits_without_holds`]).
    pub binding: EntryRefusal,
    /// Every entry that refused, in plan order, the binding one included.
    pub refusing: Vec<EntryRefusal>,
    /// The rate limit with the smallest part left.
    pub tightest: Option<Standing>,
}

/// Why one entry refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EntryRefusal {
    /// The entry's place in the plan.
    pub index: usize,
    /// Whether waiting helps, and how long.
    pub outcome: Outcome,
    /// The limit's amount.
    pub limit: Amount,
    /// What settled requests have used, as far as the rule still counts it. Rounded up.
    pub spent: Amount,
    /// What open reservations hold.
    pub held: Amount,
    /// What this request needs.
    pub needed: Amount,
    /// When the current window or period ends; `None` for a rule without end.
    pub resets_at: Option<TimestampMs>,
}

impl EntryRefusal {
    /// Whether the request would fit if every open reservation were given back.
    pub fn fits_without_holds(&self) -> bool {
        self.spent.saturating_add(self.needed) <= self.limit
    }

    /// How hard an entry refuses whose limit counts by `rule`, the hardest last: until open reservations end, for
    /// a time, for ever. A budget whose spend alone leaves room waits for those, not for its next period.
    pub fn severity(&self, rule: Rule) -> (u8, DurationMs) {
        match self.outcome {
            Outcome::Admit => (0, DurationMs::ZERO),
            _ if !rule.is_rate() && self.fits_without_holds() => (1, DurationMs::ZERO),
            Outcome::Wait(wait) => (2, wait),
            Outcome::Never => (3, DurationMs::ZERO),
        }
    }
}

/// How one limit answers one charge.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It fits.
    Admit,
    /// It fits after exactly this time, if nothing else comes.
    Wait(DurationMs),
    /// No passing of time makes it fit.
    Never,
}

/// Where a limit stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Standing {
    /// The entry's place in the plan.
    pub index: usize,
    /// The limit's amount.
    pub limit: Amount,
    /// The largest charge that would still fit now.
    pub remaining: Amount,
    /// Time to the end of the current window.
    pub resets_in: DurationMs,
}

impl Standing {
    /// Whether less of this limit is left than of another: a smaller part of its amount.
    pub fn is_tighter_than(self, other: Self) -> bool {
        is_smaller_part((self.remaining, self.limit), (other.remaining, other.limit))
    }
}

/// A set of places in a plan.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EntrySet(u64);

impl EntrySet {
    /// Adds the place `index`, which must be below [`ENTRIES_MAX`](crate::ENTRIES_MAX).
    pub fn insert(&mut self, index: usize) {
        debug_assert!(index < crate::ENTRIES_MAX, "a plan has at most 64 entries");
        self.0 |= 1_u64.checked_shl(u32::try_from(index).unwrap_or(u32::MAX)).unwrap_or(0);
    }

    /// Whether `index` is in the set.
    pub fn contains(self, index: usize) -> bool {
        let bit = u32::try_from(index).ok().and_then(|index| 1_u64.checked_shl(index)).unwrap_or(0);
        self.0 & bit != 0
    }

    /// Whether nothing is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The places, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..crate::ENTRIES_MAX).filter(move |&index| self.contains(index))
    }
}
