//! Cuts a stream of bytes into blocks of whole lines, each in one buffer of fixed size.

use std::io::{self, Read};
use std::iter;

/// Longer lines are skipped. The longest line the writer makes is far below.
const LINE_BYTES_MAX: usize = 1 << 20;

/// The most that one read adds to a block.
const READ_BYTES: usize = 256 << 10;

/// Some lines, one after the other in the file.
pub(super) struct Block {
    /// Room for the longest line and a read behind it.
    buffer: Box<[u8]>,
    length: usize,
    /// Whether the first line has lost its beginning, being too long.
    is_cut: bool,
}

/// One line of the file.
pub(super) struct Line<'a> {
    pub(super) content: Content<'a>,
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

impl Block {
    /// An empty one.
    pub(super) fn new() -> Self {
        let buffer = vec![0; LINE_BYTES_MAX + READ_BYTES].into_boxed_slice();
        Self { buffer, length: 0, is_cut: false }
    }

    /// Its lines.
    pub(super) fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        let (mut rest, mut is_cut) = (self.buffer.get(..self.length).unwrap_or_default(), self.is_cut);
        iter::from_fn(move || {
            if rest.is_empty() && !is_cut {
                return None;
            }
            let end = memchr::memchr(b'\n', rest);
            let (text, behind) = rest.split_at_checked(end.unwrap_or(rest.len()))?;
            rest = behind.get(1..).unwrap_or_default();
            let is_overlong = std::mem::take(&mut is_cut) || text.len() > LINE_BYTES_MAX;
            let content = if is_overlong { Content::Overlong } else { Content::Text(text) };
            Some(Line { content, ended: end.is_some() })
        })
    }
}

/// The blocks of `R`.
pub(super) struct Blocks<R> {
    reader: R,
    /// What was read behind the latest block: the beginning of a line.
    rest: Vec<u8>,
    is_over: bool,
    bytes_read: u64,
}

impl<R: Read> Blocks<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, rest: Vec::new(), is_over: false, bytes_read: 0 }
    }

    /// How many bytes were read so far.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Puts the next lines into `block`; whether there were any.
    pub(super) fn next(&mut self, block: &mut Block) -> io::Result<bool> {
        let Block { buffer, length, is_cut } = block;
        (*length, *is_cut) = (self.rest.len(), false);
        if let Some(beginning) = buffer.get_mut(..self.rest.len()) {
            beginning.copy_from_slice(&self.rest);
        }
        self.rest.clear();
        while !self.is_over {
            if *length > LINE_BYTES_MAX {
                // No line ends in it.
                (*length, *is_cut) = (0, true);
            }
            let end = length.saturating_add(READ_BYTES);
            let room = buffer.get_mut(*length..end).unwrap_or_default();
            let count = self.read(room)?;
            let read = room.get(..count).unwrap_or_default();
            if let Some(last) = memchr::memrchr(b'\n', read) {
                self.rest.extend_from_slice(read.get(last + 1..).unwrap_or_default());
                *length += last + 1;
                return Ok(true);
            }
            *length += count;
        }
        Ok(*length > 0 || *is_cut)
    }

    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let count = loop {
            match self.reader.read(room) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        self.is_over = count == 0;
        self.bytes_read = self.bytes_read.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        Ok(count)
    }
}
