//! Decimal numbers as they are written, without a float in between.

use core::fmt;
use core::str::FromStr;

/// Longest text that is read as a number.
const TEXT_LEN_MAX: usize = 64;
/// Largest power of ten on either side of the point.
const EXPONENT_MAX: i32 = 60;

/// A decimal number that is not negative: `digits × 10⁻ᵖˡᵃᶜᵉˢ`, in its shortest form.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Decimal {
    digits: u128,
    places: i32,
}

/// Why a text is no price, or a number has no whole value in the unit asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DecimalError {
    /// Not digits with an optional point and exponent.
    #[error("is not a decimal number such as 3, 0.80 or 2.5e-06")]
    Malformed,
    /// Below zero.
    #[error("is negative")]
    Negative,
    /// Has a part below the smallest unit.
    #[error("has more digits than whole pico-USD (10^-12 USD) can hold")]
    TooFine,
    /// Above everything that can be counted.
    #[error("is too large")]
    TooLarge,
}

impl Decimal {
    /// Zero.
    pub const ZERO: Self = Self { digits: 0, places: 0 };

    /// The number times 10^`power`, which must be whole.
    ///
    /// # Errors
    /// [`DecimalError::TooFine`] if it is not whole, [`DecimalError::TooLarge`] if it passes 2¹²⁸.
    pub fn scaled(self, power: i32) -> Result<u128, DecimalError> {
        let shift = power.saturating_sub(self.places);
        if shift < 0 {
            // In its shortest form a number has no zeros to give away.
            return if self.digits == 0 { Ok(0) } else { Err(DecimalError::TooFine) };
        }
        self.digits.checked_mul(power_of_ten(shift)?).ok_or(DecimalError::TooLarge)
    }

    /// The number times 10^`power`, rounded up to a whole number.
    ///
    /// # Errors
    /// [`DecimalError::TooLarge`] if it passes 2¹²⁸.
    pub fn scaled_up(self, power: i32) -> Result<u128, DecimalError> {
        match self.scaled(power) {
            Err(DecimalError::TooFine) => match power_of_ten(self.places.saturating_sub(power)) {
                Ok(divisor) => Ok(self.digits.div_ceil(divisor)),
                Err(_) => Ok(1),
            },
            other => other,
        }
    }

    /// The product.
    ///
    /// # Errors
    /// [`DecimalError::TooLarge`] if its digits pass 2¹²⁸.
    pub fn times(self, other: Self) -> Result<Self, DecimalError> {
        let digits = self.digits.checked_mul(other.digits).ok_or(DecimalError::TooLarge)?;
        Ok(Self { digits, places: self.places.saturating_add(other.places) }.shortest())
    }

    /// `whole × 10^-places`.
    pub fn from_scaled(whole: u128, places: u8) -> Self {
        Self { digits: whole, places: i32::from(places) }.shortest()
    }

    fn shortest(mut self) -> Self {
        if self.digits == 0 {
            return Self::ZERO;
        }
        // A u128 has at most 38 zeros to lose.
        while self.digits.is_multiple_of(10) {
            self.digits = self.digits.div_euclid(10);
            self.places = self.places.saturating_sub(1);
        }
        self
    }
}

fn power_of_ten(power: i32) -> Result<u128, DecimalError> {
    let power = u32::try_from(power).map_err(|_| DecimalError::TooFine)?;
    10_u128.checked_pow(power).ok_or(DecimalError::TooLarge)
}

impl FromStr for Decimal {
    type Err = DecimalError;

    fn from_str(text: &str) -> Result<Self, DecimalError> {
        let text = text.trim();
        if text.len() > TEXT_LEN_MAX {
            return Err(DecimalError::Malformed);
        }
        if let Some(rest) = text.strip_prefix('-') {
            return Err(if rest.parse::<Self>().is_ok() {
                DecimalError::Negative
            } else {
                DecimalError::Malformed
            });
        }
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse().map_err(|_| DecimalError::Malformed)?),
            None => (text, 0_i32),
        };
        if exponent.checked_abs().is_none_or(|size| size > EXPONENT_MAX) {
            return Err(DecimalError::Malformed);
        }
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        if whole.is_empty() || (mantissa.contains('.') && fraction.is_empty()) {
            return Err(DecimalError::Malformed);
        }
        let mut digits = 0_u128;
        for byte in whole.bytes().chain(fraction.bytes()) {
            let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10).ok_or(DecimalError::Malformed)?;
            digits = digits
                .checked_mul(10)
                .and_then(|shifted| shifted.checked_add(u128::from(digit)))
                .ok_or(DecimalError::TooLarge)?;
        }
        let fraction_len = i32::try_from(fraction.len()).map_err(|_| DecimalError::Malformed)?;
        Ok(Self { digits, places: fraction_len.saturating_sub(exponent) }.shortest())
    }
}

impl fmt::Display for Decimal {
    /// Plain notation: `0.03125`, never an exponent.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.digits.to_string();
        let Ok(places) = usize::try_from(self.places) else {
            let zeros = usize::try_from(self.places.unsigned_abs()).unwrap_or(0);
            return write!(f, "{digits}{}", "0".repeat(zeros));
        };
        if places == 0 {
            return f.write_str(&digits);
        }
        let padded = format!("{digits:0>width$}", width = places.saturating_add(1));
        let (whole, fraction) = padded.split_at(padded.len().saturating_sub(places));
        write!(f, "{whole}.{fraction}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_price_lists_write() {
        for (text, shown) in [
            ("3", "3"),
            ("0.80", "0.8"),
            ("2.5e-06", "0.0000025"),
            ("3.125e-08", "0.00000003125"),
            ("1E2", "100"),
            ("1e-05", "0.00001"),
            ("0.0", "0"),
            ("100000", "100000"),
        ] {
            assert_eq!(text.parse::<Decimal>().unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_price() {
        for text in ["", "-", ".", "1.", ".5", "1_000", "1,5", "0x10", "nan", "1e", "1e999", "+1", "1 2", "٣"]
        {
            assert_eq!(text.parse::<Decimal>(), Err(DecimalError::Malformed), "{text}");
        }
        assert_eq!("-0.5".parse::<Decimal>(), Err(DecimalError::Negative));
        assert_eq!("9".repeat(50).parse::<Decimal>(), Err(DecimalError::TooLarge));
    }

    #[test]
    fn scales_exactly_or_says_so() {
        let price: Decimal = "3.125e-08".parse().unwrap();
        assert_eq!(price.scaled(12), Ok(31_250));
        assert_eq!("0.0000001".parse::<Decimal>().unwrap().scaled(6), Err(DecimalError::TooFine));
        assert_eq!("0.0000001".parse::<Decimal>().unwrap().scaled_up(6), Ok(1));
        assert_eq!("0.0000015".parse::<Decimal>().unwrap().scaled_up(6), Ok(2));
        assert_eq!(
            "1.1".parse::<Decimal>().unwrap().times("2.5".parse().unwrap()).unwrap().to_string(),
            "2.75"
        );
        assert_eq!("1e40".parse::<Decimal>().unwrap().scaled(6), Err(DecimalError::TooLarge));
    }
}
