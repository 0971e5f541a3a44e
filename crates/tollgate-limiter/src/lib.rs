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
//! What is known beforehand needs no settle: [`Ledger::charge`] decides, charges for good, and keeps
//! no record.
//!
//! # The rules
//!
//! A [`Rule`] says how a limit counts. They all speak the same three answers, and all can stand in
//! one plan:
//!
//! ```
//! use std::sync::Arc;
//! use tollgate_limiter::{
//!     Amount, Attempt, CounterKey, DurationMs, Enforcement, Entry, ExactAmount, Held, Ledger, Limit,
//!     Outcome::{self, Admit, Never, Wait}, Period, Plan, ReservationId, Rule, TimestampMs, Verdict,
//! };
//!
//! /// Asks a limit of ten, in a ledger that knows nothing else.
//! struct Asked { ledger: Ledger, limit: Arc<Limit>, ids: u128 }
//!
//! impl Asked {
//!     fn of(rule: Rule) -> Self {
//!         let (key, amount) = (CounterKey::new("acme", "limit"), Amount::new(10));
//!         let limit = Arc::new(Limit { key, rule, amount, enforcement: Enforcement::Hard });
//!         Self { ledger: Ledger::new(), limit, ids: 0 }
//!     }
//!
//!     fn reserve(&mut self, now_ms: u64, charge: u64) -> Result<Held, Outcome> {
//!         self.ids += 1;
//!         let (now, id) = (TimestampMs::new(now_ms), ReservationId::new(self.ids));
//!         let entry = Entry { limit: Arc::clone(&self.limit), charge: Amount::new(charge) };
//!         let plan = Arc::new(Plan::new(vec![entry]).expect("one entry is a plan"));
//!         match self.ledger.reserve(now, id, Arc::clone(&plan), Attempt::First).expect("the id is new") {
//!             Verdict::Admitted(admission) => Ok(Held { id, plan, at: admission.at }),
//!             Verdict::Refused(refusal) => Err(refusal.binding.outcome),
//!         }
//!     }
//!
//!     fn answer(&mut self, now_ms: u64, charge: u64) -> Outcome {
//!         self.reserve(now_ms, charge).map_or_else(|refused| refused, |_| Admit)
//!     }
//!
//!     fn settle(&mut self, now_ms: u64, held: &Held, used: u64) {
//!         let settled = self.ledger.settle(TimestampMs::new(now_ms), held, &[ExactAmount::whole(used)]);
//!         settled.expect("it is held");
//!     }
//! }
//!
//! let second = DurationMs::new(1_000);
//! let wait = |ms| Wait(DurationMs::new(ms));
//!
//! // Two windows of the clock and the part of the older one that is still in sight: little state, at
//! // most 2 · 10 − 1 in any second.
//! let mut sliding = Asked::of(Rule::SlidingWindow { window: second });
//! assert_eq!([sliding.answer(900, 10), sliding.answer(900, 1)], [Admit, wait(100 + 100)]);
//!
//! // Sixty buckets and one: more state, at most 10 in any second, wherever it starts.
//! let mut bucketed = Asked::of(Rule::BucketedWindow { window: second });
//! assert_eq!([bucketed.answer(900, 10), bucketed.answer(900, 1)], [Admit, wait(1_017)]);
//!
//! // Ten at once, then one each 100 ms. A debt is paid off before anything passes.
//! let mut bucket = Asked::of(Rule::TokenBucket { window: second });
//! let burst = bucket.reserve(0, 10)?;
//! assert_eq!(bucket.answer(0, 1), wait(100));
//! bucket.settle(0, &burst, 12);
//! assert_eq!(bucket.answer(0, 1), wait(300));
//!
//! // All of a calendar period in UTC. `Period::Total` has no end to wait for.
//! let mut day = Asked::of(Rule::Calendar(Period::Day));
//! assert_eq!([day.answer(0, 10), day.answer(0, 1)], [Admit, wait(86_400_000)]);
//! let mut total = Asked::of(Rule::Calendar(Period::Total));
//! assert_eq!([total.answer(0, 10), total.answer(0, 1)], [Admit, Never]);
//!
//! // All of a session, which is forgotten a second after its last use.
//! let mut session = Asked::of(Rule::Idle { after: second });
//! assert_eq!([session.answer(0, 4), session.answer(900, 6)], [Admit, Admit]);
//! assert_eq!([session.answer(1_000, 1), session.answer(1_900, 1)], [wait(900), Admit]);
//!
//! // So long after its first use, whatever is asked; forgotten as a session is.
//! let mut run = Asked::of(Rule::Elapsed { after: second });
//! assert_eq!([run.answer(0, 1), run.answer(9, 1), run.answer(10, 1)], [Admit, Admit, wait(999)]);
//!
//! // What is open at once: only a settle makes room.
//! let mut open = Asked::of(Rule::Concurrent);
//! let call = open.reserve(0, 10)?;
//! assert_eq!(open.answer(0, 1), Never);
//! open.settle(5_000, &call, 0);
//! assert_eq!(open.answer(5_000, 1), Admit);
//!
//! // How large one call may be. Nothing is kept.
//! let mut size = Asked::of(Rule::PerRequest);
//! assert_eq!([size.answer(0, 10), size.answer(0, 10), size.answer(0, 11)], [Admit, Admit, Never]);
//! assert_eq!(size.ledger.counters(), 0);
//! # Ok::<(), Outcome>(())
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
//!   A [bucketed](Rule::BucketedWindow) one admits no more than the limit in any span of its length; a
//!   [token bucket](Rule::TokenBucket) no more than the limit and what is refilled meanwhile.
//! - **A budget is exact.** A [calendar counter](Rule::Calendar) or a [session](Rule::Idle) equals the
//!   sum of what settled and what is held, to the millionth of a unit. What was reserved in a period
//!   or session is settled in it.
//! - **A settle is never refused.** Money that is spent is recorded, also beyond the limit; the debt
//!   carries.
//! - **Once per id.** A repeated reserve, extend or settle answers the same and charges once. A
//!   release that overtakes its reserve wins.
//! - **A reservation that is never settled stays charged** at what it reserved.
//! - **Limits are no state.** A limit can be raised, lowered or counted by another rule between two
//!   calls; what was counted stays. A charge of zero passes any limit, a limit of zero passes nothing
//!   else.
//! - **Clocks may step back.** No counter is reset by it: it stays in the latest window or period it
//!   has seen, and waits there for the clock. (A clock that jumps ahead and back therefore leaves
//!   the counters ahead, where it found the time.)
//!
//! # What it does not know
//!
//! Everything here is a function of its arguments: nothing is read from a clock, nothing is random,
//! nothing waits, nothing is rounded in the caller's favour. There are no floats, no `std`, and no
//! dependencies but `serde` where its feature is asked for. To keep counters elsewhere than in a [`Ledger`], implement [`Counters`] and pair it
//! with [`Reservations`]; a [`CounterRow`] drops what no longer counts. The feature `oracle` has the
//! rules once more, naively, to test such things against.
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
mod elapsed;
mod error;
mod generation;
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
pub use record::{EXTENSIONS_MAX, Record, charge};
pub use reservations::{Records, Reservations};
pub use row::CounterRow;
pub use units::{Amount, DurationMs, ExactAmount, MILLIONTHS, MicroUsd, ReservationId, TimestampMs, Tokens};
pub use verdict::{Admission, EntryRefusal, EntrySet, Outcome, Refusal, Standing, Verdict};
