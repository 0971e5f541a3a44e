//! Reads a usage file back, as fast as the disk gives it: at start, and for reports.
//!
//! A file that was written until the machine fell over is still readable: what cannot be understood
//! is skipped, counted and logged with its line number, never guessed at.

mod line;
mod lines;
mod seen;

use std::fs::File;
use std::path::Path;

use tollgate_limiter::{ExactAmount, TimestampMs};

use crate::error::UsageError;
use crate::event::TokenCounts;
use crate::json::VERSION;
use crate::timestamp::Rfc3339Reader;
use line::RawEvent;
use lines::{Content, Line, Lines};
use seen::Seen;

/// Of lines that cannot be understood, this many are logged one by one.
const WARNINGS_MAX: u64 = 5;

/// What every refusal's line starts with: such lines are counted unparsed.
const REFUSAL_PREFIX: &[u8] = b"{\"v\":1,\"type\":\"refusal\",";

/// One usage event, read back. What a line did not say is empty, zero or `None`.
#[derive(Clone, Copy, Debug)]
pub struct Replayed<'a> {
    /// The moment of admission.
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
    /// What was used.
    pub tokens: TokenCounts,
    /// Whether the usage or the cost rests on an estimate.
    pub usage_estimated: bool,
    /// What the call cost, in micro-USD and millionths of one.
    pub cost: ExactAmount,
    attributes: &'a line::Attributes<'a>,
    caller_attributes: &'a [line::Text<'a>],
}

impl Replayed<'_> {
    /// The call's attributes as they were then, in the line's order.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.attributes.iter()
    }

    /// Whether the caller had set the attribute `name`, and not the key.
    pub fn is_from_caller(&self, name: &str) -> bool {
        self.caller_attributes.iter().any(|own| own.0 == name)
    }
}

/// What a usage file held.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReplaySummary {
    /// Usage events, duplicates not counted.
    pub events: u64,
    /// Refusals.
    pub refusals: u64,
    /// Usage events whose request id had been there before.
    pub duplicates: u64,
    /// Lines that could not be understood, a torn last one not counted.
    pub skipped_lines: u64,
    /// Whether the last line was torn.
    pub torn_tail: bool,
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
    mut progress: impl FnMut(u64, u64),
    each: impl FnMut(&Replayed<'_>),
) -> Result<ReplaySummary, UsageError> {
    let read_error = |source| UsageError::new(path, "read", source);
    let file = File::open(path).map_err(|source| UsageError::new(path, "open for reading", source))?;
    let bytes_total = file.metadata().map_err(read_error)?.len();
    let mut lines = Lines::new(file);
    let mut replay = Replay::new(path, each);
    let mut bytes_reported = 0;
    while let Some(line) = lines.next().map_err(read_error)? {
        replay.take(&line);
        let bytes_done = lines.bytes_read();
        if bytes_done != bytes_reported {
            bytes_reported = bytes_done;
            progress(bytes_done, bytes_total.max(bytes_done));
        }
    }
    if replay.summary.skipped_lines > WARNINGS_MAX {
        tracing::warn!(file = %path.display(), lines = replay.summary.skipped_lines, "usage lines skipped in all");
    }
    Ok(replay.summary)
}

/// One run over a file.
struct Replay<'p, F> {
    path: &'p Path,
    each: F,
    seen: Seen,
    timestamps: Rfc3339Reader,
    summary: ReplaySummary,
}

impl<'p, F: FnMut(&Replayed<'_>)> Replay<'p, F> {
    fn new(path: &'p Path, each: F) -> Self {
        let (seen, timestamps) = (Seen::default(), Rfc3339Reader::default());
        Self { path, each, seen, timestamps, summary: ReplaySummary::default() }
    }

    fn take(&mut self, line: &Line<'_>) {
        let result = match line.content {
            Content::Overlong => Err("it is too long".to_owned()),
            Content::Text(text) => self.take_text(text, line.ended),
        };
        match result {
            Ok(()) => {}
            Err(_) if !line.ended => {
                self.summary.torn_tail = true;
                tracing::warn!(file = %self.path.display(), line = line.number, "the last usage line is torn: skipped");
            }
            Err(reason) => {
                self.summary.skipped_lines += 1;
                if self.summary.skipped_lines <= WARNINGS_MAX {
                    tracing::warn!(file = %self.path.display(), line = line.number, reason, "usage line skipped");
                }
            }
        }
    }

    fn take_text(&mut self, text: &[u8], ended: bool) -> Result<(), String> {
        if ended && text.starts_with(REFUSAL_PREFIX) {
            self.summary.refusals += 1;
            return Ok(());
        }
        // After a power failure some file systems leave a run of zeros where data was not written.
        let zeros = text.iter().take_while(|byte| **byte == 0).count();
        let text = text.get(zeros..).unwrap_or_default().trim_ascii();
        if text.is_empty() {
            return if zeros == 0 { Ok(()) } else { Err("it is all zeros".to_owned()) };
        }
        // Checking the line at once is faster than each of its strings.
        let text = str::from_utf8(text).map_err(|_| "it is not UTF-8")?;
        let event: RawEvent<'_> = serde_json::from_str(text).map_err(|error| line::describe(&error))?;
        if event.v > VERSION {
            return Err(format!("it has the format version {}", event.v));
        }
        match &*event.kind {
            "usage" => self.take_event(&event),
            "refusal" => {
                self.summary.refusals += 1;
                Ok(())
            }
            _ => Err("it is neither usage nor refusal".to_owned()),
        }
    }

    fn take_event(&mut self, event: &RawEvent<'_>) -> Result<(), String> {
        let ts = self.timestamps.read(&event.ts).ok_or("its time is not RFC 3339")?;
        if !self.seen.insert(&event.request_id) {
            self.summary.duplicates += 1;
            return Ok(());
        }
        self.summary.events += 1;
        (self.each)(&event.replayed(ts));
        Ok(())
    }
}
