//! Lines of the log that many calls would have written.

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::Duration,
};

/// How long after one the next is written.
const PAUSE_MS: u64 = 60_000;

/// When the next of such lines may be written.
#[derive(Debug, Default)]
pub(super) struct Pace {
    next_ms: AtomicU64,
}

impl Pace {
    /// Whether one is written now.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let next_ms = now_ms.saturating_add(PAUSE_MS);
        self.next_ms.fetch_update(SeqCst, SeqCst, |due| (now_ms >= due).then_some(next_ms)).is_ok()
    }
}
