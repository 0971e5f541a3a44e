//! Server-sent events in pieces, wherever they are cut.
//!
//! Read as the HTML standard says (§9.2): LF, CRLF and CR end a line, a byte order mark may begin the
//! stream, several `data` lines are joined by LF, one space after the colon is no part of the value,
//! other fields and comments are passed over. `[DONE]` and event names mean nothing here: each
//! protocol says in its data what an event is.

use memchr::memchr2;

/// Up to here an event is held until it is whole. A larger one is handed over in parts.
pub(crate) const HELD_BYTES_MAX: usize = 64 * 1024;
/// Buffers are given back above this size: long streams stay small.
const KEPT_BUFFER_BYTES: usize = 16 * 1024;

/// An event, or a part of one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Event<'a> {
    /// The data of an event whose blank line has come.
    Data(&'a [u8]),
    /// The next part of the data of one that is larger than [`HELD_BYTES_MAX`].
    Part(&'a [u8]),
    /// The event of the parts before is whole.
    End,
}

/// Cuts a stream into events.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    /// What the line is whose beginning was too long to be held.
    long_line: Option<LongLine>,
    /// The data lines of the event so far.
    data: Vec<u8>,
    has_data: bool,
    /// The event is handed over in parts.
    is_in_parts: bool,
    /// The last line ended in CR: an LF that follows belongs to it.
    after_cr: bool,
    /// A line has ended: a byte order mark can no longer come.
    is_begun: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LongLine {
    Data,
    Other,
}

impl Parser {
    /// Takes the next piece; `on_event` gets each event that it completes, and parts of large ones.
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
        self.hold(rest, &mut on_event);
    }

    /// The stream has ended: what is pending counts as an event, though its blank line never came.
    pub(crate) fn finish(&mut self, mut on_event: impl FnMut(Event<'_>)) {
        if !self.line.is_empty() || self.long_line.is_some() {
            self.end_line(b"", &mut on_event);
        }
        self.dispatch(&mut on_event);
    }

    /// Keeps the beginning of a line.
    fn hold(&mut self, part: &[u8], on_event: &mut impl FnMut(Event<'_>)) {
        match self.long_line {
            Some(LongLine::Data) => on_event(Event::Part(part)),
            Some(LongLine::Other) => {}
            None => {
                self.line.extend_from_slice(part);
                if self.data.len().saturating_add(self.line.len()) >= HELD_BYTES_MAX {
                    self.let_go(on_event);
                }
            }
        }
    }

    /// Keeps no more of a line than the event may have: by its value, as of a line that came whole.
    fn let_go(&mut self, on_event: &mut impl FnMut(Event<'_>)) {
        let line = std::mem::take(&mut self.line);
        match data_value(self.without_mark(&line)) {
            Some(value) if self.fits(value) => self.line = line,
            Some(value) => {
                self.begin_part(on_event);
                on_event(Event::Part(value));
                self.long_line = Some(LongLine::Data);
            }
            None if line.len() < HELD_BYTES_MAX => self.line = line,
            None => self.long_line = Some(LongLine::Other),
        }
    }

    /// Whether the event is held with this value.
    fn fits(&self, value: &[u8]) -> bool {
        !self.is_in_parts && self.data.len().saturating_add(value.len()) < HELD_BYTES_MAX
    }

    fn end_line(&mut self, line: &[u8], on_event: &mut impl FnMut(Event<'_>)) {
        if self.long_line.is_some() {
            self.hold(line, on_event);
            self.long_line = None;
            self.is_begun = true;
        } else if self.line.is_empty() {
            self.take_line(line, on_event);
        } else {
            self.line.extend_from_slice(line);
            let mut held = std::mem::take(&mut self.line);
            self.take_line(&held, on_event);
            held.clear();
            held.shrink_to(KEPT_BUFFER_BYTES);
            self.line = held;
        }
    }

    fn take_line(&mut self, line: &[u8], on_event: &mut impl FnMut(Event<'_>)) {
        let line = self.without_mark(line);
        self.is_begun = true;
        if line.is_empty() {
            self.dispatch(on_event);
        } else if let Some(value) = data_value(line) {
            self.take_data(value, on_event);
        }
    }

    /// The line without a byte order mark, if it is the first one.
    fn without_mark<'l>(&self, line: &'l [u8]) -> &'l [u8] {
        if self.is_begun { line } else { line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line) }
    }

    fn take_data(&mut self, value: &[u8], on_event: &mut impl FnMut(Event<'_>)) {
        if !self.fits(value) {
            self.begin_part(on_event);
            on_event(Event::Part(value));
        } else {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value);
            self.has_data = true;
        }
    }

    /// From here on the event is handed over as it comes; another data line begins.
    fn begin_part(&mut self, on_event: &mut impl FnMut(Event<'_>)) {
        self.is_in_parts = true;
        if !self.data.is_empty() {
            on_event(Event::Part(&self.data));
            self.data = Vec::new();
        }
        if std::mem::replace(&mut self.has_data, true) {
            on_event(Event::Part(b"\n"));
        }
    }

    fn dispatch(&mut self, on_event: &mut impl FnMut(Event<'_>)) {
        if self.is_in_parts {
            on_event(Event::End);
        } else if self.has_data {
            on_event(Event::Data(&self.data));
        }
        self.data.clear();
        self.data.shrink_to(KEPT_BUFFER_BYTES);
        self.has_data = false;
        self.is_in_parts = false;
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
