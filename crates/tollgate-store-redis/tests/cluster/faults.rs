//! A slot that moves, a node that dies, one that comes back empty.

use std::{
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tollgate_limiter::{ExactAmount, Limit, Period, Plan, ReservationId, Rule, Verdict};
use tollgate_store::{Attempt, Clock as _, FailurePolicy, Held, Settled, Store, StoreError, SystemClock};
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

/// While a slot moves, calls on it are not decided, and are answered when it has moved.
#[tokio::test]
async fn a_slot_on_its_way_is_asked_for_again_until_it_has_moved() {
    let cluster = RedisCluster::start(3).unwrap();
    let store = connect(&cluster).await;
    let own = limit("acme", "usd", 10);
    let held = reserve(&store, 1, &plan(&[(&own, 4)])).await.unwrap();
    let moving = Move::of_all(&cluster);
    for id in 2..12 {
        let answer = store.reserve(ReservationId::new(id), plan(&[(&own, 6)]), Attempt::First).await;
        assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
        let answer = store.settle(&held, &[ExactAmount::whole(1)]).await;
        assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
    }
    moving.end();
    assert!(reserve_until_answered(&store, 12, &plan(&[(&own, 7)])).await.is_none(), "4 of 10 are held");
    assert!(reserve_until_answered(&store, 13, &plan(&[(&own, 6)])).await.is_some());
}

/// One tenant's slot is on its way, first with some of its keys and then with all of them. Others are decided at any time,
/// on the same nodes too, and there is no outage.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn while_one_slot_is_on_its_way_all_others_are_decided() {
    const PART: Duration = Duration::from_millis(1_500);
    let cluster = RedisCluster::start(3).unwrap();
    let clock = Arc::new(SystemClock::new());
    let shared = SharedStore::start(&cluster.settings("tollgate"), policy(), None, clock.clone()).unwrap();
    let store = shared.store();
    let two = |node, name| {
        let one = on_node_named(&cluster, node, name, 1_000_000);
        [limit(one.key.partition(), "tokens", 1_000_000), one]
    };
    let [own, beside, on_target] =
        [(0, "own"), (0, "beside"), (1, "target")].map(|(node, name)| two(node, name));
    let both = |limits: &[Arc<Limit>; 2]| plan(&[(&limits[0], 1), (&limits[1], 1)]);
    let (own, others) = (both(&own), [both(&beside), both(&on_target)]);
    let ids = AtomicU64::new(1);
    let next = || ReservationId::new(ids.fetch_add(1, Ordering::SeqCst).into());
    let decide = async |plan: &Arc<Plan>| -> Result<Settled, StoreError> {
        let id = next();
        match store.reserve(id, Arc::clone(plan), Attempt::First).await? {
            Verdict::Admitted(admission) => {
                let held = Held { id, plan: Arc::clone(plan), at: admission.at };
                store.settle(&held, &[ExactAmount::whole(1); 2]).await
            }
            refused @ Verdict::Refused(_) => panic!("{refused:?}"),
        }
    };
    assert_eq!(decide(&own).await.unwrap(), Settled::Applied);
    let open = next();
    let Verdict::Admitted(admission) = store.reserve(open, Arc::clone(&own), Attempt::First).await.unwrap()
    else {
        panic!("it fits")
    };
    let open = Held { id: open, plan: Arc::clone(&own), at: admission.at };

    let keys = keys_of(&cluster, &own.entries()[0].limit);
    let moving = Move::begin(&cluster, 0, &keys[0]);
    let (first, rest) = keys.split_at(keys.len() / 2);
    let mut decided = 0;
    for keys in [first, rest] {
        keys.iter().for_each(|key| moving.key(key));
        let until = clock.elapsed() + PART;
        while clock.elapsed() < until {
            for plan in others.iter().chain(&others) {
                assert_eq!(decide(plan).await.unwrap(), Settled::Applied);
                decided += 1;
            }
            let answer = decide(&own).await;
            assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
        }
        let status = store.status();
        assert!(status.available && status.outages == 0, "{status:?}");
    }
    assert!(decided > 100, "{decided}");
    let answer = store.settle(&open, &[ExactAmount::whole(1); 2]).await;
    assert!(matches!(answer, Err(StoreError::Deferred)), "{answer:?}");
    moving.end();
    assert!(reserve_until_answered(&store, 0, &own).await.is_some());
    let written = async {
        while store.waiting() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, written).await.unwrap();
    let limits: Vec<_> = own.entries().iter().map(|entry| Arc::clone(&entry.limit)).collect();
    let views = store.inspect(&limits).await.unwrap();
    let stand: Vec<_> = views.iter().map(|view| (view.spent.units(), view.held.get())).collect();
    assert_eq!((stand, store.status().outages), (vec![(2, 1); 2], 0));
}

/// Of a plan in two slots one is on its way: the other is settled once, however often that is repeated.
#[tokio::test]
async fn a_settlement_with_one_part_on_its_way_can_be_repeated() {
    let cluster = RedisCluster::start(3).unwrap();
    let store = connect(&cluster).await;
    let (own, shared) = (on_node(&cluster, 0, 10), on_node(&cluster, 1, 10));
    let other = on_node_named(&cluster, 1, "other", 10);
    for (id, limits) in [(1, [&own, &shared]), (2, [&shared, &own])] {
        let plan = plan(&limits.map(|limit| (limit, 2)));
        let held = reserve(&store, id, &plan).await.unwrap();
        let keys = cluster.keys().unwrap();
        let moved: Vec<_> = keys.iter().filter(|(node, _)| *node == 1).map(|(_, key)| key).collect();
        let moving = Move::begin(&cluster, 1, moved[0]);
        for _ in 0..3 {
            moved.iter().for_each(|key| moving.key(key));
            let answer = store.settle(&held, &[ExactAmount::whole(1); 2]).await;
            // The first part is asked first.
            let is_expected = match answer {
                Err(StoreError::Partly(_)) => id == 1,
                Err(StoreError::Unavailable(_)) => id == 2,
                _ => false,
            };
            assert!(is_expected, "{answer:?}");
            let answer = store.reserve(ReservationId::new(10), Arc::clone(&plan), Attempt::First).await;
            assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
        }
        moving.back(&moved);
        assert_eq!(store.settle(&held, &[ExactAmount::whole(1); 2]).await.unwrap(), Settled::Applied);
        let spent = u64::try_from(id).unwrap();
        assert_eq!(stand(&store, &[&own, &shared, &other]).await, [(spent, 0), (spent, 0), (0, 0)]);
    }
}

/// One slot is on its way: that another one has lost what it knew is noticed, and made good.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn while_one_slot_is_on_its_way_what_others_have_lost_is_told() {
    let cluster = RedisCluster::start(3).unwrap();
    let clock = Arc::new(SystemClock::new());
    let [moved, lost] = ["moved", "lost"].map(|name| on_node_named(&cluster, 0, name, 100));
    let (limits, now) = ([Arc::clone(&moved), Arc::clone(&lost)], clock.now());
    let spent = move |each: Spend<'_>| {
        limits.iter().for_each(|limit| each(None, limit, now..=now, ExactAmount::whole(20)));
        Ok(())
    };
    let guard = Guard { copy: "one".into(), copies: NonZeroU64::MIN, spent: Arc::new(spent) };
    let shared = SharedStore::start(&cluster.settings("tollgate"), policy(), Some(guard), clock).unwrap();
    let store = shared.store();
    assert!(reserve_until_answered(&store, 1, &plan(&[(&moved, 81), (&lost, 81)])).await.is_none());
    let moved_keys = keys_of(&cluster, &moved);
    let moving = Move::begin(&cluster, 0, &moved_keys[0]);
    moved_keys.iter().for_each(|key| moving.key(key));
    let lost_keys = keys_of(&cluster, &lost);
    let delete: Vec<_> = std::iter::once("DEL").chain(lost_keys.iter().map(String::as_str)).collect();
    cluster.nodes()[0].command(&delete).unwrap();
    assert!(reserve_until_answered(&store, 2, &plan(&[(&lost, 81)])).await.is_none(), "20 are spent");
    assert!(reserve_until_answered(&store, 3, &plan(&[(&lost, 80)])).await.is_some());
    let answer = store.reserve(ReservationId::new(4), plan(&[(&moved, 1)]), Attempt::First).await;
    assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
    moving.end();
    assert!(reserve_until_answered(&store, 5, &plan(&[(&moved, 80)])).await.is_some());
    assert_eq!(store.status().outages, 0);
}

const fn policy() -> FailurePolicy {
    FailurePolicy {
        retry: Duration::from_secs(5),
        local_share: NonZeroU64::MIN,
        closed: false,
        remembered: Duration::from_secs(540),
    }
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

    /// Stays where it was, with these keys.
    fn back(&self, keys: &[&String]) {
        let [source, target] = self.nodes();
        let stable = ["CLUSTER", "SETSLOT", &self.slot, "STABLE"];
        source.command(&stable).unwrap();
        for key in keys {
            let port = source.port().to_string();
            target.command(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]).unwrap();
        }
        target.command(&stable).unwrap();
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
    let replicated = async {
        while !cluster.nodes()[0].is_replicated_by(&cluster.nodes()[3]).unwrap() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, replicated).await.expect("the replica has all of it");
    cluster.nodes_mut()[0].kill();
    assert!(reserve_until_answered(&store, 2, &plan(7)).await.is_none(), "4 of 10 are held");
    assert!(reserve_until_answered(&store, 3, &plan(6)).await.is_some());
    assert_eq!(store.settle(&held, &[ExactAmount::whole(1); 2]).await.unwrap(), Settled::Applied);
    assert_eq!(stand(&store, &[&own, &other]).await, [(1, 6), (1, 6)]);
}

/// A limit whose counter lies on a node.
pub(crate) fn on_node(cluster: &RedisCluster, node: usize, amount: u64) -> Arc<Limit> {
    on_node_named(cluster, node, "t", amount)
}

/// The same, of a partition whose name begins so.
fn on_node_named(cluster: &RedisCluster, node: usize, name: &str, amount: u64) -> Arc<Limit> {
    let names = (0..).map(|number| format!("{name}{number}"));
    let mut limits = names.map(|name| limit(&name, "usd", amount));
    limits.find(|limit| node_of(cluster, limit) == node).unwrap()
}

/// The node that a limit's counter would lie on.
fn node_of(cluster: &RedisCluster, limit: &Limit) -> usize {
    cluster.primary_of(&format!("tollgate:{}:c", tag_of(limit))).unwrap()
}

/// All keys that lie in the slot of a limit.
fn keys_of(cluster: &RedisCluster, limit: &Limit) -> Vec<String> {
    let (tag, keys) = (tag_of(limit), cluster.keys().unwrap().into_iter());
    keys.map(|(_, key)| key).filter(|key| key.contains(&tag)).collect()
}

/// The hash tag of its keys.
fn tag_of(limit: &Limit) -> String {
    let hash = limit.key.partition().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{{{}}}", hash % 256)
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
    let policy = FailurePolicy { retry: Duration::from_millis(100), ..policy() };
    let stores = ["one", "other"].map(|copy| {
        let (limits, clock) = ([Arc::clone(&lost), Arc::clone(&kept)], Arc::clone(&clock));
        let now = clock.now();
        let spent = move |each: Spend<'_>| {
            limits.iter().for_each(|limit| each(None, limit, now..=now, ExactAmount::whole(20)));
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
