//! Calendar periods in UTC.
//!
//! Days are counted from 1970-01-01 as POSIX does, without leap seconds. The way between a day's
//! number and its month is Howard Hinnant's `days_from_civil` / `civil_from_days`
//! (<https://howardhinnant.github.io/date_algorithms.html>), here for days from 1970 on, so that
//! everything is unsigned.

use crate::TimestampMs;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 86_400_000;

/// A calendar period in UTC. Weeks start on Monday.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Period {
    /// One minute of the clock.
    Minute,
    /// One hour of the clock.
    Hour,
    /// One day.
    Day,
    /// Monday to Sunday.
    Week,
    /// One month of the calendar.
    Month,
    /// For ever.
    Total,
}

impl Period {
    /// The number of the period that `at` falls into. Grows by one from each period to the next.
    pub const fn index(self, at: TimestampMs) -> u64 {
        let ms = at.get();
        match self {
            Self::Minute => ms / MINUTE_MS,
            Self::Hour => ms / HOUR_MS,
            Self::Day => ms / DAY_MS,
            // 1970-01-01 was a Thursday: its week began three days earlier.
            Self::Week => (ms / DAY_MS).saturating_add(3) / 7,
            Self::Month => month_of_day(ms / DAY_MS),
            Self::Total => 0,
        }
    }

    /// The first moment of the period that `at` falls into.
    ///
    /// The week of 1970-01-01 began before the first timestamp: it starts at that one.
    pub const fn start(self, at: TimestampMs) -> TimestampMs {
        self.start_of(self.index(at))
    }

    /// The first moment after the period that `at` falls into; `None` for [`Period::Total`].
    ///
    /// Saturates at the last timestamp there is.
    pub const fn end(self, at: TimestampMs) -> Option<TimestampMs> {
        self.end_of(self.index(at))
    }

    pub(crate) const fn start_of(self, index: u64) -> TimestampMs {
        TimestampMs::new(match self {
            Self::Minute => index.saturating_mul(MINUTE_MS),
            Self::Hour => index.saturating_mul(HOUR_MS),
            Self::Day => index.saturating_mul(DAY_MS),
            Self::Week => index.saturating_mul(7).saturating_sub(3).saturating_mul(DAY_MS),
            Self::Month => first_day_of_month(index).saturating_mul(DAY_MS),
            Self::Total => 0,
        })
    }

    pub(crate) const fn end_of(self, index: u64) -> Option<TimestampMs> {
        match self {
            Self::Total => None,
            _ => Some(self.start_of(index.saturating_add(1))),
        }
    }
}

/// Days from 0000-03-01 to 1970-01-01. Counting from a 1 March puts the leap day last in its year.
const EPOCH_DAY: u64 = 719_468;
/// Days in 400 years, after which the calendar repeats.
const ERA_DAYS: u64 = 146_097;

/// Months from January of year 0 to the month of a day since 1970-01-01.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "a day is below 2^38 (2^64 ms); no term passes 2^40, and no subtrahend its minuend"
)]
const fn month_of_day(day: u64) -> u64 {
    let day = day + EPOCH_DAY;
    let era = day / ERA_DAYS;
    let day_of_era = day % ERA_DAYS;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let months_since_march = (5 * day_of_year + 2) / 153;
    // March is month 2 of a year that starts in January.
    (era * 400 + year_of_era) * 12 + months_since_march + 2
}

/// The day since 1970-01-01 on which a month, counted from January of year 0, begins.
const fn first_day_of_month(month: u64) -> u64 {
    let since_march = month.saturating_sub(2);
    let year = since_march / 12;
    let months = since_march % 12;
    let year_of_era = year % 400;
    let day_of_year = months.saturating_mul(153).saturating_add(2) / 5;
    (year / 400)
        .saturating_mul(ERA_DAYS)
        .saturating_add(year_of_era.saturating_mul(365))
        .saturating_add(year_of_era / 4)
        .saturating_sub(year_of_era / 100)
        .saturating_add(day_of_year)
        .saturating_sub(EPOCH_DAY)
}
