//! A store that fails when it is told to.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use tollgate_limiter::{
    Amount, Attempt, CounterView, ExactAmount, Held, Limit, Plan, ReservationId, Settled, Verdict,
};

use crate::{Store, StoreError, StoreFuture};

/// What happens to calls.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// They are answered.
    None,
    /// They do not reach the store, and the caller knows.
    Refused,
    /// They do not reach the store, and the caller does not know.
    CallLost,
    /// They are run, and the caller does not know.
    AnswerLost,
    /// They are run in part, and the rest cannot be at the moment.
    Partly,
    /// What the store holds about them cannot be read.
    Spoilt,
}

/// Another store, with faults before or behind it.
pub struct FaultyStore {
    store: Arc<dyn Store>,
    fault: Mutex<Fault>,
    calls: AtomicUsize,
}

impl FaultyStore {
    /// `store`, without a fault for now.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, fault: Mutex::new(Fault::None), calls: AtomicUsize::new(0) }
    }

    /// From now on this happens.
    pub fn set(&self, fault: Fault) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// How many calls were made, answered or not.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    fn run<'a, T: Send + 'a>(&self, call: impl FnOnce() -> StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let refused = || StoreError::NotApplied("as the test wants".to_owned());
        let unknown = || StoreError::Unknown("as the test wants".to_owned());
        match *self.fault.lock().unwrap_or_else(PoisonError::into_inner) {
            Fault::None => call(),
            Fault::Refused => StoreFuture::ready(Err(refused())),
            Fault::CallLost => StoreFuture::ready(Err(unknown())),
            Fault::Spoilt => StoreFuture::ready(Err(StoreError::Corrupt("as the test wants".to_owned()))),
            fault @ (Fault::AnswerLost | Fault::Partly) => {
                // A store in memory has answered already.
                let _ = call().now_or_later();
                let partly = || StoreError::Partly("as the test wants".to_owned());
                StoreFuture::ready(Err(if fault == Fault::Partly { partly() } else { unknown() }))
            }
        }
    }
}

impl Store for FaultyStore {
    fn reserve(&self, id: ReservationId, plan: Arc<Plan>, attempt: Attempt) -> StoreFuture<'_, Verdict> {
        self.run(|| self.store.reserve(id, plan, attempt))
    }

    fn extend(&self, held: &Held, step: u32, charges: &[Amount]) -> StoreFuture<'_, Verdict> {
        self.run(|| self.store.extend(held, step, charges))
    }

    fn settle(&self, held: &Held, actuals: &[ExactAmount]) -> StoreFuture<'static, Settled> {
        self.run(|| self.store.settle(held, actuals))
    }

    fn settle_held(&self, held: &Held, actuals: &[ExactAmount]) -> StoreFuture<'static, Settled> {
        self.run(|| self.store.settle_held(held, actuals))
    }

    fn inspect(&self, limits: &[Arc<Limit>]) -> StoreFuture<'_, Vec<CounterView>> {
        self.run(|| self.store.inspect(limits))
    }
}
