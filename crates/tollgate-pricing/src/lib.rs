//! Token classes, price tables and exact cost.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

mod usage;

pub use usage::Usage;
