//! The store that many copies share: counters and reservations in one Redis.
//!
//! A decision is one script and one round trip, whatever the number of limits: it reads all, checks all,
//! and writes all or nothing. What it answers is what the memory store would: the rules of
//! [`tollgate_limiter`] are written once more in Lua, function by function, and tests compare every answer
//! and every counter of random histories.
//!
//! - **Calls that are ready together** are one command, which decides them one by one (`batch.rs`). Each runtime that
//!   asks has a connection of its own (`line.rs`).
//! - **In a Redis Cluster** limits of several partitions may lie in several slots. Then those of the first
//!   limit's slot are decided in a first step and all others together in a second one, and a refusal takes back
//!   what was charged (`steps.rs`).
//! - **Time** is the server's. Copies whose clocks differ share one window.
//! - **Repeated calls** count once: a record lies under each reservation's id, for a day while it is open
//!   and for ten minutes when it is over.
//! - **Numbers** are whole and exact up to 2⁵³ − 1, of 8 bytes each on their way and in counters.
//! - **Every key** has a time to live, written with its value.
//!
//! It knows nothing of what to do when Redis is away: its errors say whether a call took effect.

mod address;
mod ask;
mod batch;
mod client;
mod guard;
mod join;
mod keys;
mod line;
mod lives;
mod parts;
mod reply;
mod request;
mod script;
mod shared;
mod steps;
#[cfg(feature = "testing")]
pub mod testing;
mod told;

use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tollgate_limiter::{
    Amount, Attempt, CounterView, ExactAmount, Held, Limit, Plan, ReservationId, Settled, Verdict,
};
use tollgate_store::{Clock, Store, StoreError, StoreFuture, StoreStatus};

use batch::Batch;
pub use client::LOG_TARGET as CLIENT_LOG_TARGET;
use client::{Client, Script};
pub use guard::{Guard, Spend, Told};
use keys::{Keys, Tag};
use line::{Line, Lines};
use lives::Lives;
pub use shared::SharedStore;

/// How to reach a Redis.
#[derive(Clone)]
pub struct Settings {
    /// `redis://`, `rediss://`, `redis-sentinel://` or `redis-cluster://`, with user, password and database.
    pub url: String,
    /// What all key names begin with.
    pub prefix: String,
    /// How long one call may take, repetitions included.
    pub timeout: Duration,
}

impl Settings {
    /// Whether the URL can be used, without a connection.
    ///
    /// # Errors
    ///
    /// It cannot.
    pub fn check(&self) -> Result<(), ConnectError> {
        client::check(&self.url)
    }

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
    /// The certificates to trust, of the platform or of `SSL_CERT_FILE` and `SSL_CERT_DIR`, cannot be read.
    #[error(
        "the certificates that TLS asks for cannot be read (those of the platform, or what SSL_CERT_FILE and \
         SSL_CERT_DIR name): {0}"
    )]
    Certificates(String),
    /// The thread of the connection cannot be started.
    #[error("the store's thread cannot be started: {0}")]
    Thread(io::Error),
}

/// Counters in Redis, shared by all that use the same server and prefix.
#[derive(Clone)]
pub struct RedisStore(Arc<Inner>);

/// What a warning is about.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Concern {
    /// The server may evict counters.
    Eviction,
    /// More copies live than the configuration says.
    Copies,
    /// Two copies have one name.
    Name,
}

struct Inner {
    lines: Lines,
    keys: Keys,
    /// `None`: the server's.
    clock: Option<Arc<dyn Clock>>,
    extend: Script,
    undo: Script,
    inspect: Script,
    copies: Script,
    seed: Script,
    free: Script,
    who_lives: Script,
    lives: Lives,
    /// Whether a hard budget asks for the mark that Redis knows what was spent.
    is_guarded: AtomicBool,
    /// Whether the mark was missing when it was last looked for.
    is_empty: AtomicBool,
    /// Whether it could not be looked at for a while.
    is_out_of_sight: AtomicBool,
    /// By what they are about.
    warnings: Mutex<BTreeMap<Concern, String>>,
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
        let lines = Lines::open(settings)?;
        let keys = Keys::new(&settings.prefix, lines.main().client.is_cluster());
        Ok(Self(Arc::new(Inner {
            lines,
            keys,
            clock,
            extend: Script::new(script::EXTEND),
            undo: Script::new(script::UNDO),
            inspect: Script::new(script::INSPECT),
            copies: Script::new(script::COPIES),
            seed: Script::new(script::SEED),
            free: Script::new(script::FREE),
            who_lives: Script::new(script::LIVES),
            lives: Lives::default(),
            is_guarded: AtomicBool::new(false),
            is_empty: AtomicBool::new(false),
            is_out_of_sight: AtomicBool::new(false),
            warnings: Mutex::default(),
        })))
    }

    /// Waits until there is a connection, for ever if need be.
    ///
    /// # Errors
    ///
    /// There will be none.
    pub async fn connected(&self) -> Result<(), StoreError> {
        self.0.client().connected().await
    }

    /// Whether hard budgets are refused in a Redis that does not know what was spent.
    fn guard(&self, is_guarded: bool) {
        self.0.is_guarded.store(is_guarded, Ordering::SeqCst);
    }

    /// Whether the counters lie on several servers.
    fn is_cluster(&self) -> bool {
        self.0.client().is_cluster()
    }

    /// Logs a warning and shows it from now on in the store's status, or no more.
    fn warn(&self, concern: Concern, warning: Option<String>) {
        let mut warnings = self.0.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        match warning {
            Some(warning) => {
                tracing::warn!("{warning}");
                warnings.insert(concern, warning);
            }
            None => drop(warnings.remove(&concern)),
        }
    }

    /// The server's `maxmemory-policy` if it may evict counters: with any but `noeviction` a full Redis
    /// forgets what was spent. In a cluster that of any server.
    ///
    /// # Errors
    ///
    /// A server did not answer.
    pub async fn evicting_policy(&self) -> Result<Option<String>, StoreError> {
        let policy = |memory: String| {
            let policy = memory.lines().find_map(|line| line.strip_prefix("maxmemory_policy:"));
            policy.map(str::trim).filter(|policy| *policy != "noeviction").map(str::to_owned)
        };
        Ok(self.0.client().info("memory").await?.into_iter().find_map(policy))
    }
}

impl Inner {
    /// Runs a script, and a second time where the first gave no answer: all of them count once. Whether that was
    /// so comes with the answer.
    async fn run(
        &self,
        script: &Script,
        keys: Vec<Bytes>,
        arguments: impl Fn(Attempt) -> Vec<Bytes>,
    ) -> Result<(Bytes, bool), StoreError> {
        let line = self.lines.here();
        let first = line.client.run(script, &keys, || arguments(Attempt::First)).await;
        let Err(StoreError::Unknown(_)) = first else { return first.map(|reply| (reply, false)) };
        line.doubt();
        Box::pin(self.run_again(first, script, &keys, || arguments(Attempt::Retry))).await
    }

    /// As [`run`](Self::run), together with other calls of the same script.
    async fn run_together(
        &self,
        batch: impl Fn(&Line) -> &Arc<Batch>,
        tag: Tag,
        keys: impl Fn() -> Vec<Bytes>,
        arguments: impl Fn(Attempt) -> Vec<Bytes>,
    ) -> Result<(Bytes, bool), StoreError> {
        let line = self.lines.here();
        let batch = batch(&line);
        let first = batch.call(tag, keys(), arguments(Attempt::First)).await;
        let Err(StoreError::Unknown(_)) = first else { return first.map(|reply| (reply, false)) };
        let again = || arguments(Attempt::Retry);
        // In a box, as it is rare: what a call takes in memory is moved and cleared with each.
        line.doubt();
        Box::pin(self.run_again(first, &batch.script, &keys(), again)).await
    }

    /// Asks once more, since nobody knows what became of the first call: on the main connection, in case it was the
    /// caller's that has died. And once again in what is left of the time, where a cluster has moved meanwhile.
    async fn run_again(
        &self,
        first: Result<Bytes, StoreError>,
        script: &Script,
        keys: &[Bytes],
        arguments: impl Fn() -> Vec<Bytes>,
    ) -> Result<(Bytes, bool), StoreError> {
        let left = tokio::time::sleep(self.lines.attempt());
        let mut again = self.client().run(script, keys, &arguments).await;
        if again.as_ref().is_err_and(client::is_of_moved_cluster) {
            again = tokio::select! {
                once_more = self.client().run(script, keys, &arguments) => once_more,
                () = left => again,
            };
        }
        match again {
            // That the second one has not run says nothing of the first.
            Err(error) if error.is_transient() || matches!(error, StoreError::Unavailable(_)) => {
                first.map(|reply| (reply, true))
            }
            answer => answer.map(|reply| (reply, true)),
        }
    }

    /// The connection of the runtime that the store was made on.
    fn client(&self) -> &Client {
        &self.lines.main().client
    }

    /// The time that a script is given: none, but in tests.
    fn now(&self) -> Bytes {
        self.clock.as_ref().map_or_else(Bytes::new, |clock| clock.now().get().to_string().into())
    }

    /// The same as a number; 0 is none.
    fn time(&self) -> u64 {
        self.clock.as_ref().map_or(0, |clock| clock.now().get())
    }

    fn is_guarded(&self) -> bool {
        self.is_guarded.load(Ordering::SeqCst)
    }

    async fn inspect_all(&self, limits: &[Arc<Limit>]) -> Result<Vec<CounterView>, StoreError> {
        let mut by_tag = BTreeMap::<Tag, Vec<usize>>::new();
        for (place, limit) in limits.iter().enumerate() {
            by_tag.entry(self.keys.tag(limit.key.partition())).or_default().push(place);
        }
        let mut views = vec![None; limits.len()];
        for places in by_tag.into_values() {
            let here: Vec<&Limit> =
                places.iter().filter_map(|place| limits.get(*place)).map(|limit| &**limit).collect();
            let entries = request::limits(here.iter().copied())?;
            let keys = here.iter().map(|limit| self.keys.counter(&limit.key)).collect();
            let arguments = |_| vec![self.now(), entries.clone()];
            let (reply, _) = self.run(&self.inspect, keys, arguments).await?;
            for (place, view) in places.into_iter().zip(reply::views(reply::text(&reply)?, here.into_iter())?)
            {
                views.get_mut(place).into_iter().for_each(|seen| *seen = Some(view.clone()));
            }
        }
        Ok(views.into_iter().flatten().collect())
    }
}

impl Store for RedisStore {
    fn reserve(&self, id: ReservationId, plan: Arc<Plan>, attempt: Attempt) -> StoreFuture<'_, Verdict> {
        let store = Arc::clone(&self.0);
        StoreFuture::waiting(async move { store.reserve_all(id, &plan, attempt).await })
    }

    fn extend(&self, held: &Held, step: u32, charges: &[Amount]) -> StoreFuture<'_, Verdict> {
        let (store, held, charges) = (Arc::clone(&self.0), held.clone(), charges.to_vec());
        StoreFuture::waiting(async move { store.extend_all(&held, step, &charges).await })
    }

    fn settle(&self, held: &Held, actuals: &[ExactAmount]) -> StoreFuture<'static, Settled> {
        let (store, held, actuals) = (Arc::clone(&self.0), held.clone(), actuals.to_vec());
        let at = Some(held.at);
        StoreFuture::waiting(async move { store.settle_all(&held, &actuals, at).await })
    }

    fn settle_held(&self, held: &Held, actuals: &[ExactAmount]) -> StoreFuture<'static, Settled> {
        let (store, held, actuals) = (Arc::clone(&self.0), held.clone(), actuals.to_vec());
        StoreFuture::waiting(async move { store.settle_all(&held, &actuals, None).await })
    }

    fn inspect(&self, limits: &[Arc<Limit>]) -> StoreFuture<'_, Vec<CounterView>> {
        let (store, limits) = (Arc::clone(&self.0), limits.to_vec());
        StoreFuture::waiting(async move { store.inspect_all(&limits).await })
    }

    fn status(&self) -> StoreStatus {
        let warnings = self.0.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        let warning = warnings.values().cloned().reduce(|all, warning| format!("{all}; {warning}"));
        drop(warnings);
        let is_away = [&self.0.is_empty, &self.0.is_out_of_sight].iter().any(|is| is.load(Ordering::SeqCst));
        StoreStatus { available: !is_away, warning, ..StoreStatus::default() }
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("client", self.0.client()).finish_non_exhaustive()
    }
}
