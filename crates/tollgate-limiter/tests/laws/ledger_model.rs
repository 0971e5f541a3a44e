//! The ledger against a naive one that drops nothing and adds everything up anew for each question.

use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;
use tollgate_limiter::{
    Amount, Attempt, DurationMs, ExactAmount, Held, Ledger, LedgerError, Limit, Period, Plan, ReservationId,
    Rule, TimestampMs, Verdict, oracle::NaiveLedger,
};

use crate::support::{bucketed, budget, cases, limit, plan, rate, run, session, token_bucket};

pub(crate) const LIMITS: usize = 9;

#[derive(Clone, Debug)]
pub(crate) enum Call {
    Reserve { id: u128, variant: usize, attempt: Attempt },
    Extend { id: u128, step: u32, charges: [u64; LIMITS] },
    Settle { id: u128, actuals: [u128; LIMITS] },
    Wait { ms: u64 },
    SetBack { ms: u64 },
}

pub(crate) fn calls() -> impl Strategy<Value = Vec<Call>> {
    let id = 0_u128..12;
    let attempt = prop_oneof![2 => Just(Attempt::First), 1 => Just(Attempt::Retry)];
    let actual = prop_oneof![2 => 0_u128..14_000_000, 1 => Just(0), 2 => (0_u128..14).prop_map(|units| units * 1_000_000)];
    let call = prop_oneof![
        6 => (id.clone(), 0_usize..9, attempt).prop_map(|(id, variant, attempt)| Call::Reserve { id, variant, attempt }),
        3 => (id.clone(), 0_u32..4, prop::array::uniform9(0_u64..6)).prop_map(|(id, step, charges)| Call::Extend { id, step, charges }),
        4 => (id, prop::array::uniform9(actual)).prop_map(|(id, actuals)| Call::Settle { id, actuals }),
        4 => prop_oneof![0_u64..900, 0_u64..40_000].prop_map(|ms| Call::Wait { ms }),
        1 => (0_u64..50_000).prop_map(|ms| Call::SetBack { ms }),
    ];
    prop::collection::vec(call, 1..40)
}

pub(crate) fn limits() -> [Arc<Limit>; LIMITS] {
    [
        rate("second", 1_000, 20),
        rate("minute", 60_000, 60),
        budget("usd/minute", Period::Minute, 50),
        budget("usd", Period::Total, 300),
        bucketed("bucketed", 60_000, 70),
        token_bucket("bucket", 60_000, 40),
        session("session", 20_000, 60),
        limit("open", Rule::Concurrent, 60),
        run("run", 20_000, 45_000),
    ]
}

/// A plan that depends on the id, so that most repetitions have an equal one.
pub(crate) fn plan_of(
    limits: &[Arc<Limit>; LIMITS],
    size: &Arc<Limit>,
    id: u128,
    variant: usize,
) -> Arc<Plan> {
    let id = usize::try_from(id).unwrap();
    let odd = usize::from(variant == 8);
    let charge = |entry: usize| ((id + odd) * (entry + 3) % 13) as u64;
    let mut entries: Vec<_> = (0..LIMITS)
        .filter(|entry| entry % 4 != id % 5 && (entry + id) % 3 != 1)
        .map(|entry| (&limits[entry], charge(entry)))
        .collect();
    if id % 2 == 0 && entries.len() < LIMITS {
        entries.push((size, charge(LIMITS)));
    }
    plan(&entries)
}

struct Run {
    limits: [Arc<Limit>; LIMITS],
    size: Arc<Limit>,
    ledger: Ledger,
    naive: NaiveLedger,
    now_ms: u64,
    admitted_at: BTreeMap<u128, u64>,
}

impl Run {
    fn new() -> Self {
        Self {
            limits: limits(),
            size: limit("size", Rule::PerRequest, 12),
            ledger: Ledger::new(),
            naive: NaiveLedger::new(),
            now_ms: 1_000_000,
            admitted_at: BTreeMap::new(),
        }
    }

    fn held(&self, id: u128) -> Held {
        let at = TimestampMs::new(self.admitted_at.get(&id).copied().unwrap_or(self.now_ms));
        Held { id: ReservationId::new(id), plan: plan_of(&self.limits, &self.size, id, 0), at }
    }

    fn step(&mut self, call: &Call) -> Result<(), TestCaseError> {
        let now = TimestampMs::new(self.now_ms);
        match call {
            Call::Wait { ms } => self.now_ms += ms,
            Call::SetBack { ms } => self.now_ms = self.now_ms.saturating_sub(*ms),
            Call::Reserve { id, variant, attempt } => {
                let plan = plan_of(&self.limits, &self.size, *id, *variant);
                let before = self.ledger.inspect(now, &self.limits);
                let key = ReservationId::new(*id);
                let was = self.ledger.reserve(now, key, Arc::clone(&plan), *attempt);
                let naive = self.naive.reserve(now, key, &plan, *attempt);
                same(&was, naive)?;
                if let Ok(Verdict::Admitted(admission)) = was {
                    self.admitted_at.insert(*id, admission.at.get());
                } else {
                    prop_assert_eq!(
                        before,
                        self.ledger.inspect(now, &self.limits),
                        "a refusal changed a counter"
                    );
                }
            }
            Call::Extend { id, step, charges } => {
                let held = self.held(*id);
                let charges: Vec<_> = charges.iter().copied().map(Amount::new).collect();
                let charges = &charges[..held.plan.entries().len()];
                let before = self.ledger.inspect(now, &self.limits);
                let was = self.ledger.extend(now, &held, *step, charges);
                let naive = self.naive.extend(now, &held, *step, charges);
                same(&was, naive)?;
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
                let exact: Vec<_> = actuals.iter().copied().map(ExactAmount::from_millionths).collect();
                let exact = &exact[..held.plan.entries().len()];
                let was = self.ledger.settle(now, &held, exact);
                prop_assert_eq!(was, self.naive.settle(now, &held, exact));
            }
        }
        self.compare()
    }

    /// Conservation: each counter is the sum of what settled and what is held, nothing else.
    fn compare(&self) -> Result<(), TestCaseError> {
        let now = TimestampMs::new(self.now_ms);
        for (limit, view) in self.limits.iter().zip(self.ledger.inspect(now, &self.limits)) {
            prop_assert_eq!((view.spent, view.held), self.naive.stands(limit, now), "{:?}", limit.key);
            let taken = view.spent.saturating_add(view.held.into()).rounded_up();
            prop_assert_eq!(view.remaining, limit.amount.saturating_sub(taken), "{:?}", limit.key);
        }
        prop_assert_eq!(self.ledger.open_reservations(), self.naive.open_reservations());
        Ok(())
    }
}

fn same(was: &Result<Verdict, LedgerError>, naive: Result<bool, LedgerError>) -> Result<(), TestCaseError> {
    prop_assert_eq!(was.clone().map(|verdict| matches!(verdict, Verdict::Admitted(_))), naive);
    Ok(())
}

proptest! {
    #![proptest_config(cases(20_000))]

    #[test]
    fn the_ledger_is_the_naive_one(calls in calls()) {
        let mut run = Run::new();
        for call in &calls {
            run.step(call)?;
        }
    }
}

proptest! {
    #![proptest_config(cases(5_000))]

    /// To charge is to reserve and to settle at once for all of it.
    #[test]
    fn a_charge_is_a_reservation_that_is_used_in_full(
        calls in prop::collection::vec((0_u128..12, 0_u64..30_000), 1..40),
    ) {
        let (limits, size) = (limits(), limit("size", Rule::PerRequest, 12));
        let (mut charged, mut reserved) = (Ledger::new(), Ledger::new());
        let mut now = TimestampMs::new(1_000_000);
        for (number, (id, wait_ms)) in (0_u128..).zip(calls) {
            now = now.saturating_add(DurationMs::new(wait_ms));
            let plan = plan_of(&limits, &size, id, 0);
            let key = ReservationId::new(number);
            let verdict = reserved.reserve(now, key, Arc::clone(&plan), Attempt::First).unwrap();
            prop_assert_eq!(charged.charge(now, &plan), verdict.clone());
            if let Verdict::Admitted(admission) = verdict {
                let used: Vec<_> = plan.charges().map(ExactAmount::from).collect();
                let held = Held { id: key, plan, at: admission.at };
                reserved.settle(now, &held, &used).unwrap();
            }
            prop_assert_eq!(charged.inspect(now, &limits), reserved.inspect(now, &limits));
        }
        prop_assert_eq!(charged.open_reservations(), 0);
    }
}
