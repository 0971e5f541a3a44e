//! USD from the file's own digits, exactly: no float on the way.

use tollgate_limiter::{BUDGET_AMOUNT_MAX, MicroUsd};

/// Digits after the point: one micro-USD.
const DECIMALS: usize = 6;

/// The micro-USD of a decimal such as `500`, `0.25` or `12.500000`.
///
/// # Errors
/// What the text must be instead.
pub(crate) fn micro_usd(text: &str) -> Result<MicroUsd, String> {
    if let Some(rest) = text.strip_prefix('-') {
        let negative = rest.starts_with(|first: char| first.is_ascii_digit());
        return Err(if negative { "must not be negative".to_owned() } else { not_decimal() });
    }
    let text = text.strip_prefix('+').unwrap_or(text);
    let (whole, fraction) = match text.split_once('.') {
        Some((_, "")) => return Err(not_decimal()),
        Some(parts) => parts,
        None => (text, ""),
    };
    if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
        return Err(not_decimal());
    }
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > DECIMALS {
        return Err(format!("must not have more than {DECIMALS} digits after the point"));
    }
    let value = format!("{whole}{fraction:0<DECIMALS$}").parse().ok();
    match value.filter(|value| *value <= BUDGET_AMOUNT_MAX.get()) {
        Some(value) => Ok(MicroUsd::new(value)),
        None => Err(format!("must not be above {}", usd(BUDGET_AMOUNT_MAX.get()))),
    }
}

fn not_decimal() -> String {
    "must be an amount in USD such as 500, 0.25 or \"0.25\"".to_owned()
}

fn usd(micro_usd: u64) -> String {
    format!("{}.{:06}", micro_usd / 1_000_000, micro_usd % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_decimals_exactly() {
        let table = [
            ("0", 0),
            ("500", 500_000_000),
            ("0.1", 100_000),
            ("0.000001", 1),
            ("+1.50", 1_500_000),
            ("00.30", 300_000),
            ("1.0000000000", 1_000_000),
            ("9007199254.740991", BUDGET_AMOUNT_MAX.get()),
        ];
        for (text, expected) in table {
            assert_eq!(micro_usd(text), Ok(MicroUsd::new(expected)), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest() {
        for text in
            ["", ".", "1.", ".5", "1e3", "inf", "nan", "-inf", "$5", " 5", "1_0", "1.2.3", "٣", "-", "+"]
        {
            assert_eq!(micro_usd(text), Err(not_decimal()), "{text:?}");
        }
        assert_eq!(micro_usd("-0.5"), Err("must not be negative".to_owned()));
        assert_eq!(
            micro_usd("0.0000001"),
            Err("must not have more than 6 digits after the point".to_owned())
        );
        for text in ["9007199254.740992", "99999999999999999999999999"] {
            assert_eq!(micro_usd(text), Err("must not be above 9007199254.740991".to_owned()), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_amount_is_read_back(micro in 0..=BUDGET_AMOUNT_MAX.get()) {
            proptest::prop_assert_eq!(micro_usd(&usd(micro)), Ok(MicroUsd::new(micro)));
        }
    }
}
