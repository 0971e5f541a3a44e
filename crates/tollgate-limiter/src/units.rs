//! Quantities: every number that crosses a public boundary has a type that says its unit.

use core::fmt;

/// Millionths in one whole unit: pico-USD in a micro-USD.
pub const MILLIONTHS: u32 = 1_000_000;

/// A whole number of a limit's unit: requests, tokens or micro-USD.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Amount(u64);

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// `units` of whatever the limit counts.
    pub const fn new(units: u64) -> Self {
        Self(units)
    }

    /// The number of units.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The sum, or the largest amount there is.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, or zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An amount with the part below one whole unit: micro-USD and the pico-USD that remain.
///
/// With the feature `serde` it is written as its millionths.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(from = "u128", into = "u128")
)]
pub struct ExactAmount {
    whole: u64,
    millionths: u32,
}

impl ExactAmount {
    /// Nothing.
    pub const ZERO: Self = Self { whole: 0, millionths: 0 };

    /// The largest amount there is.
    pub const MAX: Self = Self { whole: u64::MAX, millionths: MILLIONTHS.saturating_sub(1) };

    /// A whole number of units, nothing below.
    pub const fn whole(units: u64) -> Self {
        Self { whole: units, millionths: 0 }
    }

    /// `millionths` of a unit in all: pico-USD for a limit in micro-USD. Saturates.
    pub fn from_millionths(millionths: u128) -> Self {
        let unit = u128::from(MILLIONTHS);
        // The remainder is below 10⁶ and the quotient is capped, so neither conversion can lose anything.
        match u64::try_from(millionths.div_euclid(unit)) {
            Ok(whole) => Self { whole, millionths: u32::try_from(millionths.rem_euclid(unit)).unwrap_or(0) },
            Err(_) => Self::MAX,
        }
    }

    /// The whole units.
    pub const fn units(self) -> u64 {
        self.whole
    }

    /// What is left below one unit, in millionths (always below 1,000,000).
    pub const fn remainder(self) -> u32 {
        self.millionths
    }

    /// All of it in millionths of a unit.
    pub fn as_millionths(self) -> u128 {
        u128::from(self.whole)
            .saturating_mul(u128::from(MILLIONTHS))
            .saturating_add(u128::from(self.millionths))
    }

    /// The sum, or the largest amount there is.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        // Two parts below one unit make less than two units.
        let below = self.millionths.saturating_add(other.millionths);
        let (carry, millionths) = match below.checked_sub(MILLIONTHS) {
            Some(millionths) => (1, millionths),
            None => (0, below),
        };
        match self.whole.checked_add(other.whole) {
            Some(whole) => match whole.checked_add(carry) {
                Some(whole) => Self { whole, millionths },
                None => Self::MAX,
            },
            None => Self::MAX,
        }
    }

    /// The difference, or zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        let (borrow, millionths) = match self.millionths.checked_sub(other.millionths) {
            Some(millionths) => (0, millionths),
            None => (1, self.millionths.saturating_add(MILLIONTHS).saturating_sub(other.millionths)),
        };
        match self.whole.checked_sub(other.whole) {
            Some(whole) => match whole.checked_sub(borrow) {
                Some(whole) => Self { whole, millionths },
                None => Self::ZERO,
            },
            None => Self::ZERO,
        }
    }

    /// The smallest whole amount that covers this one.
    pub const fn rounded_up(self) -> Amount {
        Amount(if self.millionths == 0 { self.whole } else { self.whole.saturating_add(1) })
    }
}

#[cfg(feature = "serde")]
impl From<u128> for ExactAmount {
    fn from(millionths: u128) -> Self {
        Self::from_millionths(millionths)
    }
}

#[cfg(feature = "serde")]
impl From<ExactAmount> for u128 {
    fn from(amount: ExactAmount) -> Self {
        amount.as_millionths()
    }
}

impl From<Amount> for ExactAmount {
    fn from(amount: Amount) -> Self {
        Self::whole(amount.get())
    }
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
        pub struct $name(u64);

        impl $name {
            /// Zero.
            pub const ZERO: Self = Self(0);

            /// The quantity from its plain number.
            pub const fn new(value: u64) -> Self {
                Self(value)
            }

            /// The plain number.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The sum, or the largest value there is.
            #[must_use]
            pub const fn saturating_add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }

            /// The difference, or zero.
            #[must_use]
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

quantity! {
    /// 10⁻⁶ USD, the integer unit of money wherever a budget is compared.
    MicroUsd
}
quantity! {
    /// A number of model tokens.
    Tokens
}
quantity! {
    /// A span of time in milliseconds.
    DurationMs
}

/// A moment: milliseconds since 1970-01-01T00:00:00Z, without leap seconds.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct TimestampMs(u64);

impl TimestampMs {
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);

    /// The moment `ms` milliseconds after 1970-01-01T00:00:00Z.
    pub const fn new(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The moment `span` later, or the last one there is.
    #[must_use]
    pub const fn saturating_add(self, span: DurationMs) -> Self {
        Self(self.0.saturating_add(span.get()))
    }

    /// How long after `earlier` this is; zero if it is not after.
    pub const fn since(self, earlier: Self) -> DurationMs {
        DurationMs::new(self.0.saturating_sub(earlier.0))
    }
}

/// 128 random bits that name one reservation through all retries. Made by the caller.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ReservationId(u128);

impl ReservationId {
    /// The id from its bits.
    pub const fn new(bits: u128) -> Self {
        Self(bits)
    }

    /// The bits.
    pub const fn get(self) -> u128 {
        self.0
    }
}

impl fmt::Debug for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReservationId({self})")
    }
}

impl fmt::Display for ReservationId {
    /// 32 hexadecimal digits. Not by way of the formatter's own: every request has its id written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 32];
        for (pair, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(self.0.to_be_bytes()) {
            let digit = |half: u8| DIGITS[usize::from(half & 0xf)];
            *pair = [digit(byte >> 4), digit(byte)];
        }
        f.write_str(str::from_utf8(&text).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::{format, string::ToString};

    use super::{Amount, MicroUsd, ReservationId};

    #[test]
    fn quantities_are_written_as_their_numbers() {
        for number in [0, 7, 60_000, u64::MAX] {
            let written = (Amount::new(number).to_string(), MicroUsd::new(number).to_string());
            assert_eq!(written, (number.to_string(), number.to_string()));
        }
    }

    #[test]
    fn an_id_is_32_hexadecimal_digits() {
        for bits in [0, 0x5eed, 1 << 127, u128::MAX, 0x0123_4567_89ab_cdef_0f1e_2d3c_4b5a_6978] {
            let id = ReservationId::new(bits);
            assert_eq!((id.get(), id.to_string()), (bits, format!("{bits:032x}")));
            assert_eq!(format!("{id:?}"), format!("ReservationId({bits:032x})"));
        }
    }
}
