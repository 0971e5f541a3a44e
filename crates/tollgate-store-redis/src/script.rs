//! The scripts, each put together from the files it needs.
//!
//! Redis compiles a script once and runs its whole text at each call: what a decision does not need is left
//! out, and the rules make their functions only when a limit counts by them.
//!
//! The files are nested in layers, each a function that the one before calls at its end. A function of Lua that
//! uses locals of its own layer looks for them one by one; those of the layers before are at hand. All in one
//! layer, a call takes twice as long. Before all of them stands what most calls need, without a function.

macro_rules! lua {
    ($($name:literal),+ $(,)?) => {
        concat!($(include_str!(concat!("lua/", $name, ".lua")), "\n"),+)
    };
}

macro_rules! layers {
    ([$($name:literal),+]) => {
        lua!($($name),+)
    };
    ([$($name:literal),+] $($inner:tt)+) => {
        concat!(lua!($($name),+), "return (function()\n", layers!($($inner)+), "end)()\n")
    };
}

/// With what stands before all layers.
macro_rules! whole {
    ($script:expr) => {
        concat!(lua!("period_end"), $script)
    };
}

macro_rules! script {
    ($($inner:tt)+) => {
        layers!(
            ["numbers"]
            ["now", "bookings", "ring", "spend"]
            ["sliding_window", "bucketed_window", "token_bucket", "calendar", "idle", "elapsed", "concurrent",
             "per_request"]
            ["counter"]
            $($inner)+
        )
    };
}

/// What runs a script once for each of several calls.
macro_rules! each {
    ($script:expr) => {
        whole!(concat!("local function run(KEYS, ARGV)\n", $script, "\nend\n", lua!("each")))
    };
}

macro_rules! reserve {
    () => {
        concat!(lua!("quick_reserve"), script!(["decide", "record"]["reserve"]))
    };
}

macro_rules! settle {
    () => {
        concat!(lua!("quick_settle"), script!(["record"]["settle"]))
    };
}

/// Charges a plan, or nothing.
pub(crate) const RESERVE: &str = whole!(reserve!());

/// Does so with several plans, each by itself.
pub(crate) const RESERVE_EACH: &str = each!(reserve!());

/// Charges more for a reservation, or nothing.
pub(crate) const EXTEND: &str = whole!(script!(["decide", "record"]["extend"]));

/// Replaces a reservation by what was used.
pub(crate) const SETTLE: &str = whole!(settle!());

/// Does so with several reservations.
pub(crate) const SETTLE_EACH: &str = each!(settle!());

/// Takes a charge back because another part of the plan refuses.
pub(crate) const UNDO: &str = whole!(script!(["record"]["undo"]));

/// Gives the places back that a reservation of a copy that has died holds.
pub(crate) const FREE: &str = whole!(script!(["record"]["free"]));

/// Says which copies have died.
pub(crate) const LIVES: &str = layers!(["numbers"]["now"]["lives"]);

/// Says which copies have brought back what they had spent.
pub(crate) const COPIES: &str = lua!("copies");

/// Brings back what one of them had spent.
pub(crate) const SEED: &str = whole!(script!(["record"]["seed"]));

/// Reads counters.
pub(crate) const INSPECT: &str = whole!(script!(["inspect"]));
