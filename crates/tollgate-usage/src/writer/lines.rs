//! Lines in one piece of memory, with where each ends.

use crate::journal::Hold;

/// Whole lines, line breaks included.
#[derive(Debug, Default)]
pub(super) struct Lines {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// The places in the journal of the calls that the lines are of.
    holds: Vec<Hold>,
}

/// The most memory that is kept for the next lines.
const SPARE_BYTES_MAX: usize = 1 << 20;

impl Lines {
    pub(super) fn push(&mut self, line: &[u8], hold: Option<Hold>) {
        self.bytes.extend_from_slice(line);
        self.ends.push(self.bytes.len());
        self.holds.extend(hold);
    }

    /// The places, to be given back once all lines are in the file.
    pub(super) fn take_holds(&mut self) -> impl Iterator<Item = Hold> + '_ {
        self.holds.drain(..)
    }

    pub(super) const fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many lines do not end within the first `written` bytes.
    pub(super) fn unfinished_after(&self, written: usize) -> usize {
        self.len() - self.ends.partition_point(|&end| end <= written)
    }

    /// The same memory, empty, if it is not too much to keep.
    pub(super) fn into_spare(mut self) -> Self {
        self.bytes.clear();
        self.ends.clear();
        self.holds.clear();
        if self.bytes.capacity() > SPARE_BYTES_MAX { Self::default() } else { self }
    }
}
