//! Tells when a budget is used up to some part: a line in the log, a metric, and a post to every receiver.
//!
//! [`Watch`] adds up what calls are settled to, beside the store, so that no crossing is missed in a period
//! that is over before anybody looks. A thread of its own writes each crossing into a file and posts it until it is taken
//! (ADR 0026): at least once, never on a request's way.

mod alert;
mod crossing;
mod lines;
mod post;
mod record;
mod sign;
mod thread;
mod watch;

pub(crate) use self::{
    crossing::{Crossing, Thresholds},
    thread::AlertThread,
    watch::Watch,
};
