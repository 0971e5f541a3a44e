//! Reads a usage file back, as fast as the disk gives it: at start, and for reports.
//!
//! A file that was written until the machine fell over is still readable: what cannot be understood
//! is skipped, counted and logged with its line number, never guessed at.

mod blocks;
mod books;
mod digest;
mod line;
mod parse;
mod plain;
mod replay;
mod seen;

use std::path::Path;

use tollgate_limiter::{DurationMs, ExactAmount, MicroUsd, TimestampMs, Tokens};

use crate::checkpoint;
use crate::error::UsageError;
use crate::event::{FirstReserved, TokenCounts};
use line::RawEvent;

pub use digest::{Digest, digest_all};
pub(crate) use replay::{Part, replay_parts, replay_text};

/// One usage event, read back. What a line did not say is empty, zero or `None`.
#[derive(Clone, Copy, Debug)]
pub struct Replayed<'a> {
    /// What it tells of.
    pub stands_for: StandsFor<'a>,
    /// The moment of admission; of several calls the first.
    pub ts: TimestampMs,
    /// Names the call.
    pub request_id: &'a str,
    /// The tenant's id.
    pub tenant: &'a str,
    /// The key's id.
    pub key: &'a str,
    /// The session's id.
    pub session: Option<&'a str>,
    /// The provider's id.
    pub provider: &'a str,
    /// The model that answered, or was asked for where the answer named none.
    pub model: &'a str,
    /// The model that was asked for, where the answer named another.
    pub requested_model: Option<&'a str>,
    /// The request's path, without a query.
    pub path: &'a str,
    /// Whether the answer was a stream.
    pub stream: bool,
    /// The status the client got.
    pub status: u16,
    /// How the call ended, in the words of [`Outcome::name`](crate::Outcome::name).
    pub outcome: &'a str,
    /// The service tier the cost was computed for.
    pub service_tier: Option<&'a str>,
    /// What was used.
    pub tokens: TokenCounts,
    /// Whether the usage or the cost rests on an estimate.
    pub usage_estimated: bool,
    /// What the call cost, in micro-USD and millionths of one.
    pub cost: ExactAmount,
    /// What was reserved in the end: money.
    pub reserved: MicroUsd,
    /// What was reserved in the end: output. Lines of earlier versions do not say.
    pub reserved_output: Option<Tokens>,
    /// What was reserved at admission, where the reservation has grown since.
    pub first_reserved: Option<FirstReserved>,
    /// What was reserved: the estimate of the input.
    pub estimated_input: Tokens,
    /// The same before any correction, where the reported input can be compared with it.
    pub uncorrected_input: Option<Tokens>,
    /// From the request's arrival to the end of the answer.
    pub duration: DurationMs,
    attributes: &'a line::Attributes<'a>,
    caller_attributes: &'a [line::Text<'a>],
}

/// What a line tells of. In usage files that is one call; the rest is what checkpoints hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StandsFor<'a> {
    /// One call.
    Call,
    /// Calls of one day, or of no session, that differ in nothing that a counter asks for. Their cost is
    /// their sum, and what else is told of single calls is empty.
    Calls {
        /// The moment of the last one's admission.
        last: TimestampMs,
        /// How many they are.
        calls: u64,
        /// The sum of [`Replayed::tokens_spent`].
        tokens: u64,
    },
    /// Nothing that was spent: estimates of the input before any correction and what was reported then, in
    /// tokens, of the latest requests for one model on one path, the oldest first.
    Estimates(&'a [(u64, u64)]),
}

impl<'a> Replayed<'a> {
    /// The moment of admission of the call or, of several, of the last one.
    pub const fn last_use(&self) -> TimestampMs {
        match self.stands_for {
            StandsFor::Calls { last, .. } => last,
            _ => self.ts,
        }
    }

    /// How many calls it tells of.
    pub const fn calls(&self) -> u64 {
        match self.stands_for {
            StandsFor::Call => 1,
            StandsFor::Calls { calls, .. } => calls,
            StandsFor::Estimates(_) => 0,
        }
    }

    /// What was used or, where that is an estimate, at least what was reserved: as calls are settled.
    pub fn tokens_spent(&self) -> u64 {
        if let StandsFor::Calls { tokens, .. } = self.stands_for {
            return tokens;
        }
        let (input, output) = (self.tokens.input_total(), self.tokens.output);
        if !self.usage_estimated {
            return input.saturating_add(output);
        }
        let reserved_output = self.reserved_output.map_or(0, Tokens::get);
        input.max(self.estimated_input.get()).saturating_add(output.max(reserved_output))
    }

    /// The names of those attributes that the caller had set.
    pub fn caller_attributes(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.caller_attributes.iter().map(|name| &*name.0)
    }

    /// The call's attributes as they were then, in the line's order.
    pub fn attributes(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.attributes.iter()
    }

    /// Whether the caller had set the attribute `name`, and not the key.
    pub fn is_from_caller(&self, name: &str) -> bool {
        self.caller_attributes.iter().any(|own| own.0 == name)
    }
}

/// A call that was refused, read back. What a line did not say is empty, zero or `None`.
#[derive(Clone, Copy, Debug)]
pub struct ReplayedRefusal<'a> {
    /// The moment of the refusal.
    pub ts: TimestampMs,
    /// Names the call.
    pub request_id: &'a str,
    /// The tenant's id.
    pub tenant: &'a str,
    /// The key's id.
    pub key: &'a str,
    /// The session's id.
    pub session: Option<&'a str>,
    /// The provider the call would have gone to.
    pub provider: Option<&'a str>,
    /// The model that was asked for.
    pub model: &'a str,
    /// The request's path, without a query.
    pub path: &'a str,
    /// The status the client got.
    pub status: u16,
    /// What the client was told, as in `x-tollgate-reason`.
    pub reason: &'a str,
    attributes: &'a line::Attributes<'a>,
}

impl<'a> ReplayedRefusal<'a> {
    /// The call's attributes as they were then, in the line's order.
    pub fn attributes(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.attributes.iter()
    }
}

/// One line of a usage file, read back.
#[derive(Clone, Copy, Debug)]
pub enum Past<'a> {
    /// A call that was forwarded.
    Usage(&'a Replayed<'a>),
    /// A call that was refused.
    Refusal(&'a ReplayedRefusal<'a>),
}

/// What usage files held.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReplaySummary {
    /// Usage events, duplicates not counted.
    pub events: u64,
    /// Refusals.
    pub refusals: u64,
    /// Events and, where they are read, refusals whose request id had been there before.
    pub duplicates: u64,
    /// Lines that could not be understood, a torn last one not counted.
    pub skipped_lines: u64,
    /// Whether the last line was torn.
    pub torn_tail: bool,
    /// Calls that an earlier process left in its journal: they are usage events from now on. Not counted
    /// among `events`.
    pub recovered: u64,
    /// Lines of a checkpoint, which stand for all that is not counted above.
    pub checkpoint_lines: u64,
}

/// Calls `each` with every usage event of the file at `path`, in the file's order, each request id
/// once. `progress` hears from time to time how many bytes of how many are done.
///
/// Memory: one buffer, and 16 bytes a request id.
///
/// # Errors
/// The file cannot be opened or read. [`UsageError::is_missing`] tells when it is not there.
pub fn replay(
    path: &Path,
    progress: impl FnMut(u64, u64),
    each: impl FnMut(&Replayed<'_>),
) -> Result<ReplaySummary, UsageError> {
    replay_parts(None, vec![Part::whole(path)?], progress, each)
}

/// The same for the usage file at `path` and those that it was rotated to, the oldest first. One that is not
/// there is an empty one. In place of all events that a checkpoint stands for, if one is good for a start at
/// `now`, come its [sums](StandsFor::Calls).
///
/// # Errors
/// They cannot be listed or read.
pub fn replay_kept(
    path: &Path,
    now: TimestampMs,
    progress: impl FnMut(u64, u64),
    each: impl FnMut(&Replayed<'_>),
) -> Result<ReplaySummary, UsageError> {
    let past = checkpoint::past(path, now)?;
    replay_parts(past.sums, past.rest, progress, each)
}

/// The request id of the usage event that is `line`; `None`: it is no usage event.
pub(crate) fn request_id(line: &[u8]) -> Option<String> {
    let event: RawEvent<'_> = serde_json::from_slice(line).ok()?;
    (event.kind == "usage").then(|| event.request_id.into_owned())
}
