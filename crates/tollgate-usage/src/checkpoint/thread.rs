//! The thread that makes checkpoints: whenever much was written since the last one, when a file is to be
//! deleted, and at the end.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Tip;
use crate::journal::Journal;

/// With less to sum up none is made at the end: reading that takes no time.
const LAST_BYTES_MIN: u64 = 1 << 20;

/// When there are checkpoints, and what is kept beside them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// After so many bytes of usage lines, or four times as many as the checkpoint itself has.
    pub(crate) every_bytes: u64,
    /// The most rotated files.
    pub(crate) keep_files: Option<usize>,
}

/// The thread's end that others hold.
#[derive(Debug)]
pub(crate) struct Checkpoints(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes that no checkpoint stands for.
    uncovered: u64,
    /// From so many on a checkpoint is made.
    due_at: u64,
    /// A file has been rotated, and may be one too many.
    rotated: bool,
    stopping: bool,
    ended: bool,
}

impl Checkpoints {
    /// Starts the thread.
    pub(crate) fn start(journal: Arc<Journal>, tip: Arc<Tip>, schedule: Schedule) -> io::Result<Self> {
        let state = State { due_at: schedule.every_bytes, rotated: true, ..State::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let thread = Thread { shared: Arc::clone(&shared), journal, tip, schedule };
        std::thread::Builder::new().name("usage-checkpoint".to_owned()).spawn(move || thread.run())?;
        Ok(Self(shared))
    }

    /// So many bytes were written.
    pub(crate) fn wrote(&self, bytes: usize, rotated: bool) {
        let mut state = self.0.lock();
        state.uncovered = state.uncovered.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        state.rotated |= rotated;
        if state.rotated || state.uncovered >= state.due_at {
            self.0.changed.notify_all();
        }
    }

    /// Has a last one made, and waits for it at most so long. Whether the thread has ended.
    pub(crate) fn end(&self, timeout: Duration) -> bool {
        let mut state = self.0.lock();
        state.stopping = true;
        self.0.changed.notify_all();
        let ended = self.0.changed.wait_timeout_while(state, timeout, |state| !state.ended);
        ended.unwrap_or_else(PoisonError::into_inner).0.ended
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.0.lock().stopping = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete before the lock is given back.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Thread {
    shared: Arc<Shared>,
    journal: Arc<Journal>,
    tip: Arc<Tip>,
    schedule: Schedule,
}

impl Thread {
    fn run(self) {
        let (left, mut made_bytes) = super::found(self.journal.usage_file()).unwrap_or((0, 0));
        let mut state = self.shared.lock();
        state.uncovered = state.uncovered.saturating_add(left);
        state.due_at = self.due_at(made_bytes);
        drop(state);
        loop {
            let idle = |state: &mut State| {
                !state.stopping && state.uncovered < state.due_at && !self.is_one_too_many(state)
            };
            let state = self.shared.changed.wait_while(self.shared.lock(), idle);
            let mut state = state.unwrap_or_else(PoisonError::into_inner);
            let last = state.stopping;
            let uncovered = state.uncovered;
            state.rotated = false;
            drop(state);
            // At the end reading what is not covered may take less time than this.
            let least = made_bytes.max(self.schedule.every_bytes.min(LAST_BYTES_MIN));
            let is_worth_it = !last || (uncovered > 0 && uncovered >= least);
            let made = is_worth_it.then(|| super::make(&self.journal, &self.tip, self.schedule.keep_files));
            let mut state = self.shared.lock();
            match made {
                Some(Ok(bytes)) => {
                    made_bytes = bytes;
                    state.uncovered = state.uncovered.saturating_sub(uncovered);
                    state.due_at = self.due_at(bytes);
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, "no checkpoint was made: the next start reads more");
                    state.due_at = state.uncovered.saturating_add(self.schedule.every_bytes);
                }
                None => {}
            }
            if last {
                state.ended = true;
                self.shared.changed.notify_all();
                return;
            }
        }
    }

    fn due_at(&self, made_bytes: u64) -> u64 {
        self.schedule.every_bytes.max(made_bytes.saturating_mul(4))
    }

    /// Whether a file may have to be deleted. Looked at once after each rotation.
    fn is_one_too_many(&self, state: &mut State) -> bool {
        let Some(keep) = self.schedule.keep_files.filter(|_| std::mem::take(&mut state.rotated)) else {
            return false;
        };
        let count = crate::writer::rotated_files(self.journal.usage_file()).map_or(0, |files| files.len());
        count > keep
    }
}
