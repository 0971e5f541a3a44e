//! To forget a counter that is idle changes no answer, however soon it is done.

use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;
use tollgate_limiter::{
    Amount, Counter, Counters, ExactAmount, Held, Ledger, Limit, Record, ReservationId, Reservations,
    TimestampMs,
};

use crate::{
    ledger_model::{Call, LIMITS, calls, limits, plan_of},
    support::{cases, limit},
};

/// Counters that are dropped at the first moment at which they are idle.
#[derive(Default)]
struct Forgetful(Vec<(Arc<str>, Counter)>);

impl Forgetful {
    fn forget(&mut self, now: TimestampMs) {
        self.0.retain(|(_, counter)| !counter.is_idle(now));
    }
}

impl Counters for Forgetful {
    type Place = usize;

    fn find(&self, limit: &Limit) -> Option<usize> {
        self.0.iter().position(|(name, _)| **name == *limit.key.name())
    }

    fn at(&self, place: usize) -> &Counter {
        &self.0[place].1
    }

    fn at_mut(&mut self, place: usize) -> &mut Counter {
        &mut self.0[place].1
    }

    fn new_counter(&self, limit: &Limit, now: TimestampMs) -> Counter {
        Counter::new(limit.rule, now)
    }

    fn keep(&mut self, limit: &Limit, counter: Counter) {
        self.0.push((limit.key.name().into(), counter));
    }
}

/// A ledger that has not come to its first sweep yet, and one that forgets before each call.
struct Run {
    limits: [Arc<Limit>; LIMITS],
    size: Arc<Limit>,
    keeps: Ledger,
    counters: Forgetful,
    reservations: Reservations<BTreeMap<ReservationId, Record>>,
    now: TimestampMs,
    admitted: BTreeMap<u128, TimestampMs>,
}

impl Run {
    fn new() -> Self {
        Self {
            limits: limits(),
            size: limit("size", tollgate_limiter::Rule::PerRequest, 12),
            keeps: Ledger::new(),
            counters: Forgetful::default(),
            reservations: Reservations::new(BTreeMap::new(), Ledger::FINISHED_MAX),
            now: TimestampMs::new(1_000_000),
            admitted: BTreeMap::new(),
        }
    }

    fn step(&mut self, call: &Call) -> Result<(), TestCaseError> {
        let now = self.now;
        self.counters.forget(now);
        let held = |id: u128| Held {
            id: ReservationId::new(id),
            plan: plan_of(&self.limits, &self.size, id, 0),
            at: self.admitted.get(&id).copied().unwrap_or(now),
        };
        match call {
            Call::Wait { ms } | Call::SetBack { ms } => self.now = TimestampMs::new(now.get() + ms),
            Call::Reserve { id, variant, attempt } => {
                let plan = plan_of(&self.limits, &self.size, *id, *variant);
                let key = ReservationId::new(*id);
                let kept = self.keeps.reserve(now, key, Arc::clone(&plan), *attempt);
                let forgot = self.reservations.reserve(&mut self.counters, now, key, plan, *attempt);
                prop_assert_eq!(&forgot, &kept);
                if let Ok(tollgate_limiter::Verdict::Admitted(admission)) = kept {
                    self.admitted.insert(*id, admission.at);
                }
            }
            Call::Extend { id, step, charges } => {
                let held = held(*id);
                let charges = &charges.map(Amount::new)[..held.plan.entries().len()];
                let forgot = self.reservations.extend(&mut self.counters, now, &held, *step, charges);
                prop_assert_eq!(forgot, self.keeps.extend(now, &held, *step, charges));
            }
            Call::Settle { id, actuals } => {
                let held = held(*id);
                let actuals = &actuals.map(ExactAmount::from_millionths)[..held.plan.entries().len()];
                let forgot = self.reservations.settle(&mut self.counters, now, &held, actuals);
                prop_assert_eq!(forgot, self.keeps.settle(now, &held, actuals));
            }
        }
        for (limit, kept) in self.limits.iter().zip(self.keeps.inspect(self.now, &self.limits)) {
            let forgot = self.counters.read(limit, self.now, |counter| counter.view(limit, self.now));
            prop_assert_eq!(forgot, kept);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(cases(10_000))]

    #[test]
    fn to_forget_an_idle_counter_changes_no_answer(calls in calls()) {
        let mut run = Run::new();
        for call in &calls {
            run.step(call)?;
        }
    }
}
