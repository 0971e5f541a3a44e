//! A ledger that drops nothing and adds everything up anew for each question.

use alloc::{borrow::ToOwned, collections::BTreeMap, string::String, sync::Arc, vec, vec::Vec};

use super::counter::{Booking, NaiveCounter};
use crate::{
    Amount, Attempt, ExactAmount, Held, LedgerError, Limit, Plan, ReservationId, Rule, Settled, TimestampMs,
};

/// Answers as [`Ledger`](crate::Ledger) must. It knows hard limits, windows of at most a minute, and
/// amounts that do not change.
#[derive(Debug, Default)]
pub struct NaiveLedger {
    counters: BTreeMap<(String, String), NaiveCounter>,
    known: BTreeMap<ReservationId, Known>,
}

#[derive(Debug)]
struct Known {
    plan: Arc<Plan>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// What each entry has booked, and the extensions that were made.
    Held {
        bookings: Vec<Vec<Booking>>,
        steps: BTreeMap<u32, Vec<Amount>>,
    },
    Refused,
    Ended {
        admitted: bool,
        actuals: Vec<ExactAmount>,
    },
}

impl NaiveLedger {
    /// An empty ledger.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the plan is admitted. See [`Ledger::reserve`](crate::Ledger::reserve).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn reserve(
        &mut self,
        now: TimestampMs,
        id: ReservationId,
        plan: &Arc<Plan>,
        attempt: Attempt,
    ) -> Result<bool, LedgerError> {
        if let Some(known) = self.known.get(&id) {
            return match &known.state {
                _ if known.plan != *plan => Err(LedgerError::OtherPlan),
                State::Held { .. } | State::Ended { admitted: true, .. } => Ok(true),
                State::Refused => Ok(false),
                State::Ended { .. } => Err(LedgerError::AlreadyEnded),
            };
        }
        let fits = plan.entries().iter().all(|entry| self.fits(&entry.limit, entry.charge.get(), now.get()));
        let state = if fits {
            let booked = plan.entries().iter().map(|entry| vec![self.book(&entry.limit, entry.charge, now)]);
            State::Held { bookings: booked.collect(), steps: BTreeMap::new() }
        } else if attempt == Attempt::Retry {
            State::Refused
        } else {
            return Ok(false);
        };
        self.known.insert(id, Known { plan: Arc::clone(plan), state });
        Ok(fits)
    }

    /// Whether the extension is admitted. See [`Ledger::extend`](crate::Ledger::extend).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn extend(
        &mut self,
        now: TimestampMs,
        held: &Held,
        step: u32,
        charges: &[Amount],
    ) -> Result<bool, LedgerError> {
        let Some(mut known) = self.known.remove(&held.id) else { return Err(LedgerError::NotHeld) };
        let extended = self.extend_known(now, &mut known, held, step, charges);
        self.known.insert(held.id, known);
        extended
    }

    fn extend_known(
        &mut self,
        now: TimestampMs,
        known: &mut Known,
        held: &Held,
        step: u32,
        charges: &[Amount],
    ) -> Result<bool, LedgerError> {
        if known.plan != held.plan {
            return Err(LedgerError::OtherPlan);
        }
        let State::Held { bookings, steps } = &mut known.state else { return Err(LedgerError::NotHeld) };
        match steps.get(&step) {
            Some(made) if made == charges => return Ok(true),
            Some(_) => return Err(LedgerError::OtherCharges { step }),
            None if step == 0 || steps.keys().any(|later| *later > step) => {
                return Err(LedgerError::StaleStep { step });
            }
            None => {}
        }
        let entries = known.plan.entries().iter().zip(charges).zip(&mut *bookings);
        let mut live = Vec::new();
        for ((entry, charge), booked) in entries {
            let limit = &entry.limit;
            if self.counter(limit, now).can_extend(limit.rule, booked[0].0, now.get()) {
                let before = if limit.rule == Rule::PerRequest {
                    booked.iter().map(|(_, charge)| charge).sum()
                } else {
                    0
                };
                live.push((limit, *charge, booked, before));
            }
        }
        if !live.iter().all(|(limit, charge, _, before)| self.fits(limit, charge.get() + before, now.get())) {
            return Ok(false);
        }
        for (limit, charge, booked, _) in live {
            booked.push(self.book(limit, charge, now));
        }
        steps.insert(step, charges.to_vec());
        Ok(true)
    }

    /// See [`Ledger::settle`](crate::Ledger::settle).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn settle(
        &mut self,
        now: TimestampMs,
        held: &Held,
        actuals: &[ExactAmount],
    ) -> Result<Settled, LedgerError> {
        let known = self.known.remove(&held.id);
        let entries = held.plan.entries().iter().map(|entry| &entry.limit).zip(actuals);
        let (admitted, settled) = match known {
            Some(known) if known.plan != held.plan => {
                self.known.insert(held.id, known);
                return Err(LedgerError::OtherPlan);
            }
            Some(Known { state: State::Held { bookings, .. }, .. }) => {
                for ((limit, actual), booked) in entries.zip(&bookings) {
                    let actual = actual.as_millionths().cast_signed();
                    self.counter(limit, now).settle(limit, booked, actual, now.get());
                }
                (true, Settled::Applied)
            }
            Some(Known { plan, state: State::Ended { admitted, actuals: before } }) => {
                let same = before == actuals;
                let state = State::Ended { admitted, actuals: before };
                self.known.insert(held.id, Known { plan, state });
                return Ok(if same { Settled::Already } else { Settled::Conflict });
            }
            Some(Known { state: State::Refused, .. }) | None => {
                for (limit, actual) in entries.filter(|(_, actual)| **actual != ExactAmount::ZERO) {
                    let actual = actual.as_millionths().cast_signed();
                    self.counter(limit, now).record(limit, actual, held.at.get());
                }
                (false, Settled::WithoutReservation)
            }
        };
        let state = State::Ended { admitted, actuals: actuals.to_vec() };
        self.known.insert(held.id, Known { plan: Arc::clone(&held.plan), state });
        Ok(settled)
    }

    /// What settled requests have used and what open ones hold, as far as the rule counts it now.
    pub fn stands(&self, limit: &Limit, now: TimestampMs) -> (ExactAmount, Amount) {
        let (spent, held) =
            self.counters.get(&name(limit)).map_or((0, 0), |counter| counter.stands(limit, now.get()));
        let held = ExactAmount::from_millionths(held.cast_unsigned()).rounded_up();
        (ExactAmount::from_millionths(spent.cast_unsigned()), held)
    }

    /// How many reservations are open.
    pub fn open_reservations(&self) -> usize {
        self.known.values().filter(|known| matches!(known.state, State::Held { .. })).count()
    }

    fn fits(&self, limit: &Limit, charge: u64, now_ms: u64) -> bool {
        match self.counters.get(&name(limit)) {
            Some(counter) => counter.fits(limit, charge, now_ms),
            None => NaiveCounter::default().fits(limit, charge, now_ms),
        }
    }

    fn book(&mut self, limit: &Limit, charge: Amount, now: TimestampMs) -> Booking {
        self.counter(limit, now).book(limit, charge.get(), now.get())
    }

    /// The counter of a limit, which begins where it is first changed.
    fn counter(&mut self, limit: &Limit, now: TimestampMs) -> &mut NaiveCounter {
        let begin = || {
            let mut counter = NaiveCounter::default();
            counter.latest = counter.slot(limit.rule, now.get());
            counter
        };
        self.counters.entry(name(limit)).or_insert_with(begin)
    }
}

fn name(limit: &Limit) -> (String, String) {
    (limit.key.partition().to_owned(), limit.key.name().to_owned())
}
