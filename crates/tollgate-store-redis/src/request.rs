//! What scripts are told: numbers as decimal texts.

use sha2::{Digest as _, Sha256};
use tollgate_limiter::{Amount, DurationMs, Enforcement, ExactAmount, Limit, Period, Plan, Rule};
use tollgate_store::StoreError;

/// The largest number that scripts compute with: 2⁵³ − 1. What is larger counts as this.
const EXACT_MAX: u64 = (1 << 53) - 1;

/// The longest sliding window whose 60,000ths are exact.
const SLIDING_WINDOW_MS_MAX: u64 = EXACT_MAX / 60_000;

/// The longest window of a token bucket whose square is exact: 26 hours.
const TOKEN_BUCKET_MS_MAX: u64 = 94_906_265;

/// A plan as scripts read it, five texts an entry: rule, length or period, amount, `h` or `s`, charge.
///
/// # Errors
///
/// [`StoreError::Mismatch`] for a limit that scripts could not count exactly.
pub(crate) fn plan(plan: &Plan) -> Result<Vec<String>, StoreError> {
    let mut words = Vec::with_capacity(5 * plan.entries().len());
    for entry in plan.entries() {
        push_limit(&mut words, &entry.limit, entry.charge)?;
    }
    Ok(words)
}

/// A plan without charges, to look at limits.
///
/// # Errors
///
/// As [`plan`].
pub(crate) fn limits<'a>(limits: impl Iterator<Item = &'a Limit>) -> Result<Vec<String>, StoreError> {
    let mut words = Vec::new();
    for limit in limits {
        push_limit(&mut words, limit, Amount::ZERO)?;
    }
    Ok(words)
}

/// Tells plans apart: half of a SHA-256 over counters, limits and charges, in hexadecimal digits.
pub(crate) fn fingerprint(plan: &Plan, words: &[String]) -> String {
    let mut hash = Sha256::new();
    for entry in plan.entries() {
        for name in [entry.limit.key.partition(), entry.limit.key.name()] {
            hash.update(u64::try_from(name.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(name);
        }
    }
    for word in words {
        hash.update(word);
        hash.update(" ");
    }
    let half = hash.finalize();
    half.iter().take(16).fold(String::with_capacity(32), |mut digits, byte| {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        digits.push(char::from(DIGITS[usize::from(byte >> 4)]));
        digits.push(char::from(DIGITS[usize::from(byte & 0xf)]));
        digits
    })
}

/// Charges in the order of the plan.
pub(crate) fn charges(charges: &[Amount]) -> String {
    joined(charges.iter().map(|charge| exact(charge.get()).to_string()))
}

/// Units and millionths in the order of the plan.
pub(crate) fn actuals(actuals: &[ExactAmount]) -> String {
    joined(actuals.iter().map(|actual| format!("{} {}", exact(actual.units()), actual.remainder())))
}

fn joined(numbers: impl Iterator<Item = String>) -> String {
    numbers.collect::<Vec<_>>().join(" ")
}

fn push_limit(words: &mut Vec<String>, limit: &Limit, charge: Amount) -> Result<(), StoreError> {
    let Some((code, parameter)) = rule(limit.rule) else {
        return Err(StoreError::Mismatch(format!("{:?} counts by a rule without a script", limit.key)));
    };
    if limit.amount > limit.rule.amount_max() || parameter > parameter_max(limit.rule) {
        return Err(StoreError::Mismatch(format!("{:?} is too large to be counted exactly", limit.key)));
    }
    let enforcement = match limit.enforcement {
        Enforcement::Hard => 'h',
        Enforcement::Soft => 's',
    };
    let charge = exact(charge.get());
    words.extend([code.to_string(), parameter.to_string(), limit.amount.to_string()]);
    words.extend([enforcement.to_string(), charge.to_string()]);
    Ok(())
}

/// The letter of a rule, with its length or period. `None` for one that has no script.
fn rule(rule: Rule) -> Option<(char, u64)> {
    Some(match rule {
        Rule::SlidingWindow { window } => ('w', window.get()),
        Rule::BucketedWindow { window } => ('b', window.get()),
        Rule::TokenBucket { window } => ('t', window.get()),
        Rule::Calendar(period) => ('c', period_number(period)),
        Rule::Idle { after } => ('i', idle_ms(after)),
        Rule::Elapsed { after } => ('e', idle_ms(after)),
        Rule::Concurrent => ('o', 0),
        Rule::PerRequest => ('p', 0),
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
