//! What no real price is: a number in the wrong unit is refused when the table is read.

use core::ops::RangeInclusive;

use crate::class::{Class, Unit};
use crate::decimal::Decimal;

/// Factors from a hundredth to a hundred, in millionths.
pub(crate) const FACTOR_MILLIONTHS: RangeInclusive<u64> = 10_000..=100_000_000;

/// Whether a price is one that a provider could have published.
///
/// Published prices per million tokens run from 0.0025 to 600 USD. The dearest of them written per
/// token is 0.0006, the cheapest written per billion 2.5: only the ends of the range tell the units apart,
/// and they are far enough from it that prices can move by an order of magnitude.
pub(crate) fn check(class: Class, usd: Decimal) -> Result<(), String> {
    // In pico-USD, saturating: only the order of magnitude matters.
    let pico = usd.scaled_up(12).unwrap_or(u128::MAX);
    if pico == 0 {
        return Ok(());
    }
    let (least, most, unit) = match class.unit() {
        Unit::MillionTokens => ("0.001", "10000", "USD per million tokens"),
        Unit::MillionCharacters => ("0.001", "10000", "USD per million characters"),
        Unit::Minute => ("0.000001", "10", "USD per minute"),
        Unit::Piece if matches!(class, Class::WebSearch | Class::WebFetch) => {
            ("0.000001", "1", "USD for one")
        }
        Unit::Piece => ("0.000001", "100", "USD for one"),
    };
    let limit = |text: &str| text.parse::<Decimal>().and_then(|limit| limit.scaled(12)).unwrap_or(u128::MAX);
    if pico < limit(least) || pico > limit(most) {
        return Err(format!(
            "is no price in {unit}: 0 or from {least} to {most} is expected, is it in another unit?"
        ));
    }
    Ok(())
}
