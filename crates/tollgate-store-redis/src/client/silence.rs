//! How long a connection has given no answer at all.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tollgate_store::{Clock as _, SystemClock};

/// Since when all commands of a connection have timed out.
#[derive(Debug)]
pub(super) struct Silence {
    clock: SystemClock,
    max: Duration,
    since: Mutex<Option<Duration>>,
    /// Whether there is one. Looked at with each command.
    is_silent: AtomicBool,
}

impl Silence {
    pub(super) fn new(max: Duration) -> Self {
        let (since, is_silent) = (Mutex::new(None), AtomicBool::new(false));
        Self { clock: SystemClock::new(), max, since, is_silent }
    }

    /// Notes whether a command has timed out. True once when that has been so for all of them for too long.
    pub(super) fn lasts(&self, has_timed_out: bool) -> bool {
        if !has_timed_out && !self.is_silent.load(Ordering::SeqCst) {
            return false;
        }
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.elapsed();
        let lasts = has_timed_out && since.is_some_and(|since| now.saturating_sub(since) >= self.max);
        *since = if has_timed_out && !lasts { since.or(Some(now)) } else { None };
        self.is_silent.store(since.is_some(), Ordering::SeqCst);
        lasts
    }
}
