//! The limiter's laws, through its public interface alone.

#![expect(
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

mod boundaries;
mod bucketed;
mod budget;
mod elapsed;
mod forgetting;
mod histories;
mod holds;
mod idle;
mod ledger_model;
mod period;
mod protocol;
mod serde;
mod support;
mod token_bucket;
mod window;
