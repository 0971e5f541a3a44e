//! Calendar periods against jiff, and the days on which calendars go wrong.

use jiff::{Timestamp, ToSpan, civil::DateTime, tz::TimeZone};
use proptest::prelude::*;
use tollgate_limiter::{Period, TimestampMs};

use crate::support::{Desk, budget};

fn ms(text: &str) -> u64 {
    text.parse::<Timestamp>().unwrap().as_millisecond().try_into().unwrap()
}

fn utc(ms: u64) -> DateTime {
    Timestamp::from_millisecond(ms.try_into().unwrap()).unwrap().to_zoned_datetime(TimeZone::UTC).datetime()
}

/// Moments before 1970 become its beginning.
fn to_ms(at: DateTime) -> u64 {
    let at = at.to_zoned_datetime(TimeZone::UTC).unwrap();
    at.timestamp().as_millisecond().try_into().unwrap_or(0)
}

fn by_jiff(period: Period, at: DateTime) -> Option<(u64, u64)> {
    let day = at.date().at(0, 0, 0, 0);
    let hour = at.date().at(at.hour(), 0, 0, 0);
    let minute = at.date().at(at.hour(), at.minute(), 0, 0);
    let (start, end) = match period {
        Period::Minute => (minute, minute + 1.minute()),
        Period::Hour => (hour, hour + 1.hour()),
        Period::Day => (day, day + 1.day()),
        Period::Week => {
            let monday = day - i64::from(at.weekday().to_monday_zero_offset()).days();
            (monday, monday + 1.week())
        }
        Period::Month => {
            let first = day.first_of_month();
            (first, first + 1.month())
        }
        Period::Total => return None,
    };
    Some((to_ms(start), to_ms(end)))
}

const ALL: [Period; 6] =
    [Period::Minute, Period::Hour, Period::Day, Period::Week, Period::Month, Period::Total];

proptest! {
    /// Every moment from 1970 to 9998.
    #[test]
    fn periods_are_those_of_a_calendar_library(at_ms in 0_u64..253_300_000_000_000) {
        let at = TimestampMs::new(at_ms);
        for period in ALL {
            let (start, end) = (period.start(at).get(), period.end(at).map(TimestampMs::get));
            match by_jiff(period, utc(at_ms)) {
                Some((start_ms, end_ms)) => prop_assert_eq!((start, end), (start_ms, Some(end_ms))),
                None => prop_assert_eq!((start, end), (0, None)),
            }
        }
    }

    /// Periods tile time: each begins where the one before it ends, and its number is one higher.
    #[test]
    fn periods_follow_each_other(at_ms in 0_u64..u64::MAX / 2) {
        for period in ALL {
            let at = TimestampMs::new(at_ms);
            let Some(end) = period.end(at) else { continue };
            let last = TimestampMs::new(end.get() - 1);
            prop_assert!(period.start(at) <= at && at < end);
            prop_assert_eq!(period.index(last), period.index(at));
            prop_assert_eq!(period.index(end), period.index(at) + 1);
            prop_assert_eq!(period.start(end), end);
        }
    }
}

#[test]
fn every_day_of_four_centuries_has_its_month() {
    let mut day = utc(0).date();
    for number in 0..146_097_u64 {
        let month = u64::try_from(i64::from(day.year()) * 12 + i64::from(day.month()) - 1).unwrap();
        assert_eq!(Period::Month.index(TimestampMs::new(number * 86_400_000)), month, "{day}");
        day = day.tomorrow().unwrap();
    }
}

#[test]
fn c44_c45_months_end_where_the_calendar_says() {
    let cases = [
        ("2026-01-31T12:00:00Z", "2026-02-01T00:00:00Z"),
        ("2026-02-03T00:00:00Z", "2026-03-01T00:00:00Z"),
        ("2024-02-28T23:59:59.999Z", "2024-03-01T00:00:00Z"),
        ("2024-02-29T12:00:00Z", "2024-03-01T00:00:00Z"),
        ("2000-02-29T00:00:00Z", "2000-03-01T00:00:00Z"),
        ("2100-02-28T23:00:00Z", "2100-03-01T00:00:00Z"),
        ("2026-12-31T23:59:59.999Z", "2027-01-01T00:00:00Z"),
        ("1970-01-01T00:00:00Z", "1970-02-01T00:00:00Z"),
    ];
    for (at, end) in cases {
        assert_eq!(Period::Month.end(TimestampMs::new(ms(at))), Some(TimestampMs::new(ms(end))), "{at}");
    }
}

#[test]
fn c47_weeks_start_on_monday_in_utc() {
    let cases = [
        ("2026-11-29T23:59:59.999Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"),
        ("2026-11-30T00:00:00Z", "2026-11-30T00:00:00Z", "2026-12-07T00:00:00Z"),
        ("1970-01-05T00:00:00Z", "1970-01-05T00:00:00Z", "1970-01-12T00:00:00Z"),
        // That week began on 29 December, before the first timestamp.
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "1970-01-05T00:00:00Z"),
    ];
    for (at, start, end) in cases {
        let at = TimestampMs::new(ms(at));
        assert_eq!(Period::Week.start(at), TimestampMs::new(ms(start)));
        assert_eq!(Period::Week.end(at), Some(TimestampMs::new(ms(end))));
    }
}

#[test]
fn c43_a_month_resets_once_on_the_first() {
    let mut desk = Desk::default();
    let month = budget("usd/month", Period::Month, 100);
    assert!(desk.admits(ms("2026-01-31T12:00:00Z"), &month, 100));
    for still_full in ["2026-01-31T12:01:00Z", "2026-01-31T23:59:59.999Z"] {
        assert!(!desk.admits(ms(still_full), &month, 1), "{still_full}");
    }
    assert_eq!(
        desk.view(ms("2026-01-31T12:01:00Z"), &month).resets_at,
        Some(TimestampMs::new(ms("2026-02-01T00:00:00Z")))
    );
    assert!(desk.admits(ms("2026-02-01T00:00:00Z"), &month, 100));
    for still_full in ["2026-02-01T00:01:00Z", "2026-02-28T23:59:59.999Z"] {
        assert!(!desk.admits(ms(still_full), &month, 1), "{still_full}");
    }
}

#[test]
fn the_last_timestamp_has_periods() {
    for period in ALL {
        let last = TimestampMs::new(u64::MAX);
        assert!(period.start(last) <= last);
        assert!(period.end(last).is_none_or(|end| end == last));
    }
}
