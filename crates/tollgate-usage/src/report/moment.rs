//! Moments as people type and read them.

use tollgate_limiter::{DurationMs, TimestampMs};

use crate::timestamp::{self, Rfc3339Reader};

/// The moment that `text` names: RFC 3339, a date (its beginning in UTC), or a span before `now` such as
/// `90s`, `30m`, `24h`, `7d` or `2w`. `None`: none of them.
pub fn parse_moment(text: &str, now: TimestampMs) -> Option<TimestampMs> {
    if let Some(span) = parse_span(text) {
        return Some(TimestampMs::new(now.get().saturating_sub(span.get())));
    }
    let is_date = text.len() == "2026-11-30".len();
    let midnight = is_date.then(|| format!("{text}T00:00:00Z"));
    Rfc3339Reader::default().read(midnight.as_deref().unwrap_or(text))
}

/// The moment as events have it: RFC 3339 in UTC with milliseconds.
pub fn format_moment(at: TimestampMs) -> String {
    let mut text = Vec::new();
    timestamp::write(&mut text, at);
    String::from_utf8_lossy(&text).trim_matches('"').to_owned()
}

fn parse_span(text: &str) -> Option<DurationMs> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit_ms = match unit {
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "w" => 7 * 86_400_000,
        _ => return None,
    };
    let number: u64 = number.bytes().all(|digit| digit.is_ascii_digit()).then(|| number.parse().ok())??;
    number.checked_mul(unit_ms).map(DurationMs::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: TimestampMs = TimestampMs::new(1_795_946_640_123);

    #[test]
    fn moments_dates_and_spans_are_understood_and_nothing_else() {
        let parsed = |text| parse_moment(text, NOW).map(TimestampMs::get);
        assert_eq!(parsed("2026-11-29T10:04:00.123Z"), Some(NOW.get()));
        assert_eq!(parsed("2026-11-29T11:04:00+01:00"), Some(NOW.get() - 123));
        assert_eq!(parsed("1970-01-02"), Some(86_400_000));
        assert_eq!(parsed("90s"), Some(NOW.get() - 90_000));
        assert_eq!(parsed("30m"), Some(NOW.get() - 1_800_000));
        assert_eq!(parsed("24h"), parsed("1d"));
        assert_eq!(parsed("2w"), parsed("14d"));
        assert_eq!(parsed("9999999w"), Some(0));
        let wrong = ["", "h", "-1h", "+1h", "1 h", "1.5h", "24", "24H", "1é", "2026-02-30", "2026-11", "now"];
        for text in wrong.into_iter().chain(["99999999999999999999d", "18446744073709551615w"]) {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
