//! Settlements that wait for the store, and those that it may have lost.

use super::*;

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
fn what_the_store_may_have_forgotten_is_not_sent_twice() {
    for fault in [Fault::AnswerLost, Fault::Partly] {
        let world = World::new();
        let usd = hard("usd", Rule::Calendar(Period::Day), 1_000);
        let [sent, not_sent] = [1, 2].map(|id| world.held(id, &plan(&[(&usd, 100)])).unwrap());
        world.faulty.set(fault);
        world.settle(&sent, &[30]).unwrap_err();
        // An outage begins with the first, a part that cannot be done at the moment is none.
        world.faulty.set(Fault::Refused);
        world.settle(&not_sent, &[30]).unwrap_err();
        world.faulty.set(Fault::None);
        world.advance(600_000);
        now(world.store.write_through());
        assert_eq!((world.store.status().settlements_lost, world.store.waiting()), (0, 0));
        assert_eq!(world.shared(&usd), (60, 0), "the first was run when it was sent");
    }
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
    assert_eq!(world.store.send_again().settlements, 40_000);
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
/// it is told, and so do later ones that are among it. The others count by themselves.
#[test]
fn what_a_store_is_told_does_not_count_once_more() {
    let world = World::new();
    let usd = hard("usd", Rule::Calendar(Period::Day), 1_000);
    let entries = plan(&[(&usd, 100)]);
    let forgotten = |id| Held { id: ReservationId::new(id), plan: Arc::clone(&entries), at: START };
    world.faulty.set(Fault::Refused);
    for id in [1, 2, 3] {
        world.advance(RETRY_MS);
        assert!(matches!(world.settle(&forgotten(id), &[30]), Err(StoreError::Deferred)));
        world.advance(1);
        if id == 1 {
            world.store.begin_telling();
        }
    }
    let told = world.store.told(|call| call != ReservationId::new(2), Duration::ZERO);
    assert_eq!(told.iter().map(|(held, _)| held.id.get()).collect::<Vec<_>>(), [1, 3]);
    world.faulty.set(Fault::None);
    world.advance(RETRY_MS);
    now(world.store.write_through());
    assert_eq!((world.shared(&usd), world.store.waiting()), ((30, 0), 0), "the second");
    // Nor is it sent again after a failover.
    assert_eq!(world.store.send_again().settlements, 1);
}

/// What was admitted before a store had forgotten everything is not held there any more.
#[test]
fn what_was_admitted_before_a_telling_may_not_be_held() {
    let world = World::new();
    let of_usd = plan(&[(&hard("usd", Rule::Calendar(Period::Day), 1_000), 100)]);
    let before = world.held(1, &of_usd).unwrap();
    assert!(world.store.may_hold(&before));
    world.advance(1);
    world.store.begin_telling();
    let after = world.held(2, &of_usd).unwrap();
    assert!(!world.store.may_hold(&before) && world.store.may_hold(&after));
}

/// Of what the store has taken those are told that were taken late enough.
#[test]
fn what_a_store_has_taken_is_told_from_a_moment_on() {
    let world = World::new();
    let usd = hard("usd", Rule::Calendar(Period::Day), 1_000);
    for id in 0..4 {
        let held = world.held(id, &plan(&[(&usd, 1)])).unwrap();
        world.settle(&held, &[1]).unwrap();
        world.advance(1_000);
    }
    let since = world.clock.elapsed() - Duration::from_millis(3_000);
    let told = world.store.told(|call| call != ReservationId::new(2), since);
    assert_eq!(told.iter().map(|(held, _)| held.id.get()).collect::<Vec<_>>(), [1, 3]);
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
fn what_waits_when_a_process_dies_is_settled_once_by_the_next_one() {
    let world = World::new();
    let usd = hard("usd", Rule::Calendar(Period::Day), 1_000);
    let [lost, had, refused] = [1, 2, 3].map(|id| world.held(id, &plan(&[(&usd, 100)])).unwrap());
    let kept = Arc::new(Kept::default());
    world.store.keep_waiting_in(Arc::clone(&kept) as Arc<dyn Backlog>, Vec::new(), None);
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
    let left = kept.kept.lock().unwrap().clone();
    let left = left.into_iter().map(|(held, actuals)| Left { held, actuals, ended: world.clock.now() });
    // It forgets none before it is settled.
    next.keep_waiting_in(Arc::clone(&kept) as Arc<dyn Backlog>, left.collect(), None);
    assert_eq!(kept.ids(), [1, 2, 3]);
    now(next.write_through());
    assert_eq!((world.shared(&usd), next.waiting(), kept.ids()), ((90, 0), 0, vec![]));

    // Of what is not held only that is there that the store has had. All count once, until the store would have forgotten
    // them, at the start of the next process or when it comes to send them; but for those that it was told of.
    let charge = |id| Held { id: ReservationId::new(id), plan: plan(&[(&usd, 10)]), at: world.clock.now() };
    let [had, lost] = [charge(4), charge(5)];
    now(world.memory.settle(&had, &[ExactAmount::whole(10)])).unwrap();
    let cases = [(0, 0, 120), (9, 0, 120), (0, 9, 120), (4, 4, 130)];
    for (number, (before, after, spent)) in (6..).zip(cases) {
        let charges = [had.clone(), lost.clone(), charge(number), charge(100 + number)];
        let told = world.clock.now();
        world.advance(before * 60_000);
        let charges = charges.map(|held| {
            let was_told = held.id.get() > 100;
            let ended = if was_told { TimestampMs::new(told.get() - 1) } else { held.at.max(told) };
            Left { held, actuals: vec![ExactAmount::whole(10)], ended }
        });
        let shared = Arc::clone(&world.faulty) as Arc<dyn Store>;
        let next = FallbackStore::new(shared, Arc::clone(&world.clock) as Arc<dyn Clock>, policy);
        next.keep_waiting_in(Arc::clone(&kept) as Arc<dyn Backlog>, charges.to_vec(), Some(told));
        world.advance(after * 60_000);
        now(next.write_through());
        let case = format!("started after {before} minutes, sent after {after} more");
        assert_eq!((world.shared(&usd), next.waiting()), ((spent, 0), 0), "{case}");
    }
}

/// Whoever keeps a settlement before it is sent is told of each answer to it, and what is given back stays until the store
/// has had it, though its call has ended.
#[test]
fn a_settlement_is_kept_until_the_store_has_answered_to_it() {
    let world = World::new();
    let (rate, usd) = (hard("rate", MINUTE, 30), hard("usd", Rule::Calendar(Period::Day), 1_000));
    let kept = Arc::new(Kept::default());
    world.store.keep_waiting_in(Arc::clone(&kept) as Arc<dyn Backlog>, Vec::new(), None);
    let [shared, late] = [1, 2].map(|id| world.held(id, &plan(&[(&usd, 100)])).unwrap());
    world.settle(&shared, &[30]).unwrap();

    // The first one may have been made, and its call goes on without the store, as does the second.
    world.faulty.set(Fault::AnswerLost);
    let local = [3, 4].map(|id| world.held(id, &plan(&[(&rate, 1)])).unwrap());
    for held in &local {
        world.settle(held, &[1]).unwrap();
    }
    assert!(matches!(world.settle(&late, &[30]), Err(StoreError::Deferred)));
    assert_eq!((kept.settled.lock().unwrap().clone(), kept.ids()), (vec![1, 3, 4], vec![3, 2]));
    assert_eq!(world.shared(&rate), (0, 1));
    world.faulty.set(Fault::None);
    world.advance(RETRY_MS);
    now(world.store.write_through());
    assert_eq!((kept.ids(), world.shared(&usd), world.shared(&rate)), (vec![], (60, 0), (0, 0)));
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

    fn settle_held(&self, held: &Held, actuals: &[ExactAmount]) -> StoreFuture<'static, Settled> {
        self.memory.settle_held(held, actuals)
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
    assert_eq!(store.send_again(), SentAgain { settlements: 2, too_old: 0 });
    now(store.write_through());
    assert_eq!((stands(), store.repaired(), store.waiting()), ((9, 0), 1, 0));
    // And again, should the next server lack them.
    assert_eq!(store.send_again(), SentAgain { settlements: 2, too_old: 0 });
    now(store.write_through());
    assert_eq!((stands(), store.repaired()), ((9, 0), 1));
    // After so long nobody would know whether the store has had what is not held any more.
    shared.forgets.store(true, Ordering::SeqCst);
    spend(4);
    shared.forgets.store(false, Ordering::SeqCst);
    clock.advance(DurationMs::new(539_999));
    spend(5);
    clock.advance(DurationMs::new(1));
    assert_eq!(store.send_again(), SentAgain { settlements: 4, too_old: 3 });
    now(store.write_through());
    assert_eq!((stands(), store.repaired(), store.waiting()), ((15, 0), 2, 0));
}
