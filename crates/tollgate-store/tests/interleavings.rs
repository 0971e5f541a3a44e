//! The memory store under eight threads, in orders that a scheduler picks.
//!
//!     cargo test -p tollgate-store --features shuttle --test interleavings
//!
//! A failing schedule is printed, and `shuttle::replay` runs it again. A deadlock is a failure.

#![expect(
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

use std::sync::Arc;

use shuttle::{
    Config, Runner,
    scheduler::{PctScheduler, RandomScheduler},
    sync::atomic::{AtomicU64, Ordering},
    thread,
};
use tollgate_limiter::{
    Amount, CounterKey, DurationMs, Enforcement, Entry, ExactAmount, Limit, Period, Plan, ReservationId,
    Rule, TimestampMs, Verdict,
};
use tollgate_store::{Attempt, Clock, Held, ManualClock, MemoryStore, Settled, Store};

const THREADS: usize = 8;
const SCHEDULES: usize = 2_000;
/// How many changes of thread a schedule with priorities makes.
const DEPTH: usize = 4;
/// A store is made on such a stack: all of its shards lie in one value.
const STACK_BYTES: usize = 1 << 18;

/// Random schedules, and schedules by priorities that change at few places.
fn explore(test: fn()) {
    let config = || {
        let mut config = Config::new();
        config.stack_size = STACK_BYTES;
        config
    };
    Runner::new(RandomScheduler::new(SCHEDULES), config()).run(test);
    Runner::new(PctScheduler::new(DEPTH, SCHEDULES), config()).run(test);
}

fn store() -> Arc<MemoryStore> {
    let clock = Arc::new(ManualClock::new(TimestampMs::new(1_000_000)));
    Arc::new(MemoryStore::new(clock as Arc<dyn Clock>))
}

fn limit(partition: u64, rule: Rule, amount: u64) -> Arc<Limit> {
    let key = CounterKey::new(format!("partition {partition}"), format!("{rule:?}"));
    Arc::new(Limit { key, rule, amount: Amount::new(amount), enforcement: Enforcement::Hard })
}

fn reserve(store: &MemoryStore, id: usize, entries: &[(&Arc<Limit>, u64)]) -> Option<Held> {
    let entry = |&(limit, charge): &(&Arc<Limit>, u64)| Entry {
        limit: Arc::clone(limit),
        charge: Amount::new(charge),
    };
    let plan = Arc::new(Plan::new(entries.iter().map(entry).collect()).unwrap());
    let id = ReservationId::new(id as u128);
    match store.reserve(id, Arc::clone(&plan), Attempt::First).now_or_later().unwrap().unwrap() {
        Verdict::Admitted(admission) => Some(Held { id, plan, at: admission.at }),
        Verdict::Refused(_) => None,
    }
}

fn settle(store: &MemoryStore, held: &Held, used: u64) -> Settled {
    let actuals = vec![ExactAmount::whole(used); held.plan.entries().len()];
    store.settle(held, &actuals).now_or_later().unwrap().unwrap()
}

fn stands(store: &MemoryStore, limit: &Arc<Limit>) -> (u64, u64) {
    let views = store.inspect(&[Arc::clone(limit)]).now_or_later().unwrap().unwrap();
    (views[0].spent.units(), views[0].held.get())
}

fn together(work: impl Fn(usize) + Clone + Send + Sync + 'static) {
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let work = work.clone();
            thread::spawn(move || work(number))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Eight ask, five fit: whoever comes first, exactly five pass.
#[test]
fn exactly_as_many_as_fit_are_admitted_in_any_order() {
    explore(|| {
        let store = store();
        let requests = limit(0, Rule::SlidingWindow { window: DurationMs::new(60_000) }, 5);
        let open = limit(1, Rule::Concurrent, 6);
        let admitted = Arc::new(AtomicU64::new(0));
        let (asked, passed) = (Arc::clone(&store), Arc::clone(&admitted));
        let limits = [Arc::clone(&requests), Arc::clone(&open)];
        together(move |number| {
            if reserve(&asked, number, &[(&limits[0], 1), (&limits[1], 1)]).is_some() {
                passed.fetch_add(1, Ordering::SeqCst);
            }
        });
        assert_eq!(admitted.load(Ordering::SeqCst), 5);
        assert_eq!((stands(&store, &requests), stands(&store, &open)), ((0, 5), (0, 5)));
    });
}

/// Each over two of three partitions, in another order: nobody waits for ever, no unit is lost.
#[test]
fn what_is_spent_is_what_was_settled_in_any_order() {
    explore(|| {
        let store = store();
        let limits: Arc<[_]> = (0..3).map(|place| limit(place, Rule::Calendar(Period::Day), 1_000)).collect();
        let (shared, used) = (Arc::clone(&limits), Arc::clone(&store));
        together(move |number| {
            let (first, second) = (number % 3, (number + 1 + number % 2) % 3);
            let entries = [(&shared[first], 7), (&shared[second], 7)];
            let held = reserve(&used, number, &entries).unwrap();
            if number % 2 == 0 {
                let more = used.extend(&held, 1, &[Amount::new(3); 2]).now_or_later().unwrap().unwrap();
                assert!(matches!(more, Verdict::Admitted(_)));
            }
            assert_eq!(settle(&used, &held, number as u64), Settled::Applied);
        });
        let spent = (0..THREADS).fold([0; 3], |mut spent, number| {
            spent[number % 3] += number as u64;
            spent[(number + 1 + number % 2) % 3] += number as u64;
            spent
        });
        assert_eq!([0, 1, 2].map(|place| stands(&store, &limits[place])), spent.map(|spent| (spent, 0)));
        assert_eq!(store.open_reservations(), 0);
    });
}

/// One id from all threads: reserved once, settled once.
#[test]
fn one_id_is_charged_and_settled_once_in_any_order() {
    explore(|| {
        let store = store();
        let budget = limit(0, Rule::Calendar(Period::Total), 1_000);
        let applied = Arc::new(AtomicU64::new(0));
        let (shared, counted, limit) = (Arc::clone(&store), Arc::clone(&applied), Arc::clone(&budget));
        together(move |_| {
            let held = reserve(&shared, 7, &[(&limit, 10)]).unwrap();
            if settle(&shared, &held, 4) == Settled::Applied {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        assert_eq!((applied.load(Ordering::SeqCst), stands(&store, &budget)), (1, (4, 0)));
    });
}
