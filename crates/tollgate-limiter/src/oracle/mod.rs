//! The rules once more, as naive as can be: to test a store, a rule or a use of this crate against.
//!
//! Nothing here is dropped, cached or summed up in advance: every answer is worked out anew from all
//! that ever happened. It is slow, and meant for tests alone.
//!
//! [`Log`] knows one limit and charges that nobody settles; [`NaiveLedger`] knows plans and the whole
//! life of reservations. Whatever answers differently for the same calls is wrong, one way or the
//! other:
//!
//! ```
//! use std::sync::Arc;
//! use tollgate_limiter::{
//!     Amount, Attempt, CounterKey, DurationMs, Enforcement, Entry, Ledger, Limit, Plan, ReservationId, Rule,
//!     TimestampMs, Verdict, oracle::Log,
//! };
//!
//! let rule = Rule::BucketedWindow { window: DurationMs::new(1_000) };
//! let key = CounterKey::new("acme", "requests/second");
//! let limit = Arc::new(Limit { key, rule, amount: Amount::new(5), enforcement: Enforcement::Hard });
//! let plan = Arc::new(Plan::new(vec![Entry { limit, charge: Amount::new(1) }])?);
//!
//! let (mut ledger, mut log) = (Ledger::new(), Log::new(rule));
//! let mut random = 0x5eed_u64; // or a property test's histories
//! for call in 0..1_000 {
//!     random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
//!     let now = TimestampMs::new(call * 20 + (random >> 55));
//!     let fits = log.fits(Amount::new(5), Amount::new(1), now);
//!     let verdict = ledger.reserve(now, ReservationId::new(call.into()), Arc::clone(&plan), Attempt::First)?;
//!     assert_eq!(matches!(verdict, Verdict::Admitted(_)), fits);
//!     if fits {
//!         log.admit(Amount::new(1), now);
//!     }
//! }
//! assert_eq!(log.largest(DurationMs::new(1_000)), 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![allow(clippy::arithmetic_side_effects, reason = "sums of test cases stay far below 128 bits")]

mod counter;
mod ledger;
mod log;

pub use ledger::NaiveLedger;
pub use log::Log;
