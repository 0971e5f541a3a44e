//! Server-sent events in pieces, wherever they are cut.
//!
//! Read as the HTML standard says (§9.2): LF, CRLF and CR end a line, a byte order mark may begin the
//! stream, several `data` lines are joined by LF, one space after the colon is no part of the value,
//! other fields and comments are passed over. `[DONE]` and event names mean nothing here: each
//! protocol says in its data what an event is.

use memchr::memchr2;

/// The largest event whose data are kept. A larger one is passed over and said to be so.
pub(crate) const MAX_EVENT_BYTES: usize = 1024 * 1024;
/// Buffers are given back above this size: long streams stay small.
const KEPT_BUFFER_BYTES: usize = 16 * 1024;

/// An event, when its blank line has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Event<'a> {
    /// Its data.
    Data(&'a [u8]),
    /// It was larger than [`MAX_EVENT_BYTES`].
    TooLarge,
}

/// Cuts a stream into events.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    /// The data lines of the event so far.
    data: Vec<u8>,
    has_data: bool,
    is_too_large: bool,
    /// The last line ended in CR: an LF that follows belongs to it.
    after_cr: bool,
    /// A line has ended: a byte order mark can no longer come.
    is_begun: bool,
}

impl Parser {
    /// Takes the next piece; `on_event` gets each event that it completes.
    pub(crate) fn feed(&mut self, piece: &[u8], mut on_event: impl FnMut(Event<'_>)) {
        let mut rest = piece;
        if self.after_cr && !rest.is_empty() {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            self.after_cr = false;
        }
        while let Some(end) = memchr2(b'\n', b'\r', rest) {
            let line = &rest[..end];
            let is_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if is_cr {
                match rest.first() {
                    Some(b'\n') => rest = &rest[1..],
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
            self.end_line(line, &mut on_event);
        }
        self.hold(rest);
    }

    /// The stream has ended: what is pending counts as an event, though its blank line never came.
    pub(crate) fn finish(&mut self, mut on_event: impl FnMut(Event<'_>)) {
        if !self.line.is_empty() {
            self.end_line(b"", &mut on_event);
        }
        self.dispatch(&mut on_event);
    }

    fn hold(&mut self, part: &[u8]) {
        if self.line.len().saturating_add(part.len()) > MAX_EVENT_BYTES {
            // The field's name stays, so that the line is still known for what it is.
            self.line.truncate(8);
            self.is_too_large = true;
        } else {
            self.line.extend_from_slice(part);
        }
    }

    fn end_line(&mut self, line: &[u8], on_event: &mut impl FnMut(Event<'_>)) {
        if self.line.is_empty() {
            self.take_line(line, on_event);
        } else {
            self.hold(line);
            let mut held = std::mem::take(&mut self.line);
            self.take_line(&held, on_event);
            held.clear();
            held.shrink_to(KEPT_BUFFER_BYTES);
            self.line = held;
        }
    }

    fn take_line(&mut self, line: &[u8], on_event: &mut impl FnMut(Event<'_>)) {
        let line = if self.is_begun { line } else { line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line) };
        self.is_begun = true;
        if line.is_empty() {
            self.dispatch(on_event);
        } else if let Some(value) = data_value(line) {
            self.take_data(value);
        }
    }

    fn take_data(&mut self, value: &[u8]) {
        if self.data.len().saturating_add(value.len()) >= MAX_EVENT_BYTES {
            self.is_too_large = true;
        }
        if self.is_too_large {
            self.data.clear();
        } else {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value);
        }
        self.has_data = true;
    }

    fn dispatch(&mut self, on_event: &mut impl FnMut(Event<'_>)) {
        if self.is_too_large {
            on_event(Event::TooLarge);
        } else if self.has_data {
            on_event(Event::Data(&self.data));
        }
        self.data.clear();
        self.data.shrink_to(KEPT_BUFFER_BYTES);
        self.has_data = false;
        self.is_too_large = false;
    }
}

/// The value of a `data` line, or `None` for any other line.
pub(crate) fn data_value(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"data")?;
    match rest.first() {
        None => Some(rest),
        Some(b':') => Some(rest[1..].strip_prefix(b" ").unwrap_or(&rest[1..])),
        Some(_) => None,
    }
}
