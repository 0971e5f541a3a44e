//! Cuts a stream of bytes into lines, in one buffer of fixed size.

use std::io::{self, Read};

/// Longer lines are skipped. The longest line the writer makes is far below.
pub(super) const LINE_BYTES_MAX: usize = 1 << 20;

/// Room for the longest line and a long read behind it.
const BUFFER_BYTES: usize = 4 << 20;

/// One line of the file.
pub(super) struct Line<'a> {
    pub(super) content: Content<'a>,
    /// Counted from 1.
    pub(super) number: u64,
    /// Whether a line break follows: without one the line may be torn.
    pub(super) ended: bool,
}

/// What the line holds.
pub(super) enum Content<'a> {
    /// Its bytes, without the line break.
    Text(&'a [u8]),
    /// More than [`LINE_BYTES_MAX`].
    Overlong,
}

/// The lines of `R`.
pub(super) struct Lines<R> {
    reader: R,
    buffer: Box<[u8]>,
    /// Where the current line starts.
    start: usize,
    /// Up to here there is no line break after `start`.
    scanned: usize,
    /// Where what was read ends.
    end: usize,
    /// Whether the current line has already lost its beginning.
    overlong: bool,
    ended: bool,
    number: u64,
    bytes_read: u64,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(reader: R) -> Self {
        Self {
            reader,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            scanned: 0,
            end: 0,
            overlong: false,
            ended: false,
            number: 0,
            bytes_read: 0,
        }
    }

    /// How many bytes were read so far.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// The next line; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            let unscanned = self.buffer.get(self.scanned..self.end).unwrap_or_default();
            if let Some(length) = memchr::memchr(b'\n', unscanned) {
                let line_end = self.scanned + length;
                return Ok(Some(self.line(line_end, line_end + 1, true)));
            }
            self.scanned = self.end;
            if self.end - self.start > LINE_BYTES_MAX {
                self.overlong = true;
                self.start = self.end;
            }
            if self.ended {
                let rest = self.overlong || self.start < self.end;
                return Ok(rest.then(|| self.line(self.end, self.end, false)));
            }
            self.read()?;
        }
    }

    /// The line from `self.start` to `line_end`; the next one starts at `next`.
    fn line(&mut self, line_end: usize, next: usize, ended: bool) -> Line<'_> {
        let range = self.start..line_end;
        let overlong = std::mem::take(&mut self.overlong) || range.len() > LINE_BYTES_MAX;
        self.start = next;
        self.scanned = next;
        self.number += 1;
        let content = match self.buffer.get(range) {
            Some(text) if !overlong => Content::Text(text),
            _ => Content::Overlong,
        };
        Line { content, number: self.number, ended }
    }

    /// Reads more behind what is there, after moving that to the front.
    fn read(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.scanned = self.end;
        self.start = 0;
        let count = loop {
            let room = self.buffer.get_mut(self.end..).unwrap_or_default();
            match self.reader.read(room) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        self.ended = count == 0;
        self.end += count;
        self.bytes_read += u64::try_from(count).unwrap_or(u64::MAX);
        Ok(())
    }
}
