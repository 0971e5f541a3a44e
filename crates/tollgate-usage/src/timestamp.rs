//! Moments as text: RFC 3339 in UTC with milliseconds, `2026-11-29T10:04:00.123Z`.

use serde::ser::{Serialize, Serializer};
use tollgate_limiter::TimestampMs;

/// Serialises as text. Moments after the year 9999 become the last one before.
pub(crate) struct Rfc3339(pub(crate) TimestampMs);

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ms = i64::try_from(self.0.get()).unwrap_or(i64::MAX);
        let moment = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX);
        serializer.collect_str(&format_args!("{moment:.3}"))
    }
}
