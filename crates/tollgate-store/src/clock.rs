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
        let whole_ms = since_epoch.as_secs().saturating_mul(1_000);
        TimestampMs::new(whole_ms.saturating_add(since_epoch.subsec_millis().into()))
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}
