//! A clock that tests move by hand.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tollgate_limiter::{DurationMs, TimestampMs};

use crate::Clock;

/// Stands still until it is moved, in either direction.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ms: AtomicU64,
    elapsed_ms: AtomicU64,
}

impl ManualClock {
    /// A clock that shows `now`.
    pub const fn new(now: TimestampMs) -> Self {
        Self { now_ms: AtomicU64::new(now.get()), elapsed_ms: AtomicU64::new(0) }
    }

    /// Lets `span` pass.
    pub fn advance(&self, span: DurationMs) {
        self.now_ms.fetch_add(span.get(), Ordering::SeqCst);
        self.elapsed_ms.fetch_add(span.get(), Ordering::SeqCst);
    }

    /// Sets the time of day, also back. [`Clock::elapsed`] does not notice.
    pub fn set(&self, now: TimestampMs) {
        self.now_ms.store(now.get(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> TimestampMs {
        TimestampMs::new(self.now_ms.load(Ordering::SeqCst))
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.elapsed_ms.load(Ordering::SeqCst))
    }
}
