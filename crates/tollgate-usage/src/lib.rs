//! Usage events: type, batched writer, reader, report, checkpoints, and the journal of calls that are open.
//!
//! One JSON object a line, appended to one file. An event never holds a prompt, an answer or a
//! credential: there is no field that could. This crate knows neither HTTP nor prices; times and
//! costs come in as values.
#![deny(clippy::float_arithmetic)]

mod checkpoint;
mod error;
mod event;
mod journal;
mod json;
mod reader;
mod report;
mod settlement;
mod timestamp;
mod writer;

pub use error::UsageError;
pub use event::{
    Attributes, Event, FirstReserved, Flags, ModelUse, Outcome, RefusalEvent, RefusingLimit, Session,
    TokenCounts, UsageEvent,
};
pub use journal::{Hold, Journal};
pub use reader::{
    Digest, Past, ReplaySummary, Replayed, ReplayedRefusal, StandsFor, digest_all, replay, replay_kept,
};
pub use report::{
    Dimension, GROUPS_MAX, Report, ReportOptions, Row, Totals, UnknownDimension, format_moment, parse_moment,
};
pub use settlement::Settlement;
pub use writer::{Fsync, Synced, Writer, WriterOptions, Written};
