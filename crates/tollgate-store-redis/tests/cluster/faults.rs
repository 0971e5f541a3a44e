//! A slot that moves, a node that dies, one that comes back empty.

use std::{num::NonZeroU64, sync::Arc, time::Duration};

use tollgate_limiter::{ExactAmount, Limit, Period, Plan, ReservationId, Rule, Verdict};
use tollgate_store::{Attempt, Clock as _, FailurePolicy, Settled, Store, SystemClock};
use tollgate_store_redis::{
    Guard, SharedStore, Spend,
    testing::{RedisCluster, RedisServer},
};

use crate::common::{connect, limit, plan, reserve, stand};

const PATIENCE: Duration = Duration::from_secs(30);

/// The slot of a tenant moves to another node while its counter counts: the store is told and goes there.
#[tokio::test]
async fn a_slot_that_moves_is_followed_with_what_was_counted() {
    let cluster = RedisCluster::start(3).unwrap();
    let store = connect(&cluster).await;
    let own = limit("acme", "usd", 10);
    reserve(&store, 1, &plan(&[(&own, 4)])).await.unwrap();
    let moving = Move::of_all(&cluster);
    moving.end();
    assert!(reserve_until_answered(&store, 2, &plan(&[(&own, 7)])).await.is_none(), "4 of 10 are held");
    assert!(reserve_until_answered(&store, 3, &plan(&[(&own, 6)])).await.is_some());
    assert!(cluster.keys().unwrap().iter().all(|(node, _)| *node == moving.to()));
}

/// While a slot moves, a node answers `ASK`, for which the client library ends its connection. Calls hear of that, and are
/// answered when the slot has moved.
#[tokio::test]
async fn a_slot_on_its_way_is_asked_for_again_until_it_has_moved() {
    let cluster = RedisCluster::start(3).unwrap();
    let store = connect(&cluster).await;
    let own = limit("acme", "usd", 10);
    reserve(&store, 1, &plan(&[(&own, 4)])).await.unwrap();
    let moving = Move::of_all(&cluster);
    for id in 2..12 {
        let answer = store.reserve(ReservationId::new(id), plan(&[(&own, 6)]), Attempt::First).await;
        assert!(matches!(answer, Err(error) if error.is_transient()));
    }
    moving.end();
    assert!(reserve_until_answered(&store, 12, &plan(&[(&own, 7)])).await.is_none(), "4 of 10 are held");
    assert!(reserve_until_answered(&store, 13, &plan(&[(&own, 6)])).await.is_some());
}

/// A slot that moves from one node to the next one.
struct Move<'a> {
    cluster: &'a RedisCluster,
    from: usize,
    slot: String,
}

impl<'a> Move<'a> {
    /// Of all keys there are, which lie in one slot.
    fn of_all(cluster: &'a RedisCluster) -> Self {
        let keys = cluster.keys().unwrap();
        let (from, key) = keys[0].clone();
        let begun = Self::begin(cluster, from, &key);
        keys.iter().for_each(|(_, key)| begun.key(key));
        begun
    }

    fn begin(cluster: &'a RedisCluster, from: usize, key: &str) -> Self {
        let slot = cluster.nodes()[from].command(&["CLUSTER", "KEYSLOT", key]).unwrap();
        let begun = Self { cluster, from, slot };
        let [source, target] = begun.nodes();
        let [source_id, target_id] = begun.ids();
        target.command(&["CLUSTER", "SETSLOT", &begun.slot, "IMPORTING", &source_id]).unwrap();
        source.command(&["CLUSTER", "SETSLOT", &begun.slot, "MIGRATING", &target_id]).unwrap();
        begun
    }

    /// Takes a key over.
    fn key(&self, key: &str) {
        let [source, target] = self.nodes();
        source.command(&["MIGRATE", "127.0.0.1", &target.port().to_string(), key, "0", "5000"]).unwrap();
    }

    fn end(&self) {
        let [_, target_id] = self.ids();
        for node in self.cluster.nodes() {
            node.command(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &target_id]).unwrap();
        }
    }

    fn to(&self) -> usize {
        (self.from + 1) % 3
    }

    fn nodes(&self) -> [&RedisServer; 2] {
        [self.from, self.to()].map(|number| &self.cluster.nodes()[number])
    }

    fn ids(&self) -> [String; 2] {
        self.nodes().map(|node| node.command(&["CLUSTER", "MYID"]).unwrap())
    }
}

/// A node dies and its replica takes over.
#[tokio::test]
async fn a_failover_in_a_cluster_is_followed_with_all_that_was_replicated() {
    let mut cluster = RedisCluster::start(3).unwrap();
    cluster.add_replica().unwrap();
    let store = connect(&cluster).await;
    // A tenant whose counters lie on the first node, and a limit that lies elsewhere.
    let (own, other) = (on_node(&cluster, 0, 10), on_node(&cluster, 1, 10));
    let plan = |charge| plan(&[(&own, charge), (&other, charge)]);
    let held = reserve(&store, 1, &plan(4)).await.unwrap();
    let (first, port) =
        (cluster.nodes()[0].command(&["WAIT", "1", "5000"]).unwrap(), cluster.nodes()[3].port());
    assert_eq!(first, "1", "acknowledged by the replica at {port}");
    cluster.nodes_mut()[0].kill();
    assert!(reserve_until_answered(&store, 2, &plan(7)).await.is_none(), "4 of 10 are held");
    assert!(reserve_until_answered(&store, 3, &plan(6)).await.is_some());
    assert_eq!(store.settle(&held, &[ExactAmount::whole(1); 2]).await.unwrap(), Settled::Applied);
    assert_eq!(stand(&store, &[&own, &other]).await, [(1, 6), (1, 6)]);
}

/// A limit whose counter lies on a node.
fn on_node(cluster: &RedisCluster, node: usize, amount: u64) -> Arc<Limit> {
    let names = (0..).map(|number| format!("t{number}"));
    let mut limits = names.map(|name| limit(&name, "usd", amount));
    limits.find(|limit| node_of(cluster, limit) == node).unwrap()
}

/// The node that a limit's counter would lie on.
fn node_of(cluster: &RedisCluster, limit: &Limit) -> usize {
    let hash = limit.key.partition().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    cluster.primary_of(&format!("tollgate:{{{}}}:c", hash % 256)).unwrap()
}

/// The same call again and again, as whoever gets no answer makes it.
async fn reserve_until_answered(store: &impl Store, id: u128, plan: &Arc<Plan>) -> Option<Admitted> {
    let id = ReservationId::new(id);
    let answered = async {
        let mut attempt = Attempt::First;
        loop {
            match store.reserve(id, Arc::clone(plan), attempt).await {
                Ok(Verdict::Admitted(_)) => return Some(Admitted),
                Ok(Verdict::Refused(_)) => return None,
                // Away, or not known yet what was spent.
                Err(error) => assert!(!error.to_string().contains("cannot be read"), "{error}"),
            }
            attempt = Attempt::Retry;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.unwrap()
}

#[derive(Debug)]
struct Admitted;

/// Two copies that have spent 20 each of two budgets, in slots of two nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_node_that_comes_back_empty_refuses_its_hard_budgets_until_it_knows_what_was_spent() {
    let mut cluster = RedisCluster::start(3).unwrap();
    let daily =
        |limit: Arc<Limit>| Arc::new(Limit { rule: Rule::Calendar(Period::Day), ..Limit::clone(&limit) });
    let (lost, kept) = (daily(on_node(&cluster, 0, 100)), daily(on_node(&cluster, 1, 100)));
    let clock = Arc::new(SystemClock::new());
    let policy = FailurePolicy {
        retry: Duration::from_millis(100),
        local_share: NonZeroU64::MIN,
        closed: false,
        remembered: Duration::from_secs(540),
    };
    let stores = ["one", "other"].map(|copy| {
        let (limits, clock) = ([Arc::clone(&lost), Arc::clone(&kept)], Arc::clone(&clock));
        let now = clock.now();
        let spent = move |each: Spend<'_>| {
            limits.iter().for_each(|limit| each(limit, now..=now, ExactAmount::whole(20)));
            Ok(())
        };
        let (copies, spent) = (NonZeroU64::new(2).unwrap(), Arc::new(spent));
        let guard = Guard { copy: copy.into(), copies, spent };
        SharedStore::start(&cluster.settings("tollgate"), policy, Some(guard), clock).unwrap()
    });
    let [store, _] = stores.each_ref().map(SharedStore::store);
    let both = |charge| plan(&[(&lost, charge), (&kept, charge)]);
    // A new deployment: 40 of 100 are told.
    assert!(reserve_until_answered(&store, 1, &both(61)).await.is_none());
    cluster.nodes_mut()[0].restart().unwrap();

    assert!(reserve_until_answered(&store, 2, &plan(&[(&lost, 61)])).await.is_none(), "40 are spent");
    assert!(reserve_until_answered(&store, 3, &both(60)).await.is_some());
    let views = store.inspect(&[Arc::clone(&lost), Arc::clone(&kept)]).await.unwrap();
    let stand: Vec<_> = views.iter().map(|view| (view.spent.units(), view.held.get())).collect();
    assert_eq!(stand, [(40, 60); 2], "each its own share, and once");
}
