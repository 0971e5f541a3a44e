//! A Redis and proxies that share it, each with a connection, a failure policy and files of its own.

use std::{
    num::NonZeroU64,
    sync::{Arc, OnceLock},
    time::Duration,
};

use serde_json::{Value, json};
use tollgate_limiter::TimestampMs;
use tollgate_proxy::Spending;
use tollgate_store::{Clock, CounterView, FailurePolicy, ManualClock, Store as _, StoreStatus, SystemClock};
use tollgate_store_redis::{Guard, Settings, SharedStore, Spend, testing::RedisServer};
use tollgate_tests::{Answer, Client, Gateway, GatewayOptions, PATIENCE, UNIT_PRICES, counter};

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

    /// Three proxies in earnest that tell an empty Redis what they had spent.
    pub(crate) fn guarded(config: &str, server: RedisServer) -> Self {
        let settings = Settings { timeout: Duration::from_millis(250), ..server.settings("tollgate") };
        Self::guarded_by(config, server, &settings)
    }

    /// The same where they reach it as `settings` says.
    pub(crate) fn guarded_by(config: &str, server: RedisServer, settings: &Settings) -> Self {
        let spending: Vec<_> = (0..COPIES).map(|_| Arc::new(OnceLock::<Spending>::new())).collect();
        let guard = |(copy, spending): (usize, &Arc<OnceLock<Spending>>)| {
            let spending = Arc::clone(spending);
            let spent = move |each: Spend<'_>| {
                let told = spending.get().ok_or("not yet")?.each(each).map_err(|error| error.to_string())?;
                if told { Ok(()) } else { Err("not any more".to_owned()) }
            };
            Guard {
                copy: format!("copy{copy}").into(),
                copies: NonZeroU64::new(COPIES).unwrap(),
                spent: Arc::new(spent),
            }
        };
        let guards = spending.iter().enumerate().map(guard).map(Some).collect();
        let deployment = Self::of(config, None, server, settings, guards);
        for (gateway, spending) in deployment.gateways.iter().zip(&spending) {
            spending.set(gateway.spending()).unwrap();
        }
        deployment
    }

    /// Three proxies that reach `server` as `settings` says.
    pub(crate) fn start(
        config: &str,
        clock: Option<Arc<ManualClock>>,
        server: RedisServer,
        settings: &Settings,
    ) -> Self {
        Self::of(config, clock, server, settings, (0..COPIES).map(|_| None).collect())
    }

    fn of(
        config: &str,
        clock: Option<Arc<ManualClock>>,
        server: RedisServer,
        settings: &Settings,
        guards: Vec<Option<Guard>>,
    ) -> Self {
        let store = |guard: Option<Guard>| match &clock {
            Some(clock) => {
                let clock = Arc::clone(clock) as Arc<dyn Clock>;
                SharedStore::start_with_clock(settings, policy(), clock).unwrap()
            }
            None => SharedStore::start(settings, policy(), guard, Arc::new(SystemClock::new())).unwrap(),
        };
        let stores: Vec<_> = guards.into_iter().map(store).collect();
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

    /// The cost of all events, in pico-USD.
    pub(crate) fn cost_pico_usd(&self) -> u128 {
        self.gateways.iter().map(|gateway| gateway.cost_pico_usd("t")).sum()
    }

    pub(crate) fn status(&self, copy: usize) -> StoreStatus {
        self.stores[copy].store().status()
    }

    /// Waits until every copy has its Redis back and nothing is left to settle: how the budget of a day stands
    /// then.
    pub(crate) async fn at_rest(&self) -> CounterView {
        self.at_rest_with(0).await
    }

    /// The same where so much stays held.
    pub(crate) async fn at_rest_with(&self, held: u64) -> CounterView {
        let limit = [Arc::new(counter("t", "micro_usd", "day", 0))];
        let rest = async {
            loop {
                let mut views = Vec::new();
                for shared in &self.stores {
                    let store = shared.store();
                    let view = store.inspect(&limit).await.ok().and_then(|mut views| views.pop());
                    views.extend(view.filter(|_| store.waiting() == 0));
                }
                // A settlement on its way is in no queue.
                if let [.., last] = &views[..]
                    && views.len() == self.stores.len()
                    && last.held.get() == held
                {
                    return last.clone();
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, rest).await.expect("everything is settled")
    }
}

/// A tenant `t` with the key `key_of_t` under `rules`.
pub(crate) fn tenant(rules: &str) -> String {
    format!("[[tenants]]\nid = \"t\"\n{rules}\n[[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n")
}

pub(crate) fn body(max_tokens: u64) -> Value {
    json!({"model": "unit", "max_tokens": max_tokens, "messages": [{"role": "user", "content": "Hello"}]})
}
