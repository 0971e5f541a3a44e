//! Limits, plans and a store for the tests of the layer.

#![allow(dead_code, reason = "each test file uses its part")]
#![expect(clippy::unwrap_used, reason = "helpers beside test functions are no tests to clippy")]

use std::sync::Arc;

use tollgate_limiter::{
    Amount, CounterKey, DurationMs, Enforcement, Entry, Limit, Period, Plan, Rule, TimestampMs,
};
use tollgate_store::{Clock, ManualClock, MemoryStore, Store};

pub(crate) type Boxed = Box<dyn std::error::Error + Send + Sync>;

/// An empty store on a Monday, and its clock.
pub(crate) fn store() -> (Arc<ManualClock>, Arc<MemoryStore>) {
    let clock = Arc::new(ManualClock::new(TimestampMs::new(1_795_996_800_000)));
    let store = MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>);
    (clock, Arc::new(store))
}

pub(crate) fn limit(name: &str, rule: Rule, amount: u64) -> Arc<Limit> {
    let key = CounterKey::new("acme", name);
    Arc::new(Limit { key, rule, amount: Amount::new(amount), enforcement: Enforcement::Hard })
}

pub(crate) fn per_minute(amount: u64) -> Arc<Limit> {
    limit("tokens/minute", Rule::SlidingWindow { window: DurationMs::new(60_000) }, amount)
}

pub(crate) fn per_day(amount: u64) -> Arc<Limit> {
    limit("usd/day", Rule::Calendar(Period::Day), amount)
}

pub(crate) fn plan(entries: &[(&Arc<Limit>, u64)]) -> Arc<Plan> {
    let entry = |&(limit, charge): &(&Arc<Limit>, u64)| Entry {
        limit: Arc::clone(limit),
        charge: Amount::new(charge),
    };
    Arc::new(Plan::new(entries.iter().map(entry).collect()).unwrap())
}

/// What is spent and held, in whole units.
pub(crate) fn stands(store: &dyn Store, limit: &Arc<Limit>) -> (u64, u64) {
    let views = store.inspect(&[Arc::clone(limit)]).now_or_later().unwrap().unwrap();
    assert_eq!(views[0].spent.remainder(), 0);
    (views[0].spent.units(), views[0].held.get())
}

/// A planner that charges a request, which is a number, against one limit.
pub(crate) fn charging(limit: &Arc<Limit>) -> impl Fn(&u64) -> Option<Arc<Plan>> + Clone + use<> {
    let limit = Arc::clone(limit);
    move |&charge| Some(plan(&[(&limit, charge)]))
}
