//! The runtime's time as the proxy's clock.

use std::{sync::OnceLock, time::Duration};

use tokio::time::{Instant, sleep};
use tollgate_limiter::TimestampMs;
use tollgate_store::Clock;

/// Shows the time of a runtime whose time is paused.
#[derive(Debug)]
pub(crate) struct VirtualClock {
    base: TimestampMs,
    start: Instant,
    stopped: OnceLock<Duration>,
}

impl VirtualClock {
    /// A clock that shows `base` now. Within a runtime.
    pub(crate) fn new(base: TimestampMs) -> Self {
        Self { base, start: sleep(Duration::ZERO).deadline(), stopped: OnceLock::new() }
    }

    /// Stands still from now on: outside of its runtime there is no such time.
    pub(crate) fn stop(&self) {
        self.stopped.get_or_init(|| self.start.elapsed());
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> TimestampMs {
        let passed_ms = u64::try_from(self.elapsed().as_millis()).expect("less than an eternity");
        TimestampMs::new(self.base.get() + passed_ms)
    }

    fn elapsed(&self) -> Duration {
        self.stopped.get().copied().unwrap_or_else(|| self.start.elapsed())
    }
}
