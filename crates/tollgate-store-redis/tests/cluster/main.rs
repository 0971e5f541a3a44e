//! A Redis Cluster of three nodes: the contract, where keys lie, what becomes of a plan in several slots when one of
//! its parts refuses, fails or is lost.

#![expect(
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

mod common;
mod faults;

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tollgate_limiter::{Amount, DurationMs, ExactAmount, Limit, ReservationId, Rule, TimestampMs, Verdict};
use tollgate_store::{
    Attempt, Clock, Held, ManualClock, Settled, Store, StoreError,
    contract::{self, Harness},
};
use tollgate_store_redis::{RedisStore, testing::RedisCluster};

use common::{connect, limit, plan, reserve, stand};

/// One test of the contract, under a prefix that no other has.
struct InCluster<'a> {
    cluster: &'a RedisCluster,
    clock: Arc<ManualClock>,
    runtime: tokio::runtime::Runtime,
    prefix: String,
}

impl<'a> InCluster<'a> {
    fn new(cluster: &'a RedisCluster, prefix: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let clock = Arc::new(ManualClock::new(TimestampMs::EPOCH));
        Self { cluster, clock, runtime: runtime.unwrap(), prefix: prefix.to_owned() }
    }
}

impl Harness for InCluster<'_> {
    fn store(&self) -> Arc<dyn Store> {
        let _inside = self.runtime.enter();
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let store = RedisStore::connect_with_clock(&self.cluster.settings(&self.prefix), clock).unwrap();
        self.runtime.block_on(store.connected()).unwrap();
        Arc::new(store)
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    fn run(&self, future: Pin<Box<dyn Future<Output = ()> + '_>>) {
        self.runtime.block_on(future);
    }
}

#[test]
fn c125_a_store_in_a_cluster_keeps_the_contract() {
    let cluster = RedisCluster::start(3).unwrap();
    for (name, test) in contract::all() {
        println!("{name}");
        test(&InCluster::new(&cluster, name));
    }
}

#[tokio::test]
async fn c125_what_belongs_to_one_tenant_lies_in_one_slot_and_all_nodes_are_used() {
    let cluster = RedisCluster::start(3).unwrap();
    let store = connect(&cluster).await;
    for tenant in 0..40 {
        let (usd, tokens) =
            (limit(&format!("t{tenant}"), "usd", 9), limit(&format!("t{tenant}"), "tokens", 9));
        reserve(&store, tenant, &plan(&[(&usd, 1), (&tokens, 1)])).await.unwrap();
    }
    let keys = cluster.keys().unwrap();
    assert_eq!(keys.len(), 40 * 3, "two counters and one record each");
    for node in 0..3 {
        let here = keys.iter().filter(|(number, _)| *number == node).count();
        assert!(here > 40 * 3 / 10, "{here} keys on node {node}");
    }
    assert_eq!(store.evicting_policy().await.unwrap(), None);
    cluster.nodes()[2].command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap();
    assert_eq!(store.evicting_policy().await.unwrap().as_deref(), Some("allkeys-lru"));
}

/// Whatever refuses, nothing of it stays: not a counter, not a record.
#[tokio::test]
async fn a_plan_that_one_slot_refuses_leaves_nothing_in_any() {
    let cluster = RedisCluster::start(3).unwrap();
    let store = connect(&cluster).await;
    let (own, global, model) =
        (limit("acme", "usd", 10), limit("global", "usd", 5), limit("model:m", "usd", 3));
    let session = Rule::Idle { after: DurationMs::new(60_000) };
    let session = Arc::new(Limit { rule: session, ..Limit::clone(&limit("acme", "session", 100)) });
    let of = |charge| plan(&[(&own, charge), (&session, charge), (&global, charge), (&model, charge)]);
    for (id, charge) in [(1, 11), (2, 6), (3, 4)] {
        assert!(reserve(&store, id, &of(charge)).await.is_none());
        assert_eq!(cluster.keys().unwrap(), [], "{charge} of 10, 5 and 3");
    }
    // What was there before is there again.
    let held = reserve(&store, 4, &of(1)).await.unwrap();
    let before = cluster.keys().unwrap().len();
    assert!(reserve(&store, 5, &of(3)).await.is_none());
    assert_eq!((cluster.keys().unwrap().len(), before), (4 + 3, 4 + 3));
    for node in cluster.nodes() {
        assert_eq!(node.immortal_keys().unwrap(), [""; 0]);
    }
    assert_eq!(stand(&store, &[&own, &global, &model]).await, [(0, 1); 3]);
    // An extension too, in all slots or none.
    let more = |charge| [Amount::new(charge); 4];
    assert!(matches!(store.extend(&held, 1, &more(3)).await.unwrap(), Verdict::Refused(_)));
    assert_eq!(stand(&store, &[&own, &global, &model]).await, [(0, 1); 3]);
    assert!(matches!(store.extend(&held, 1, &more(2)).await.unwrap(), Verdict::Admitted(_)));
    assert_eq!(stand(&store, &[&own, &global, &model]).await, [(0, 3); 3]);
    assert_eq!(store.settle(&held, &[ExactAmount::whole(2); 4]).await.unwrap(), Settled::Applied);
    assert_eq!(stand(&store, &[&own, &global, &model]).await, [(2, 0); 3]);
    assert_eq!(store.settle(&held, &[ExactAmount::whole(2); 4]).await.unwrap(), Settled::Already);
}

/// Two nodes that are slow, one after the other: together they are given the time of one. What the first of them has charged
/// is then for whoever asked to release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_in_several_slots_have_the_time_of_one() {
    let cluster = RedisCluster::start(3).unwrap();
    let store = connect(&cluster).await;
    let (own, global) = (faults::on_node(&cluster, 0, 10), faults::on_node(&cluster, 1, 10));
    let both = plan(&[(&own, 4), (&global, 4)]);
    // All scripts are known.
    let held = reserve(&store, 1, &both).await.unwrap();
    store.settle(&held, &[ExactAmount::ZERO; 2]).await.unwrap();
    let timeout = cluster.settings("tollgate").timeout;
    for (node, tenths) in [(0, 7), (1, 14)] {
        let pause = (timeout * tenths / 10).as_millis().to_string();
        cluster.nodes()[node].command(&["CLIENT", "PAUSE", &pause, "ALL"]).unwrap();
    }
    let answer = store.reserve(ReservationId::new(2), Arc::clone(&both), Attempt::First).await;
    assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
    for node in cluster.nodes() {
        node.command(&["CLIENT", "UNPAUSE"]).unwrap();
    }
    let given_up = Held { id: ReservationId::new(2), plan: both, at: held.at };
    store.settle(&given_up, &[ExactAmount::ZERO; 2]).await.unwrap();
    assert_eq!(stand(&store, &[&own, &global]).await, [(0, 0); 2]);
}

/// Tenants in parallel over a limit that all share: it is never passed, and what is given back is used up in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_over_all_tenants_is_never_passed_by_parallel_calls() {
    let cluster = RedisCluster::start(3).unwrap();
    let global = limit("global", "usd", 30);
    let admitted = Arc::new(AtomicUsize::new(0));
    let mut calls = Vec::new();
    for copy in 0..3_u128 {
        let store = connect(&cluster).await;
        for call in 0..60_u128 {
            let (store, global, admitted) = (store.clone(), Arc::clone(&global), Arc::clone(&admitted));
            let own = limit(&format!("t{}", call % 7), "usd", 6);
            calls.push(tokio::spawn(async move {
                let plan = plan(&[(&own, 1), (&global, 1)]);
                if reserve(&store, copy << 64 | call, &plan).await.is_some() {
                    admitted.fetch_add(1, Ordering::SeqCst);
                }
            }));
        }
    }
    for call in calls {
        call.await.unwrap();
    }
    let in_parallel = admitted.load(Ordering::SeqCst);
    assert!((1..=30).contains(&in_parallel), "{in_parallel} of 30");
    // What was refused in passing, while another's first step was on its way back, passes now.
    let store = connect(&cluster).await;
    let mut held = 0;
    for tenant in 0..7_u128 {
        let own = limit(&format!("t{tenant}"), "usd", 6);
        let plan = plan(&[(&own, 1), (&global, 1)]);
        for again in 0..6 {
            let id = (1 << 100) | (tenant << 64) | again;
            admitted.fetch_add(usize::from(reserve(&store, id, &plan).await.is_some()), Ordering::SeqCst);
        }
        let (_, own) = stand(&store, &[&own]).await[0];
        assert!(own <= 6);
        held += own;
    }
    assert_eq!((held, admitted.load(Ordering::SeqCst)), (30, 30), "of seven tenants of six each");
    assert_eq!(stand(&store, &[&global]).await, [(0, 30)]);
}

/// Who dies between the two steps leaves the first one charged, and a late settle of all corrects it.
#[tokio::test]
async fn a_part_that_nobody_finishes_stays_charged_and_is_settled_with_the_rest() {
    let cluster = RedisCluster::start(3).unwrap();
    let store = connect(&cluster).await;
    let (own, global) = (limit("acme", "usd", 10), limit("global", "usd", 10));
    let plan = plan(&[(&own, 4), (&global, 4)]);
    reserve(&store, 1, &plan).await.unwrap();
    // As if the second step had never come.
    let lost: Vec<_> = cluster.keys().unwrap();
    let at_global = store_key(&lost, ":6:global:");
    for (node, key) in lost.iter().filter(|(_, key)| tag(key) == tag(&at_global)) {
        cluster.nodes()[*node].command(&["DEL", key]).unwrap();
    }
    assert_eq!(stand(&store, &[&own, &global]).await, [(0, 4), (0, 0)]);
    // A repetition makes what is missing, and only that.
    let id = ReservationId::new(1);
    let verdict = store.reserve(id, Arc::clone(&plan), Attempt::Retry).await.unwrap();
    let Verdict::Admitted(admission) = verdict else { unreachable!("it was admitted") };
    assert_eq!(stand(&store, &[&own, &global]).await, [(0, 4), (0, 4)]);
    let held = Held { id, plan, at: admission.at };
    assert_eq!(store.settle(&held, &[ExactAmount::whole(1); 2]).await.unwrap(), Settled::Applied);
    assert_eq!(stand(&store, &[&own, &global]).await, [(1, 0), (1, 0)]);
}

/// What its first step was charged goes back.
#[tokio::test]
async fn a_call_in_several_slots_that_meets_a_counter_that_cannot_be_read_leaves_nothing() {
    let cluster = RedisCluster::start(3).unwrap();
    let store = connect(&cluster).await;
    let limits = [("acme", "usd"), ("global", "usd"), ("red", "usd")];
    let limits = limits.map(|(partition, name)| limit(partition, name, 10));
    let [own, global, team] = &limits;
    let own_and_team = plan(&[(own, 1), (team, 1)]);
    let all = plan(&[(own, 4), (global, 4), (team, 4)]);
    let held = reserve(&store, 1, &all).await.unwrap();
    let (node, key) =
        cluster.keys().unwrap().into_iter().find(|(_, key)| key.contains(":6:global:")).unwrap();
    cluster.nodes()[node].command(&["SET", &key, "something else"]).unwrap();
    let is_corrupt = |answer: Result<Verdict, StoreError>| {
        assert!(matches!(&answer, Err(StoreError::Corrupt(reason)) if reason.contains(&key)), "{answer:?}");
    };
    for attempt in [Attempt::First, Attempt::Retry] {
        is_corrupt(store.reserve(ReservationId::new(2), Arc::clone(&all), attempt).await);
        is_corrupt(store.extend(&held, 1, &[Amount::new(1); 3]).await);
        assert_eq!(stand(&store, &[own, team]).await, [(0, 4), (0, 4)]);
    }
    assert!(reserve(&store, 3, &own_and_team).await.is_some());
}

/// Whichever part it is in: all others are settled, in its slot and elsewhere.
#[tokio::test]
async fn a_settlement_in_several_slots_passes_a_counter_that_cannot_be_read() {
    let cluster = RedisCluster::start(3).unwrap();
    let store = connect(&cluster).await;
    for (id, spoilt) in ["own", "day", "global", "team"].into_iter().enumerate() {
        let limits = [("acme", "own"), ("acme", "day"), ("global", "global"), ("red", "team")];
        let limits = limits.map(|(partition, name)| limit(partition, &format!("{name} {id}"), 10));
        let entries: Vec<_> = limits.iter().map(|limit| (limit, 4)).collect();
        let held = reserve(&store, id.try_into().unwrap(), &plan(&entries)).await.unwrap();
        let key =
            cluster.keys().unwrap().into_iter().find(|(_, key)| key.ends_with(&format!("{spoilt} {id}")));
        let (node, key) = key.unwrap();
        cluster.nodes()[node].command(&["SET", &key, "something else"]).unwrap();
        let answer = store.settle(&held, &[ExactAmount::whole(1); 4]).await;
        assert!(matches!(&answer, Err(StoreError::Corrupt(reason)) if reason.contains(&key)), "{answer:?}");
        let others: Vec<_> = limits.iter().filter(|limit| !limit.key.name().starts_with(spoilt)).collect();
        assert_eq!(stand(&store, &others).await, [(1, 0); 3]);
        assert_eq!(store.settle(&held, &[ExactAmount::whole(1); 4]).await.unwrap(), Settled::Already);
    }
}

fn tag(key: &str) -> &str {
    key.split_once('{').unwrap().1.split_once('}').unwrap().0
}

fn store_key(keys: &[(usize, String)], part: &str) -> String {
    keys.iter().find(|(_, key)| key.contains(part)).unwrap().1.clone()
}
