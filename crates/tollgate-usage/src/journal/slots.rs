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
    made: u32,
}

impl Slots {
    /// A free slot; `None`: as many calls are open as there may be.
    pub(super) fn take(&mut self) -> Option<Place> {
        if let Some(place) = self.free.pop() {
            return Some(place);
        }
        let index = (self.made < SLOTS_MAX).then_some(self.made)?;
        self.made = self.made.saturating_add(1);
        Some(Place { index, sequence: 0 })
    }

    /// Gives a slot back. What it holds stays until it is taken again: it is in the usage file too.
    pub(super) fn free(&mut self, place: Place) {
        self.free.push(place);
    }

    /// Whether no slot is taken.
    pub(super) fn all_free(&self) -> bool {
        u32::try_from(self.free.len()) == Ok(self.made)
    }
}
