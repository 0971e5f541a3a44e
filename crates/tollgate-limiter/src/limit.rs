//! What a limit is: a counter's name, the rule that counts, the amount allowed.

use alloc::sync::Arc;
use core::fmt;

use crate::{Amount, DurationMs, Period};

/// The largest amount of a limit over a sliding window.
///
/// The cross-multiplied comparison stays below 2⁵³ up to here, so that a store which computes in
/// doubles gives the same verdict.
pub const WINDOW_AMOUNT_MAX: Amount = Amount::new(10_000_000_000);

/// The largest amount of a calendar budget: the last integer a double holds exactly, less one.
pub const BUDGET_AMOUNT_MAX: Amount = Amount::new((1 << 53) - 1);

/// Names one counter. Counters of one partition are decided together in one step.
#[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CounterKey {
    partition: Arc<str>,
    name: Arc<str>,
}

impl CounterKey {
    /// The counter `name` of `partition` (a tenant, or a scope that all tenants share).
    pub fn new(partition: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { partition: partition.into(), name: name.into() }
    }

    /// The partition: what a store may keep in one shard or slot.
    pub fn partition(&self) -> &str {
        &self.partition
    }

    /// The counter's name within its partition.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for CounterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.partition, self.name)
    }
}

/// How a limit counts.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Rule {
    /// The current window plus the part of the previous one that is still in sight.
    SlidingWindow {
        /// The window's length.
        window: DurationMs,
    },
    /// All that falls into one calendar period in UTC.
    Calendar(Period),
}

impl Rule {
    /// Whether this is a rate limit (what `ratelimit-*` headers speak of) rather than a budget.
    pub const fn is_rate(self) -> bool {
        matches!(self, Self::SlidingWindow { .. })
    }
}

/// What happens when a charge does not fit.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Enforcement {
    /// The request is refused.
    Hard,
    /// The request passes and the excess is reported.
    Soft,
}

/// One limit as a request meets it. The amount is no part of the counter's state, so that it can
/// change while the count stays.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Limit {
    /// The counter that is charged.
    pub key: CounterKey,
    /// How it counts.
    pub rule: Rule,
    /// The most the rule lets through.
    pub amount: Amount,
    /// Whether it refuses or warns.
    pub enforcement: Enforcement,
}
