//! Takes the usage chunk out of a stream whose client did not ask for it.
//!
//! The chunk that `include_usage` adds is an event of its own, with empty `choices` and a usage. That
//! event goes, to its blank line; every other byte stays, in order.

use bytes::{Bytes, BytesMut};
use memchr::{memchr2, memmem};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::sse;

/// An event larger than this is not the usage chunk: it passes without being held.
const MAX_HELD_BYTES: usize = 64 * 1024;

/// Removes the usage-only event, byte-exactly, wherever the stream is cut.
///
/// Whole events pass as they come. An event that is not complete is held back until it is, or until
/// it is too large to be the one.
#[derive(Debug, Default)]
pub struct StreamFilter {
    /// The beginning of an event whose end has not come.
    held: BytesMut,
    /// How much of what is held needs not be looked at again for the event's end.
    scanned: usize,
    /// The event is too large: it passes unread until its end.
    is_passing: bool,
    /// The last byte was the CR that ended an event; an LF that follows goes the same way.
    after_cr: Option<Fate>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    Passes,
    IsRemoved,
}

impl StreamFilter {
    /// A filter at the beginning of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next piece; returns what may be passed on, which may be nothing.
    pub fn push(&mut self, piece: Bytes) -> Bytes {
        let mut piece = piece;
        let mut out = Out::default();
        if let Some(fate) = self.after_cr.take_if(|_| !piece.is_empty())
            && piece.first() == Some(&b'\n')
        {
            let line_feed = piece.split_to(1);
            if fate == Fate::Passes {
                out.push(line_feed);
            }
        }
        if self.held.is_empty() && !self.is_passing {
            self.cut(piece, &mut out);
        } else if self.is_passing {
            self.pass(piece, &mut out);
        } else {
            self.held.extend_from_slice(&piece);
            let is_ended = blank_line_end(&self.held, self.scanned).is_some();
            if is_ended || self.held.len() > MAX_HELD_BYTES {
                let joined = self.held.split().freeze();
                self.cut(joined, &mut out);
            } else {
                self.scanned = scanned(&self.held);
            }
        }
        out.join()
    }

    /// The stream has ended: what is still held, unless it is the usage chunk without its blank line.
    pub fn finish(&mut self) -> Bytes {
        let rest = self.held.split().freeze();
        if is_usage_event(&rest) { Bytes::new() } else { rest }
    }

    /// Cuts off whole events, from the beginning of one.
    fn cut(&mut self, piece: Bytes, out: &mut Out) {
        let mut start = 0;
        let mut passed = 0;
        let mut from = std::mem::take(&mut self.scanned);
        while let Some(end) = if from > 0 { blank_line_end(&piece, from) } else { event_end(&piece, start) } {
            from = 0;
            let fate = if is_usage_event(&piece[start..end.at]) { Fate::IsRemoved } else { Fate::Passes };
            if fate == Fate::IsRemoved {
                out.push(piece.slice(passed..start));
                passed = end.at;
            }
            if end.may_go_on && end.at == piece.len() {
                self.after_cr = Some(fate);
            }
            start = end.at;
        }
        if piece.len() - start > MAX_HELD_BYTES {
            self.is_passing = true;
            // The last bytes decide whether the next piece ends the event.
            let tail = piece.len() - 3;
            out.push(piece.slice(passed..tail));
            self.held.extend_from_slice(&piece[tail..]);
        } else {
            out.push(piece.slice(passed..start));
            self.held.extend_from_slice(&piece[start..]);
            self.scanned = scanned(&self.held);
        }
    }

    /// Lets a large event pass, to its end.
    fn pass(&mut self, piece: Bytes, out: &mut Out) {
        self.held.extend_from_slice(&piece);
        let joined = self.held.split().freeze();
        let Some(end) = blank_line_end(&joined, 0) else {
            let tail = joined.len().saturating_sub(3);
            out.push(joined.slice(..tail));
            self.held.extend_from_slice(&joined[tail..]);
            return;
        };
        self.is_passing = false;
        out.push(joined.slice(..end.at));
        if end.may_go_on && end.at == joined.len() {
            self.after_cr = Some(Fate::Passes);
        }
        self.cut(joined.slice(end.at..), out);
    }
}

/// The end of an event.
#[derive(Clone, Copy, Debug)]
struct End {
    /// Behind its blank line.
    at: usize,
    /// The blank line ends in CR: an LF may follow that belongs to it.
    may_go_on: bool,
}

/// The end of the event that begins at `start`.
fn event_end(bytes: &[u8], start: usize) -> Option<End> {
    // Blank lines before an event are events of their own: they pass.
    match bytes.get(start..)? {
        [b'\n', ..] => Some(End { at: start + 1, may_go_on: false }),
        [b'\r', b'\n', ..] => Some(End { at: start + 2, may_go_on: false }),
        [b'\r', ..] => Some(End { at: start + 1, may_go_on: true }),
        _ => blank_line_end(bytes, start),
    }
}

/// How much of `held`, in which no event ends, needs not be looked at again: its last byte may be the
/// end of the line before a blank one, or a part of it.
const fn scanned(held: &[u8]) -> usize {
    held.len().saturating_sub(1)
}

/// The end of the first blank line that follows the end of another line.
fn blank_line_end(bytes: &[u8], start: usize) -> Option<End> {
    let mut at = start;
    loop {
        at += memchr2(b'\n', b'\r', bytes.get(at..)?)?;
        at += if bytes[at..].starts_with(b"\r\n") { 2 } else { 1 };
        match bytes.get(at..)? {
            [b'\n', ..] => return Some(End { at: at + 1, may_go_on: false }),
            [b'\r', b'\n', ..] => return Some(End { at: at + 2, may_go_on: false }),
            [b'\r', ..] => return Some(End { at: at + 1, may_go_on: true }),
            _ => {}
        }
    }
}

/// Whether an event is the one that `include_usage` adds.
fn is_usage_event(event: &[u8]) -> bool {
    // Almost every chunk is told apart by this: its usage is null, or not there.
    if !has_usage_value(event) {
        return false;
    }
    let mut data = Vec::new();
    let mut lines = event.split(|b| matches!(b, b'\n' | b'\r'));
    let bom_less = lines.next().map(crate::json::without_bom);
    for value in bom_less.into_iter().chain(lines).filter_map(sse::data_value) {
        data.extend_from_slice(value);
        data.push(b'\n');
    }
    serde_json::from_slice::<Chunk>(&data).is_ok_and(|chunk| {
        chunk.usage.is_some() && chunk.error.is_none() && chunk.choices.is_some_and(|c| c.is_empty())
    })
}

/// Whether a key `usage` has a value that is not null.
fn has_usage_value(event: &[u8]) -> bool {
    memmem::find_iter(event, br#""usage""#).any(|at| {
        let rest = event[at + br#""usage""#.len()..].trim_ascii_start();
        rest.strip_prefix(b":").is_some_and(|value| !value.trim_ascii_start().starts_with(b"null"))
    })
}

#[derive(Deserialize)]
struct Chunk {
    choices: Option<Vec<IgnoredAny>>,
    usage: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

/// Pieces to be passed on as one.
#[derive(Default)]
struct Out {
    first: Bytes,
    more: BytesMut,
}

impl Out {
    fn push(&mut self, piece: Bytes) {
        if piece.is_empty() {
        } else if self.first.is_empty() {
            self.first = piece;
        } else {
            if self.more.is_empty() {
                self.more.extend_from_slice(&self.first);
            }
            self.more.extend_from_slice(&piece);
        }
    }

    fn join(self) -> Bytes {
        if self.more.is_empty() { self.first } else { self.more.freeze() }
    }
}
