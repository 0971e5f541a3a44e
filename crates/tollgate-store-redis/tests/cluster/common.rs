//! Short ways to talk to a store in a cluster.

#![expect(
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

use std::sync::Arc;

use tollgate_limiter::{
    Amount, CounterKey, Enforcement, Entry, Limit, Period, Plan, ReservationId, Rule, Verdict,
};
use tollgate_store::{Attempt, Held, Store};
use tollgate_store_redis::{RedisStore, testing::RedisCluster};

pub(crate) fn limit(partition: &str, name: &str, amount: u64) -> Arc<Limit> {
    let (key, rule) = (CounterKey::new(partition, name), Rule::Calendar(Period::Total));
    Arc::new(Limit { key, rule, amount: Amount::new(amount), enforcement: Enforcement::Hard })
}

pub(crate) fn plan(entries: &[(&Arc<Limit>, u64)]) -> Arc<Plan> {
    let entry = |&(limit, charge): &(&Arc<Limit>, u64)| Entry {
        limit: Arc::clone(limit),
        charge: Amount::new(charge),
    };
    Arc::new(Plan::new(entries.iter().map(entry).collect()).unwrap())
}

pub(crate) async fn connect(cluster: &RedisCluster) -> RedisStore {
    let store = RedisStore::connect(&cluster.settings("tollgate")).unwrap();
    store.connected().await.unwrap();
    store
}

pub(crate) async fn reserve(store: &RedisStore, id: u128, plan: &Arc<Plan>) -> Option<Held> {
    let id = ReservationId::new(id);
    match store.reserve(id, Arc::clone(plan), Attempt::First).await.unwrap() {
        Verdict::Admitted(admission) => Some(Held { id, plan: Arc::clone(plan), at: admission.at }),
        Verdict::Refused(_) => None,
    }
}

/// (spent, held) of each.
pub(crate) async fn stand(store: &RedisStore, limits: &[&Arc<Limit>]) -> Vec<(u64, u64)> {
    let limits: Vec<_> = limits.iter().map(|limit| Arc::clone(limit)).collect();
    let views = store.inspect(&limits).await.unwrap();
    views.iter().map(|view| (view.spent.units(), view.held.get())).collect()
}
