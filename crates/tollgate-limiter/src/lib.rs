//! Reserve-and-settle limits and budgets in exact integers.
//!
//! Everything here is a function of its arguments: time and ids come in as arguments, nothing is
//! read from a clock, nothing is random, nothing waits.
#![no_std]
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

extern crate alloc;

mod budget;
mod counter;
mod counters;
mod decide;
mod error;
mod held;
mod ledger;
mod limit;
mod period;
mod plan;
mod record;
mod reservations;
mod units;
mod verdict;
mod window;

pub use counter::Counter;
pub use counters::{Counters, Sweep};
pub use error::LedgerError;
pub use held::{Attempt, CounterView, Held, Settled};
pub use ledger::Ledger;
pub use limit::{BUDGET_AMOUNT_MAX, CounterKey, Enforcement, Limit, Rule, WINDOW_AMOUNT_MAX};
pub use period::Period;
pub use plan::{ENTRIES_MAX, Entry, Plan, PlanError};
pub use record::EXTENSIONS_MAX;
pub use reservations::Reservations;
pub use units::{Amount, DurationMs, ExactAmount, MILLIONTHS, MicroUsd, ReservationId, TimestampMs, Tokens};
pub use verdict::{Admission, EntryRefusal, EntrySet, Outcome, Refusal, Standing, Verdict};
