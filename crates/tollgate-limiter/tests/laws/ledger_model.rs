//! The ledger against a naive one that drops nothing and adds everything up anew for each question.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use tollgate_limiter::{
    Amount, Attempt, ExactAmount, Held, Ledger, LedgerError, Limit, Period, Plan, ReservationId, Rule,
    Settled, TimestampMs, Verdict,
};

use crate::support::{budget, plan, rate};

const MILLION: i128 = 1_000_000;

/// What is known of one counter: all that ever happened, by window or period.
#[derive(Default)]
struct NaiveCounter {
    latest: u64,
    /// Millionths, by window or period.
    used: BTreeMap<u64, i128>,
    held: BTreeMap<u64, i128>,
}

impl NaiveCounter {
    fn add(&mut self, slot: u64, millionths: i128) {
        self.latest = self.latest.max(slot);
        *self.used.entry(slot).or_default() += millionths;
    }

    fn hold(&mut self, slot: u64, millionths: i128) {
        *self.held.entry(slot).or_default() += millionths;
    }

    fn at(map: &BTreeMap<u64, i128>, slot: Option<u64>) -> i128 {
        slot.and_then(|slot| map.get(&slot)).copied().unwrap_or(0)
    }
}

fn slot(rule: Rule, at_ms: u64) -> u64 {
    match rule {
        Rule::SlidingWindow { window } => at_ms / window.get(),
        Rule::Calendar(period) => period.index(TimestampMs::new(at_ms)),
        _ => unreachable!(),
    }
}

#[derive(Clone)]
enum Known {
    /// Bookings by entry: window or period, charge.
    Held {
        plan: Arc<Plan>,
        bookings: Vec<Vec<(u64, u64)>>,
        steps: BTreeMap<u32, Vec<u64>>,
    },
    Refused {
        plan: Arc<Plan>,
    },
    Ended {
        plan: Arc<Plan>,
        admitted: bool,
        actuals: Vec<u128>,
    },
}

#[derive(Default)]
struct Naive {
    counters: BTreeMap<String, NaiveCounter>,
    known: BTreeMap<u128, Known>,
}

impl Naive {
    fn counter(&mut self, limit: &Limit) -> &mut NaiveCounter {
        self.counters.entry(limit.key.name().to_owned()).or_default()
    }

    fn current(&mut self, limit: &Limit, now_ms: u64) -> u64 {
        self.counter(limit).latest.max(slot(limit.rule, now_ms))
    }

    /// The rule in millionths of a unit times parts of a window.
    fn fits(&mut self, limit: &Limit, charge: u64, now_ms: u64) -> bool {
        let current = self.current(limit, now_ms);
        let counter = self.counter(limit);
        let used = NaiveCounter::at(&counter.used, Some(current));
        let previous = NaiveCounter::at(&counter.used, current.checked_sub(1));
        let (amount, charge) = (i128::from(limit.amount.get()) * MILLION, i128::from(charge) * MILLION);
        match limit.rule {
            Rule::SlidingWindow { window } => {
                let window_ms = i128::from(window.get());
                let passed = (i128::from(now_ms) - i128::from(current) * window_ms).max(0);
                charge == 0
                    || previous * (window_ms - passed) + (used + charge) * window_ms <= amount * window_ms
            }
            _ => charge == 0 || used + charge <= amount,
        }
    }

    fn book(&mut self, limit: &Limit, charge: u64, now_ms: u64) -> (u64, u64) {
        let current = self.current(limit, now_ms);
        let counter = self.counter(limit);
        counter.add(current, i128::from(charge) * MILLION);
        counter.hold(current, i128::from(charge) * MILLION);
        (current, charge)
    }

    fn reserve(
        &mut self,
        now_ms: u64,
        id: u128,
        plan: &Arc<Plan>,
        attempt: Attempt,
    ) -> Result<bool, LedgerError> {
        match self.known.get(&id) {
            Some(Known::Held { plan: before, .. } | Known::Ended { plan: before, admitted: true, .. }) => {
                return if before == plan { Ok(true) } else { Err(LedgerError::OtherPlan) };
            }
            Some(Known::Refused { plan: before }) => {
                return if before == plan { Ok(false) } else { Err(LedgerError::OtherPlan) };
            }
            Some(Known::Ended { plan: before, .. }) => {
                return Err(if before == plan { LedgerError::AlreadyEnded } else { LedgerError::OtherPlan });
            }
            None => {}
        }
        let fits = plan.entries().iter().all(|entry| self.fits(&entry.limit, entry.charge.get(), now_ms));
        if fits {
            let entries = plan.entries().iter();
            let bookings =
                entries.map(|entry| vec![self.book(&entry.limit, entry.charge.get(), now_ms)]).collect();
            self.known.insert(id, Known::Held { plan: Arc::clone(plan), bookings, steps: BTreeMap::new() });
        } else if attempt == Attempt::Retry {
            self.known.insert(id, Known::Refused { plan: Arc::clone(plan) });
        }
        Ok(fits)
    }

    fn extend(
        &mut self,
        now_ms: u64,
        id: u128,
        plan: &Arc<Plan>,
        step: u32,
        charges: &[u64],
    ) -> Result<bool, LedgerError> {
        let Some(known) = self.known.get(&id).cloned() else { return Err(LedgerError::NotHeld) };
        let (Known::Held { plan: before, .. }
        | Known::Refused { plan: before }
        | Known::Ended { plan: before, .. }) = &known;
        if before != plan {
            return Err(LedgerError::OtherPlan);
        }
        let Known::Held { mut bookings, mut steps, .. } = known else { return Err(LedgerError::NotHeld) };
        match steps.get(&step) {
            Some(made) if made == charges => return Ok(true),
            Some(_) => return Err(LedgerError::OtherCharges { step }),
            None if steps.keys().any(|later| *later > step) || step == 0 => {
                return Err(LedgerError::StaleStep { step });
            }
            None => {}
        }
        let mut live = Vec::new();
        for (index, entry) in plan.entries().iter().enumerate() {
            let ended = matches!(entry.limit.rule, Rule::Calendar(_))
                && self.current(&entry.limit, now_ms) != bookings[index][0].0;
            if !ended {
                live.push(index);
            }
        }
        if !live.iter().all(|&index| self.fits(&plan.entries()[index].limit, charges[index], now_ms)) {
            return Ok(false);
        }
        for index in live {
            let booked = self.book(&plan.entries()[index].limit, charges[index], now_ms);
            bookings[index].push(booked);
        }
        steps.insert(step, charges.to_vec());
        self.known.insert(id, Known::Held { plan: Arc::clone(plan), bookings, steps });
        Ok(true)
    }

    fn settle(&mut self, now_ms: u64, held: &Held, actuals: &[u128]) -> Result<Settled, LedgerError> {
        let id = held.id.get();
        let known = self.known.get(&id).cloned();
        if let Some(Known::Held { plan, .. } | Known::Refused { plan } | Known::Ended { plan, .. }) = &known
            && *plan != held.plan
        {
            return Err(LedgerError::OtherPlan);
        }
        let (admitted, settled) = match known {
            Some(Known::Ended { actuals: before, .. }) if before == actuals => return Ok(Settled::Already),
            Some(Known::Ended { .. }) => return Ok(Settled::Conflict),
            Some(Known::Held { bookings, .. }) => {
                for ((entry, bookings), actual) in held.plan.entries().iter().zip(&bookings).zip(actuals) {
                    self.settle_entry(&entry.limit, bookings, actual.cast_signed(), now_ms);
                }
                (true, Settled::Applied)
            }
            Some(Known::Refused { .. }) | None => {
                for (entry, actual) in held.plan.entries().iter().zip(actuals) {
                    if *actual > 0 {
                        self.record(&entry.limit, held.at.get(), now_ms, actual.cast_signed());
                    }
                }
                (false, Settled::WithoutReservation)
            }
        };
        let plan = Arc::clone(&held.plan);
        self.known.insert(id, Known::Ended { plan, admitted, actuals: actuals.to_vec() });
        Ok(settled)
    }

    fn settle_entry(&mut self, limit: &Limit, bookings: &[(u64, u64)], actual: i128, now_ms: u64) {
        let booked: i128 = bookings.iter().map(|(_, charge)| i128::from(*charge) * MILLION).sum();
        let current = self.current(limit, now_ms);
        let counter = self.counter(limit);
        for (slot, charge) in bookings {
            counter.hold(*slot, -i128::from(*charge) * MILLION);
        }
        if let Rule::Calendar(_) = limit.rule {
            return counter.add(bookings[0].0, actual - booked);
        }
        let actual = (actual + MILLION - 1) / MILLION * MILLION;
        let mut unused = (booked - actual).max(0);
        for (slot, charge) in bookings.iter().rev() {
            let back = unused.min(i128::from(*charge) * MILLION);
            unused -= back;
            *counter.used.entry(*slot).or_default() -= back;
        }
        if actual > booked {
            counter.add(current, actual - booked);
        }
    }

    fn record(&mut self, limit: &Limit, at_ms: u64, now_ms: u64, actual: i128) {
        let is_new = !self.counters.contains_key(limit.key.name());
        let current = self.current(limit, now_ms);
        let counter = self.counter(limit);
        if is_new {
            counter.latest = current;
        }
        let actual = match limit.rule {
            Rule::Calendar(_) => actual,
            _ => (actual + MILLION - 1) / MILLION * MILLION,
        };
        counter.add(slot(limit.rule, at_ms), actual);
    }

    /// (spent, held) in millionths as the rule counts them now, recomputed from everything.
    fn view(&mut self, limit: &Limit, now_ms: u64) -> (i128, i128) {
        let current = self.current(limit, now_ms);
        let counter = self.counter(limit);
        let used = NaiveCounter::at(&counter.used, Some(current));
        let held = NaiveCounter::at(&counter.held, Some(current));
        let Rule::SlidingWindow { window } = limit.rule else { return (used - held, held) };
        let (before, before_held) = (
            NaiveCounter::at(&counter.used, current.checked_sub(1)) / MILLION,
            NaiveCounter::at(&counter.held, current.checked_sub(1)) / MILLION,
        );
        let window_ms = i128::from(window.get());
        let left = window_ms - (i128::from(now_ms) - i128::from(current) * window_ms).max(0);
        let weighed = |count: i128| (count * left + window_ms - 1) / window_ms * MILLION;
        let spent = used - held + weighed(before - before_held);
        (spent, used + weighed(before) - spent)
    }
}

#[derive(Clone, Debug)]
enum Call {
    Reserve { id: u128, variant: usize, attempt: Attempt },
    Extend { id: u128, step: u32, charges: [u64; 4] },
    Settle { id: u128, actuals: [u128; 4] },
    Wait { ms: u64 },
    SetBack { ms: u64 },
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let id = 0_u128..12;
    let attempt = prop_oneof![2 => Just(Attempt::First), 1 => Just(Attempt::Retry)];
    let actual = prop_oneof![2 => 0_u128..14_000_000, 1 => Just(0), 2 => (0_u128..14).prop_map(|units| units * 1_000_000)];
    let call = prop_oneof![
        6 => (id.clone(), 0_usize..9, attempt).prop_map(|(id, variant, attempt)| Call::Reserve { id, variant, attempt }),
        3 => (id.clone(), 0_u32..4, prop::array::uniform4(0_u64..6)).prop_map(|(id, step, charges)| Call::Extend { id, step, charges }),
        4 => (id, prop::array::uniform4(actual)).prop_map(|(id, actuals)| Call::Settle { id, actuals }),
        4 => prop_oneof![0_u64..900, 0_u64..40_000].prop_map(|ms| Call::Wait { ms }),
        1 => (0_u64..50_000).prop_map(|ms| Call::SetBack { ms }),
    ];
    prop::collection::vec(call, 1..80)
}

fn limits() -> [Arc<Limit>; 4] {
    [
        rate("second", 1_000, 20),
        rate("minute", 60_000, 60),
        budget("usd/minute", Period::Minute, 50),
        budget("usd", Period::Total, 300),
    ]
}

/// A plan that depends on the id, so that most repetitions have an equal one.
fn plan_of(limits: &[Arc<Limit>; 4], id: u128, variant: usize) -> Arc<Plan> {
    let id = usize::try_from(id).unwrap();
    let odd = usize::from(variant == 8);
    let entries: Vec<_> = (0..4)
        .filter(|entry| entry % 4 != id % 5)
        .map(|entry| (&limits[entry], ((id + odd) * (entry + 3) % 13) as u64))
        .collect();
    plan(&entries)
}

struct Run {
    limits: [Arc<Limit>; 4],
    ledger: Ledger,
    naive: Naive,
    now_ms: u64,
    admitted_at: BTreeMap<u128, u64>,
}

impl Run {
    fn held(&self, id: u128) -> Held {
        let at = TimestampMs::new(self.admitted_at.get(&id).copied().unwrap_or(self.now_ms));
        Held { id: ReservationId::new(id), plan: plan_of(&self.limits, id, 0), at }
    }

    fn step(&mut self, call: &Call) -> Result<(), TestCaseError> {
        let now = TimestampMs::new(self.now_ms);
        match call {
            Call::Wait { ms } => self.now_ms += ms,
            Call::SetBack { ms } => self.now_ms = self.now_ms.saturating_sub(*ms),
            Call::Reserve { id, variant, attempt } => {
                let plan = plan_of(&self.limits, *id, *variant);
                let before = self.ledger.inspect(now, &self.limits);
                let was = self.ledger.reserve(now, ReservationId::new(*id), Arc::clone(&plan), *attempt);
                let expected = self.naive.reserve(self.now_ms, *id, &plan, *attempt);
                prop_assert_eq!(was.clone().map(|verdict| matches!(verdict, Verdict::Admitted(_))), expected);
                match was {
                    Ok(Verdict::Admitted(admission)) => {
                        self.admitted_at.insert(*id, admission.at.get());
                    }
                    _ => prop_assert_eq!(
                        before,
                        self.ledger.inspect(now, &self.limits),
                        "a refusal changed a counter"
                    ),
                }
            }
            Call::Extend { id, step, charges } => {
                let held = self.held(*id);
                let charges = &charges[..held.plan.entries().len()];
                let before = self.ledger.inspect(now, &self.limits);
                let amounts: Vec<_> = charges.iter().copied().map(Amount::new).collect();
                let was = self.ledger.extend(now, &held, *step, &amounts);
                let expected = self.naive.extend(self.now_ms, *id, &held.plan, *step, charges);
                prop_assert_eq!(was.clone().map(|verdict| matches!(verdict, Verdict::Admitted(_))), expected);
                if !matches!(was, Ok(Verdict::Admitted(_))) {
                    prop_assert_eq!(
                        before,
                        self.ledger.inspect(now, &self.limits),
                        "a refusal changed a counter"
                    );
                }
            }
            Call::Settle { id, actuals } => {
                let held = self.held(*id);
                let actuals = &actuals[..held.plan.entries().len()];
                let exact: Vec<_> = actuals.iter().copied().map(ExactAmount::from_millionths).collect();
                let was = self.ledger.settle(now, &held, &exact);
                prop_assert_eq!(was, self.naive.settle(self.now_ms, &held, actuals));
            }
        }
        self.compare()
    }

    /// Conservation: each counter is the sum of what settled and what is held, nothing else.
    fn compare(&mut self) -> Result<(), TestCaseError> {
        let views = self.ledger.inspect(TimestampMs::new(self.now_ms), &self.limits);
        for (limit, view) in self.limits.iter().zip(views) {
            let (spent, held) = self.naive.view(limit, self.now_ms);
            prop_assert_eq!(
                (view.spent.as_millionths().cast_signed(), i128::from(view.held.get()) * MILLION),
                (spent, held),
                "{:?}",
                limit.key
            );
        }
        let open = self.naive.known.values().filter(|known| matches!(known, Known::Held { .. })).count();
        prop_assert_eq!(self.ledger.open_reservations(), open);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn the_ledger_is_the_naive_one(calls in calls()) {
        let mut run = Run {
            limits: limits(),
            ledger: Ledger::new(),
            naive: Naive::default(),
            now_ms: 1_000_000,
            admitted_at: BTreeMap::new(),
        };
        for call in &calls {
            run.step(call)?;
        }
    }
}
