//! What a limit is: a counter's name, the rule that counts, the amount allowed.

use alloc::sync::Arc;
use core::{
    fmt,
    hash::{Hash, Hasher},
};

use crate::{Amount, DurationMs, Period};

/// The largest amount of a limit over a sliding window.
///
/// The cross-multiplied comparison stays below 2⁵³ up to here, so that a store which computes in
/// doubles gives the same verdict. [`Rule::amount_max`] has the maximum of each rule.
pub const WINDOW_AMOUNT_MAX: Amount = Amount::new(10_000_000_000);

/// The largest amount of a limit that compares plain sums, such as a calendar budget: the last
/// integer a double holds exactly, less one.
pub const BUDGET_AMOUNT_MAX: Amount = Amount::new((1 << 53) - 1);

/// The largest product of amount and window in milliseconds of a token bucket: its level, a charge
/// and their sum stay below 2⁵³.
const TOKEN_BUCKET_LEVEL_MAX: u64 = 1 << 51;

/// Names one counter. Counters of one partition are decided together in one step.
#[derive(Clone, Eq, Ord, PartialEq, PartialOrd)]
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

impl Hash for CounterKey {
    /// Hands a key of usual length over in one piece: keyed hashers pay for each write.
    fn hash<H: Hasher>(&self, state: &mut H) {
        const PIECE: usize = 96;
        // No text contains the byte 0xff, so no two keys make the same piece.
        let mut piece = [0xff; PIECE];
        let (partition, name) = (self.partition.as_bytes(), self.name.as_bytes());
        let name_at = partition.len().saturating_add(1);
        let end = name_at.saturating_add(name.len());
        let parts = piece.get_mut(..end).map(|piece| piece.split_at_mut(name_at));
        if let Some((before, after)) = parts
            && let Some(before) = before.get_mut(..partition.len())
        {
            before.copy_from_slice(partition);
            after.copy_from_slice(name);
            state.write(piece.get(..end).unwrap_or_default());
        } else {
            self.partition.hash(state);
            self.name.hash(state);
        }
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
    /// The current window plus the part of the previous one that is still in sight. In a window of
    /// the clock never more than the limit, in any period of its length at most 2 · limit − 1.
    SlidingWindow {
        /// The window's length.
        window: DurationMs,
    },
    /// The latest 60 sixtieths of a window, and the one before them counted whole. In any period of
    /// one window's length never more than the limit.
    BucketedWindow {
        /// The window's length.
        window: DurationMs,
    },
    /// A burst up to the limit, then as much in a window as the limit, continuously. In any period
    /// `T` at most `limit + limit / window · T`. A debt is paid off at the same pace.
    TokenBucket {
        /// In what time an exhausted bucket fills again.
        window: DurationMs,
    },
    /// All that falls into one calendar period in UTC.
    Calendar(Period),
    /// All since the counter began, for a session: forgotten some time after its last use.
    Idle {
        /// How long after the last reserve, extend or settle it is forgotten.
        after: DurationMs,
    },
    /// What open reservations hold. A settle frees it, whatever was used; no passing of time does.
    Concurrent,
    /// What one request charges, its extensions included. Nothing is counted or kept.
    PerRequest,
}

impl Rule {
    /// Whether this is a rate limit (what `ratelimit-*` headers speak of) rather than a budget or a
    /// bound on what is open or asked at once.
    pub const fn is_rate(self) -> bool {
        matches!(self, Self::SlidingWindow { .. } | Self::BucketedWindow { .. } | Self::TokenBucket { .. })
    }

    /// The largest amount of a limit under which a store that computes in doubles stays exact.
    ///
    /// In this crate any amount is exact, up to the end of 64 bits.
    pub const fn amount_max(self) -> Amount {
        match self {
            Self::SlidingWindow { .. } => WINDOW_AMOUNT_MAX,
            Self::TokenBucket { window } => match TOKEN_BUCKET_LEVEL_MAX.checked_div(window.get()) {
                Some(amount) if amount < WINDOW_AMOUNT_MAX.get() => Amount::new(amount),
                _ => WINDOW_AMOUNT_MAX,
            },
            Self::BucketedWindow { .. }
            | Self::Calendar(_)
            | Self::Idle { .. }
            | Self::Concurrent
            | Self::PerRequest => BUDGET_AMOUNT_MAX,
        }
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

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::HashSet;

    use super::CounterKey;

    #[test]
    fn keys_of_any_length_are_found_again_and_told_apart() {
        let long = "x".repeat(200);
        let texts = ["", "a", "ab", "b", long.as_str()];
        let pairs = texts.iter().flat_map(|partition| texts.iter().map(move |name| (*partition, *name)));
        let keys: HashSet<_> =
            pairs.clone().map(|(partition, name)| CounterKey::new(partition, name)).collect();
        assert_eq!(keys.len(), texts.len() * texts.len());
        for (partition, name) in pairs {
            assert!(keys.contains(&CounterKey::new(partition, name)));
        }
    }
}
