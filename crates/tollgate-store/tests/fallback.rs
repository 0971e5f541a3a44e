//! What passes, waits and is counted while a shared store is away.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

use std::{
    future::Future,
    num::NonZeroU64,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use tollgate_limiter::{
    Amount, CounterKey, DurationMs, Enforcement, Entry, ExactAmount, Limit, Period, Plan, ReservationId,
    Rule, TimestampMs, Verdict,
};
use tollgate_store::{
    Attempt, Backlog, Clock, CounterView, FailurePolicy, FallbackStore, Fault, FaultyStore, Held, Left,
    ManualClock, MemoryStore, Settled, Store, StoreError, StoreFuture,
};

const START: TimestampMs = TimestampMs::new(1_795_996_800_000);
const MINUTE: Rule = Rule::SlidingWindow { window: DurationMs::new(60_000) };
const RETRY_MS: u64 = 5_000;

struct World {
    clock: Arc<ManualClock>,
    memory: Arc<MemoryStore>,
    faulty: Arc<FaultyStore>,
    store: FallbackStore,
}

impl World {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut FailurePolicy)) -> Self {
        let mut policy = FailurePolicy {
            retry: Duration::from_millis(RETRY_MS),
            local_share: NonZeroU64::new(3).unwrap(),
            closed: false,
            remembered: Duration::from_secs(540),
        };
        change(&mut policy);
        let clock = Arc::new(ManualClock::new(START));
        let memory = Arc::new(MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>));
        let faulty = Arc::new(FaultyStore::new(Arc::clone(&memory) as Arc<dyn Store>));
        let shared = Arc::clone(&faulty) as Arc<dyn Store>;
        let store = FallbackStore::new(shared, Arc::clone(&clock) as Arc<dyn Clock>, policy);
        Self { clock, memory, faulty, store }
    }

    fn advance(&self, ms: u64) {
        self.clock.advance(DurationMs::new(ms));
    }

    fn reserve(&self, id: u128, plan: &Arc<Plan>) -> Result<Verdict, StoreError> {
        now(self.store.reserve(ReservationId::new(id), Arc::clone(plan), Attempt::First))
    }

    fn held(&self, id: u128, plan: &Arc<Plan>) -> Option<Held> {
        match self.reserve(id, plan).unwrap() {
            Verdict::Admitted(admission) => {
                Some(Held { id: ReservationId::new(id), plan: Arc::clone(plan), at: admission.at })
            }
            Verdict::Refused(_) => None,
        }
    }

    fn settle(&self, held: &Held, used: &[u64]) -> Result<Settled, StoreError> {
        let used: Vec<_> = used.iter().copied().map(ExactAmount::whole).collect();
        now(self.store.settle(held, &used))
    }

    /// (spent, held) in the shared store itself.
    fn shared(&self, limit: &Arc<Limit>) -> (u64, u64) {
        let view = now(self.memory.inspect(&[Arc::clone(limit)])).unwrap().remove(0);
        (view.spent.units(), view.held.get())
    }
}

/// What a future says that waits for nothing.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("a store in memory answers at once"),
    }
}

fn limit(name: &str, rule: Rule, amount: u64, enforcement: Enforcement) -> Arc<Limit> {
    Arc::new(Limit { key: CounterKey::new("acme", name), rule, amount: Amount::new(amount), enforcement })
}

fn hard(name: &str, rule: Rule, amount: u64) -> Arc<Limit> {
    limit(name, rule, amount, Enforcement::Hard)
}

fn plan(entries: &[(&Arc<Limit>, u64)]) -> Arc<Plan> {
    let entry = |&(limit, charge): &(&Arc<Limit>, u64)| Entry {
        limit: Arc::clone(limit),
        charge: Amount::new(charge),
    };
    Arc::new(Plan::new(entries.iter().map(entry).collect()).unwrap())
}

fn is_admitted(verdict: &Result<Verdict, StoreError>) -> bool {
    matches!(verdict, Ok(Verdict::Admitted(_)))
}

#[test]
fn while_the_store_is_away_hard_budgets_are_refused_and_others_pass_under_local_limits() {
    for fault in [Fault::Refused, Fault::CallLost, Fault::AnswerLost] {
        let world = World::new();
        let (rate, usd) = (hard("rate", MINUTE, 30), hard("usd", Rule::Calendar(Period::Day), 1_000));
        world.faulty.set(fault);
        let verdict = world.reserve(1, &plan(&[(&rate, 1), (&usd, 1)]));
        assert!(verdict.is_err_and(|error| error.is_transient()), "{fault:?}");
        let of_rate = plan(&[(&rate, 1)]);
        let admitted = (2..30).filter(|id| is_admitted(&world.reserve(*id, &of_rate))).count();
        assert_eq!(admitted, 10, "a third of 30");
        assert!(!world.store.status().available);
    }
}

#[test]
fn c124_copies_without_their_store_admit_together_what_the_limit_is() {
    let rate = hard("rate", MINUTE, 30);
    let of_rate = plan(&[(&rate, 1)]);
    let admitted = |world: &World| (0..30).filter(|id| is_admitted(&world.reserve(*id, &of_rate))).count();
    let copies = [(); 3].map(|()| World::new());
    copies.iter().for_each(|world| world.faulty.set(Fault::Refused));
    assert_eq!(copies.iter().map(admitted).sum::<usize>(), 30);
}

#[test]
fn a_session_a_run_and_every_period_is_a_budget_and_no_rate_is() {
    let world = World::new();
    world.faulty.set(Fault::Refused);
    let idle = DurationMs::new(1_000);
    let budgets = [
        Rule::Calendar(Period::Minute),
        Rule::Calendar(Period::Total),
        Rule::Idle { after: idle },
        Rule::Elapsed { after: idle },
    ];
    for (id, rule) in (100..).zip(budgets) {
        assert!(world.reserve(1, &plan(&[(&hard("budget", rule, 10), 1)])).is_err(), "{rule:?}");
        assert!(is_admitted(&world.reserve(id, &plan(&[(&limit("soft", rule, 0, Enforcement::Soft), 5)]))));
    }
    let rates = [
        MINUTE,
        Rule::BucketedWindow { window: idle },
        Rule::TokenBucket { window: idle },
        Rule::Concurrent,
        Rule::PerRequest,
    ];
    for (id, rule) in (10..).zip(rates) {
        assert!(
            is_admitted(&world.reserve(id, &plan(&[(&hard(&format!("{rule:?}"), rule, 10), 1)]))),
            "{rule:?}"
        );
    }
}

#[test]
fn a_refusal_of_local_limits_names_the_entry_and_the_local_amount() {
    let world = World::new();
    world.faulty.set(Fault::Refused);
    let soft = limit("soft", Rule::Calendar(Period::Day), 5, Enforcement::Soft);
    let (rate, size) = (hard("rate", MINUTE, 9), hard("size", Rule::PerRequest, 7));
    let plan_of = |charge| plan(&[(&soft, 100), (&size, charge), (&rate, charge)]);
    let Ok(Verdict::Refused(refusal)) = world.reserve(1, &plan_of(4)) else {
        panic!("4 of a third of 9 pass")
    };
    assert_eq!((refusal.binding.index, refusal.binding.limit), (2, Amount::new(3)));
    let Ok(Verdict::Refused(refusal)) = world.reserve(2, &plan_of(8)) else { panic!("8 of 7 pass") };
    assert_eq!(refusal.refusing.iter().map(|entry| entry.index).collect::<Vec<_>>(), [1, 2]);
    let held = world.held(3, &plan_of(3)).unwrap();
    // What a budget is charged is nobody's, here and afterwards.
    world.settle(&held, &[100, 1, 1]).unwrap();
    world.faulty.set(Fault::None);
    assert_eq!(world.shared(&soft), (0, 0));
    assert!(world.held(4, &plan(&[(&rate, 2)])).is_some(), "what was not used is free again");
}

#[test]
fn one_call_in_five_seconds_finds_out_and_no_other_waits() {
    let world = World::new();
    let rate = hard("rate", MINUTE, 3_000);
    let of_rate = plan(&[(&rate, 1)]);
    world.faulty.set(Fault::CallLost);
    for tenth in 0..200 {
        assert!(is_admitted(&world.reserve(tenth, &of_rate)));
        world.advance(100);
    }
    assert_eq!(world.faulty.calls(), 4, "at 0, 5, 10 and 15 seconds");
    world.faulty.set(Fault::None);
    assert!(is_admitted(&world.reserve(1_000, &of_rate)));
    assert!(world.store.status().available);
    assert_eq!(world.store.status().outages, 1);
    assert_eq!(world.shared(&rate), (0, 1), "what passed meanwhile is not in it");
}

#[test]
fn settlements_wait_and_are_written_through_once() {
    for fault in [Fault::Refused, Fault::CallLost, Fault::AnswerLost] {
        let world = World::new();
        let usd = hard("usd", Rule::Calendar(Period::Day), 1_000);
        let held: Vec<_> = (0..5).map(|id| world.held(id, &plan(&[(&usd, 100)])).unwrap()).collect();
        world.faulty.set(fault);
        for held in &held {
            assert!(matches!(world.settle(held, &[30]), Err(StoreError::Deferred)));
        }
        assert_eq!(world.store.status().settlements_waiting, 5);
        // Every attempt while it is away ends with the first one, which the store may have had.
        world.advance(RETRY_MS);
        now(world.store.write_through());
        world.faulty.set(Fault::None);
        now(world.store.write_through());
        assert_eq!(world.store.status().settlements_waiting, 5, "not before the wait is over");
        world.advance(RETRY_MS);
        now(world.store.write_through());
        assert_eq!(world.store.status().settlements_waiting, 0);
        assert_eq!(world.shared(&usd), (150, 0), "{fault:?}");
        assert_eq!(world.store.status().settlements_lost, 0);
    }
}

#[test]
fn a_reservation_that_may_have_been_made_is_given_back() {
    for fault in [Fault::CallLost, Fault::AnswerLost] {
        let world = World::new();
        let rate = hard("rate", MINUTE, 30);
        world.faulty.set(fault);
        let held = world.held(1, &plan(&[(&rate, 6)])).unwrap();
        world.faulty.set(Fault::None);
        world.advance(RETRY_MS);
        now(world.store.write_through());
        assert_eq!(world.shared(&rate), (0, 0), "{fault:?}");
        // The call itself belongs to this copy's own limits.
        assert_eq!(world.settle(&held, &[2]).unwrap(), Settled::Applied);
        assert_eq!(world.shared(&rate), (0, 0));
    }
}

#[test]
fn what_the_store_may_have_forgotten_is_not_sent_twice() {
    let world = World::new();
    let usd = hard("usd", Rule::Calendar(Period::Day), 1_000);
    let [sent, not_sent] = [1, 2].map(|id| world.held(id, &plan(&[(&usd, 100)])).unwrap());
    world.faulty.set(Fault::AnswerLost);
    world.settle(&sent, &[30]).unwrap_err();
    world.settle(&not_sent, &[30]).unwrap_err();
    world.faulty.set(Fault::None);
    world.advance(600_000);
    now(world.store.write_through());
    assert_eq!((world.store.status().settlements_lost, world.store.waiting()), (0, 0));
    assert_eq!(world.shared(&usd), (60, 0), "the first was run when it was sent");
}

#[test]
fn an_end_does_not_wait_until_the_store_may_be_asked_again() {
    let world = World::new();
    let usd = hard("usd", Rule::Calendar(Period::Day), 1_000);
    let held = world.held(1, &plan(&[(&usd, 10)])).unwrap();
    world.faulty.set(Fault::Refused);
    assert!(matches!(world.settle(&held, &[3]), Err(StoreError::Deferred)));
    world.faulty.set(Fault::None);
    now(world.store.write_through());
    assert_eq!((world.shared(&usd), world.store.waiting()), ((0, 10), 1));
    now(world.store.write_through_now());
    assert_eq!((world.shared(&usd), world.store.waiting()), ((3, 0), 0));
}

/// One tenant's counter that somebody has overwritten: of its calls only local limits hold, and others are decided.
#[test]
fn what_cannot_be_read_is_no_outage_and_stops_only_hard_budgets() {
    let world = World::new();
    let (rate, usd) = (hard("rate", MINUTE, 30), hard("usd", Rule::Calendar(Period::Day), 1_000));
    let of_rate = plan(&[(&rate, 1)]);
    world.faulty.set(Fault::Spoilt);
    assert!(matches!(world.reserve(1, &plan(&[(&rate, 1), (&usd, 1)])), Err(StoreError::Corrupt(_))));
    let admitted = (2..30).filter(|id| is_admitted(&world.reserve(*id, &of_rate))).count();
    assert_eq!(admitted, 10, "a third of 30");
    assert!(world.store.status().available);
    world.faulty.set(Fault::None);
    assert!(world.held(30, &plan(&[(&usd, 1)])).is_some());
}

/// What is sent again to a store that may have lost it leaves half of the room to what it has not had.
#[test]
fn what_is_sent_again_does_not_crowd_out_what_waits() {
    let world = World::new();
    let usd = hard("usd", Rule::Calendar(Period::Day), u64::MAX >> 11);
    let of_usd = plan(&[(&usd, 1)]);
    for id in 0..40_000 {
        let held = world.held(id, &of_usd).unwrap();
        world.settle(&held, &[1]).unwrap();
    }
    let held = world.held(40_000, &of_usd).unwrap();
    world.store.send_again();
    assert_eq!(world.store.waiting(), 32_768);
    world.faulty.set(Fault::Refused);
    assert!(matches!(world.settle(&held, &[1]), Err(StoreError::Deferred)));
    assert_eq!((world.store.waiting(), world.store.status().settlements_lost), (32_769, 0));
}

/// A settlement that was lost on its way, and an outage of half a day: nothing stays held by a copy that lives.
#[test]
fn what_is_still_held_after_a_long_outage_is_settled() {
    let world = World::new();
    let usd = hard("usd", Rule::Calendar(Period::Month), 1_000);
    let held = world.held(1, &plan(&[(&usd, 100)])).unwrap();
    world.faulty.set(Fault::CallLost);
    world.settle(&held, &[30]).unwrap_err();
    world.faulty.set(Fault::None);
    world.advance(43_200_000);
    now(world.store.write_through());
    assert_eq!((world.shared(&usd), world.store.waiting()), ((30, 0), 0));
}

/// A store that has forgotten everything is told what was spent, of calls that wait too: those from before count in what
/// it is told, later ones by themselves.
#[test]
fn what_a_store_is_told_does_not_count_once_more() {
    let world = World::new();
    let usd = hard("usd", Rule::Calendar(Period::Day), 1_000);
    let entries = plan(&[(&usd, 100)]);
    let forgotten = |id| Held { id: ReservationId::new(id), plan: Arc::clone(&entries), at: START };
    world.faulty.set(Fault::Refused);
    for id in [1, 2] {
        world.advance(RETRY_MS);
        assert!(matches!(world.settle(&forgotten(id), &[30]), Err(StoreError::Deferred)));
        world.advance(1);
        if id == 1 {
            world.store.begin_telling();
        }
    }
    world.faulty.set(Fault::None);
    world.advance(RETRY_MS);
    now(world.store.write_through());
    assert_eq!((world.shared(&usd), world.store.waiting()), ((30, 0), 0), "the second");
    // Nor is it sent again after a failover.
    assert_eq!(world.store.send_again(), 1);
}

/// What a backlog has, as a file would: each once.
#[derive(Default)]
struct Kept {
    kept: Mutex<Vec<(Held, Vec<ExactAmount>)>>,
    /// Calls that did not wait.
    settled: Mutex<Vec<u128>>,
}

impl Kept {
    fn ids(&self) -> Vec<u128> {
        self.kept.lock().unwrap().iter().map(|(held, _)| held.id.get()).collect()
    }
}

impl Backlog for Kept {
    fn keep(&self, held: &Held, actuals: &[ExactAmount]) {
        let mut kept = self.kept.lock().unwrap();
        if kept.iter().all(|(other, _)| other.id != held.id) {
            kept.push((held.clone(), actuals.to_vec()));
        }
    }

    fn settled(&self, id: ReservationId) {
        self.settled.lock().unwrap().push(id.get());
    }

    fn written_through(&self, id: ReservationId) {
        self.kept.lock().unwrap().retain(|(held, _)| held.id != id);
    }
}

/// A process dies while settlements wait: the next one settles those that the store has not had, and no other.
#[test]
fn what_waits_when_a_process_dies_is_settled_by_the_next_one_where_it_is_still_held() {
    let world = World::new();
    let usd = hard("usd", Rule::Calendar(Period::Day), 1_000);
    let [lost, had, refused] = [1, 2, 3].map(|id| world.held(id, &plan(&[(&usd, 100)])).unwrap());
    let kept = Arc::new(Kept::default());
    world.store.keep_waiting_in(Arc::clone(&kept) as Arc<dyn Backlog>, Vec::new());
    for (held, fault) in [(&lost, Fault::CallLost), (&had, Fault::AnswerLost), (&refused, Fault::Refused)] {
        world.faulty.set(fault);
        world.advance(RETRY_MS);
        assert!(matches!(world.settle(held, &[30]), Err(StoreError::Deferred)));
    }
    assert_eq!(kept.ids(), [1, 2, 3]);
    assert_eq!(world.shared(&usd), (30, 200), "the second was run");

    world.faulty.set(Fault::None);
    let policy = FailurePolicy {
        retry: Duration::from_millis(RETRY_MS),
        local_share: NonZeroU64::MIN,
        closed: false,
        remembered: Duration::from_secs(540),
    };
    let shared = Arc::clone(&world.faulty) as Arc<dyn Store>;
    let next = FallbackStore::new(shared, Arc::clone(&world.clock) as Arc<dyn Clock>, policy);
    let left = |was_reserved| {
        let kept = kept.kept.lock().unwrap().clone();
        kept.into_iter().map(|(held, actuals)| Left { held, actuals, was_reserved }).collect::<Vec<_>>()
    };
    // It forgets none before it is settled.
    next.keep_waiting_in(Arc::clone(&kept) as Arc<dyn Backlog>, left(true));
    assert_eq!(kept.ids(), [1, 2, 3]);
    now(next.write_through());
    assert_eq!((world.shared(&usd), next.waiting(), kept.ids()), ((90, 0), 0, vec![]));

    // Of charges without a reservation only those are there that the store has had: all count once, until the store
    // would have forgotten them.
    let charge = |id| Held { id: ReservationId::new(id), plan: plan(&[(&usd, 10)]), at: world.clock.now() };
    let [had, lost] = [charge(4), charge(5)];
    now(world.memory.settle(&had, &[ExactAmount::whole(10)])).unwrap();
    for (minutes, spent) in [(0, 110), (10, 110)] {
        world.advance(minutes * 60_000);
        let charges = [had.clone(), lost.clone()].map(|held| Left {
            held,
            actuals: vec![ExactAmount::whole(10)],
            was_reserved: false,
        });
        let shared = Arc::clone(&world.faulty) as Arc<dyn Store>;
        let next = FallbackStore::new(shared, Arc::clone(&world.clock) as Arc<dyn Clock>, policy);
        next.keep_waiting_in(Arc::clone(&kept) as Arc<dyn Backlog>, charges.to_vec());
        now(next.write_through());
        assert_eq!((world.shared(&usd), next.waiting()), ((spent, 0), 0), "after {minutes} minutes");
    }
}

/// Whoever keeps a settlement before it is sent is told of each answer to it, and what is given back stays until the store
/// has had it, though its call has ended.
#[test]
fn a_settlement_is_kept_until_the_store_has_answered_to_it() {
    let world = World::new();
    let (rate, usd) = (hard("rate", MINUTE, 30), hard("usd", Rule::Calendar(Period::Day), 1_000));
    let kept = Arc::new(Kept::default());
    world.store.keep_waiting_in(Arc::clone(&kept) as Arc<dyn Backlog>, Vec::new());
    let [shared, late] = [1, 2].map(|id| world.held(id, &plan(&[(&usd, 100)])).unwrap());
    world.settle(&shared, &[30]).unwrap();

    // The first one may have been made, and its call goes on without the store, as does the second.
    world.faulty.set(Fault::AnswerLost);
    let local = [3, 4].map(|id| world.held(id, &plan(&[(&rate, 1)])).unwrap());
    local.iter().for_each(|held| drop(world.settle(held, &[1]).unwrap()));
    assert!(matches!(world.settle(&late, &[30]), Err(StoreError::Deferred)));
    assert_eq!((kept.settled.lock().unwrap().clone(), kept.ids()), (vec![1, 3, 4], vec![3, 2]));
    assert_eq!(world.shared(&rate), (0, 1));
    world.faulty.set(Fault::None);
    world.advance(RETRY_MS);
    now(world.store.write_through());
    assert_eq!((kept.ids(), world.shared(&usd), world.shared(&rate)), (vec![], (60, 0), (0, 0)));
}

#[test]
fn a_closed_policy_lets_nothing_pass() {
    let world = World::with(|policy| policy.closed = true);
    let rate = hard("rate", MINUTE, 30);
    world.faulty.set(Fault::Refused);
    assert!(world.reserve(1, &plan(&[(&rate, 1)])).is_err());
    assert!(matches!(world.reserve(2, &plan(&[(&rate, 1)])), Err(StoreError::Unavailable(_))));
    assert!(matches!(world.reserve(3, &plan(&[])), Err(StoreError::Unavailable(_))));
}

#[test]
fn an_extension_passes_unless_a_hard_budget_is_asked_for_it() {
    let world = World::new();
    let (rate, usd) = (hard("rate", MINUTE, 30), hard("usd", Rule::Calendar(Period::Day), 1_000));
    let cheap = world.held(1, &plan(&[(&rate, 1)])).unwrap();
    let dear = world.held(2, &plan(&[(&rate, 1), (&usd, 1)])).unwrap();
    world.faulty.set(Fault::Refused);
    let local = world.held(3, &plan(&[(&rate, 1)])).unwrap();
    assert!(is_admitted(&now(world.store.extend(&cheap, 1, &[Amount::new(1)]))));
    assert!(now(world.store.extend(&dear, 1, &[Amount::new(1); 2])).is_err());
    assert!(is_admitted(&now(world.store.extend(&local, 1, &[Amount::new(9)]))));
    assert!(!is_admitted(&now(world.store.extend(&local, 2, &[Amount::new(1)]))), "ten are its share");
}

/// A store that cannot settle what one partition has: what a slot of a cluster looks like that is moved.
struct Moving {
    memory: Arc<MemoryStore>,
    partition: Mutex<&'static str>,
}

impl Store for Moving {
    fn reserve(&self, id: ReservationId, plan: Arc<Plan>, attempt: Attempt) -> StoreFuture<'_, Verdict> {
        self.memory.reserve(id, plan, attempt)
    }

    fn extend(&self, held: &Held, step: u32, charges: &[Amount]) -> StoreFuture<'_, Verdict> {
        self.memory.extend(held, step, charges)
    }

    fn settle(&self, held: &Held, actuals: &[ExactAmount]) -> StoreFuture<'static, Settled> {
        let moving = *self.partition.lock().unwrap();
        if held.plan.entries().iter().any(|entry| entry.limit.key.partition() == moving) {
            return StoreFuture::ready(Err(StoreError::Unavailable("it is being moved".to_owned())));
        }
        self.memory.settle(held, actuals)
    }

    fn inspect(&self, limits: &[Arc<Limit>]) -> StoreFuture<'_, Vec<CounterView>> {
        self.memory.inspect(limits)
    }
}

/// A store that says that it has settled, and has forgotten it: what a replica that takes over looks like.
struct Forgetful {
    memory: Arc<MemoryStore>,
    forgets: AtomicBool,
}

impl Store for Forgetful {
    fn reserve(&self, id: ReservationId, plan: Arc<Plan>, attempt: Attempt) -> StoreFuture<'_, Verdict> {
        self.memory.reserve(id, plan, attempt)
    }

    fn extend(&self, held: &Held, step: u32, charges: &[Amount]) -> StoreFuture<'_, Verdict> {
        self.memory.extend(held, step, charges)
    }

    fn settle(&self, held: &Held, actuals: &[ExactAmount]) -> StoreFuture<'static, Settled> {
        if self.forgets.load(Ordering::SeqCst) {
            return StoreFuture::ready(Ok(Settled::Applied));
        }
        self.memory.settle(held, actuals)
    }

    fn inspect(&self, limits: &[Arc<Limit>]) -> StoreFuture<'_, Vec<CounterView>> {
        self.memory.inspect(limits)
    }
}

/// What waits for one partition does not hold up what waits for others.
#[test]
fn a_partition_that_cannot_be_settled_at_the_moment_holds_up_no_other() {
    let World { clock, memory, .. } = World::new();
    let shared = Arc::new(Moving { memory: Arc::clone(&memory), partition: Mutex::new("acme") });
    let policy = FailurePolicy {
        retry: Duration::from_millis(RETRY_MS),
        local_share: NonZeroU64::MIN,
        closed: false,
        remembered: Duration::from_secs(540),
    };
    let store = FallbackStore::new(Arc::clone(&shared) as Arc<dyn Store>, Arc::clone(&clock) as _, policy);
    let usd = |partition: &str| {
        Arc::new(Limit {
            key: CounterKey::new(partition, "usd"),
            ..(*hard("", Rule::Concurrent, 1_000)).clone()
        })
    };
    let (acme, other) = (usd("acme"), usd("other"));
    let settle = |id: u128, limit: &Arc<Limit>| {
        let (id, plan) = (ReservationId::new(id), plan(&[(limit, 1)]));
        now(store.reserve(id, Arc::clone(&plan), Attempt::First)).unwrap();
        now(store.settle(&Held { id, plan, at: START }, &[ExactAmount::whole(1)]))
    };
    (0..300).for_each(|id| assert!(matches!(settle(id, &acme), Err(StoreError::Deferred))));
    *shared.partition.lock().unwrap() = "other";
    assert!(matches!(settle(300, &other), Err(StoreError::Deferred)));
    *shared.partition.lock().unwrap() = "acme";
    assert!(store.status().available, "no outage");
    (0..2).for_each(|_| now(store.write_through()));
    let held = |limit: &Arc<Limit>| now(memory.inspect(&[Arc::clone(limit)])).unwrap()[0].held.get();
    assert_eq!((held(&acme), held(&other), store.waiting()), (300, 0, 300));
    *shared.partition.lock().unwrap() = "";
    now(store.write_through());
    assert_eq!((held(&acme), store.waiting()), (0, 0));
}

#[test]
fn settlements_are_sent_again_and_those_that_were_not_lost_change_nothing() {
    let World { clock, memory, .. } = World::new();
    let shared = Arc::new(Forgetful { memory: Arc::clone(&memory), forgets: AtomicBool::new(false) });
    let policy = FailurePolicy {
        retry: Duration::from_millis(RETRY_MS),
        local_share: NonZeroU64::MIN,
        closed: false,
        remembered: Duration::from_secs(540),
    };
    let store = FallbackStore::new(Arc::clone(&shared) as Arc<dyn Store>, Arc::clone(&clock) as _, policy);
    let usd = hard("usd", Rule::Calendar(Period::Day), 1_000);
    let spend = |id| {
        let (id, plan) = (ReservationId::new(id), plan(&[(&usd, 10)]));
        let Verdict::Admitted(admission) = now(store.reserve(id, Arc::clone(&plan), Attempt::First)).unwrap()
        else {
            panic!("it fits")
        };
        let held = Held { id, plan, at: admission.at };
        now(store.settle(&held, &[ExactAmount::whole(3)])).unwrap();
    };
    let stands = || {
        let view = now(memory.inspect(&[Arc::clone(&usd)])).unwrap().remove(0);
        (view.spent.units(), view.held.get())
    };
    // Too old to be lost with what a replica lacks.
    spend(1);
    clock.advance(DurationMs::new(61_000));
    spend(2);
    store.forget_old();
    shared.forgets.store(true, Ordering::SeqCst);
    spend(3);
    shared.forgets.store(false, Ordering::SeqCst);
    // Nobody sees for two minutes who answers. Somebody new does then, and calls go on.
    clock.advance(DurationMs::new(120_000));
    assert_eq!(stands(), (6, 10));
    assert_eq!(store.send_again(), 2);
    now(store.write_through());
    assert_eq!((stands(), store.repaired(), store.waiting()), ((9, 0), 1, 0));
    // And again, should the next server lack them.
    assert_eq!(store.send_again(), 2);
    now(store.write_through());
    assert_eq!((stands(), store.repaired()), ((9, 0), 1));
}
