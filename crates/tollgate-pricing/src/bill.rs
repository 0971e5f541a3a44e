//! What one call cost: the sum for machines, the lines for people.

use crate::class::Class;
use crate::money::PicoUsd;

/// What one call cost.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Cost {
    /// The exact sum over all classes.
    pub pico_usd: PicoUsd,
    /// What was unusual about it.
    pub flags: CostFlags,
}

/// What a reader of a cost should know about it. Empty for an ordinary one.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct CostFlags(u8);

impl CostFlags {
    /// Nothing to report.
    pub const NONE: Self = Self(0);
    /// A class without a price of its own was billed at another class's price.
    pub const RATE_FALLBACK: Self = Self(1);
    /// Something was used that the row has no price for, not even a fallback: it is not in the sum.
    pub const UNRATED_USAGE: Self = Self(2);
    /// The row has no prices for the tier: the standard price was taken.
    pub const UNKNOWN_TIER: Self = Self(4);
    /// The report contradicted itself (a part larger than its whole): the part was cut down.
    pub const CLAMPED: Self = Self(8);

    const NAMES: [(Self, &'static str); 4] = [
        (Self::RATE_FALLBACK, "rate_fallback"),
        (Self::UNRATED_USAGE, "unrated_usage"),
        (Self::UNKNOWN_TIER, "unknown_tier"),
        (Self::CLAMPED, "clamped"),
    ];

    /// Whether there is nothing to report.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of `other` is in here.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// What either of the two reports.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The names of what is set, for logs and bills.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(flag, _)| self.contains(*flag)).map(|(_, name)| name)
    }

    pub(crate) const fn set(&mut self, flag: Self, when: bool) {
        if when {
            self.0 |= flag.0;
        }
    }
}

/// A cost line by line.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Bill {
    /// One line for each class that was used or has a fee.
    pub lines: Vec<BillLine>,
    /// The sum of the lines.
    pub total: PicoUsd,
    /// The context step whose prices hold: the whole request had more input tokens than this.
    pub above_tokens: Option<u64>,
    /// What was unusual.
    pub flags: CostFlags,
}

/// One line of a [`Bill`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BillLine {
    /// What was used.
    pub class: Class,
    /// How much of it: tokens, characters, milliseconds or pieces, as `class.unit()` says.
    pub quantity: u64,
    /// The price of one `class.unit()`; `None` where the row has no price.
    pub price: Option<PicoUsd>,
    /// What the line costs.
    pub cost: PicoUsd,
}
