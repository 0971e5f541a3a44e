//! Reserve-and-settle limits and budgets in exact integers.
//!
//! Everything here is a function of its arguments: time and ids come in as arguments, nothing is
//! read from a clock, nothing is random, nothing waits.
#![no_std]
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

extern crate alloc;

mod limit;
mod period;
mod plan;
mod units;
mod verdict;

pub use limit::{BUDGET_AMOUNT_MAX, CounterKey, Enforcement, Limit, Rule, WINDOW_AMOUNT_MAX};
pub use period::Period;
pub use plan::{ENTRIES_MAX, Entry, Plan, PlanError};
pub use units::{Amount, DurationMs, ExactAmount, MILLIONTHS, MicroUsd, ReservationId, TimestampMs, Tokens};
pub use verdict::{Admission, EntryRefusal, EntrySet, Outcome, Refusal, Standing, Verdict};
