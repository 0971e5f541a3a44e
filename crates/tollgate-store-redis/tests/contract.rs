//! The Redis store keeps the contract, each test on a server of its own.

#![expect(
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

use std::{future::Future, pin::Pin, sync::Arc};

use tollgate_limiter::TimestampMs;
use tollgate_store::{Clock, ManualClock, Store, contract::Harness, contract_tests};
use tollgate_store_redis::{RedisStore, testing::RedisServer};

struct InRedis {
    clock: Arc<ManualClock>,
    runtime: tokio::runtime::Runtime,
    server: RedisServer,
}

impl InRedis {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Self {
            clock: Arc::new(ManualClock::new(TimestampMs::EPOCH)),
            runtime: runtime.unwrap(),
            server: RedisServer::start().unwrap(),
        }
    }
}

impl Harness for InRedis {
    fn store(&self) -> Arc<dyn Store> {
        let _inside = self.runtime.enter();
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let store = RedisStore::connect_with_clock(&self.server.settings("tollgate"), clock).unwrap();
        self.runtime.block_on(store.connected()).unwrap();
        Arc::new(store)
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    fn run(&self, future: Pin<Box<dyn Future<Output = ()> + '_>>) {
        self.runtime.block_on(future);
    }
}

contract_tests!(InRedis::new());
