//! The memory store keeps the contract.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use tollgate_limiter::TimestampMs;
use tollgate_store::{Clock, ManualClock, MemoryStore, Store, contract::Harness, contract_tests};

struct InMemory {
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
}

impl InMemory {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(TimestampMs::EPOCH));
        let store = Arc::new(MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>));
        Self { clock, store }
    }
}

impl Harness for InMemory {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    fn run(&self, future: Pin<Box<dyn Future<Output = ()> + '_>>) {
        let answer = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(answer, Poll::Ready(()), "a memory store answers at once");
    }
}

contract_tests!(InMemory::new());
