//! Reserve-and-settle limits and budgets in exact integers.
//!
//! The cost of some calls is known only when they are over: an answer of a language model, a query,
//! a batch. A limiter that counts afterwards lets every concurrent call pass; one that counts calls
//! treats a large one like a small one. This crate reserves an estimate before the call, against
//! every limit that applies and in one step, and settles it afterwards with what was really used.
//!
//! # A plan, a verdict, a settle
//!
//! ```
//! use std::sync::Arc;
//! use tollgate_limiter::{
//!     Amount, Attempt, CounterKey, DurationMs, Enforcement, Entry, ExactAmount, Held, Ledger, Limit,
//!     Outcome, Period, Plan, ReservationId, Rule, Settled, TimestampMs, Verdict,
//! };
//!
//! // Two limits of one customer: 1,000 tokens a minute, 5 USD (in micro-USD) a month.
//! let tokens = Arc::new(Limit {
//!     key: CounterKey::new("acme", "tokens/minute"),
//!     rule: Rule::SlidingWindow { window: DurationMs::new(60_000) },
//!     amount: Amount::new(1_000),
//!     enforcement: Enforcement::Hard,
//! });
//! let money = Arc::new(Limit {
//!     key: CounterKey::new("acme", "usd/month"),
//!     rule: Rule::Calendar(Period::Month),
//!     amount: Amount::new(5_000_000),
//!     enforcement: Enforcement::Hard,
//! });
//!
//! // What one request would add to each. All of it is charged, or none.
//! let plan = Arc::new(Plan::new(vec![
//!     Entry { limit: Arc::clone(&tokens), charge: Amount::new(800) },
//!     Entry { limit: Arc::clone(&money), charge: Amount::new(12_000) },
//! ])?);
//!
//! let mut ledger = Ledger::new();
//! let now = TimestampMs::new(1_795_996_800_000); // time is an argument; so is the id
//! let id = ReservationId::new(0x5eed);
//! let Verdict::Admitted(admission) = ledger.reserve(now, id, Arc::clone(&plan), Attempt::First)? else {
//!     panic!("800 of 1,000 fit");
//! };
//!
//! // A second one does not fit, and is told when it would: not before the window has slid on far
//! // enough, and exactly then.
//! let second = ReservationId::new(0x5eee);
//! let Verdict::Refused(refusal) = ledger.reserve(now, second, Arc::clone(&plan), Attempt::First)? else {
//!     panic!("1,600 of 1,000 do not fit");
//! };
//! assert_eq!(refusal.binding.index, 0);
//! assert_eq!(refusal.binding.outcome, Outcome::Wait(DurationMs::new(60_000 + 45_000)));
//!
//! // The call is over: 150 tokens for 2,100.24 micro-USD. The rest is given back at once.
//! let held = Held { id, plan: Arc::clone(&plan), at: admission.at };
//! let actuals = [ExactAmount::whole(150), ExactAmount::from_millionths(2_100_240_000)];
//! assert_eq!(ledger.settle(now, &held, &actuals)?, Settled::Applied);
//! assert_eq!(ledger.settle(now, &held, &actuals)?, Settled::Already); // once, however often it is sent
//! assert!(matches!(ledger.reserve(now, second, plan, Attempt::First)?, Verdict::Admitted(_)));
//!
//! let views = ledger.inspect(now, &[tokens, money]);
//! assert_eq!(views[0].remaining, Amount::new(1_000 - 150 - 800));
//! assert_eq!(views[1].spent, ExactAmount::from_millionths(2_100_240_000));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it promises
//!
//! - **All or nothing.** A plan that one limit refuses changes no counter. The refusal names the
//!   limit that binds and all others that refuse.
//! - **Three answers.** A charge fits, fits after exactly the announced time if nothing else comes,
//!   or can never fit this limit.
//! - **A window holds.** In no window of a [sliding limit](Rule::SlidingWindow) more than the limit
//!   is admitted, in no span of its length more than twice the limit less one. Under steady overload
//!   of single units, each window passes the limit or one less.
//! - **A budget is exact.** A [calendar counter](Rule::Calendar) equals the sum of what settled and
//!   what is held, to the millionth of a unit. What was reserved in a period is settled in it.
//! - **A settle is never refused.** Money that is spent is recorded, also beyond the limit; the debt
//!   carries.
//! - **Once per id.** A repeated reserve, extend or settle answers the same and charges once. A
//!   release that overtakes its reserve wins.
//! - **A reservation that is never settled stays charged** at what it reserved.
//! - **Amounts of limits are no state.** A limit can be raised or lowered between two calls; what was
//!   counted stays. A charge of zero passes any limit, a limit of zero passes nothing else.
//! - **Clocks may step back.** No counter is reset by it: it stays in the latest window or period it
//!   has seen, and waits there for the clock. (A clock that jumps ahead and back therefore leaves
//!   the counters ahead, where it found the time.)
//!
//! # What it does not know
//!
//! Everything here is a function of its arguments: nothing is read from a clock, nothing is random,
//! nothing waits, nothing is rounded in the caller's favour. There are no floats, no dependencies
//! and no `std`. To keep counters elsewhere than in a [`Ledger`], implement [`Counters`] and pair it
//! with [`Reservations`]; a [`CounterRow`] drops what no longer counts.
#![no_std]
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

extern crate alloc;

mod bucketed;
mod budget;
mod concurrent;
mod counter;
mod counters;
mod counts;
mod decide;
mod error;
mod held;
mod idle;
mod key;
mod ledger;
mod limit;
#[cfg(feature = "oracle")]
pub mod oracle;
mod per_request;
mod period;
mod plan;
mod record;
mod reservations;
mod ring;
mod row;
mod siphash;
mod slots;
mod spend;
mod token_bucket;
mod units;
mod verdict;
mod window;

pub use counter::Counter;
pub use counters::Counters;
pub use error::LedgerError;
pub use held::{Attempt, CounterView, Held, Settled};
pub use key::CounterKey;
pub use ledger::Ledger;
pub use limit::{BUDGET_AMOUNT_MAX, Enforcement, Limit, Rule, WINDOW_AMOUNT_MAX};
pub use period::Period;
pub use plan::{ENTRIES_MAX, Entry, Plan, PlanError};
pub use record::{EXTENSIONS_MAX, Record};
pub use reservations::{Records, Reservations};
pub use row::CounterRow;
pub use units::{Amount, DurationMs, ExactAmount, MILLIONTHS, MicroUsd, ReservationId, TimestampMs, Tokens};
pub use verdict::{Admission, EntryRefusal, EntrySet, Outcome, Refusal, Standing, Verdict};
