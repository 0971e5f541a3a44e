//! Places of limits on concurrency that copies held which have died, in virtual time.

#![expect(
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

use std::{pin::Pin, sync::Arc, time::Duration};

use tokio::runtime::Builder;

use tollgate_limiter::{
    Amount, CounterKey, DurationMs, Enforcement, Entry, ExactAmount, Limit, Period, Plan, ReservationId,
    Rule, Settled, TimestampMs, Verdict,
};
use tollgate_store::{Attempt, Clock, Held, ManualClock, Store};
use tollgate_store_redis::{
    RedisStore, Settings,
    testing::{RedisCluster, RedisServer},
};

const PLACES: u64 = 3;
/// As often as a copy says that it lives.
const EVERY: DurationMs = DurationMs::new(5_000);
/// After so much silence it is dead.
const SILENT: DurationMs = DurationMs::new(30_000);

/// A process with its name.
struct Copy {
    store: RedisStore,
    name: Arc<str>,
}

impl Copy {
    async fn start(server: &RedisServer, clock: &Arc<ManualClock>, name: &str) -> Self {
        let clock = Arc::clone(clock) as Arc<dyn Clock>;
        let store = RedisStore::connect_with_clock(&server.settings("toll*gate"), clock).unwrap();
        Self::with(store, name).await
    }

    async fn with(store: RedisStore, name: &str) -> Self {
        store.connected().await.unwrap();
        let copy = Self { store, name: name.into() };
        copy.lives().await;
        copy
    }

    /// Says that it lives, and looks after those that do not: how many do.
    async fn lives(&self) -> usize {
        self.store.keep_places(&self.name).await.unwrap().0
    }

    /// The same: whether another has its name.
    async fn is_named_twice(&self) -> bool {
        self.store.keep_places(&self.name).await.unwrap().1
    }

    async fn reserve(&self, id: u128, plan: &Arc<Plan>) -> Option<Held> {
        let id = ReservationId::new(id);
        match self.store.reserve(id, Arc::clone(plan), Attempt::First).await.unwrap() {
            Verdict::Admitted(admission) => Some(Held { id, plan: Arc::clone(plan), at: admission.at }),
            Verdict::Refused(_) => None,
        }
    }

    async fn reserve_all(&self, first_id: u128, plan: &Arc<Plan>) -> Vec<Held> {
        let mut held = Vec::new();
        for id in (first_id..).take(usize::try_from(PLACES).unwrap()) {
            held.push(self.reserve(id, plan).await.unwrap());
        }
        held
    }

    async fn settle(&self, held: &Held) -> Settled {
        let used = vec![ExactAmount::whole(1); held.plan.entries().len()];
        self.store.settle(held, &used).await.unwrap()
    }

    /// What is held of each limit, and spent.
    async fn stand(&self, plan: &Plan) -> Vec<(u64, u64)> {
        let limits: Vec<_> = plan.entries().iter().map(|entry| Arc::clone(&entry.limit)).collect();
        let views = self.store.inspect(&limits).await.unwrap();
        views.iter().map(|view| (view.held.get(), view.spent.units())).collect()
    }
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(TimestampMs::new(1_795_996_800_000)))
}

fn entry(partition: &str, name: &str, rule: Rule, amount: u64, charge: u64) -> Entry {
    let (key, amount) = (CounterKey::new(partition, name), Amount::new(amount));
    let limit = Arc::new(Limit { key, rule, amount, enforcement: Enforcement::Hard });
    Entry { limit, charge: Amount::new(charge) }
}

/// Two limits on concurrency, of which the second leaves room, and a budget.
fn plan() -> Arc<Plan> {
    let entries = vec![
        entry("acme", "open", Rule::Concurrent, PLACES, 1),
        entry("acme", "usd", Rule::Calendar(Period::Month), 1_000, 10),
        entry("acme", "open:model", Rule::Concurrent, 100, 1),
    ];
    Arc::new(Plan::new(entries).unwrap())
}

/// Lets a little more than `time` pass, in which only `living` say that they live.
async fn pass(clock: &ManualClock, time: DurationMs, living: &[&Copy]) {
    for _ in 0..time.get() / EVERY.get() + 1 {
        clock.advance(EVERY);
        for copy in living {
            copy.lives().await;
        }
    }
}

#[tokio::test]
async fn places_of_a_copy_that_died_are_free_after_half_a_minute_and_its_budget_stays_charged() {
    let (server, clock, plan) = (RedisServer::start().unwrap(), clock(), plan());
    let dead = Copy::start(&server, &clock, "dead").await;
    let living = Copy::start(&server, &clock, "living").await;
    let held = dead.reserve_all(1, &plan).await;
    assert_eq!(dead.settle(&held[0]).await, Settled::Applied);
    let own = living.reserve(10, &plan).await.unwrap();
    assert!(living.reserve(11, &plan).await.is_none());

    pass(&clock, DurationMs::new(SILENT.get() - EVERY.get()), &[&living]).await;
    assert!(living.reserve(12, &plan).await.is_none(), "not yet dead");
    assert_eq!(living.lives().await, 2);
    pass(&clock, EVERY, &[&living]).await;
    assert_eq!(living.lives().await, 1);
    assert_eq!(living.stand(&plan).await, [(1, 0), (30, 1), (1, 0)]);
    for id in 13..15 {
        living.reserve(id, &plan).await.unwrap();
    }
    assert!(living.reserve(15, &plan).await.is_none(), "each place is free once");
    assert_eq!(server.immortal_keys().unwrap(), [""; 0]);

    // What ends late was given back.
    assert_eq!(dead.settle(&held[1]).await, Settled::Applied);
    assert_eq!(dead.settle(&held[1]).await, Settled::Already);
    assert_eq!(living.stand(&plan).await, [(3, 0), (40, 2), (3, 0)]);
    assert_eq!(living.settle(&own).await, Settled::Applied);
    assert_eq!(living.stand(&plan).await, [(2, 0), (30, 3), (2, 0)]);
}

#[tokio::test]
async fn what_an_extension_takes_is_free_with_its_settlement_whatever_was_given_back_before() {
    let (server, clock) = (RedisServer::start().unwrap(), clock());
    let dead = Copy::start(&server, &clock, "dead").await;
    let other = Copy::start(&server, &clock, "other").await;
    for (first, charge) in [(1, 0), (2, 1)] {
        let open = entry("acme", &format!("open {first}"), Rule::Concurrent, 100, charge);
        let plan = Arc::new(Plan::new(vec![open]).unwrap());
        let held = dead.reserve(first, &plan).await.unwrap();
        let lives = dead.reserve(first + 10, &plan).await.unwrap();
        for held in [&held, &lives] {
            assert!(matches!(
                dead.store.extend(held, 1, &[Amount::new(1)]).await.unwrap(),
                Verdict::Admitted(_)
            ));
        }
        assert_eq!(dead.settle(&lives).await, Settled::Applied);
        assert_eq!(dead.stand(&plan).await, [(charge + 1, 0)]);
        if charge > 0 {
            pass(&clock, SILENT, &[&other]).await;
            assert_eq!(other.stand(&plan).await, [(1, 0)], "the place of the reservation is back");
        }
        assert_eq!(dead.settle(&held).await, Settled::Applied);
        assert_eq!(other.stand(&plan).await, [(0, 0)]);
    }
}

#[tokio::test]
async fn a_copy_that_starts_again_has_its_places_at_once() {
    let (server, clock, plan) = (RedisServer::start().unwrap(), clock(), plan());
    let before = Copy::start(&server, &clock, "one").await;
    let other = Copy::start(&server, &clock, "other").await;
    let of_other = other.reserve(10, &plan).await.unwrap();
    for id in 1..3 {
        before.reserve(id, &plan).await.unwrap();
    }
    drop(before);
    assert!(other.reserve(11, &plan).await.is_none());
    let after = Copy::start(&server, &clock, "one").await;
    assert_eq!(after.stand(&plan).await, [(1, 0), (30, 0), (1, 0)]);
    // Nobody gives them back once more, nor what it holds by now.
    let held = after.reserve(20, &plan).await.unwrap();
    pass(&clock, SILENT, &[&after, &other]).await;
    assert_eq!(after.stand(&plan).await, [(2, 0), (40, 0), (2, 0)]);
    for (copy, held) in [(&after, held), (&other, of_other)] {
        assert_eq!(copy.settle(&held).await, Settled::Applied);
    }
    assert_eq!(after.stand(&plan).await, [(0, 0), (20, 2), (0, 0)]);
}

#[tokio::test]
async fn two_processes_of_one_name_are_told_so_for_as_long_as_both_live() {
    let (server, clock) = (RedisServer::start().unwrap(), clock());
    let other = Copy::start(&server, &clock, "other").await;
    let before = Copy::start(&server, &clock, "one").await;
    // One that is started again is none.
    drop(before);
    let one = Copy::start(&server, &clock, "one").await;
    for _ in 0..2 {
        assert!(!one.is_named_twice().await);
    }
    let twin = Copy::start(&server, &clock, "one").await;
    // The one finds itself taken for dead, and goes on.
    for _ in 0..3 {
        clock.advance(EVERY);
        assert!(one.is_named_twice().await);
        assert!(twin.is_named_twice().await);
    }
    assert!(!other.is_named_twice().await);
    pass(&clock, SILENT, &[&one, &other]).await;
    assert!(!one.is_named_twice().await, "the twin is gone");
}

#[tokio::test]
async fn where_redis_was_away_for_all_nobody_is_dead() {
    let (server, clock, plan) = (RedisServer::start().unwrap(), clock(), plan());
    let one = Copy::start(&server, &clock, "one").await;
    let other = Copy::start(&server, &clock, "other").await;
    let held = one.reserve_all(1, &plan).await;
    for _ in 0..3 {
        clock.advance(DurationMs::new(10 * SILENT.get()));
        other.lives().await;
        assert!(other.reserve(10, &plan).await.is_none());
        one.lives().await;
    }
    pass(&clock, SILENT, &[&one, &other]).await;
    assert_eq!(one.stand(&plan).await, [(3, 0), (30, 0), (3, 0)]);
    for held in &held {
        assert_eq!(one.settle(held).await, Settled::Applied);
    }
    assert_eq!(one.stand(&plan).await, [(0, 0), (0, 3), (0, 0)]);
}

#[tokio::test]
async fn who_was_taken_for_dead_frees_no_place_that_it_took_later() {
    let (server, clock, plan) = (RedisServer::start().unwrap(), clock(), plan());
    let cut_off = Copy::start(&server, &clock, "cut off").await;
    let other = Copy::start(&server, &clock, "other").await;
    let before = cut_off.reserve_all(1, &plan).await;
    pass(&clock, SILENT, &[&other]).await;
    // It finds out, and goes on.
    cut_off.lives().await;
    cut_off.lives().await;
    cut_off.reserve_all(11, &plan).await;
    for held in &before {
        assert_eq!(cut_off.settle(held).await, Settled::Applied);
    }
    assert_eq!(cut_off.stand(&plan).await, [(3, 0), (30, 3), (3, 0)]);
    pass(&clock, SILENT, &[&cut_off, &other]).await;
    assert_eq!(cut_off.stand(&plan).await, [(3, 0), (30, 3), (3, 0)]);
    // Its later life ends as the one before.
    pass(&clock, SILENT, &[&other]).await;
    assert_eq!(other.stand(&plan).await, [(0, 0), (30, 3), (0, 0)]);
}

#[tokio::test]
async fn a_copy_that_redis_has_forgotten_keeps_its_places() {
    let (server, clock, plan) = (RedisServer::start().unwrap(), clock(), plan());
    let one = Copy::start(&server, &clock, "one").await;
    let other = Copy::start(&server, &clock, "other").await;
    one.reserve_all(1, &plan).await;
    // As a replica might not have heard of it that takes over.
    server.command(&["DEL", "toll*gate:lives"]).unwrap();
    pass(&clock, SILENT, &[&one, &other]).await;
    pass(&clock, SILENT, &[&one, &other]).await;
    assert_eq!(one.stand(&plan).await[0], (3, 0));
    pass(&clock, SILENT, &[&other]).await;
    assert_eq!(other.stand(&plan).await[0], (0, 0));
}

#[tokio::test]
async fn places_of_a_copy_that_died_before_redis_knew_it_are_found_later() {
    let (server, clock, plan) = (RedisServer::start().unwrap(), clock(), plan());
    let dead = Copy::start(&server, &clock, "dead").await;
    let other = Copy::start(&server, &clock, "other").await;
    pass(&clock, DurationMs::new(60_000), &[&dead, &other]).await;
    server.command(&["FLUSHALL"]).unwrap();
    dead.reserve_all(1, &plan).await;
    // It dies without a word.
    pass(&clock, SILENT, &[&other]).await;
    assert_eq!(other.stand(&plan).await[0], (3, 0), "not yet looked for");
    pass(&clock, SILENT, &[&other]).await;
    assert_eq!(other.stand(&plan).await, [(0, 0), (30, 0), (0, 0)]);
}

/// Of a life that Redis does not know what is young may be open: it has only begun, or is not heard of yet.
#[tokio::test]
async fn young_places_of_a_life_that_redis_does_not_know_are_kept() {
    let (server, clock, plan) = (RedisServer::start().unwrap(), clock(), plan());
    let unknown = Copy::start(&server, &clock, "unknown").await;
    let other = Copy::start(&server, &clock, "other").await;
    pass(&clock, DurationMs::new(60_000), &[&unknown, &other]).await;
    server.command(&["FLUSHALL"]).unwrap();
    unknown.reserve(1, &plan).await.unwrap();
    pass(&clock, DurationMs::new(35_000), &[&other]).await;
    for id in 2..4 {
        unknown.reserve(id, &plan).await.unwrap();
    }
    pass(&clock, DurationMs::new(15_000), &[&other]).await;
    assert_eq!(other.stand(&plan).await[0], (2, 0), "the old one was given back");
}

#[tokio::test]
async fn places_that_a_copy_took_before_it_knew_that_it_was_dead_are_found_later() {
    let (server, clock, plan) = (RedisServer::start().unwrap(), clock(), plan());
    let cut_off = Copy::start(&server, &clock, "cut off").await;
    let other = Copy::start(&server, &clock, "other").await;
    pass(&clock, DurationMs::new(60_000), &[&cut_off, &other]).await;
    cut_off.reserve(1, &plan).await.unwrap();
    pass(&clock, SILENT, &[&other]).await;
    assert_eq!(other.stand(&plan).await[0], (0, 0));
    cut_off.reserve_all(2, &plan).await;
    drop(cut_off);
    let again = Copy::start(&server, &clock, "cut off").await;
    let held = other.reserve(10, &plan).await;
    assert!(held.is_none());
    pass(&clock, DurationMs::new(50_000), &[&again, &other]).await;
    assert_eq!(other.stand(&plan).await[0], (0, 0));
}

#[tokio::test]
async fn what_cannot_be_read_stands_in_nobodys_way() {
    let (server, clock, plan) = (RedisServer::start().unwrap(), clock(), plan());
    let dead = Copy::start(&server, &clock, "dead").await;
    let other = Copy::start(&server, &clock, "other").await;
    dead.reserve_all(1, &plan).await;
    let broken = Arc::new(Plan::new(vec![entry("acme", "broken", Rule::Concurrent, 9, 1)]).unwrap());
    for id in 10..40 {
        let _ = dead.reserve(id, &broken).await;
    }
    server.command(&["DEL", "toll*gate:{acme}:c:broken"]).unwrap();
    server.command(&["HSET", "toll*gate:{acme}:c:broken", "not", "a counter"]).unwrap();
    server.command(&["HSET", "toll*gate:lives", "oops", "garbage"]).unwrap();
    server.command(&["SET", "toll*gate:{acme}:r:short", "H"]).unwrap();
    pass(&clock, SILENT, &[&other]).await;
    assert_eq!(other.stand(&plan).await[0], (0, 0));
}

#[tokio::test]
async fn a_place_beside_a_counter_that_cannot_be_read_is_given_back() {
    let (server, clock) = (RedisServer::start().unwrap(), clock());
    let dead = Copy::start(&server, &clock, "dead").await;
    let other = Copy::start(&server, &clock, "other").await;
    let places = [("acme", "broken"), ("acme", "hash"), ("acme", "whole")];
    let entries = places.map(|(tenant, name)| entry(tenant, name, Rule::Concurrent, 9, 1));
    let plan = Arc::new(Plan::new(entries.to_vec()).unwrap());
    dead.reserve_all(1, &plan).await;
    server.command(&["SET", "toll*gate:{acme}:c:broken", "not a counter"]).unwrap();
    server.command(&["DEL", "toll*gate:{acme}:c:hash"]).unwrap();
    server.command(&["HSET", "toll*gate:{acme}:c:hash", "no", "counter"]).unwrap();
    pass(&clock, SILENT, &[&other]).await;
    let whole = Plan::new(vec![plan.entries()[2].clone()]).unwrap();
    assert_eq!(other.stand(&whole).await, [(0, 0)]);
    assert_eq!(server.command(&["GET", "toll*gate:{acme}:c:broken"]).unwrap(), "not a counter");
}

#[tokio::test]
async fn a_store_that_says_nothing_of_its_life_keeps_its_places() {
    let (server, clock, plan) = (RedisServer::start().unwrap(), clock(), plan());
    let time = Arc::clone(&clock) as Arc<dyn Clock>;
    let store = RedisStore::connect_with_clock(&server.settings("toll*gate"), time).unwrap();
    store.connected().await.unwrap();
    let silent = Copy { store, name: "nobody".into() };
    silent.reserve_all(1, &plan).await;
    let other = Copy::start(&server, &clock, "other").await;
    pass(&clock, DurationMs::new(3 * SILENT.get()), &[&other]).await;
    assert_eq!(other.stand(&plan).await[0], (3, 0));
}

#[tokio::test]
async fn who_dies_while_it_gives_places_back_is_followed_by_another() {
    let (server, clock, plan) = (RedisServer::start().unwrap(), clock(), plan());
    let dead = Copy::start(&server, &clock, "dead").await;
    let one = Copy::start(&server, &clock, "one").await;
    let other = Copy::start(&server, &clock, "other").await;
    dead.reserve_all(1, &plan).await;
    // As if `one` had begun to give them back, and died.
    let claim = "for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do \
                 local value = redis.call('HGET', KEYS[1], name) \
                 if string.find(value, ' dead$') then \
                 redis.call('HSET', KEYS[1], name, (string.gsub(value, ' 0 ', ' ' .. ARGV[1] .. ' '))) end end";
    let now = clock.now().get().to_string();
    server.command(&["EVAL", claim, "1", "toll*gate:lives", &now]).unwrap();
    drop(one);
    pass(&clock, DurationMs::new(15_000), &[&other]).await;
    assert_eq!(other.stand(&plan).await[0], (3, 0), "that is not known yet");
    pass(&clock, DurationMs::new(60_000), &[&other]).await;
    assert_eq!(other.stand(&plan).await[0], (0, 0));
}

#[tokio::test]
async fn in_a_cluster_places_in_all_slots_come_back() {
    let (cluster, clock) = (RedisCluster::start(3).unwrap(), clock());
    let start = async |name: &str| {
        let clock = Arc::clone(&clock) as Arc<dyn Clock>;
        let store = RedisStore::connect_with_clock(&cluster.settings("tollgate"), clock).unwrap();
        Copy::with(store, name).await
    };
    let (dead, living) = (start("dead").await, start("living").await);
    let plans: Vec<_> = (0..20)
        .map(|tenant| {
            let open = |partition: &str| entry(partition, "open", Rule::Concurrent, 60, 1);
            Arc::new(Plan::new(vec![open(&format!("tenant {tenant}")), open("global")]).unwrap())
        })
        .collect();
    for (id, plan) in (0..).zip(plans.iter().chain(&plans)) {
        dead.reserve(id, plan).await.unwrap();
    }
    let own = living.reserve(1_000, &plans[0]).await.unwrap();
    pass(&clock, SILENT, &[&living]).await;
    for plan in &plans[1..] {
        assert_eq!(living.stand(plan).await, [(0, 0), (1, 0)]);
    }
    assert_eq!(living.settle(&own).await, Settled::Applied);
    assert_eq!(living.stand(&plans[0]).await, [(0, 0), (0, 0)]);
}

/// A call is refused by a second slot after its copy was taken for dead: what was given back does not go back again.
#[test]
fn in_a_cluster_what_was_given_back_is_not_taken_back_from_another() {
    let (cluster, clock) = (RedisCluster::start(3).unwrap(), clock());
    let new = || Builder::new_current_thread().enable_all().build().unwrap();
    let (slow, usual) = (new(), new());
    let connect = |name: &'static str| {
        let clock = Arc::clone(&clock) as Arc<dyn Clock>;
        let settings = Settings { timeout: Duration::from_secs(60), ..cluster.settings("tollgate") };
        async move { Copy::with(RedisStore::connect_with_clock(&settings, clock).unwrap(), name).await }
    };
    let (stopped, living) = (slow.block_on(connect("stopped")), usual.block_on(connect("living")));
    // A node for the lives, or any but the second step's; another one for that.
    let of_lives = cluster.primary_of("tollgate:{0}:lives").unwrap();
    let open = |partition: &str| entry(partition, "open", Rule::Concurrent, PLACES, 1);
    let node_of = |partition: &str| {
        usual.block_on(living.reserve(
            u128::MAX,
            &Arc::new(Plan::new(vec![entry(partition, "probe", Rule::Concurrent, 1, 1)]).unwrap()),
        ));
        let keys = cluster.keys().unwrap();
        let key = format!(":c:{}:{partition}:probe", partition.len());
        keys.iter().find(|(_, name)| name.ends_with(&key)).unwrap().0
    };
    let partitions: Vec<String> = (0..40).map(|number| format!("tenant {number}")).collect();
    let second = partitions.iter().find(|name| node_of(name) != of_lives).unwrap();
    let node = node_of(second);
    let first = partitions.iter().find(|name| node_of(name) != node).unwrap();
    let full = entry(second, "full", Rule::Concurrent, 0, 1);
    let both = Arc::new(Plan::new(vec![open(first), full]).unwrap());
    let alone = Arc::new(Plan::new(vec![open(first)]).unwrap());
    usual.block_on(living.reserve(1, &alone)).unwrap();

    let held = || usual.block_on(living.stand(&alone))[0].0;
    cluster.nodes()[node].freeze().unwrap();
    let mut call = Box::pin(stopped.reserve(2, &both));
    let step =
        async |call: &mut Pin<Box<_>>| tokio::time::timeout(Duration::from_millis(20), call).await.is_ok();
    while held() < 2 {
        assert!(!slow.block_on(step(&mut call)), "the second step has no answer");
    }
    cluster.nodes()[node].thaw().unwrap();
    usual.block_on(pass(&clock, SILENT, &[&living]));
    assert_eq!(held(), 1, "the place of the one that is dead");
    assert!(slow.block_on(call).is_none(), "the second slot refuses");
    assert_eq!(held(), 1, "that of the one that lives");
}
