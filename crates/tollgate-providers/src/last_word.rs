//! Whether a usage in a stream is the provider's last word.
//!
//! Servers report usage at the beginning, on every event, or at the end. A report that was followed by
//! more content, or by the end itself, says nothing about what came after it. Events are judged whole,
//! as the order of the fields inside one means nothing.

/// Follows a stream's events.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastWord {
    is_in_event: bool,
    /// No content has come in an event after the last usage.
    is_fresh: bool,
    /// The last usage came in or after the event in which the content was finished.
    is_late: bool,
}

impl LastWord {
    /// A usage stands in the present event. `is_report`: it says something, and may be the last.
    pub(crate) const fn usage(&mut self, is_report: bool) {
        self.is_in_event |= is_report;
    }

    /// An event has ended. `has_content`: content stood in it. `is_finished`: the content is finished,
    /// by this event or one before.
    pub(crate) const fn end_event(&mut self, has_content: bool, is_finished: bool) {
        if self.is_in_event {
            self.is_fresh = true;
            self.is_late = is_finished;
        } else if has_content {
            self.is_fresh = false;
            self.is_late = false;
        }
        self.is_in_event = false;
    }

    /// Whether no later usage is to be expected. `is_ended`: the stream has said its end, after which a
    /// usage that no content followed is the last as well.
    pub(crate) const fn is_final(&self, is_ended: bool) -> bool {
        self.is_late || (is_ended && self.is_fresh)
    }
}
