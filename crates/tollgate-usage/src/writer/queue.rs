//! What stands between those who record and the thread that writes.
//!
//! Events wait as the lines they will be: their memory is one buffer that grows and is written out,
//! where events handed from one thread to another would be freed far from where they were made.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::lines::Lines;
use crate::journal::Hold;

/// A bounded list of events and the state of the thread that empties it.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Wakes the thread.
    work: Condvar,
    /// Wakes those who wait for the thread.
    progress: Condvar,
    dropped: AtomicU64,
    waiting_max: usize,
    /// At this many events the thread is woken before its interval is over.
    wake_at: usize,
}

#[derive(Debug, Default)]
struct State {
    lines: Lines,
    /// Lines the thread has taken and not yet written.
    taken: usize,
    recorded: u64,
    /// Recorded events that are in the file or given up.
    done: u64,
    /// This many of the recorded events are not to wait for a batch to fill.
    flush_to: u64,
    /// Another attempt is not to wait for its time.
    retry: bool,
    closing: bool,
    finished: bool,
    /// Failed attempts to write, all in all.
    failures: u64,
    failure: Option<Failure>,
    /// An outage in which events are dropped is logged once.
    dropping: bool,
}

#[derive(Clone, Debug)]
struct Failure {
    kind: io::ErrorKind,
    message: String,
}

impl Failure {
    fn to_error(&self) -> io::Error {
        io::Error::new(self.kind, self.message.clone())
    }
}

/// What the thread is to do next.
pub(super) struct Work {
    /// What was recorded, in order.
    pub(super) lines: Lines,
    /// Whether this is the last work there is.
    pub(super) last: bool,
}

impl Queue {
    pub(super) fn new(waiting_max: usize) -> Self {
        Self {
            state: Mutex::default(),
            work: Condvar::new(),
            progress: Condvar::new(),
            dropped: AtomicU64::new(0),
            waiting_max,
            wake_at: waiting_max.div_ceil(4).max(1),
        }
    }

    /// Takes an event's line in, or drops and counts it. With it goes the place of its call in the journal: a
    /// line that is dropped stays there.
    pub(super) fn push(&self, line: &[u8], hold: Option<Hold>) {
        let mut state = self.lock();
        if state.closing || state.lines.len().saturating_add(state.taken) >= self.waiting_max {
            let first = !state.dropping && !state.closing;
            state.dropping = true;
            drop(state);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            if first {
                tracing::error!(waiting = self.waiting_max, "too many usage events wait: dropping");
            }
            return;
        }
        state.lines.push(line, hold);
        state.recorded = state.recorded.saturating_add(1);
        let waiting = state.lines.len();
        drop(state);
        // A notification is a system call even if nobody waits; the thread needs one a batch.
        if waiting == 1 || waiting == self.wake_at {
            self.work.notify_one();
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(super) fn healthy(&self) -> bool {
        let state = self.lock();
        state.failure.is_none() && !state.dropping
    }

    /// Waits until everything recorded before is written, or an attempt fails.
    pub(super) fn flush(&self, timeout: Duration) -> io::Result<()> {
        let mut state = self.lock();
        let (target, failures) = (state.recorded, state.failures);
        let waiting = |state: &mut State| state.done < target && state.failures == failures;
        if waiting(&mut state) {
            state.flush_to = target;
            state.retry = true;
            self.work.notify_one();
        }
        let (state, _) =
            self.progress.wait_timeout_while(state, timeout, waiting).unwrap_or_else(PoisonError::into_inner);
        let written = state.done >= target && !(state.finished && state.failure.is_some());
        if written { Ok(()) } else { Err(state.reason()) }
    }

    /// Ends the thread, after a last attempt to write.
    pub(super) fn close(&self, timeout: Duration) -> io::Result<()> {
        let mut state = self.lock();
        state.closing = true;
        self.work.notify_one();
        let (state, _) = self
            .progress
            .wait_timeout_while(state, timeout, |state| !state.finished)
            .unwrap_or_else(PoisonError::into_inner);
        let written = state.finished && state.failure.is_none();
        if written { Ok(()) } else { Err(state.reason()) }
    }

    /// For the thread: waits for events, then for `batch` for more of them. `spare` becomes the list
    /// that is filled next.
    pub(super) fn take(&self, batch: Duration, spare: Lines) -> Work {
        let idle = |state: &mut State| state.lines.is_empty() && !state.closing;
        let state = self.work.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        let early = |state: &mut State| {
            state.done >= state.flush_to && !state.closing && state.lines.len() < self.wake_at
        };
        let (mut state, _) =
            self.work.wait_timeout_while(state, batch, early).unwrap_or_else(PoisonError::into_inner);
        let lines = std::mem::replace(&mut state.lines, spare);
        state.taken = lines.len();
        Work { lines, last: state.closing }
    }

    /// For the thread: the taken events are written.
    pub(super) fn written(&self) {
        let mut state = self.lock();
        state.done = state.done.saturating_add(u64::try_from(state.taken).unwrap_or(u64::MAX));
        state.taken = 0;
        state.dropping = false;
        if state.failure.take().is_some() {
            tracing::info!(dropped = self.dropped(), "the usage file can be written again");
        }
        self.progress.notify_all();
    }

    /// For the thread: an attempt failed. Waits until it is time for another one; false: there is
    /// none, the writer is being closed.
    pub(super) fn failed(&self, error: &io::Error, retry: Duration) -> bool {
        let mut state = self.lock();
        state.failures = state.failures.saturating_add(1);
        if state.failure.is_none() {
            tracing::error!(%error, "usage events cannot be written; they are kept for another attempt");
        }
        state.failure = Some(Failure { kind: error.kind(), message: error.to_string() });
        // Whoever asked before now has this attempt's answer.
        state.retry = false;
        self.progress.notify_all();
        let waiting = |state: &mut State| !state.retry && !state.closing;
        let (state, _) =
            self.work.wait_timeout_while(state, retry, waiting).unwrap_or_else(PoisonError::into_inner);
        !state.closing
    }

    /// For the thread: `lost` of the taken events and all that wait will never be written.
    pub(super) fn finish(&self, lost: usize, result: io::Result<()>) {
        let mut state = self.lock();
        let lost = lost.saturating_add(state.lines.len());
        self.dropped.fetch_add(u64::try_from(lost).unwrap_or(u64::MAX), Ordering::Relaxed);
        state.lines = Lines::default();
        state.taken = 0;
        state.done = state.recorded;
        state.closing = true;
        state.finished = true;
        state.failure = result.err().map(|error| Failure { kind: error.kind(), message: error.to_string() });
        self.progress.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is complete before the lock is given back, panics included.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Why something is not written: the error there is, or that it takes too long.
    fn reason(&self) -> io::Error {
        self.failure.as_ref().map_or_else(|| io::ErrorKind::TimedOut.into(), Failure::to_error)
    }
}
