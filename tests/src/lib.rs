//! What the end-to-end tests share: a gateway in this process, a client that sees raw bytes, and a
//! reader of usage events.
//!
//! Everything listens on free loopback ports and is stopped by its owner's drop.
#![expect(clippy::expect_used, clippy::panic, reason = "in a test, a broken assumption ends the test")]

mod client;
mod gateway;

pub use client::{Answer, Client, Connection, json_request};
pub use gateway::{
    BeforeStore, Clocked, Gateway, GatewayOptions, PROVIDER_KEY, count, counter, parallel, settled, setup,
};

use std::time::Duration;

/// One USD per million tokens each way: a token costs a micro-USD.
pub const UNIT_PRICES: &str = "models:\n  unit:\n    input: 1\n    output: 1\n";

/// How long a test waits for something that should happen at once.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Polls `condition` until it holds.
///
/// # Panics
///
/// It does not hold within [`PATIENCE`].
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let poll = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, poll).await.is_ok(), "never happened: {what}");
}
