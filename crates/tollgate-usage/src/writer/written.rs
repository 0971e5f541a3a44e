//! Waiting for what was written down in the journal.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::sync::Notes;
use crate::error::UsageError;
use crate::journal::{Journal, Ticket};

/// What was written down waits to be written to the system's memory of the file: polled, until what else is about
/// to be written down has joined it; [`now`](Self::now) or dropped, not at all.
///
/// A task that polls it yields once. Tasks of its runtime that are ready have their turn before, and what they
/// write down is one call to the system with this.
#[derive(Debug)]
#[must_use = "it is written at once when it is dropped"]
pub struct Written {
    waits: Option<Waits>,
    has_yielded: bool,
}

#[derive(Debug)]
struct Waits {
    journal: Arc<Journal>,
    ticket: Ticket,
    /// Who is told that there is something new for the disk to confirm.
    notes: Option<Notes>,
}

impl Written {
    pub(super) const fn after(journal: Arc<Journal>, ticket: Ticket, notes: Option<Notes>) -> Self {
        Self { waits: Some(Waits { journal, ticket, notes }), has_yielded: false }
    }

    /// There was nothing to write.
    pub(super) const fn nothing() -> Self {
        Self { waits: None, has_yielded: true }
    }

    /// Writes it, unless that is done.
    ///
    /// # Errors
    /// It could not be written. The journal has logged and counted the error.
    pub fn now(mut self) -> Result<(), UsageError> {
        self.write()
    }

    fn write(&mut self) -> Result<(), UsageError> {
        let Some(Waits { journal, ticket, notes }) = self.waits.take() else { return Ok(()) };
        let written = journal.write_out(&ticket);
        notes.into_iter().for_each(|notes| {
            notes.note();
        });
        written
    }

    fn is_written(&self) -> bool {
        self.waits.as_ref().is_none_or(|waits| waits.ticket.outcome().is_some())
    }
}

impl Future for Written {
    type Output = Result<(), UsageError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.has_yielded && !self.is_written() {
            self.has_yielded = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.write())
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        // The journal has logged and counted an error.
        let _ = self.write();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::task::Waker;

    use super::*;
    use crate::journal::Hold;
    use crate::journal::frame::HEADER_BYTES;

    fn held(journal: &Arc<Journal>, id: &str) -> (Hold, Written) {
        let (hold, ticket) = journal.hold(&id.into(), &[0; HEADER_BYTES + 8]).unwrap();
        (hold, Written::after(Arc::clone(journal), ticket, None))
    }

    fn poll(written: &mut Written) -> Poll<Result<(), UsageError>> {
        Pin::new(written).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn who_waits_yields_once_and_the_first_to_come_back_writes_for_all() {
        let journal = Arc::new(Journal::unread(Path::new("usage.jsonl")));
        let (_first, mut first_written) = held(&journal, "first");
        assert!(poll(&mut first_written).is_pending());
        let (_second, mut second_written) = held(&journal, "second");
        assert!(poll(&mut second_written).is_pending());
        assert!(!first_written.is_written() && !second_written.is_written());
        assert!(matches!(poll(&mut first_written), Poll::Ready(Ok(()))));
        assert!(second_written.is_written(), "together");
        assert!(matches!(poll(&mut second_written), Poll::Ready(Ok(()))));
    }

    #[test]
    fn what_nobody_waits_for_is_written_when_it_is_dropped() {
        let journal = Arc::new(Journal::unread(Path::new("usage.jsonl")));
        let (_first, first_written) = held(&journal, "first");
        let (_second, second_written) = held(&journal, "second");
        drop(first_written);
        assert!(second_written.is_written());
        second_written.now().unwrap();
    }
}
