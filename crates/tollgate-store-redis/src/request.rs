//! What scripts are told: numbers as 8 bytes each, the least significant first.

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tollgate_limiter::{Amount, DurationMs, Enforcement, Entry, ExactAmount, Limit, Period, Rule};
use tollgate_store::StoreError;

/// The largest number that scripts compute with: 2⁵³ − 1. What is larger counts as this.
const EXACT_MAX: u64 = (1 << 53) - 1;

/// The longest sliding window whose 60,000ths are exact.
const SLIDING_WINDOW_MS_MAX: u64 = EXACT_MAX / 60_000;

/// The longest window of a token bucket whose square is exact: 26 hours.
const TOKEN_BUCKET_MS_MAX: u64 = 94_906_265;

/// Bytes of one entry of a plan.
pub(crate) const ENTRY_BYTES: usize = 1 + 8 + 8 + 1 + 8;

/// An entry of a plan as scripts read it: the letter of its rule, its length or period, the amount, 1 if it is hard,
/// the charge.
///
/// # Errors
///
/// [`StoreError::Mismatch`] for a limit that scripts could not count exactly.
pub(crate) fn entry(entry: &Entry) -> Result<[u8; ENTRY_BYTES], StoreError> {
    encoded(&entry.limit, entry.charge)
}

/// A plan without charges, to look at limits.
///
/// # Errors
///
/// As [`entry`].
pub(crate) fn limits<'a>(limits: impl Iterator<Item = &'a Limit>) -> Result<Bytes, StoreError> {
    let entries = limits.map(|limit| encoded(limit, Amount::ZERO)).collect::<Result<Vec<_>, _>>()?;
    Ok(entries.concat().into())
}

/// Bytes of a [`Fingerprint`].
pub(crate) const FINGERPRINT_BYTES: usize = 16;

/// Tells plans apart: half of a SHA-256 over counters, limits and charges.
#[derive(Default)]
pub(crate) struct Fingerprint(Sha256);

impl Fingerprint {
    /// Takes one more entry in, which is encoded to `bytes`.
    pub(crate) fn add(&mut self, entry: &Entry, bytes: &[u8]) {
        for part in [entry.limit.key.partition().as_bytes(), entry.limit.key.name().as_bytes(), bytes] {
            self.0.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            self.0.update(part);
        }
    }

    pub(crate) fn finish(self) -> Bytes {
        self.0.finalize().into_iter().take(FINGERPRINT_BYTES).collect()
    }
}

/// Charges in the order of the plan.
pub(crate) fn charges(charges: &[Amount]) -> Bytes {
    numbers(charges.iter().map(|charge| exact(charge.get())))
}

/// Units and millionths in the order of the plan.
pub(crate) fn actuals(actuals: &[ExactAmount]) -> Bytes {
    numbers(actuals.iter().flat_map(|actual| [exact(actual.units()), actual.remainder().into()]))
}

/// Numbers up to 2⁵³ − 1 as a list.
pub(crate) fn numbers(numbers: impl Iterator<Item = u64>) -> Bytes {
    let mut list = Vec::with_capacity(8 * numbers.size_hint().1.unwrap_or_default());
    numbers.for_each(|number| list.extend(number.to_le_bytes()));
    list.into()
}

fn encoded(limit: &Limit, charge: Amount) -> Result<[u8; ENTRY_BYTES], StoreError> {
    let Some((code, parameter)) = rule(limit.rule) else {
        return Err(StoreError::Mismatch(format!("{:?} counts by a rule without a script", limit.key)));
    };
    if limit.amount > limit.rule.amount_max() || parameter > parameter_max(limit.rule) {
        return Err(StoreError::Mismatch(format!("{:?} is too large to be counted exactly", limit.key)));
    }
    let is_hard = u8::from(limit.enforcement == Enforcement::Hard);
    let (amount, charge) = (limit.amount.get(), exact(charge.get()));
    let mut bytes = [0; ENTRY_BYTES];
    bytes[0] = code;
    bytes[1..9].copy_from_slice(&parameter.to_le_bytes());
    bytes[9..17].copy_from_slice(&amount.to_le_bytes());
    bytes[17] = is_hard;
    bytes[18..].copy_from_slice(&charge.to_le_bytes());
    Ok(bytes)
}

/// The letter of a rule, with its length or period. `None` for one that has no script.
fn rule(rule: Rule) -> Option<(u8, u64)> {
    Some(match rule {
        Rule::SlidingWindow { window } => (b'w', window.get()),
        Rule::BucketedWindow { window } => (b'b', window.get()),
        Rule::TokenBucket { window } => (b't', window.get()),
        Rule::Calendar(period) => (b'c', period_number(period)),
        Rule::Idle { after } => (b'i', idle_ms(after)),
        Rule::Elapsed { after } => (b'e', idle_ms(after)),
        Rule::Concurrent => (b'o', 0),
        Rule::PerRequest => (b'p', 0),
        _ => return None,
    })
}

const fn parameter_max(rule: Rule) -> u64 {
    match rule {
        Rule::TokenBucket { .. } => TOKEN_BUCKET_MS_MAX,
        Rule::SlidingWindow { .. } | Rule::BucketedWindow { .. } => SLIDING_WINDOW_MS_MAX,
        _ => EXACT_MAX,
    }
}

/// What never comes in a thousand years is the same as what never comes.
fn idle_ms(after: DurationMs) -> u64 {
    const THOUSAND_YEARS_MS: u64 = 1_000 * 366 * 86_400_000;
    after.get().min(THOUSAND_YEARS_MS)
}

const fn period_number(period: Period) -> u64 {
    match period {
        Period::Minute => 0,
        Period::Hour => 1,
        Period::Day => 2,
        Period::Week => 3,
        Period::Month => 4,
        Period::Total => 5,
    }
}

fn exact(number: u64) -> u64 {
    number.min(EXACT_MAX)
}
