//! The plan: every limit one request meets, with what it would add to each.

use alloc::{sync::Arc, vec::Vec};
use core::fmt;

use crate::{Amount, Limit};

/// The most limits one request may meet.
pub const ENTRIES_MAX: usize = 64;

/// One limit and the charge against it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// The limit.
    pub limit: Arc<Limit>,
    /// What the request would add to its counter.
    pub charge: Amount,
}

/// The limits of one request, each with its charge. All are charged, or none.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Plan {
    entries: Vec<Entry>,
}

impl Plan {
    /// A plan over `entries`, in the order in which verdicts will name them.
    ///
    /// # Errors
    ///
    /// [`PlanError`] when there are more than [`ENTRIES_MAX`] entries or two share a counter.
    pub fn new(entries: Vec<Entry>) -> Result<Self, PlanError> {
        if entries.len() > ENTRIES_MAX {
            return Err(PlanError::TooManyEntries { entries: entries.len() });
        }
        for (index, entry) in entries.iter().enumerate() {
            let same = |earlier: &Entry| earlier.limit.key == entry.limit.key;
            if entries.iter().take(index).any(same) {
                return Err(PlanError::RepeatedCounter { index });
            }
        }
        Ok(Self { entries })
    }

    /// The entries, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The charges alone, in order.
    pub fn charges(&self) -> impl ExactSizeIterator<Item = Amount> + Clone + '_ {
        self.entries.iter().map(|entry| entry.charge)
    }

    /// Whether no limit applies.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Why a list of entries is no plan.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum PlanError {
    /// More entries than [`ENTRIES_MAX`].
    TooManyEntries {
        /// How many there were.
        entries: usize,
    },
    /// Two entries charge the same counter.
    RepeatedCounter {
        /// The place of the second one.
        index: usize,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyEntries { entries } => {
                write!(f, "a plan holds at most {ENTRIES_MAX} limits, this one has {entries}")
            }
            Self::RepeatedCounter { index } => {
                write!(f, "entry {index} charges a counter that an earlier entry charges")
            }
        }
    }
}

impl core::error::Error for PlanError {}
