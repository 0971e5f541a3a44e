//! What a limit is: a counter's name, the rule that counts, the amount allowed.

use crate::{Amount, CounterKey, DurationMs, Period};

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

/// How a limit counts.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
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
    /// The milliseconds since the counter was first used, for a run: forgotten as a session is. A charge
    /// is the time that a request needs at least; none is added to another.
    Elapsed {
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
            | Self::Elapsed { .. }
            | Self::Concurrent
            | Self::PerRequest => BUDGET_AMOUNT_MAX,
        }
    }
}

/// What happens when a charge does not fit.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Enforcement {
    /// The request is refused.
    Hard,
    /// The request passes and the excess is reported.
    Soft,
}

/// One limit as a request meets it. The amount is no part of the counter's state, so that it can
/// change while the count stays.
#[derive(Clone, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
