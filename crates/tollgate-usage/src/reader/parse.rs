//! Understands single lines.

use std::borrow::Cow;

use super::blocks::{Content, Line};
use super::line::{self, RawEvent, RawRefusal};
use super::{Past, StandsFor, plain};
use crate::json::VERSION;
use crate::timestamp::Rfc3339Reader;

/// What every refusal's line starts with: where nobody asks for them, such lines are counted unparsed.
const REFUSAL_PREFIX: &[u8] = b"{\"v\":1,\"type\":\"refusal\",";

/// Why a line cannot be understood, without any of its text.
pub(super) type Problem = Cow<'static, str>;

/// Reads one line after the other.
#[derive(Default)]
pub(super) struct Parser {
    /// Whether refusals are parsed.
    wants_refusals: bool,
    /// Whether these are lines of a checkpoint.
    pub(super) takes_sums: bool,
    timestamps: Rfc3339Reader,
}

/// What a line was.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Read {
    /// Nothing.
    Empty,
    /// What was told.
    Told,
    /// A refusal, which nobody asked for.
    Refusal,
}

impl Parser {
    /// One that parses refusals too.
    pub(super) fn of_all() -> Self {
        Self { wants_refusals: true, ..Self::default() }
    }

    /// Tells `each` what `line` says.
    pub(super) fn line(&mut self, line: &Line<'_>, each: impl FnOnce(Past<'_>)) -> Result<Read, Problem> {
        let Content::Text(text) = line.content else { return Err("it is too long".into()) };
        if line.ended && !self.wants_refusals && text.starts_with(REFUSAL_PREFIX) {
            return Ok(Read::Refusal);
        }
        // After a power failure some file systems leave a run of zeros where data was not written.
        let zeros = text.iter().take_while(|byte| **byte == 0).count();
        let text = text.get(zeros..).unwrap_or_default().trim_ascii();
        if text.is_empty() {
            return if zeros == 0 { Ok(Read::Empty) } else { Err("it is all zeros".into()) };
        }
        // Checking the line at once is faster than each of its strings.
        let text = str::from_utf8(text).map_err(|_| "it is not UTF-8")?;
        if text.as_bytes().starts_with(REFUSAL_PREFIX) {
            return self.refusal(text, each);
        }
        // Plain lines are those of usage files.
        let event: RawEvent<'_> = match plain::event(text).filter(|_| !self.takes_sums) {
            Some(event) => event,
            None => serde_json::from_str(text).map_err(|error| line::describe(&error))?,
        };
        if event.v > VERSION {
            return Err(format!("it has the format version {}", event.v).into());
        }
        match &*event.kind {
            _ if self.takes_sums => self.sum(&event, each),
            "usage" => self.event(&event, each),
            "refusal" => self.refusal(text, each),
            _ => Err("it is neither usage nor refusal".into()),
        }
    }

    fn event(&mut self, event: &RawEvent<'_>, each: impl FnOnce(Past<'_>)) -> Result<Read, Problem> {
        let ts = self.timestamps.read(&event.ts).ok_or("its time is not RFC 3339")?;
        each(Past::Usage(&event.replayed(ts, StandsFor::Call)));
        Ok(Read::Told)
    }

    fn sum(&mut self, event: &RawEvent<'_>, each: impl FnOnce(Past<'_>)) -> Result<Read, Problem> {
        let ts = self.timestamps.read(&event.ts).ok_or("its time is not RFC 3339")?;
        let stands_for = event.stands_for(&mut self.timestamps).ok_or("it is no line of a checkpoint")?;
        each(Past::Usage(&event.replayed(ts, stands_for)));
        Ok(Read::Told)
    }

    fn refusal(&mut self, text: &str, each: impl FnOnce(Past<'_>)) -> Result<Read, Problem> {
        let refusal: RawRefusal<'_> = serde_json::from_str(text).map_err(|error| line::describe(&error))?;
        if refusal.v > VERSION {
            return Err(format!("it has the format version {}", refusal.v).into());
        }
        let ts = self.timestamps.read(&refusal.ts).ok_or("its time is not RFC 3339")?;
        each(Past::Refusal(&refusal.replayed(ts)));
        Ok(Read::Told)
    }
}
