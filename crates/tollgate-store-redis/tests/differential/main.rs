//! Random histories on Redis and in the limiter's ledger, on one clock: every answer is the same, and after
//! every step every counter.
//!
//! `TOLLGATE_REDIS_HISTORIES` tries more of them than the usual ones.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

mod history;

use std::{
    collections::HashMap,
    env,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use proptest::{
    prelude::*,
    sample::Index,
    test_runner::{Config, TestRunner},
};
use tollgate_limiter::{Amount, ExactAmount, Ledger, Limit, Plan, ReservationId, TimestampMs, Verdict};
use tollgate_store::{Attempt, Clock, Held, ManualClock, Store, StoreError};
use tollgate_store_redis::{
    RedisStore, Settings,
    testing::{RedisCluster, RedisServer},
};

use history::{Call, History};

/// A Monday, in the middle of a minute.
const START: TimestampMs = TimestampMs::new(1_795_996_823_456);

struct Redis<'a> {
    /// How to reach it under a prefix.
    settings: Box<dyn Fn(&str) -> Settings + 'a>,
    /// Of one thread, so that calls go in the order in which they are made.
    runtime: tokio::runtime::Runtime,
    histories: AtomicU64,
}

/// One history, on both sides.
struct Pair<'a> {
    redis: &'a Redis<'a>,
    clock: Arc<ManualClock>,
    store: RedisStore,
    ledger: Ledger,
    limits: Vec<Arc<Limit>>,
    held: HashMap<u128, Held>,
}

impl<'a> Redis<'a> {
    fn new(settings: impl Fn(&str) -> Settings + 'a) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Self { settings: Box::new(settings), runtime: runtime.unwrap(), histories: AtomicU64::new(0) }
    }

    /// Has the server know all scripts: a call whose script it does not know is sent again, behind calls that came after.
    fn warm_up(&self) {
        let Pair { store, clock, .. } = self.pair(Vec::new());
        let plan = Arc::new(Plan::default());
        let reserve = |id: u128| {
            let (store, plan) = (store.clone(), Arc::clone(&plan));
            async move { store.reserve(ReservationId::new(id), plan, Attempt::First).await }
        };
        let settle = |id: u128| {
            store.settle(&Held { id: ReservationId::new(id), plan: Arc::clone(&plan), at: clock.now() }, &[])
        };
        self.runtime.block_on(async {
            for ids in [0..1, 1..4] {
                let calls: Vec<_> = ids.clone().map(|id| tokio::spawn(reserve(id))).collect();
                for call in calls {
                    call.await.unwrap().unwrap();
                }
                let calls: Vec<_> = ids.map(|id| tokio::spawn(settle(id))).collect();
                for call in calls {
                    call.await.unwrap().unwrap();
                }
            }
        });
    }

    /// A new pair, under a prefix that no other has.
    fn pair(&self, limits: Vec<Arc<Limit>>) -> Pair<'_> {
        let clock = Arc::new(ManualClock::new(START));
        let number = self.histories.fetch_add(1, Ordering::SeqCst);
        // A call that is repeated because the machine stood still keeps its refusal, which the ledger does not.
        let timeout = Duration::from_secs(60);
        let settings = Settings { timeout, ..(self.settings)(&format!("history{number}")) };
        let _inside = self.runtime.enter();
        let store = RedisStore::connect_with_clock(&settings, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
        self.runtime.block_on(store.connected()).unwrap();
        Pair { redis: self, clock, store, ledger: Ledger::new(), limits, held: HashMap::new() }
    }
}

impl Pair<'_> {
    /// Makes calls of one kind on both sides, in Redis all together, and compares.
    fn calls(&mut self, calls: &[Call], plans: &[Arc<Plan>]) -> Result<(), TestCaseError> {
        let of_plan = |plan: &Index| &plans[plan.index(plans.len())];
        let (mut reserves, mut settles) = (Vec::new(), Vec::new());
        let (now, mut held) = (self.clock.now(), HashMap::new());
        for call in calls {
            match call {
                Call::Reserve { id, plan, attempt } => {
                    let (plan, reservation) = (Arc::clone(of_plan(plan)), ReservationId::new(*id));
                    let expected = self.ledger.reserve(now, reservation, Arc::clone(&plan), *attempt);
                    if let Ok(Verdict::Admitted(admission)) = &expected {
                        let plan = Arc::clone(&plan);
                        held.insert(*id, Held { id: reservation, plan, at: admission.at });
                    }
                    let (store, attempt) = (self.store.clone(), *attempt);
                    let answer = async move { store.reserve(reservation, plan, attempt).await };
                    reserves.push((expected, self.redis.runtime.spawn(answer)));
                }
                Call::Settle { id, plan, actuals } => {
                    let held = self.held(*id, of_plan(plan));
                    let actuals = exact(actuals, &held.plan);
                    let expected = self.ledger.settle(now, &held, &actuals);
                    settles.push((expected, self.redis.runtime.spawn(self.store.settle(&held, &actuals))));
                }
                _ => unreachable!("what cannot be batched is called by itself"),
            }
        }
        // None has begun: they become ready together.
        for (expected, answer) in reserves {
            same(expected, self.run(answer).unwrap())?;
        }
        for (expected, answer) in settles {
            same(expected, self.run(answer).unwrap())?;
        }
        self.held.extend(held);
        self.compare_counters()
    }

    /// Makes one call on both sides and compares.
    fn call(&mut self, call: &Call, plans: &[Arc<Plan>]) -> Result<(), TestCaseError> {
        match call {
            Call::Reserve { id, plan, attempt } => {
                let (id, plan) = (*id, Arc::clone(&plans[plan.index(plans.len())]));
                let (now, reservation) = (self.clock.now(), ReservationId::new(id));
                let expected = self.ledger.reserve(now, reservation, Arc::clone(&plan), *attempt);
                let answer = self.run(self.store.reserve(reservation, Arc::clone(&plan), *attempt));
                if let Ok(Verdict::Admitted(admission)) = &expected {
                    self.held.insert(id, Held { id: reservation, plan, at: admission.at });
                }
                same(expected, answer)?;
            }
            Call::Extend { id, plan, step, charges } => {
                let held = self.held(*id, &plans[plan.index(plans.len())]);
                let charges: Vec<_> = charges.iter().take(held.plan.entries().len()).copied().collect();
                let charges: Vec<_> = charges.into_iter().map(Amount::new).collect();
                let expected = self.ledger.extend(self.clock.now(), &held, *step, &charges);
                same(expected, self.run(self.store.extend(&held, *step, &charges)))?;
            }
            Call::Settle { id, plan, actuals } => {
                let held = self.held(*id, &plans[plan.index(plans.len())]);
                let actuals = exact(actuals, &held.plan);
                let expected = self.ledger.settle(self.clock.now(), &held, &actuals);
                same(expected, self.run(self.store.settle(&held, &actuals)))?;
            }
            Call::Wait { ms } => self.clock.advance(tollgate_limiter::DurationMs::new(*ms)),
            Call::SetBack { ms } => {
                let back = self.clock.now().get().saturating_sub(*ms);
                self.clock.set(TimestampMs::new(back));
            }
        }
        self.compare_counters()
    }

    fn compare_counters(&mut self) -> Result<(), TestCaseError> {
        let expected = self.ledger.inspect(self.clock.now(), &self.limits);
        prop_assert_eq!(self.run(self.store.inspect(&self.limits)).unwrap(), expected);
        Ok(())
    }

    /// The reservation as it was admitted, or one that nobody knows of.
    fn held(&self, id: u128, plan: &Arc<Plan>) -> Held {
        let lost = || Held { id: ReservationId::new(id), plan: Arc::clone(plan), at: self.clock.now() };
        self.held.get(&id).cloned().unwrap_or_else(lost)
    }

    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.redis.runtime.block_on(future)
    }
}

/// As many amounts, in millionths, as the plan has entries.
fn exact(actuals: &[u64], plan: &Plan) -> Vec<ExactAmount> {
    let of_plan = actuals.iter().take(plan.entries().len());
    of_plan.map(|all| ExactAmount::from_millionths((*all).into())).collect()
}

/// Both answers are the same, refused calls in their words too.
fn same<T: PartialEq + std::fmt::Debug>(
    expected: Result<T, tollgate_limiter::LedgerError>,
    answer: Result<T, StoreError>,
) -> Result<(), TestCaseError> {
    let expected = expected.map_err(|error| StoreError::from(error).to_string());
    prop_assert_eq!(answer.map_err(|error| error.to_string()), expected);
    Ok(())
}

#[test]
fn redis_and_the_ledger_answer_and_count_the_same() {
    let server = RedisServer::start().unwrap();
    compare(&Redis::new(|prefix| server.settings(prefix)), 96, one_by_one);
    assert_eq!(server.immortal_keys().unwrap(), [""; 0]);
}

/// Calls that one command runs.
#[test]
fn calls_in_one_command_answer_and_count_as_one_after_the_other() {
    let server = RedisServer::start().unwrap();
    compare(&Redis::new(|prefix| server.settings(prefix)), 96, together);
    assert_eq!(server.immortal_keys().unwrap(), [""; 0]);
}

/// Plans over one to three slots of three nodes.
#[test]
fn c125_a_redis_cluster_and_the_ledger_answer_and_count_the_same() {
    let cluster = RedisCluster::start(3).unwrap();
    compare(&Redis::new(|prefix| cluster.settings(prefix)), 24, one_by_one);
    for node in cluster.nodes() {
        assert_eq!(node.immortal_keys().unwrap(), [""; 0]);
    }
}

fn one_by_one(pair: &mut Pair<'_>, calls: &[Call], plans: &[Arc<Plan>]) -> Result<(), TestCaseError> {
    calls.iter().try_for_each(|call| pair.call(call, plans))
}

/// Makes those together that are of one kind and follow one another.
fn together(pair: &mut Pair<'_>, calls: &[Call], plans: &[Arc<Plan>]) -> Result<(), TestCaseError> {
    let is_alike = |one: &Call, other: &Call| {
        matches!(
            (one, other),
            (Call::Reserve { .. }, Call::Reserve { .. }) | (Call::Settle { .. }, Call::Settle { .. })
        )
    };
    calls.chunk_by(is_alike).try_for_each(|calls| match calls {
        [Call::Reserve { .. } | Call::Settle { .. }, _, ..] => pair.calls(calls, plans),
        _ => one_by_one(pair, calls, plans),
    })
}

/// Makes a history, and compares after each step.
type Make = fn(&mut Pair<'_>, &[Call], &[Arc<Plan>]) -> Result<(), TestCaseError>;

fn compare(redis: &Redis<'_>, usual: u32, make: Make) {
    let cases = env::var("TOLLGATE_REDIS_HISTORIES").ok().and_then(|cases| cases.parse().ok());
    redis.warm_up();
    let config = Config { cases: cases.unwrap_or(usual), failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&history::histories(), |History { limits, plans, calls }| {
        let mut pair = redis.pair(limits);
        make(&mut pair, &calls, &plans)
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
