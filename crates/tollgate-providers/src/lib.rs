//! Sans-I/O adapters for LLM provider protocols.
//!
//! Five things are done here, all with bytes that someone else moves:
//!
//! - [`route()`] tells which call of which protocol a path is;
//! - [`inspect`] reads from a request's body what admission needs ([`RequestFacts`]), without
//!   building a tree of it and without copying what it carries;
//! - [`rewrite()`] puts into it what makes its answer meterable and bounded, and a [`StreamFilter`] takes
//!   out of the answer what the client did not ask for;
//! - a [`Meter`] reads an answer's usage while its bytes pass, however they are cut;
//! - [`error_body()`] says no in the client's own protocol.
//!
//! The crate opens no socket, reads no clock and knows neither limits nor prices. It never panics on
//! any bytes, and what it keeps of a body is bounded.
//!
//! Each protocol has a folder (`anthropic/`, `openai/`) with the same files; what they share (SSE,
//! JSON, estimates, media) lies beside them.

mod anthropic;
mod content;
mod count;
mod error_body;
mod estimate;
mod facts;
mod fields;
mod json;
mod last_word;
mod media;
mod messages;
mod meter;
mod name;
mod openai;
mod other_models;
mod prefix;
mod prompt;
mod rewrite;
mod route;
mod scan;
mod sse;
mod stream_error;

pub use error_body::{ErrorKind, error_body};
pub use estimate::{InputRatios, InputSizes, estimate_input, input_parts, model_family};
pub use facts::{CacheWrite, RequestError, RequestFacts, SessionFacts, inspect};
pub use meter::{Meter, Metered, ModelUsage, Reported, Running, StreamEnd};
pub use openai::{StreamFilter, is_stream_options_rejection};
pub use prompt::PromptPrefix;
pub use rewrite::{Rewrites, rewrite};
pub use route::{Call, Endpoint, Protocol, RouteError, route};
pub use stream_error::stream_error_event;
