//! Moments as text: RFC 3339 in UTC with milliseconds, `2026-11-29T10:04:00.123Z`.

use jiff::fmt::temporal::DateTimePrinter;
use tollgate_limiter::{DurationMs, TimestampMs};

const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(3));

/// Appends a moment as a JSON string. Moments after the year 9999 become the last one before.
pub(crate) fn write(out: &mut Vec<u8>, at: TimestampMs) {
    let ms = i64::try_from(at.get()).unwrap_or(i64::MAX);
    let moment = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX);
    out.push(b'"');
    // A vector takes all that is printed.
    let _ = PRINTER.print_timestamp(&moment, &mut *out);
    out.push(b'"');
}

/// The day that a line of the usage file is of, such as `2026-11-30`, without reading the rest of it;
/// `None`: it does not begin like one of our lines.
pub(crate) fn day_of_line(line: &[u8]) -> Option<[u8; 10]> {
    let line = line.get(..LINE_BEGINNING_BYTES.min(line.len()))?;
    let at = memchr::memmem::find(line, b"\"ts\":\"")?;
    line.get(at.checked_add(6)?..)?.first_chunk().copied()
}

/// The moment is the third field of a line.
const LINE_BEGINNING_BYTES: usize = 64;

/// Reads moments. Our own form, on the same day as the one before, costs a few nanoseconds; any
/// other RFC 3339 text is understood too.
#[derive(Default)]
pub(crate) struct Rfc3339Reader {
    /// The date that was read last, such as `2026-11-29`, and when it starts.
    day: Option<([u8; 10], TimestampMs)>,
}

impl Rfc3339Reader {
    /// The moment; `None`: not RFC 3339, or before 1970.
    pub(crate) fn read(&mut self, text: &str) -> Option<TimestampMs> {
        self.read_fixed(text.as_bytes()).or_else(|| read_any(text))
    }

    /// `YYYY-MM-DDTHH:MM:SS.mmmZ` and nothing else; no leap seconds.
    fn read_fixed(&mut self, text: &[u8]) -> Option<TimestampMs> {
        let text: &[u8; 24] = text.try_into().ok()?;
        let [date @ .., b'T', h1, h2, b':', m1, m2, b':', s1, s2, b'.', f1, f2, f3, b'Z'] = text else {
            return None;
        };
        let hours = number([*h1, *h2]).filter(|hours| *hours < 24)?;
        let minutes = number([*m1, *m2]).filter(|minutes| *minutes < 60)?;
        let seconds = number([*s1, *s2]).filter(|seconds| *seconds < 60)?;
        let ms_of_day = ((hours * 60 + minutes) * 60 + seconds) * 1_000 + number([*f1, *f2, *f3])?;
        Some(self.day_start(date)?.saturating_add(DurationMs::new(ms_of_day)))
    }

    fn day_start(&mut self, date: &[u8; 10]) -> Option<TimestampMs> {
        match self.day {
            Some((known, start)) if known == *date => Some(start),
            _ => {
                let start = read_any(&format!("{}T00:00:00Z", str::from_utf8(date).ok()?))?;
                self.day = Some((*date, start));
                Some(start)
            }
        }
    }
}

fn read_any(text: &str) -> Option<TimestampMs> {
    let moment: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(moment.as_millisecond()).ok().map(TimestampMs::new)
}

/// The number of some decimal digits.
fn number<const N: usize>(digits: [u8; N]) -> Option<u64> {
    digits
        .iter()
        .try_fold(0, |value, digit| digit.is_ascii_digit().then(|| value * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<u64> {
        Rfc3339Reader::default().read(text).map(TimestampMs::get)
    }

    #[test]
    fn reads_what_the_writer_and_others_write() {
        assert_eq!(read("1970-01-01T00:00:00.000Z"), Some(0));
        assert_eq!(read("2026-11-29T10:04:00.123Z"), Some(1_795_946_640_123));
        assert_eq!(read("2026-11-29T10:04:00Z"), Some(1_795_946_640_000));
        assert_eq!(read("2026-11-29T11:04:00.123456+01:00"), Some(1_795_946_640_123));
        assert_eq!(read("2024-02-29T23:59:59.999Z"), Some(1_709_251_199_999));
    }

    #[test]
    fn refuses_what_is_no_moment() {
        for text in
            ["", "now", "2026-02-29T00:00:00.000Z", "2026-11-29T24:00:00.000Z", "2026-11-29T10:60:00.000Z"]
        {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(read("1969-12-31T23:59:59.000Z"), None);
        assert_eq!(read("2026-11-29T10:04:00.1é2Z"), None);
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read(first: u32, second in 0..253_402_300_799_999_u64) {
            let mut reader = Rfc3339Reader::default();
            for ms in [second, u64::from(first), second, second ^ 1] {
                let mut text = Vec::new();
                write(&mut text, TimestampMs::new(ms));
                let text: String = serde_json::from_slice(&text).unwrap();
                proptest::prop_assert_eq!(reader.read(&text), Some(TimestampMs::new(ms)));
            }
        }
    }
}
