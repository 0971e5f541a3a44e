//! Reads a usage file back, as fast as the disk gives it: at start, and for reports.
//!
//! A file that was written until the machine fell over is still readable: what cannot be understood
//! is skipped, counted and logged with its line number, never guessed at.

mod line;
mod lines;
mod plain;
mod seen;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use tollgate_limiter::{DurationMs, ExactAmount, MicroUsd, TimestampMs, Tokens};

use crate::checkpoint;
use crate::error::UsageError;
use crate::event::{FirstReserved, TokenCounts};
use crate::json::VERSION;
use crate::timestamp::Rfc3339Reader;
use line::{RawEvent, RawRefusal};
use lines::{Content, Line, Lines};
use seen::Seen;

/// Of lines that cannot be understood, this many are logged one by one.
const WARNINGS_MAX: u64 = 5;

/// What every refusal's line starts with: where nobody asks for them, such lines are counted unparsed.
const REFUSAL_PREFIX: &[u8] = b"{\"v\":1,\"type\":\"refusal\",";

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
        let reserved_output = self.reserved_output.map_or(0, Tokens::get);
        let reserved = self.estimated_input.get().saturating_add(reserved_output);
        self.tokens.total().max(if self.usage_estimated { reserved } else { 0 })
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
    replay_usage(&[path], progress, each)
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

/// The same for several files, one after the other.
fn replay_usage<P: AsRef<Path>>(
    paths: &[P],
    progress: impl FnMut(u64, u64),
    mut each: impl FnMut(&Replayed<'_>),
) -> Result<ReplaySummary, UsageError> {
    let each = |past: Past<'_>| {
        if let Past::Usage(event) = past {
            each(event);
        }
    };
    read_all(paths, progress, Replay::new(each, false))
}

/// The same for the events and refusals of several files, one after the other: each request id counts
/// once over all of them.
///
/// # Errors
/// One of the files cannot be opened or read.
pub fn replay_all<P: AsRef<Path>>(
    paths: &[P],
    progress: impl FnMut(u64, u64),
    each: impl FnMut(Past<'_>),
) -> Result<ReplaySummary, UsageError> {
    read_all(paths, progress, Replay::new(each, true))
}

/// A part of a file: whole lines.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// The same for the usage events of parts of files, behind the lines that a checkpoint has at its own part,
/// which is the first.
pub(crate) fn replay_parts(
    checkpoint: Option<Part>,
    parts: Vec<Part>,
    mut progress: impl FnMut(u64, u64),
    mut each: impl FnMut(&Replayed<'_>),
) -> Result<ReplaySummary, UsageError> {
    let bytes = |part: &Part| part.to.saturating_sub(part.from);
    let total = checkpoint.iter().chain(&parts).map(bytes).sum::<u64>();
    let mut before = 0_u64;
    let each = |past: Past<'_>| {
        if let Past::Usage(event) = past {
            each(event);
        }
    };
    let mut replay = Replay::new(each, false);
    let parts = parts.into_iter().map(|part| (part, false));
    for (part, summed) in checkpoint.map(|part| (part, true)).into_iter().chain(parts) {
        replay.takes_sums = summed;
        let bytes = bytes(&part);
        replay.read_part(part, |done| progress(before.saturating_add(done), total))?;
        before = before.saturating_add(bytes);
    }
    Ok(replay.summary)
}

fn read_all<P: AsRef<Path>, F: FnMut(Past<'_>)>(
    paths: &[P],
    mut progress: impl FnMut(u64, u64),
    mut replay: Replay<F>,
) -> Result<ReplaySummary, UsageError> {
    let sizes = paths.iter().map(|path| size(path.as_ref())).collect::<Result<Vec<_>, _>>()?;
    let (mut before, total) = (0, sizes.iter().sum::<u64>());
    for (path, bytes) in paths.iter().zip(&sizes) {
        replay.read(path.as_ref(), |done| progress(before + done, total.max(before + done)))?;
        before += bytes;
    }
    Ok(replay.summary)
}

fn size(path: &Path) -> Result<u64, UsageError> {
    let found = path.metadata().map_err(|source| UsageError::new(path, "open for reading", source))?;
    Ok(found.len())
}

/// Calls `each` with the usage events of `lines`, which are to be found in the file at `path`.
pub(crate) fn replay_text(path: &Path, lines: &[u8], mut each: impl FnMut(&Replayed<'_>)) {
    let each = |past: Past<'_>| {
        if let Past::Usage(event) = past {
            each(event);
        }
    };
    let mut replay = Replay::new(each, false);
    for (content, number) in lines.split(|byte| *byte == b'\n').map(Content::Text).zip(1..) {
        replay.take(path, &Line { content, number, ended: true });
    }
}

/// The request id of the usage event that is `line`; `None`: it is no usage event.
pub(crate) fn request_id(line: &[u8]) -> Option<String> {
    let event: RawEvent<'_> = serde_json::from_slice(line).ok()?;
    (event.kind == "usage").then(|| event.request_id.into_owned())
}

/// One run over files.
struct Replay<F> {
    each: F,
    /// Whether refusals are parsed.
    wants_refusals: bool,
    /// Whether these are lines of a checkpoint.
    takes_sums: bool,
    seen: Seen,
    seen_refusals: Seen,
    timestamps: Rfc3339Reader,
    summary: ReplaySummary,
}

impl<F: FnMut(Past<'_>)> Replay<F> {
    fn new(each: F, wants_refusals: bool) -> Self {
        Self {
            each,
            wants_refusals,
            takes_sums: false,
            seen: Seen::default(),
            seen_refusals: Seen::default(),
            timestamps: Rfc3339Reader::default(),
            summary: ReplaySummary::default(),
        }
    }

    fn read(&mut self, path: &Path, mut progress: impl FnMut(u64)) -> Result<(), UsageError> {
        let file = File::open(path).map_err(|source| UsageError::new(path, "open for reading", source))?;
        self.read_lines(path, file, &mut progress)
    }

    fn read_part(&mut self, part: Part, mut progress: impl FnMut(u64)) -> Result<(), UsageError> {
        let Part { path, mut file, from, to } = part;
        file.seek(SeekFrom::Start(from)).map_err(|source| UsageError::new(&path, "read", source))?;
        self.read_lines(&path, file.take(to.saturating_sub(from)), &mut progress)
    }

    fn read_lines(
        &mut self,
        path: &Path,
        reader: impl Read,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), UsageError> {
        let skipped_before = self.summary.skipped_lines;
        let mut lines = Lines::new(reader);
        let mut bytes_reported = 0;
        while let Some(line) = lines.next().map_err(|source| UsageError::new(path, "read", source))? {
            self.take(path, &line);
            let bytes_done = lines.bytes_read();
            if bytes_done != bytes_reported {
                bytes_reported = bytes_done;
                progress(bytes_done);
            }
        }
        let skipped = self.summary.skipped_lines - skipped_before;
        if skipped > WARNINGS_MAX {
            tracing::warn!(file = %path.display(), lines = skipped, "usage lines skipped in all");
        }
        Ok(())
    }

    fn take(&mut self, path: &Path, line: &Line<'_>) {
        let result = match line.content {
            Content::Overlong => Err("it is too long".to_owned()),
            Content::Text(text) => self.take_text(text, line.ended),
        };
        match result {
            Ok(()) => {}
            Err(_) if !line.ended => {
                self.summary.torn_tail = true;
                tracing::warn!(file = %path.display(), line = line.number, "the last usage line is torn: skipped");
            }
            Err(reason) => {
                self.summary.skipped_lines += 1;
                if self.summary.skipped_lines <= WARNINGS_MAX {
                    tracing::warn!(file = %path.display(), line = line.number, reason, "usage line skipped");
                }
            }
        }
    }

    fn take_text(&mut self, text: &[u8], ended: bool) -> Result<(), String> {
        if ended && !self.wants_refusals && text.starts_with(REFUSAL_PREFIX) {
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
        if text.as_bytes().starts_with(REFUSAL_PREFIX) {
            return self.take_refusal(text);
        }
        // Plain lines are those of usage files.
        let event: RawEvent<'_> = match plain::event(text).filter(|_| !self.takes_sums) {
            Some(event) => event,
            None => serde_json::from_str(text).map_err(|error| line::describe(&error))?,
        };
        if event.v > VERSION {
            return Err(format!("it has the format version {}", event.v));
        }
        match &*event.kind {
            _ if self.takes_sums => self.take_sum(&event),
            "usage" => self.take_event(&event),
            "refusal" => self.take_refusal(text),
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
        (self.each)(Past::Usage(&event.replayed(ts, StandsFor::Call)));
        Ok(())
    }

    fn take_sum(&mut self, event: &RawEvent<'_>) -> Result<(), String> {
        let ts = self.timestamps.read(&event.ts).ok_or("its time is not RFC 3339")?;
        let stands_for = event.stands_for(&mut self.timestamps).ok_or("it is no line of a checkpoint")?;
        self.summary.checkpoint_lines += 1;
        (self.each)(Past::Usage(&event.replayed(ts, stands_for)));
        Ok(())
    }

    fn take_refusal(&mut self, text: &str) -> Result<(), String> {
        let refusal: RawRefusal<'_> = serde_json::from_str(text).map_err(|error| line::describe(&error))?;
        if refusal.v > VERSION {
            return Err(format!("it has the format version {}", refusal.v));
        }
        let ts = self.timestamps.read(&refusal.ts).ok_or("its time is not RFC 3339")?;
        if !self.seen_refusals.insert(&refusal.request_id) {
            self.summary.duplicates += 1;
            return Ok(());
        }
        self.summary.refusals += 1;
        (self.each)(Past::Refusal(&refusal.replayed(ts)));
        Ok(())
    }
}
