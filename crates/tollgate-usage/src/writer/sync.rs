//! Has the disk confirm the journal, as often as it is asked for.
//!
//! A thread of its own does it, so that nobody's work is blocked by a disk: calls that must wait are woken
//! when it is done. What is written down while the disk is at work waits for the next time: parallel calls
//! share one.

use std::fs::File;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::Fsync;
use crate::journal::Journal;

/// How often [`Fsync::Second`] has the disk confirm.
const INTERVAL: Duration = Duration::from_secs(1);

/// The thread's end that others hold. Dropping it stops the thread.
#[derive(Debug)]
pub(super) struct Syncer(Notes);

/// Tells the thread of what was written down.
#[derive(Clone, Debug)]
pub(super) struct Notes(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// What was written down is numbered; the number of the last.
    written: u64,
    /// Up to here the disk was asked.
    asked: u64,
    /// Up to here it may have failed.
    failed: u64,
    waiting: Vec<Waker>,
    stopping: bool,
    ended: bool,
}

impl Syncer {
    /// Starts the thread.
    pub(super) fn start(fsync: Fsync, journal: Arc<Journal>) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let body = move || match fsync {
            Fsync::Never => {}
            Fsync::Second => {
                of_thread.run(Some(INTERVAL), || journal.sync().and_then(|()| sync_usage(&journal)))
            }
            // The writer's thread confirms the usage file itself.
            Fsync::Always => of_thread.run(None, || journal.sync()),
        };
        std::thread::Builder::new().name("usage-sync".to_owned()).spawn(body)?;
        Ok(Self(Notes(shared)))
    }

    /// For those who write down what nobody waits for the disk to confirm.
    pub(super) fn notes(&self) -> Notes {
        self.0.clone()
    }

    /// Waits until the disk has confirmed what was written down before.
    pub(super) fn synced(&self) -> Synced {
        Synced { number: self.0.note(), shared: Arc::clone(&self.0.0) }
    }
}

impl Notes {
    /// Something was written down; its number.
    pub(super) fn note(&self) -> u64 {
        let mut state = self.0.lock();
        let is_first = state.written == state.asked;
        state.written = state.written.saturating_add(1);
        let number = state.written;
        drop(state);
        // A notification is a system call even if nobody waits; a thread at work looks again by itself.
        if is_first {
            self.0.work.notify_one();
        }
        number
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.0.0.lock().stopping = true;
        self.0.0.work.notify_one();
    }
}

/// A wait for the disk. Done when it has confirmed what was written down, or could not.
#[derive(Debug)]
#[must_use = "nothing is waited for before it is polled"]
pub struct Synced {
    shared: Arc<Shared>,
    number: u64,
}

impl Future for Synced {
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.shared.lock();
        if state.asked >= self.number {
            let failed = state.failed >= self.number;
            return Poll::Ready(if failed {
                Err(io::Error::other("the disk did not confirm"))
            } else {
                Ok(())
            });
        }
        if state.ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        state.waiting.push(cx.waker().clone());
        Poll::Pending
    }
}

impl Shared {
    /// Has the disk confirm whatever is new: at once, or once in each `interval`.
    fn run(&self, interval: Option<Duration>, confirm: impl Fn() -> io::Result<()>) {
        loop {
            let nothing = |state: &mut State| state.written == state.asked && !state.stopping;
            let state = self.work.wait_while(self.lock(), nothing).unwrap_or_else(PoisonError::into_inner);
            let waits = interval.unwrap_or_default();
            let goes_on = |state: &mut State| !state.stopping;
            let (state, _) =
                self.work.wait_timeout_while(state, waits, goes_on).unwrap_or_else(PoisonError::into_inner);
            let (asked, stopping) = (state.written, state.stopping);
            drop(state);
            let confirmed = confirm();
            let mut state = self.lock();
            state.asked = asked;
            if let Err(error) = confirmed {
                tracing::error!(%error, "the disk does not confirm what was written down");
                state.failed = asked;
            }
            state.ended = stopping;
            state.waiting.drain(..).for_each(Waker::wake);
            if stopping {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete before the lock is given back.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is to be confirmed belongs to the file, not to the handle that wrote it.
fn sync_usage(journal: &Journal) -> io::Result<()> {
    match File::open(journal.usage_file()) {
        // It is being rotated: the writer's thread has confirmed it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        file => file?.sync_data(),
    }
}

#[cfg(test)]
mod tests;
