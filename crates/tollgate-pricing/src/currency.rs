//! What other currencies are worth.

use std::collections::BTreeMap;

use crate::decimal::{Decimal, DecimalError};

/// Fixed rates of currencies to USD. USD itself needs none.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CurrencyRates {
    usd_per_unit: BTreeMap<String, Decimal>,
}

impl CurrencyRates {
    /// Adds a currency by its code (`EUR`): what one unit of it is worth in USD, as an exact decimal.
    ///
    /// # Errors
    /// A rate that is no decimal number, or is zero.
    pub fn set(&mut self, code: &str, usd_per_unit: &str) -> Result<(), DecimalError> {
        let rate: Decimal = usd_per_unit.parse()?;
        if rate == Decimal::ZERO {
            return Err(DecimalError::Malformed);
        }
        self.usd_per_unit.insert(code.to_owned(), rate);
        Ok(())
    }

    pub(crate) fn get(&self, code: &str) -> Option<Decimal> {
        if code == "USD" {
            return Some(Decimal::from_scaled(1, 0));
        }
        self.usd_per_unit.get(code).copied()
    }
}
