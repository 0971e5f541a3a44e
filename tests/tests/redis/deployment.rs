//! A Redis and proxies that share it, each with a connection, a failure policy and files of its own.

use std::{num::NonZeroU64, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tollgate_limiter::TimestampMs;
use tollgate_store::{Clock, CounterView, FailurePolicy, ManualClock, Store as _, StoreStatus, SystemClock};
use tollgate_store_redis::{Settings, SharedStore, testing::RedisServer};
use tollgate_tests::{Answer, Client, Gateway, GatewayOptions, UNIT_PRICES, counter, eventually};

/// How many proxies there are.
const COPIES: u64 = 3;

/// A Monday.
pub(crate) const MONDAY: TimestampMs = TimestampMs::new(1_795_996_800_000);

/// Everything of one test.
pub(crate) struct Deployment {
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) stores: Vec<SharedStore>,
    pub(crate) server: RedisServer,
    /// What Redis counts by. [`None`]: its own.
    pub(crate) clock: Option<Arc<ManualClock>>,
}

/// How quickly a test's proxies give up and come back.
fn policy() -> FailurePolicy {
    FailurePolicy {
        retry: Duration::from_millis(300),
        local_share: NonZeroU64::new(COPIES).unwrap(),
        closed: false,
        remembered: Duration::from_secs(540),
    }
}

impl Deployment {
    /// Three proxies that decide at the time of a clock of the test's.
    pub(crate) fn on_monday(config: &str) -> Self {
        let server = RedisServer::start().unwrap();
        let settings = server.settings("tollgate");
        Self::start(config, Some(Arc::new(ManualClock::new(MONDAY))), server, &settings)
    }

    /// Three proxies as they are in earnest.
    pub(crate) fn in_earnest(config: &str) -> Self {
        Self::with_server(config, RedisServer::start().unwrap())
    }

    /// The same on a server of one's own.
    pub(crate) fn with_server(config: &str, server: RedisServer) -> Self {
        let settings = Settings { timeout: Duration::from_millis(250), ..server.settings("tollgate") };
        Self::start(config, None, server, &settings)
    }

    /// Three proxies that reach `server` as `settings` says.
    pub(crate) fn start(
        config: &str,
        clock: Option<Arc<ManualClock>>,
        server: RedisServer,
        settings: &Settings,
    ) -> Self {
        let store = || match &clock {
            Some(clock) => {
                let clock = Arc::clone(clock) as Arc<dyn Clock>;
                SharedStore::start_with_clock(settings, policy(), clock).unwrap()
            }
            None => SharedStore::start(settings, policy(), Arc::new(SystemClock::new())).unwrap(),
        };
        let stores: Vec<_> = (0..COPIES).map(|_| store()).collect();
        let gateway = |store: &SharedStore| {
            Gateway::start(GatewayOptions {
                config: config.to_owned(),
                prices: Some(UNIT_PRICES.to_owned()),
                shared: Some(store.store()),
                system_clock: clock.is_none(),
                ..GatewayOptions::default()
            })
        };
        let gateways = stores.iter().map(gateway).collect();
        Self { gateways, stores, server, clock }
    }

    pub(crate) fn all(&self) -> Vec<&Gateway> {
        self.gateways.iter().collect()
    }

    /// A call of copy `copy` that costs what it may at most, at 1 micro-USD a token.
    pub(crate) async fn call(&self, copy: usize, headers: &[&str]) -> Answer {
        Client::new(self.gateways[copy].address()).post("/v1/messages", "key_of_t", &body(100), headers).await
    }

    /// How a tenant's budget of a day stands, in Redis itself.
    pub(crate) async fn day(&self) -> CounterView {
        self.gateways[0].counter("t", "micro_usd", "day", 0).await
    }

    /// The cost of all events, in pico-USD.
    pub(crate) fn cost_pico_usd(&self) -> u128 {
        self.gateways.iter().map(|gateway| gateway.cost_pico_usd("t")).sum()
    }

    pub(crate) fn status(&self, copy: usize) -> StoreStatus {
        self.stores[copy].store().status()
    }

    /// Waits until every copy has its Redis back and has settled what there is to settle.
    pub(crate) async fn at_rest(&self) {
        let limit = Arc::new(counter("t", "micro_usd", "day", 0));
        for shared in &self.stores {
            let store = shared.store();
            let back = async {
                while store.inspect(&[Arc::clone(&limit)]).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            tokio::time::timeout(tollgate_tests::PATIENCE, back).await.expect("Redis is back");
            eventually("settlements are written through", || store.status().settlements_waiting == 0).await;
        }
    }
}

/// A tenant `t` with the key `key_of_t` under `rules`.
pub(crate) fn tenant(rules: &str) -> String {
    format!("[[tenants]]\nid = \"t\"\n{rules}\n[[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n")
}

pub(crate) fn body(max_tokens: u64) -> Value {
    json!({"model": "unit", "max_tokens": max_tokens, "messages": [{"role": "user", "content": "Hello"}]})
}
