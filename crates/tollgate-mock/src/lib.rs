//! A provider that answers like Anthropic and OpenAI, for the demo, the tests and the benches.
//!
//! [`Mock::start`] opens a port of its own and serves
//!
//! - Anthropic: `POST /v1/messages` (plain and streamed), `POST /v1/messages/count_tokens`,
//! - OpenAI: `POST /v1/chat/completions` (plain and streamed),
//! - both: `GET /v1/models`, `GET /v1/models/{id}` (Anthropic's shape if the request carries
//!   `anthropic-version`).
//!
//! How it answers is a [`Behaviour`]: set for all requests in [`Options::behaviour`] and for one request by
//! `x-mock-*` headers, which a proxy passes through. What it received and what a real provider would have
//! put on the bill are kept: [`Mock::requests`], [`Mock::billed`], [`Mock::counts`].
//!
//! The mock runs on a thread and a runtime of its own, so that it can be started from a test with or
//! without a runtime, and so that a paused clock in the test does not pause it. It never reads the time:
//! `created` and the like are constants.

mod anthropic;
mod behaviour;
mod encode;
mod handler;
mod memory;
mod mock;
mod openai;
mod record;
mod reply;
mod request;
mod respond;
mod script;
mod sse;
#[cfg(test)]
mod tests;
mod usage;
mod wire;

pub use behaviour::{Behaviour, BehaviourError, Encoding, End, Framing, Pace, Start, UsageReport, UsageRule};
pub use memory::InMemoryMock;
pub use mock::{Mock, MockError, Options, TimedOut};
pub use record::{Counts, Received};
pub use usage::{Bill, Usage};
