//! Three proxies on one Redis: limits they share, and what its failures do.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

mod deployment;
mod empty;
mod failover;
mod failures;
mod limits;
mod lossy;
