//! Where the entries of a plan were booked.

use alloc::vec::Vec;

use crate::{ENTRIES_MAX, counter::Slot};

/// How many slots need no allocation: the limits of a usual plan.
pub(crate) const FEW: usize = 8;

/// One slot an entry, by its place in the plan.
#[derive(Debug)]
pub(crate) struct Slots {
    few: [Slot; FEW],
    more: Vec<Slot>,
}

impl Slots {
    pub(crate) const fn new() -> Self {
        Self { few: [Slot::ONLY; FEW], more: Vec::new() }
    }

    pub(crate) fn set(&mut self, index: usize, slot: Slot) {
        if let Some(place) = self.few.get_mut(index) {
            *place = slot;
            return;
        }
        let index = index.saturating_sub(FEW).min(ENTRIES_MAX);
        if index >= self.more.len() {
            self.more.resize(index.saturating_add(1), Slot::ONLY);
        }
        self.more[index] = slot;
    }

    /// The slot that was set, or [`Slot::ONLY`].
    pub(crate) fn get(&self, index: usize) -> Slot {
        let more = || self.more.get(index.checked_sub(FEW)?).copied();
        self.few.get(index).copied().or_else(more).unwrap_or(Slot::ONLY)
    }
}
