//! Which slots are free.

use super::SLOTS_MAX;

/// A slot that is taken, and the number of what was written into it last.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Place {
    pub(super) index: u32,
    pub(super) sequence: u64,
}

/// The free slots. The one that was freed last is taken first: its pages are in memory, and the file
/// grows only as far as calls are open at a time.
#[derive(Debug, Default)]
pub(super) struct Slots {
    free: Vec<Place>,
    /// What was written into each slot that was made, up to which number, is of calls that are over.
    closed: Vec<u64>,
}

impl Slots {
    /// A free slot; `None`: as many calls are open as there may be.
    pub(super) fn take(&mut self) -> Option<Place> {
        if let Some(place) = self.free.pop() {
            return Some(place);
        }
        let made = u32::try_from(self.closed.len()).ok();
        let index = made.filter(|made| *made < SLOTS_MAX)?;
        self.closed.push(0);
        Some(Place { index, sequence: 0 })
    }

    /// Gives a slot back. What it holds stays until it is taken again: it is in the usage file too.
    pub(super) fn free(&mut self, place: Place) {
        let closed = usize::try_from(place.index).ok().and_then(|index| self.closed.get_mut(index));
        closed.into_iter().for_each(|closed| *closed = place.sequence);
        self.free.push(place);
    }

    /// For each slot the number of the last write of a call that is over.
    pub(super) fn closed(&self) -> Vec<u64> {
        self.closed.clone()
    }

    /// Whether no slot is taken.
    pub(super) fn all_free(&self) -> bool {
        self.free.len() == self.closed.len()
    }
}
