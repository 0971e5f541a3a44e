//! What is forgotten some time after its last use, as sessions and runs are. What is used after that is a new
//! generation, told from the old one by the moment it began.

use crate::{DurationMs, TimestampMs, counter::Slot};

/// One generation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Generation {
    after: DurationMs,
    began: TimestampMs,
    /// The moment it is forgotten: `began` as long as it is unused.
    until: TimestampMs,
}

impl Generation {
    pub(crate) const fn new(after: DurationMs, now: TimestampMs) -> Self {
        Self { after, began: now, until: now }
    }

    pub(crate) const fn after(&self) -> DurationMs {
        self.after
    }

    /// Names it.
    pub(crate) const fn slot(&self) -> Slot {
        Slot(self.began.get())
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.until == self.began
    }

    pub(crate) fn is_forgotten(&self, now: TimestampMs) -> bool {
        now >= self.until
    }

    /// How long it takes until it is forgotten.
    pub(crate) fn rest(&self, now: TimestampMs) -> DurationMs {
        self.until.since(now)
    }

    /// When it is forgotten, if it is in use.
    pub(crate) fn resets_at(&self, now: TimestampMs) -> Option<TimestampMs> {
        (!self.is_forgotten(now) && !self.is_unused()).then_some(self.until)
    }

    /// What is used now is forgotten so much later. Nothing is forgotten at once: two generations
    /// begin at different moments.
    pub(crate) fn touch(&mut self, at: TimestampMs) {
        self.until = self.until.max(self.forgotten_after(at));
    }

    /// A use of now, which may be earlier than the beginning where clocks differ.
    pub(crate) fn touch_now(&mut self, now: TimestampMs) {
        self.touch(now.max(self.began));
    }

    /// Whether a use of the moment `at` belongs to it, also from before it began: another generation would have
    /// been forgotten in between.
    pub(crate) fn has(&self, at: TimestampMs) -> bool {
        self.forgotten_after(at) > self.began
    }

    fn forgotten_after(&self, at: TimestampMs) -> TimestampMs {
        at.saturating_add(self.after.max(DurationMs::new(1)))
    }
}
