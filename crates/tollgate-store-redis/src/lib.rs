//! The store that many copies share: counters and reservations in one Redis.
//!
//! A decision is one script and one round trip, whatever the number of limits: it reads all, checks all,
//! and writes all or nothing. What it answers is what the memory store would: the rules of
//! [`tollgate_limiter`] are written once more in Lua, function by function, and tests compare every answer
//! and every counter of random histories.
//!
//! - **Time** is the server's. Copies whose clocks differ share one window.
//! - **Repeated calls** count once: a record lies under each reservation's id, for a day while it is open
//!   and for ten minutes when it is over.
//! - **Numbers** travel as decimal texts and are exact up to 2⁵³ − 1.
//! - **Every key** has a time to live, written with its value.
//!
//! It knows nothing of what to do when Redis is away: its errors say whether a call took effect.

mod client;
mod guard;
mod keys;
mod reply;
mod request;
mod script;
mod shared;
#[cfg(feature = "testing")]
pub mod testing;

use std::{
    fmt, io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tollgate_limiter::{
    Amount, Attempt, CounterView, EXTENSIONS_MAX, ExactAmount, Held, LedgerError, Limit, Plan, ReservationId,
    Settled, Verdict,
};
use tollgate_store::{Clock, Store, StoreError, StoreFuture, StoreStatus, is_hard_budget};

use client::{Client, Script};
pub use guard::{Guard, Spend, Told};
use keys::Keys;
pub use shared::SharedStore;

/// How to reach a Redis.
#[derive(Clone)]
pub struct Settings {
    /// `redis://`, `rediss://` or `redis-sentinel://`, with user, password and database.
    pub url: String,
    /// What all key names begin with.
    pub prefix: String,
    /// How long one call may take, repetitions included.
    pub timeout: Duration,
}

impl Settings {
    /// How long one of two attempts may take.
    fn attempt(&self) -> Duration {
        self.timeout / 2
    }
}

impl fmt::Debug for Settings {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prefix, timeout, .. } = self;
        f.debug_struct("Settings").field("prefix", prefix).field("timeout", timeout).finish_non_exhaustive()
    }
}

/// Why there is no connection to speak of.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL cannot be used.
    #[error("the URL of the store cannot be used: {0}")]
    Url(String),
    /// The thread of the connection cannot be started.
    #[error("the store's thread cannot be started: {0}")]
    Thread(io::Error),
}

/// Counters in Redis, shared by all that use the same server and prefix.
#[derive(Clone)]
pub struct RedisStore(Arc<Inner>);

struct Inner {
    client: Client,
    keys: Keys,
    /// `None`: the server's.
    clock: Option<Arc<dyn Clock>>,
    reserve: Script,
    extend: Script,
    settle: Script,
    inspect: Script,
    copies: Script,
    seed: Script,
    /// Whether a hard budget asks for the mark that Redis knows what was spent.
    is_guarded: AtomicBool,
    /// Whether the mark was missing when it was last looked for.
    is_empty: AtomicBool,
    warning: Mutex<Option<String>>,
}

impl RedisStore {
    /// Begins to connect, on the runtime of the caller, and goes on for as long as the store lives. Calls
    /// fail until there is a connection.
    ///
    /// # Errors
    ///
    /// The URL cannot be used.
    pub fn connect(settings: &Settings) -> Result<Self, ConnectError> {
        Self::open(settings, None)
    }

    /// As [`connect`](Self::connect), with decisions at the time of a test's clock.
    ///
    /// # Errors
    ///
    /// As there.
    #[cfg(feature = "testing")]
    pub fn connect_with_clock(settings: &Settings, clock: Arc<dyn Clock>) -> Result<Self, ConnectError> {
        Self::open(settings, Some(clock))
    }

    fn open(settings: &Settings, clock: Option<Arc<dyn Clock>>) -> Result<Self, ConnectError> {
        Ok(Self(Arc::new(Inner {
            client: Client::connect(settings)?,
            keys: Keys::new(&settings.prefix),
            clock,
            reserve: Script::new(script::RESERVE),
            extend: Script::new(script::EXTEND),
            settle: Script::new(script::SETTLE),
            inspect: Script::new(script::INSPECT),
            copies: Script::new(script::COPIES),
            seed: Script::new(script::SEED),
            is_guarded: AtomicBool::new(false),
            is_empty: AtomicBool::new(false),
            warning: Mutex::default(),
        })))
    }

    /// Waits until there is a connection, for ever if need be.
    ///
    /// # Errors
    ///
    /// There will be none.
    pub async fn connected(&self) -> Result<(), StoreError> {
        self.0.client.connected().await
    }

    /// Whether hard budgets are refused in a Redis that does not know what was spent.
    fn guard(&self, is_guarded: bool) {
        self.0.is_guarded.store(is_guarded, Ordering::SeqCst);
    }

    /// Logs a warning and shows it from now on in the store's status.
    fn warn(&self, warning: String) {
        tracing::warn!("{warning}");
        *self.0.warning.lock().unwrap_or_else(PoisonError::into_inner) = Some(warning);
    }

    /// The server's `maxmemory-policy` if it may evict counters: with any but `noeviction` a full Redis
    /// forgets what was spent.
    ///
    /// # Errors
    ///
    /// The server did not answer.
    pub async fn evicting_policy(&self) -> Result<Option<String>, StoreError> {
        let memory = self.0.client.info("memory").await?;
        let policy = memory.lines().find_map(|line| line.strip_prefix("maxmemory_policy:"));
        Ok(policy.map(str::trim).filter(|policy| *policy != "noeviction").map(str::to_owned))
    }
}

impl Inner {
    /// Runs a script, and a second time where the first gave no answer: all of them count once.
    async fn run(
        &self,
        script: &Script,
        keys: Vec<String>,
        arguments: impl Fn(Attempt) -> Vec<String>,
    ) -> Result<String, StoreError> {
        let first = self.client.run(script, &keys, &arguments(Attempt::First)).await;
        let Err(StoreError::Unknown(_)) = first else { return first };
        match self.client.run(script, &keys, &arguments(Attempt::Retry)).await {
            // That the second one has not run says nothing of the first.
            Err(error) if error.is_transient() => first,
            answer => answer,
        }
    }

    fn now(&self) -> String {
        self.clock.as_ref().map_or_else(String::new, |clock| clock.now().get().to_string())
    }

    fn counters<'a>(&self, limits: impl Iterator<Item = &'a Limit>) -> impl Iterator<Item = String> {
        limits.map(|limit| self.keys.counter(&limit.key))
    }

    /// The keys of a call about a reservation that was made.
    fn held_keys(&self, held: &Held) -> Vec<String> {
        let own = [self.keys.record(held.id, &held.plan), self.keys.extensions(held.id, &held.plan)];
        own.into_iter().chain(self.counters(limits(&held.plan))).collect()
    }
}

impl Store for RedisStore {
    fn reserve(&self, id: ReservationId, plan: Arc<Plan>, attempt: Attempt) -> StoreFuture<'_, Verdict> {
        let store = Arc::clone(&self.0);
        StoreFuture::waiting(async move {
            let words = request::plan(&plan)?;
            let fingerprint = request::fingerprint(&plan, &words);
            let record = store.keys.record(id, &plan);
            let is_guarded = store.is_guarded.load(Ordering::SeqCst) && limits(&plan).any(is_hard_budget);
            let mark = is_guarded.then(|| store.keys.ready());
            let keys = std::iter::once(record).chain(store.counters(limits(&plan))).chain(mark).collect();
            let arguments = |again| {
                let is_retry = attempt == Attempt::Retry || again == Attempt::Retry;
                let attempt = if is_retry { "r" } else { "f" };
                let guarded = if is_guarded { "guarded" } else { "" };
                let own = [store.now(), fingerprint.clone(), attempt.to_owned(), guarded.to_owned()];
                own.into_iter().chain(words.iter().cloned()).collect()
            };
            reply::verdict(&store.run(&store.reserve, keys, arguments).await?, &plan, 0)
        })
    }

    fn extend(&self, held: &Held, step: u32, charges: &[Amount]) -> StoreFuture<'_, Verdict> {
        let (store, held) = (Arc::clone(&self.0), held.clone());
        let (asked, given) = (request::charges(charges), charges.len());
        StoreFuture::waiting(async move {
            check_length(&held.plan, given)?;
            let words = request::plan(&held.plan)?;
            let fingerprint = request::fingerprint(&held.plan, &words);
            let (step_text, most) = (step.to_string(), EXTENSIONS_MAX.to_string());
            let arguments = |_| {
                let own = [store.now(), fingerprint.clone(), step_text.clone(), asked.clone(), most.clone()];
                own.into_iter().chain(words.iter().cloned()).collect()
            };
            let reply = store.run(&store.extend, store.held_keys(&held), arguments).await?;
            reply::verdict(&reply, &held.plan, step)
        })
    }

    fn settle(&self, held: &Held, actuals: &[ExactAmount]) -> StoreFuture<'_, Settled> {
        let (store, held) = (Arc::clone(&self.0), held.clone());
        let (used, given) = (request::actuals(actuals), actuals.len());
        StoreFuture::waiting(async move {
            check_length(&held.plan, given)?;
            let words = request::plan(&held.plan)?;
            let fingerprint = request::fingerprint(&held.plan, &words);
            let at = held.at.get().to_string();
            let arguments = |_| {
                let own = [store.now(), fingerprint.clone(), used.clone(), at.clone()];
                own.into_iter().chain(words.iter().cloned()).collect()
            };
            reply::settled(&store.run(&store.settle, store.held_keys(&held), arguments).await?)
        })
    }

    fn inspect(&self, limits: &[Arc<Limit>]) -> StoreFuture<'_, Vec<CounterView>> {
        let (store, limits) = (Arc::clone(&self.0), limits.to_vec());
        StoreFuture::waiting(async move {
            if limits.is_empty() {
                return Ok(Vec::new());
            }
            let all = || limits.iter().map(|limit| &**limit);
            let words = request::limits(all())?;
            let keys = store.counters(all()).collect();
            let arguments = |_| std::iter::once(store.now()).chain(words.iter().cloned()).collect();
            let reply = store.run(&store.inspect, keys, arguments).await?;
            reply::views(&reply, all())
        })
    }

    fn status(&self) -> StoreStatus {
        let warning = self.0.warning.lock().unwrap_or_else(PoisonError::into_inner).clone();
        StoreStatus { available: !self.0.is_empty.load(Ordering::SeqCst), warning, ..StoreStatus::default() }
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("client", &self.0.client).finish_non_exhaustive()
    }
}

fn limits(plan: &Plan) -> impl Iterator<Item = &Limit> {
    plan.entries().iter().map(|entry| &*entry.limit)
}

fn check_length(plan: &Plan, given: usize) -> Result<(), StoreError> {
    let entries = plan.entries().len();
    if entries == given { Ok(()) } else { Err(LedgerError::WrongLength { entries, given }.into()) }
}
