//! Cuts a stream of bytes into lines, in buffers of fixed size.

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

/// Where a block of lines is read to.
pub(super) struct Buffer(Box<[u8]>);

/// Whole lines that were read together.
pub(super) struct Block<'b> {
    pub(super) lines: Vec<Line<'b>>,
    /// The beginning of the line that the next block begins with.
    pub(super) rest: &'b [u8],
    /// Whether nothing comes after it.
    pub(super) is_last: bool,
    /// How many bytes of the stream were read by then.
    pub(super) bytes_read: u64,
}

/// The blocks of `R`.
pub(super) struct Blocks<R> {
    reader: R,
    /// Whether the next line has already lost its beginning.
    overlong: bool,
    number: u64,
    bytes_read: u64,
}

impl Buffer {
    pub(super) fn new() -> Self {
        Self(vec![0; BUFFER_BYTES].into_boxed_slice())
    }
}

impl<R: Read> Blocks<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, overlong: false, number: 0, bytes_read: 0 }
    }

    /// The next block, in `buffer`. `rest` is that of the one before.
    pub(super) fn next<'b>(&mut self, Buffer(buffer): &'b mut Buffer, rest: &[u8]) -> io::Result<Block<'b>> {
        let mut end = rest.len();
        buffer.iter_mut().zip(rest).for_each(|(place, byte)| *place = *byte);
        let is_last = loop {
            let is_last = self.fill(buffer, &mut end)?;
            let is_cut = memchr::memrchr(b'\n', buffer.get(..end).unwrap_or_default()).is_some();
            if is_last || is_cut {
                break is_last;
            }
            // A whole buffer of one line.
            (self.overlong, end) = (true, 0);
        };
        let read = buffer.get(..end).unwrap_or_default();
        let whole = if is_last { end } else { memchr::memrchr(b'\n', read).map_or(0, |last| last + 1) };
        let (whole, mut rest) = read.split_at(whole);
        let lines = self.lines(whole, is_last);
        if rest.len() > LINE_BYTES_MAX {
            self.overlong = true;
            rest = &[];
        }
        Ok(Block { lines, rest, is_last, bytes_read: self.bytes_read })
    }

    /// Reads until the buffer is full or nothing comes any more, which it tells.
    fn fill(&mut self, buffer: &mut [u8], end: &mut usize) -> io::Result<bool> {
        loop {
            let room = buffer.get_mut(*end..).unwrap_or_default();
            if room.is_empty() {
                return Ok(false);
            }
            let count = match self.reader.read(room) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            };
            if count == 0 {
                return Ok(true);
            }
            *end += count;
            self.bytes_read += u64::try_from(count).unwrap_or(u64::MAX);
        }
    }

    /// Cuts `text` into its lines. Only the last block's last line may have no line break.
    fn lines<'b>(&mut self, text: &'b [u8], is_last: bool) -> Vec<Line<'b>> {
        let mut lines = Vec::new();
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', text) {
            lines.push(self.line(text.get(start..end).unwrap_or_default(), true));
            start = end + 1;
        }
        if is_last && (self.overlong || start < text.len()) {
            lines.push(self.line(text.get(start..).unwrap_or_default(), false));
        }
        lines
    }

    fn line<'b>(&mut self, text: &'b [u8], ended: bool) -> Line<'b> {
        let overlong = std::mem::take(&mut self.overlong) || text.len() > LINE_BYTES_MAX;
        self.number += 1;
        let content = if overlong { Content::Overlong } else { Content::Text(text) };
        Line { content, number: self.number, ended }
    }
}
