//! A store of one's own, and the list of tests that every store passes.
//!
//!     cargo run -p tollgate-examples --bin custom_store
//!
//! The store keeps counters in a `BTreeMap` behind one lock. It has no rules in it: what a call does is
//! the limiter's business, and whether the store does it right is what the contract asks.

use std::{
    collections::BTreeMap,
    error::Error,
    future::Future,
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Waker},
};

use tollgate_limiter::{
    Amount, Counter, CounterKey, CounterRow, Counters, ExactAmount, LedgerError, Limit, Plan, ReservationId,
    Reservations, TimestampMs, Verdict,
};
use tollgate_store::{
    Attempt, Clock, CounterView, Held, ManualClock, Settled, Store, StoreFuture,
    contract::{self, Harness},
};

fn main() -> Result<(), Box<dyn Error>> {
    for (name, test) in contract::all() {
        test(&Fresh::default()); // panics where the store breaks the contract
        println!("kept: {name}");
    }
    println!("The store keeps all {} points of the contract.", contract::all().len());
    Ok(())
}

/// A store behind one lock: every call is one step because nothing else runs meanwhile.
struct Shelf {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

/// What the lock guards.
struct State {
    counters: Boxes,
    reservations: Reservations,
}

impl Shelf {
    /// Of the reservations that ended, so many are remembered: for calls that are repeated late.
    const FINISHED_MAX: usize = 1_000;

    fn new(clock: Arc<dyn Clock>) -> Self {
        let reservations = Reservations::new(BTreeMap::new(), Self::FINISHED_MAX);
        Self { clock, state: Mutex::new(State { counters: Boxes::default(), reservations }) }
    }

    /// Runs one call to its end. The answer is there at once: this store never waits for a network.
    fn run<T>(
        &self,
        call: impl FnOnce(&mut Reservations, &mut Boxes, TimestampMs) -> Result<T, LedgerError>,
    ) -> StoreFuture<'static, T> {
        let now = self.clock.now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { counters, reservations } = &mut *state;
        counters.sweep(now);
        StoreFuture::ready(call(reservations, counters, now).map_err(Into::into))
    }
}

impl Store for Shelf {
    fn reserve(&self, id: ReservationId, plan: Arc<Plan>, attempt: Attempt) -> StoreFuture<'_, Verdict> {
        self.run(|reservations, counters, now| reservations.reserve(counters, now, id, plan, attempt))
    }

    fn extend(&self, held: &Held, step: u32, charges: &[Amount]) -> StoreFuture<'_, Verdict> {
        self.run(|reservations, counters, now| reservations.extend(counters, now, held, step, charges))
    }

    fn settle(&self, held: &Held, actuals: &[ExactAmount]) -> StoreFuture<'static, Settled> {
        self.run(|reservations, counters, now| reservations.settle(counters, now, held, actuals))
    }

    fn inspect(&self, limits: &[Arc<Limit>]) -> StoreFuture<'_, Vec<CounterView>> {
        self.run(|_, counters, now| {
            let view = |limit: &Arc<Limit>| counters.read(limit, now, |counter| counter.view(limit, now));
            Ok(limits.iter().map(view).collect())
        })
    }
}

/// The counters: found by key, kept in a row that drops what no longer counts.
#[derive(Default)]
struct Boxes {
    places: BTreeMap<CounterKey, usize>,
    row: CounterRow,
}

impl Boxes {
    fn sweep(&mut self, now: TimestampMs) {
        self.row.sweep(now, |keep| self.places.retain(|_, place| keep(place)));
    }
}

impl Counters for Boxes {
    type Place = usize;

    /// A counter that was kept by another rule is none: the limit begins anew.
    fn find(&self, limit: &Limit) -> Option<usize> {
        self.places.get(&limit.key).copied().filter(|place| self.row[*place].rule() == limit.rule)
    }

    fn at(&self, place: usize) -> &Counter {
        &self.row[place]
    }

    fn at_mut(&mut self, place: usize) -> &mut Counter {
        &mut self.row[place]
    }

    fn new_counter(&self, limit: &Limit, now: TimestampMs) -> Counter {
        self.row.new_counter(limit.rule, now)
    }

    fn keep(&mut self, limit: &Limit, counter: Counter) {
        match self.places.get(&limit.key) {
            Some(place) => self.row[*place] = counter,
            None => _ = self.places.insert(limit.key.clone(), self.row.push(counter)),
        }
    }
}

/// What the contract needs: a store that is empty, and its clock.
///
/// In a test file, `contract_tests!(Fresh::default());` makes a `#[test]` of each point.
struct Fresh {
    clock: Arc<ManualClock>,
    store: Arc<Shelf>,
}

impl Default for Fresh {
    fn default() -> Self {
        let clock = Arc::new(ManualClock::new(TimestampMs::EPOCH));
        let store = Shelf::new(Arc::clone(&clock) as Arc<dyn Clock>);
        Self { clock, store: Arc::new(store) }
    }
}

impl Harness for Fresh {
    /// Another handle to the same counters, as another copy of a program would have.
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// A store that waits takes a runtime here. This one is done at the first poll.
    fn run(&self, future: Pin<Box<dyn Future<Output = ()> + '_>>) {
        let answer = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
        assert!(answer.is_ready(), "the answer is there at once");
    }
}
