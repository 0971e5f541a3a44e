//! A mock provider and a proxy in this process.

use std::{
    collections::BTreeMap,
    env::VarError,
    io,
    net::SocketAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tollgate_config::{Config, Environment};
use tollgate_limiter::{Amount, CounterKey, Enforcement, Limit, Period, Rule, TimestampMs};
use tollgate_mock::{Behaviour, Mock, Options};
use tollgate_pricing::PriceTable;
use tollgate_proxy::{Proxy, ReloadError, Setup, Spending, Stopped};
use tollgate_store::{Clock, CounterView, FallbackStore, ManualClock, MemoryStore, Store, SystemClock};

use crate::{Client, eventually};

/// What the proxy sends to the mock in place of a client's key; the mock accepts nothing else.
pub const PROVIDER_KEY: &str = "sk_provider_sentinel";

/// How many requests the mock keeps: few, so that a long load does not look like a leak.
const REQUESTS_KEPT: usize = 500;

/// Puts something between the proxy and its store.
pub type BeforeStore = fn(Arc<MemoryStore>) -> Arc<dyn Store>;

/// How a gateway is started.
#[derive(Debug, Default)]
pub struct GatewayOptions {
    /// TOML after the sections that every gateway has: `[[tenants]]` and what else the test needs.
    /// `key_env = "NAME"` makes a key whose text is `NAME`.
    pub config: String,
    /// TOML for `[server]`, without the listeners.
    pub server: String,
    /// TOML for `[reservation]`.
    pub reservation: String,
    /// TOML for `[usage]`, without the file.
    pub usage: String,
    /// Further lines for the two providers `anthropic` and `openai`.
    pub provider: String,
    /// How the mock answers unless a request says otherwise.
    pub behaviour: Behaviour,
    /// A price table in place of the compiled-in one.
    pub prices: Option<String>,
    /// Worker threads; 0 is one.
    pub workers: usize,
    /// Leave the time to the system.
    pub system_clock: bool,
    /// A worker's look at the running clock that panics, counted from 1; 0: none does.
    pub panic_at_look: u64,
    /// Share another gateway's store.
    pub store: Option<Arc<MemoryStore>>,
    /// What stands between the proxy and its store.
    pub before_store: Option<BeforeStore>,
    /// Decide in a store that other gateways share. What was spent is in it, and does not come back from the
    /// usage file.
    pub shared: Option<FallbackStore>,
    /// Go on with another gateway's files.
    pub directory: Option<Arc<tempfile::TempDir>>,
}

/// Which clock a gateway runs on.
#[derive(Clone, Debug)]
pub enum Clocked {
    /// The system's.
    System,
    /// One that stands still until it is moved.
    Manual(Arc<ManualClock>),
}

/// A running mock and proxy.
pub struct Gateway {
    /// The provider behind the proxy.
    pub mock: Mock,
    /// The proxy's counters, unless they are in a shared store.
    pub store: Arc<MemoryStore>,
    /// The proxy's clock.
    pub clock: Clocked,
    /// Where its files are.
    pub directory: Arc<tempfile::TempDir>,
    decides: Arc<dyn Store>,
    proxy: Mutex<Option<Proxy>>,
    address: SocketAddr,
    admin: SocketAddr,
}

impl Gateway {
    /// Starts a gateway with one tenants section.
    pub fn new(config: &str) -> Self {
        Self::start(GatewayOptions { config: config.to_owned(), ..GatewayOptions::default() })
    }

    /// Starts a gateway.
    ///
    /// # Panics
    ///
    /// The configuration is wrong or a port cannot be opened.
    pub fn start(options: GatewayOptions) -> Self {
        let mock = Mock::start(Options {
            api_key: Some(PROVIDER_KEY.to_owned()),
            behaviour: options.behaviour.clone(),
            request_limit: REQUESTS_KEPT,
            ..Options::default()
        })
        .expect("the mock starts");
        let directory =
            options.directory.clone().unwrap_or_else(|| Arc::new(tempfile::tempdir().expect("a directory")));
        let mut setup = setup(&options, &mock.base_url(), directory.path());
        let (clock, clocked): (Arc<dyn Clock>, Clocked) = if options.system_clock {
            (Arc::new(SystemClock::new()), Clocked::System)
        } else {
            let manual = Arc::new(ManualClock::new(SystemClock::new().now()));
            (manual.clone(), Clocked::Manual(manual))
        };
        let clock: Arc<dyn Clock> = match options.panic_at_look {
            0 => clock,
            look => Arc::new(Panicking { clock, looks_left: AtomicU64::new(look) }),
        };
        let store = options.store.clone().unwrap_or_else(|| Arc::new(MemoryStore::new(clock.clone())));
        let decides: Arc<dyn Store> = match &options.shared {
            Some(shared) => {
                setup.recover(|_, _| {}).expect("the usage file can be read").settle_in(shared, None);
                Arc::new(shared.clone())
            }
            None => {
                setup.restore(&store, |_, _| {}).expect("the usage file can be read");
                store.clone()
            }
        };
        let workers = NonZeroUsize::new(options.workers).unwrap_or(NonZeroUsize::MIN);
        let asked = options.before_store.map_or_else(|| decides.clone(), |before| before(store.clone()));
        let proxy = setup.start(asked, clock, workers).expect("the proxy starts");
        let (address, admin) = (proxy.address(), proxy.admin_address());
        let proxy = Mutex::new(Some(proxy));
        Self { mock, store, clock: clocked, directory, decides, proxy, address, admin }
    }

    /// Where clients connect.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the proxy has spent, out of its own usage files.
    ///
    /// # Panics
    ///
    /// The proxy is stopped.
    pub fn spending(&self) -> Spending {
        self.proxy.lock().expect("not poisoned").as_ref().expect("still running").spending()
    }

    /// Where health and metrics are.
    pub const fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// The hand-moved clock.
    ///
    /// # Panics
    ///
    /// The gateway runs on the system's.
    pub fn manual_clock(&self) -> &ManualClock {
        match &self.clock {
            Clocked::Manual(clock) => clock,
            Clocked::System => panic!("this gateway runs on the system's clock"),
        }
    }

    /// Puts another configuration in the place of the running one.
    ///
    /// # Errors
    ///
    /// The running one goes on.
    ///
    /// # Panics
    ///
    /// The configuration is wrong, or the proxy is stopped.
    pub fn reload(&self, options: &GatewayOptions) -> Result<(), ReloadError> {
        self.reload_towards(options, &self.mock.base_url())
    }

    /// The same with the providers at `base_url`.
    ///
    /// # Errors
    ///
    /// The running one goes on.
    ///
    /// # Panics
    ///
    /// The configuration is wrong, or the proxy is stopped.
    pub fn reload_towards(&self, options: &GatewayOptions, base_url: &str) -> Result<(), ReloadError> {
        let setup = setup(options, base_url, self.directory.path());
        self.proxy.lock().expect("not poisoned").as_ref().expect("still running").reload(setup)
    }

    /// Stops the proxy: drains, settles, writes. May be called once.
    ///
    /// # Panics
    ///
    /// It was called before, or the events cannot be written.
    pub fn stop(&self) -> Stopped {
        let proxy = self.proxy.lock().expect("not poisoned").take().expect("still running");
        proxy.stop().expect("the events are written")
    }

    /// The usage file's path.
    pub fn usage_file(&self) -> PathBuf {
        self.directory.path().join("usage.jsonl")
    }

    /// All events so far, in the file's order.
    ///
    /// # Panics
    ///
    /// The file cannot be read or holds a line that is no JSON.
    pub fn events(&self) -> Vec<Value> {
        if let Some(proxy) = self.proxy.lock().expect("not poisoned").as_ref() {
            proxy.flush_usage().expect("the events are written");
        }
        let text = std::fs::read_to_string(self.usage_file()).expect("the usage file");
        text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// Usage events only.
    pub fn usage_events(&self) -> Vec<Value> {
        self.events().into_iter().filter(|event| event["type"] == "usage").collect()
    }

    /// The sum over usage events of a tenant, in pico-USD.
    pub fn cost_pico_usd(&self, tenant: &str) -> u128 {
        let cost = |event: &Value| match event.get("cost_pico_usd").and_then(Value::as_u64) {
            Some(pico) => u128::from(pico),
            None => u128::from(event["cost_micro_usd"].as_u64().expect("a cost")) * 1_000_000,
        };
        self.usage_events().iter().filter(|event| event["tenant"] == tenant).map(cost).sum()
    }

    /// How one counter of a tenant stands: `unit` as in events, `window` as in the configuration.
    ///
    /// # Panics
    ///
    /// The store does not answer.
    pub async fn counter(&self, tenant: &str, unit: &str, window: &str, amount: u64) -> CounterView {
        let limit = Arc::new(counter(tenant, unit, window, amount));
        self.decides.inspect(&[limit]).await.expect("an answer").remove(0)
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Posts a body to `/v1/messages` of some gateways in turn, with the key `key_of_t` and all at once; the
/// statuses.
///
/// # Panics
///
/// A call panics.
pub async fn parallel(
    gateways: &[&Gateway],
    count: usize,
    body: &Value,
    headers: &'static [&'static str],
) -> Vec<u16> {
    let calls: Vec<_> = (0..count)
        .map(|index| {
            let client = Client::new(gateways[index % gateways.len()].address());
            let body = body.clone();
            tokio::spawn(async move { client.post("/v1/messages", "key_of_t", &body, headers).await.status })
        })
        .collect();
    let mut statuses = Vec::new();
    for call in calls {
        statuses.push(call.await.expect("no panic"));
    }
    statuses
}

/// The only usage event of the tenant `t`, after checking that its day's counter says the same and nothing is
/// open.
///
/// # Panics
///
/// It is not so.
pub async fn settled(gateway: &Gateway) -> Value {
    let is_settled = || gateway.store.open_reservations() == 0 && !gateway.usage_events().is_empty();
    eventually("the call is settled", is_settled).await;
    let events = gateway.usage_events();
    assert_eq!(events.len(), 1, "one call, one settlement: {events:?}");
    let counter = gateway.counter("t", "micro_usd", "day", 1_000_000).await;
    assert_eq!((counter.spent.as_millionths(), counter.held.get()), (gateway.cost_pico_usd("t"), 0));
    events.into_iter().next().expect("one event")
}

/// How many of the statuses are `wanted`.
pub fn count(statuses: &[u16], wanted: u16) -> usize {
    statuses.iter().filter(|&&status| status == wanted).count()
}

/// The configuration of a gateway whose providers are at `base_url`, compiled.
///
/// # Panics
///
/// It is wrong.
pub fn setup(options: &GatewayOptions, base_url: &str, directory: &Path) -> Setup {
    let text = config_text(options, base_url, directory);
    let config = Config::parse(&text, "test.toml", directory, &NamedKeys)
        .unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    let prices = options.prices.as_deref().map_or_else(PriceTable::builtin, |yaml| {
        Arc::new(PriceTable::from_yaml(yaml).expect("the price table is right"))
    });
    Setup::new(config, prices)
}

/// The limit that a tenant's rule compiles to.
///
/// # Panics
///
/// No rule has this window.
pub fn counter(tenant: &str, unit: &str, window: &str, amount: u64) -> Limit {
    let rule = if unit == "micro_usd" {
        Rule::Calendar(match window {
            "minute" => Period::Minute,
            "hour" => Period::Hour,
            "day" => Period::Day,
            "week" => Period::Week,
            "month" => Period::Month,
            "total" => Period::Total,
            other => panic!("no budget has the window {other}"),
        })
    } else {
        let lengths =
            BTreeMap::from([("second", 1_000), ("minute", 60_000), ("hour", 3_600_000), ("day", 86_400_000)]);
        Rule::SlidingWindow { window: tollgate_limiter::DurationMs::new(lengths[window]) }
    };
    Limit {
        key: CounterKey::new(tenant, format!("tenant:{unit}:{window}")),
        rule,
        amount: Amount::new(amount),
        enforcement: Enforcement::Hard,
    }
}

fn config_text(options: &GatewayOptions, base_url: &str, directory: &Path) -> String {
    let provider = &options.provider;
    let providers: String = ["anthropic", "openai"]
        .map(|id| {
            format!(
                "[[providers]]\nid = \"{id}\"\nprotocol = \"{id}\"\nbase_url = \"{base_url}\"\n\
                 api_key_env = \"{PROVIDER_KEY}\"\n{provider}\n"
            )
        })
        .concat();
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n{server}\n\
         [usage]\nfile = \"{file}\"\n{usage}\n[reservation]\n{reservation}\n{providers}\n{config}",
        server = options.server,
        file = directory.join("usage.jsonl").display(),
        usage = options.usage,
        reservation = options.reservation,
        config = options.config,
    )
}

/// A clock that panics at one look, to show that a panic loses no reservation.
struct Panicking {
    clock: Arc<dyn Clock>,
    looks_left: AtomicU64,
}

impl Clock for Panicking {
    fn now(&self) -> TimestampMs {
        self.clock.now()
    }

    fn elapsed(&self) -> Duration {
        let left = self.looks_left.fetch_sub(1, Ordering::SeqCst);
        assert_ne!(left, 1, "the panic that the test asked for");
        self.clock.elapsed()
    }
}

/// Every variable is set to its own name.
struct NamedKeys;

impl Environment for NamedKeys {
    fn var(&self, name: &str) -> Result<String, VarError> {
        Ok(name.to_owned())
    }

    fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }
}
