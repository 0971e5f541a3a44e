//! One reservation from its first decision to its end.
//!
//! ```text
//!          ┌─ admitted ──▶ held ⟲ extend ─┐
//! reserve ─┤                              ├─ settle ──▶ ended
//!          └─ refused retry ──▶ refused ──┤
//!                            unknown id ──┘
//! ```

use alloc::{boxed::Box, sync::Arc, vec::Vec};

use crate::{
    Admission, Amount, Counter, Counters, EntrySet, ExactAmount, Held, LedgerError, Limit, Plan, Refusal,
    Rule, Settled, TimestampMs, Verdict,
    counter::{Booking, Slot, total},
    counters::Found,
    decide::{Ask, decide},
    slots::Slots,
};

/// The most times one reservation can be extended.
pub const EXTENSIONS_MAX: usize = 4_096;

/// Charges all of a plan that fits, for good: what a reservation does that is settled at once for
/// what it reserved, without a record. [`Ledger::charge`](crate::Ledger::charge) for other counters.
pub fn charge(counters: &mut impl Counters, now: TimestampMs, plan: &Plan) -> Verdict {
    let asks = asks(plan, plan.charges());
    Found::of(counters, now, plan, |found| match decide(found, asks.clone()) {
        Verdict::Admitted(admission) => {
            for Ask { index, limit, charge } in asks {
                found.change(index, limit, |counter| counter.charge(limit, charge, now));
            }
            Verdict::Admitted(admission)
        }
        refused @ Verdict::Refused(_) => refused,
    })
}

/// What is known under one id. Kept by whoever implements [`Records`](crate::Records).
#[derive(Debug)]
pub struct Record {
    plan: Arc<Plan>,
    state: State,
}

#[derive(Debug)]
enum State {
    Held(Holding),
    Refused(Box<Refusal>),
    /// `admission` is missing where no reserve had been admitted.
    Ended {
        admission: Option<Admission>,
        actuals: Vec<ExactAmount>,
    },
}

impl Record {
    /// Decides over the plan and charges it if it fits. A record remains of an admission, and of a
    /// refusal if `keep_refusal`.
    pub(crate) fn open(
        counters: &mut impl Counters,
        now: TimestampMs,
        plan: Arc<Plan>,
        keep_refusal: bool,
    ) -> (Verdict, Option<Self>) {
        let asks = asks(&plan, plan.charges());
        let (verdict, state) = Found::of(counters, now, &plan, |found| match decide(found, asks.clone()) {
            Verdict::Admitted(admission) => {
                let slots = book(found, asks, Counter::book);
                let holding = Holding { admission, slots, extensions: Vec::new() };
                (Verdict::Admitted(admission), Some(State::Held(holding)))
            }
            Verdict::Refused(refusal) => {
                let kept = keep_refusal.then(|| State::Refused(Box::new(refusal.clone())));
                (Verdict::Refused(refusal), kept)
            }
        });
        (verdict, state.map(|state| Self { plan, state }))
    }

    /// Charges the use of a reservation that was never seen, and remembers that it is over.
    pub(crate) fn unseen(
        counters: &mut impl Counters,
        now: TimestampMs,
        held: &Held,
        actuals: &[ExactAmount],
    ) -> Result<Self, LedgerError> {
        check_length(&held.plan, actuals.len())?;
        record(counters, now, held, actuals);
        let state = State::Ended { admission: None, actuals: actuals.into() };
        Ok(Self { plan: Arc::clone(&held.plan), state })
    }

    /// Whether a settle is still to come.
    pub(crate) const fn is_held(&self) -> bool {
        matches!(self.state, State::Held(_))
    }

    /// The answer to a reserve that comes again.
    pub(crate) fn answer(&self, plan: &Arc<Plan>) -> Result<Verdict, LedgerError> {
        self.check_plan(plan)?;
        match &self.state {
            State::Held(Holding { admission, .. }) | State::Ended { admission: Some(admission), .. } => {
                Ok(Verdict::Admitted(*admission))
            }
            State::Refused(refusal) => Ok(Verdict::Refused(Refusal::clone(refusal))),
            State::Ended { admission: None, .. } => Err(LedgerError::AlreadyEnded),
        }
    }

    pub(crate) fn extend(
        &mut self,
        counters: &mut impl Counters,
        now: TimestampMs,
        held: &Held,
        step: u32,
        charges: &[Amount],
    ) -> Result<Verdict, LedgerError> {
        self.check_plan(&held.plan)?;
        check_length(&self.plan, charges.len())?;
        let State::Held(holding) = &mut self.state else { return Err(LedgerError::NotHeld) };
        match holding.made(step, charges)? {
            Some(admission) => Ok(Verdict::Admitted(admission)),
            None => holding.extend(counters, now, &self.plan, step, charges),
        }
    }

    /// `room` is empty; it becomes what is remembered of `actuals`.
    pub(crate) fn settle(
        &mut self,
        counters: &mut impl Counters,
        now: TimestampMs,
        held: &Held,
        actuals: &[ExactAmount],
        mut room: Vec<ExactAmount>,
    ) -> Result<Settled, LedgerError> {
        self.check_plan(&held.plan)?;
        check_length(&self.plan, actuals.len())?;
        let (settled, admission) = match &self.state {
            State::Held(holding) => {
                for (index, (limit, actual)) in limits(&self.plan).zip(actuals).enumerate() {
                    let bookings = holding.bookings(&self.plan, index);
                    counters.change(limit, now, |counter| counter.settle(limit, bookings, *actual, now));
                }
                (Settled::Applied, Some(holding.admission))
            }
            State::Refused(_) => {
                record(counters, now, held, actuals);
                (Settled::WithoutReservation, None)
            }
            State::Ended { actuals: before, .. } if **before == *actuals => return Ok(Settled::Already),
            State::Ended { .. } => return Ok(Settled::Conflict),
        };
        room.extend_from_slice(actuals);
        self.state = State::Ended { admission, actuals: room };
        Ok(settled)
    }

    /// Its amounts, for the room they take.
    pub(crate) fn into_room(self) -> Vec<ExactAmount> {
        match self.state {
            State::Ended { mut actuals, .. } => {
                actuals.clear();
                actuals
            }
            State::Held(_) | State::Refused(_) => Vec::new(),
        }
    }

    fn check_plan(&self, plan: &Arc<Plan>) -> Result<(), LedgerError> {
        if Arc::ptr_eq(&self.plan, plan) || self.plan == *plan { Ok(()) } else { Err(LedgerError::OtherPlan) }
    }
}

/// An admitted reservation that is not settled.
#[derive(Debug)]
struct Holding {
    admission: Admission,
    slots: Slots,
    /// Ascending by step.
    extensions: Vec<Extension>,
}

#[derive(Debug)]
struct Extension {
    step: u32,
    charges: Box<[Amount]>,
    admission: Admission,
    slots: Slots,
    /// Entries whose period had ended: neither checked nor charged.
    skipped: EntrySet,
}

impl Holding {
    /// The answer to an extension that was made before.
    fn made(&self, step: u32, charges: &[Amount]) -> Result<Option<Admission>, LedgerError> {
        let last = self.extensions.last().map_or(0, |extension| extension.step);
        if step > last {
            return Ok(None);
        }
        match self.extensions.iter().rev().find(|extension| extension.step == step) {
            Some(extension) if *extension.charges == *charges => Ok(Some(extension.admission)),
            Some(_) => Err(LedgerError::OtherCharges { step }),
            None => Err(LedgerError::StaleStep { step }),
        }
    }

    fn extend(
        &mut self,
        counters: &mut impl Counters,
        now: TimestampMs,
        plan: &Plan,
        step: u32,
        charges: &[Amount],
    ) -> Result<Verdict, LedgerError> {
        if self.extensions.len() >= EXTENSIONS_MAX {
            return Err(LedgerError::TooManyExtensions);
        }
        Ok(Found::of(counters, now, plan, |found| {
            let mut skipped = EntrySet::default();
            for (index, limit) in found.limits() {
                let admitted = self.slots.get(index);
                if !found.read(index, limit, |counter| counter.can_extend(admitted, now)) {
                    skipped.insert(index);
                }
            }
            let asks = asks(plan, charges.iter().copied()).filter(|ask| !skipped.contains(ask.index));
            let verdict = decide(found, asks.clone().map(|ask| self.whole_request(plan, ask)));
            if let Verdict::Admitted(admission) = verdict {
                let slots = book(found, asks, Counter::book_more);
                self.extensions.push(Extension { step, charges: charges.into(), admission, slots, skipped });
            }
            verdict
        }))
    }

    /// What a request needs in all is asked of the limit on the largest one.
    fn whole_request<'a>(&self, plan: &Plan, mut ask: Ask<'a>) -> Ask<'a> {
        if ask.limit.rule == Rule::PerRequest {
            ask.charge = ask.charge.saturating_add(total(self.bookings(plan, ask.index)));
        }
        ask
    }

    /// What entry `index` has booked, latest first.
    fn bookings<'a>(&'a self, plan: &'a Plan, index: usize) -> impl Iterator<Item = Booking> + Clone + 'a {
        let extended =
            self.extensions.iter().rev().filter(move |extension| !extension.skipped.contains(index));
        let extended = extended.filter_map(move |extension| {
            let charge = *extension.charges.get(index)?;
            Some(Booking { slot: extension.slots.get(index), charge })
        });
        let first = plan.entries().get(index);
        extended.chain(first.map(|entry| Booking { slot: self.slots.get(index), charge: entry.charge }))
    }
}

fn limits(plan: &Plan) -> impl Iterator<Item = &Limit> {
    plan.entries().iter().map(|entry| &*entry.limit)
}

fn asks<'a>(
    plan: &'a Plan,
    charges: impl Iterator<Item = Amount> + Clone + 'a,
) -> impl Iterator<Item = Ask<'a>> + Clone + 'a {
    let asks = plan.entries().iter().zip(charges).enumerate();
    asks.map(|(index, (entry, charge))| Ask { index, limit: &entry.limit, charge })
}

fn book<'a>(
    found: &mut Found<'_, impl Counters>,
    asks: impl Iterator<Item = Ask<'a>>,
    book: impl Fn(&mut Counter, &Limit, Amount, TimestampMs) -> Slot,
) -> Slots {
    let now = found.now;
    let mut slots = Slots::new();
    for Ask { index, limit, charge } in asks {
        slots.set(index, found.change(index, limit, |counter| book(counter, limit, charge, now)));
    }
    slots
}

/// Charges what was used without a reservation.
fn record(counters: &mut impl Counters, now: TimestampMs, held: &Held, actuals: &[ExactAmount]) {
    for (limit, actual) in limits(&held.plan).zip(actuals) {
        if *actual != ExactAmount::ZERO {
            counters.change(limit, now, |counter| counter.record(limit.amount, held.at, *actual));
        }
    }
}

fn check_length(plan: &Plan, given: usize) -> Result<(), LedgerError> {
    let entries = plan.entries().len();
    if entries == given { Ok(()) } else { Err(LedgerError::WrongLength { entries, given }) }
}
