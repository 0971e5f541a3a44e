//! Money as a whole number of pico-USD.

use core::fmt;

use tollgate_limiter::{ExactAmount, MicroUsd};

/// Pico-USD in one USD.
pub(crate) const PICO_PER_USD: u128 = 1_000_000_000_000;

/// An exact amount of money in pico-USD (10⁻¹² USD). Never negative.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PicoUsd(u128);

impl PicoUsd {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// The amount from its number of pico-USD.
    pub const fn new(pico_usd: u128) -> Self {
        Self(pico_usd)
    }

    /// The number of pico-USD.
    pub const fn get(self) -> u128 {
        self.0
    }

    /// The sum, or the largest amount there is.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The amount as a counter carries it: micro-USD and the pico-USD that remain. Saturates.
    pub fn to_exact(self) -> ExactAmount {
        ExactAmount::from_millionths(self.0)
    }

    /// The smallest whole number of micro-USD that covers this amount: what a reservation asks for.
    pub fn rounded_up(self) -> MicroUsd {
        MicroUsd::new(self.to_exact().rounded_up().get())
    }
}

impl fmt::Display for PicoUsd {
    /// USD as an exact decimal without trailing zeros: `0.054399`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, pico) = (self.0.div_euclid(PICO_PER_USD), self.0.rem_euclid(PICO_PER_USD));
        if pico == 0 {
            return write!(f, "{whole}");
        }
        let digits = format!("{pico:012}");
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_usd_exactly() {
        for (pico, shown) in
            [(0, "0"), (1, "0.000000000001"), (54_399_000_000, "0.054399"), (12_000_000_000_000, "12")]
        {
            assert_eq!(PicoUsd::new(pico).to_string(), shown);
        }
    }

    #[test]
    fn rounds_up_once_and_keeps_the_remainder() {
        let cost = PicoUsd::new(2_000_001);
        assert_eq!(cost.rounded_up(), MicroUsd::new(3));
        assert_eq!((cost.to_exact().units(), cost.to_exact().remainder()), (2, 1));
        assert_eq!(PicoUsd::new(2_000_000).rounded_up(), MicroUsd::new(2));
    }
}
