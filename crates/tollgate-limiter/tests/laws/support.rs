//! Short ways to build limits and plans, and a ledger that numbers its reservations.

use std::sync::Arc;

use proptest::{prelude::ProptestConfig, test_runner::FileFailurePersistence};
use tollgate_limiter::{
    Amount, Attempt, CounterKey, CounterView, DurationMs, Enforcement, Entry, ExactAmount, Held, Ledger,
    Limit, Outcome, Period, Plan, Refusal, ReservationId, Rule, Settled, TimestampMs, Verdict,
};

/// So many random cases, or as many as `PROPTEST_CASES` says. A counterexample is shrunk and kept in
/// `proptest-regressions`, from where it is tried first.
pub(crate) fn cases(number: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let regressions = FileFailurePersistence::SourceParallel("proptest-regressions");
    ProptestConfig {
        cases: asked.unwrap_or(number),
        failure_persistence: Some(Box::new(regressions)),
        ..ProptestConfig::default()
    }
}

pub(crate) const MINUTE_MS: u64 = 60_000;

pub(crate) fn limit(name: &str, rule: Rule, amount: u64) -> Arc<Limit> {
    let key = CounterKey::new("acme", name);
    Arc::new(Limit { key, rule, amount: Amount::new(amount), enforcement: Enforcement::Hard })
}

pub(crate) fn soft(limit: &Limit) -> Arc<Limit> {
    Arc::new(Limit { enforcement: Enforcement::Soft, ..limit.clone() })
}

pub(crate) fn rate(name: &str, window_ms: u64, amount: u64) -> Arc<Limit> {
    limit(name, Rule::SlidingWindow { window: DurationMs::new(window_ms) }, amount)
}

pub(crate) fn bucketed(name: &str, window_ms: u64, amount: u64) -> Arc<Limit> {
    limit(name, Rule::BucketedWindow { window: DurationMs::new(window_ms) }, amount)
}

pub(crate) fn token_bucket(name: &str, window_ms: u64, amount: u64) -> Arc<Limit> {
    limit(name, Rule::TokenBucket { window: DurationMs::new(window_ms) }, amount)
}

pub(crate) fn session(name: &str, after_ms: u64, amount: u64) -> Arc<Limit> {
    limit(name, Rule::Idle { after: DurationMs::new(after_ms) }, amount)
}

pub(crate) fn run(name: &str, after_ms: u64, amount_ms: u64) -> Arc<Limit> {
    limit(name, Rule::Elapsed { after: DurationMs::new(after_ms) }, amount_ms)
}

pub(crate) fn budget(name: &str, period: Period, amount: u64) -> Arc<Limit> {
    limit(name, Rule::Calendar(period), amount)
}

pub(crate) fn plan(entries: &[(&Arc<Limit>, u64)]) -> Arc<Plan> {
    let entry = |&(limit, charge): &(&Arc<Limit>, u64)| Entry {
        limit: Arc::clone(limit),
        charge: Amount::new(charge),
    };
    Arc::new(Plan::new(entries.iter().map(entry).collect()).unwrap())
}

pub(crate) fn whole(amounts: &[u64]) -> Vec<ExactAmount> {
    amounts.iter().copied().map(ExactAmount::whole).collect()
}

/// A ledger that numbers its reservations.
#[derive(Default)]
pub(crate) struct Desk {
    pub(crate) ledger: Ledger,
    ids: u128,
}

impl Desk {
    pub(crate) fn reserve(&mut self, now_ms: u64, plan: &Arc<Plan>) -> Result<Held, Box<Refusal>> {
        self.ids += 1;
        let id = ReservationId::new(self.ids);
        match self.ledger.reserve(TimestampMs::new(now_ms), id, Arc::clone(plan), Attempt::First).unwrap() {
            Verdict::Admitted(admission) => Ok(Held { id, plan: Arc::clone(plan), at: admission.at }),
            Verdict::Refused(refusal) => Err(Box::new(refusal)),
        }
    }

    /// How many reservations were asked for.
    pub(crate) fn calls(&self) -> usize {
        usize::try_from(self.ids).unwrap()
    }

    pub(crate) fn admits(&mut self, now_ms: u64, limit: &Arc<Limit>, charge: u64) -> bool {
        self.reserve(now_ms, &plan(&[(limit, charge)])).is_ok()
    }

    /// What the limit answers to a charge; an admitted charge is booked.
    pub(crate) fn outcome(&mut self, now_ms: u64, limit: &Arc<Limit>, charge: u64) -> Outcome {
        match self.reserve(now_ms, &plan(&[(limit, charge)])) {
            Ok(_) => Outcome::Admit,
            Err(refusal) => refusal.binding.outcome,
        }
    }

    pub(crate) fn extend(&mut self, now_ms: u64, held: &Held, step: u32, charges: &[u64]) -> bool {
        let charges: Vec<_> = charges.iter().copied().map(Amount::new).collect();
        let verdict = self.ledger.extend(TimestampMs::new(now_ms), held, step, &charges);
        matches!(verdict.unwrap(), Verdict::Admitted(_))
    }

    /// (spent, held, remaining) in whole units.
    pub(crate) fn stands(&self, now_ms: u64, limit: &Arc<Limit>) -> (u64, u64, u64) {
        let view = self.view(now_ms, limit);
        (view.spent.rounded_up().get(), view.held.get(), view.remaining.get())
    }

    pub(crate) fn settle(&mut self, now_ms: u64, held: &Held, actuals: &[u64]) -> Settled {
        self.ledger.settle(TimestampMs::new(now_ms), held, &whole(actuals)).unwrap()
    }

    pub(crate) fn view(&self, now_ms: u64, limit: &Arc<Limit>) -> CounterView {
        let mut views = self.ledger.inspect(TimestampMs::new(now_ms), std::slice::from_ref(limit));
        views.pop().unwrap()
    }
}
