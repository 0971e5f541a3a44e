//! Calendar periods in UTC.

/// A calendar period in UTC. Weeks start on Monday.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
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
