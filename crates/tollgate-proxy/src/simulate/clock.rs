//! A clock that the calls of a file move.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tollgate_limiter::TimestampMs;
use tollgate_store::Clock;

/// Shows the moment of the call that is decided or settled.
#[derive(Debug)]
pub(super) struct CallClock(AtomicU64);

impl CallClock {
    pub(super) const fn new(now: TimestampMs) -> Self {
        Self(AtomicU64::new(now.get()))
    }

    pub(super) fn set(&self, now: TimestampMs) {
        self.0.store(now.get(), Ordering::Relaxed);
    }
}

impl Clock for CallClock {
    fn now(&self) -> TimestampMs {
        TimestampMs::new(self.0.load(Ordering::Relaxed))
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}
