//! What lines say, found out apart from what it means: a thread of its own can do it.

use super::line::{self, RawEvent, RawRefusal};
use super::lines::{Block, Content, Line};
use super::plain;
use crate::json::VERSION;

/// What every refusal's line starts with: where nobody asks for them, such lines are counted unparsed.
const REFUSAL_PREFIX: &[u8] = b"{\"v\":1,\"type\":\"refusal\",";

/// What is to be read of a line.
#[derive(Clone, Copy)]
pub(super) struct Wants {
    /// Whether refusals are parsed.
    pub(super) refusals: bool,
    /// Whether these are lines of a checkpoint.
    pub(super) sums: bool,
}

/// A line as it was understood, or why it was not.
pub(super) struct Understood<'a> {
    pub(super) number: u64,
    pub(super) ended: bool,
    pub(super) content: Result<Understanding<'a>, String>,
}

#[expect(clippy::large_enum_variant, reason = "nearly all lines are events")]
pub(super) enum Understanding<'a> {
    Nothing,
    /// A refusal that nobody wants.
    Refused,
    Event(RawEvent<'a>),
    Refusal(RawRefusal<'a>),
}

/// A block's lines as they were understood.
pub(super) struct Parsed<'b> {
    pub(super) lines: Vec<Understood<'b>>,
    pub(super) rest: &'b [u8],
    pub(super) is_last: bool,
    pub(super) bytes_read: u64,
}

impl Wants {
    pub(super) fn parse_all<'b>(self, block: Block<'b>) -> Parsed<'b> {
        let Block { lines, rest, is_last, bytes_read } = block;
        Parsed { lines: lines.into_iter().map(|line| self.parse(line)).collect(), rest, is_last, bytes_read }
    }

    pub(super) fn parse(self, line: Line<'_>) -> Understood<'_> {
        let Line { content, number, ended } = line;
        let content = match content {
            Content::Overlong => Err("it is too long".to_owned()),
            Content::Text(text) => self.understand(text, ended),
        };
        Understood { number, ended, content }
    }

    fn understand(self, text: &[u8], ended: bool) -> Result<Understanding<'_>, String> {
        if ended && !self.refusals && text.starts_with(REFUSAL_PREFIX) {
            return Ok(Understanding::Refused);
        }
        // After a power failure some file systems leave a run of zeros where data was not written.
        let zeros = text.iter().take_while(|byte| **byte == 0).count();
        let text = text.get(zeros..).unwrap_or_default().trim_ascii();
        if text.is_empty() {
            return if zeros == 0 { Ok(Understanding::Nothing) } else { Err("it is all zeros".to_owned()) };
        }
        // Checking the line at once is faster than each of its strings.
        let text = str::from_utf8(text).map_err(|_| "it is not UTF-8")?;
        if text.as_bytes().starts_with(REFUSAL_PREFIX) {
            return refusal(text);
        }
        // Plain lines are those of usage files.
        let event: RawEvent<'_> = match plain::event(text).filter(|_| !self.sums) {
            Some(event) => event,
            None => serde_json::from_str(text).map_err(|error| line::describe(&error))?,
        };
        if event.v > VERSION {
            return Err(format!("it has the format version {}", event.v));
        }
        match &*event.kind {
            _ if self.sums => Ok(Understanding::Event(event)),
            "usage" => Ok(Understanding::Event(event)),
            "refusal" => refusal(text),
            _ => Err("it is neither usage nor refusal".to_owned()),
        }
    }
}

fn refusal(text: &str) -> Result<Understanding<'_>, String> {
    let refusal: RawRefusal<'_> = serde_json::from_str(text).map_err(|error| line::describe(&error))?;
    if refusal.v > VERSION {
        return Err(format!("it has the format version {}", refusal.v));
    }
    Ok(Understanding::Refusal(refusal))
}
