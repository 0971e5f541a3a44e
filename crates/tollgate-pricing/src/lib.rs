//! Token classes, price tables and exact cost.
//!
//! A [`PriceTable`] leads from a model's name to a [`ModelPrice`]; that prices a [`Usage`]
//! ([`ModelPrice::cost`], [`ModelPrice::bill`]) and bounds what a request can cost before it is sent
//! ([`ModelPrice::reserve`]). Prices are read as exact decimals and held as whole pico-USD; sums are
//! exact, and nothing passes through a float.
//!
//! Usage comes in already normalised into disjoint classes: this crate knows no provider's wire format.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

mod batch;
mod bill;
mod bounds;
mod class;
mod currency;
mod decimal;
mod document;
mod error;
mod money;
mod price;
mod rates;
mod raw;
mod reserve;
mod table;
#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "an overflow in a test fails the test")]
mod tests;
mod usage;

pub use batch::{Unpriced, UsageFields, price_usage};
pub use bill::{Bill, BillLine, Cost, CostFlags};
pub use class::{Class, Unit};
pub use currency::CurrencyRates;
pub use decimal::{Decimal, DecimalError};
pub use error::PriceError;
pub use money::PicoUsd;
pub use price::ModelPrice;
pub use reserve::{CacheWrite, ReserveRequest};
pub use table::{PriceTable, Prices};
pub use usage::Usage;
