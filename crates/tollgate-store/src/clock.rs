//! The one file that reads a clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tollgate_limiter::TimestampMs;

/// Tells the time.
pub trait Clock: Send + Sync + 'static {
    /// The time of day. May step in both directions.
    fn now(&self) -> TimestampMs;

    /// Time since some fixed moment. Never steps back.
    fn elapsed(&self) -> Duration;
}

/// The system's clocks.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose [`Clock::elapsed`] starts at zero.
    #[expect(clippy::disallowed_methods, reason = "this is the file that reads the clock")]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the file that reads the clock")]
    fn now(&self) -> TimestampMs {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        TimestampMs::new(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}
