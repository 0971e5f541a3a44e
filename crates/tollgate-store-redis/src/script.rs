//! The scripts, each put together from the functions it needs.
//!
//! Redis compiles a script once and runs its whole text at each call: what a decision does not need is left
//! out, and the rules make their functions only when a limit counts by them.

macro_rules! lua {
    ($($name:literal),+ $(,)?) => {
        concat!($(include_str!(concat!("lua/", $name, ".lua")), "\n"),+)
    };
}

macro_rules! script {
    ($($name:literal),+) => {
        lua!(
            "numbers", "now", "bookings", "sliding_window", "ring", "bucketed_window", "token_bucket",
            "spend", "calendar", "idle", "elapsed", "concurrent", "per_request", "counter", $($name),+
        )
    };
}

/// Charges a plan, or nothing.
pub(crate) const RESERVE: &str = script!("decide", "record", "reserve");

/// Charges more for a reservation, or nothing.
pub(crate) const EXTEND: &str = script!("decide", "record", "extend");

/// Replaces a reservation by what was used.
pub(crate) const SETTLE: &str = script!("record", "settle");

/// Says which copies have brought back what they had spent.
pub(crate) const COPIES: &str = lua!("copies");

/// Brings back what one of them had spent.
pub(crate) const SEED: &str = script!("record", "seed");

/// Reads counters.
pub(crate) const INSPECT: &str = script!("inspect");
