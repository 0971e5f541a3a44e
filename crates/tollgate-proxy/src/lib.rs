//! The proxy: a request's way from a client to a provider and back.
//!
//! It routes, authenticates, inspects, admits, forwards, meters and settles. What a request costs is
//! decided by `tollgate-pricing`, whether it may be paid by `tollgate-store`; what providers say is
//! read by `tollgate-providers`. This crate moves the bytes and keeps one promise: an admitted call
//! is settled exactly once, whatever happens to it.
//!
//! A [`Setup`] is made from a configuration, a store is filled with what was spent before
//! ([`Setup::restore`]), and [`Setup::start`] opens the listeners. [`Proxy::stop`] drains.

mod admin;
mod admit;
mod alerts;
mod amounts;
mod app;
mod attributes;
mod auth;
mod body;
mod call;
mod error;
mod estimates;
mod explain;
mod fit;
mod forward;
mod headers;
mod hex;
mod listen;
mod metrics;
mod network;
mod once;
mod policy;
mod quote;
mod refuse;
mod relay;
mod reload;
mod request;
mod restore;
mod route;
mod server;
mod service;
mod session;
mod settle;
mod simulate;
#[cfg(feature = "simulation")]
mod simulation;
mod spending;
mod stall;
mod tls;
mod unplanned;
mod upload;
mod upstream;

use std::{
    fmt,
    net::{SocketAddr, TcpListener},
    num::NonZeroUsize,
    path::Path,
    sync::{Arc, atomic::AtomicU64},
    thread::JoinHandle,
};

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_config::{Alert, Config, KeyHash, Unpriced, UsageLog};
use tollgate_limiter::TimestampMs;
use tollgate_pricing::PriceTable;
use tollgate_store::{Clock, MemoryStore, Store};
use tollgate_usage::{
    Fsync, Journal, ReplaySummary, Replayed, UsageError, Writer, WriterOptions, replay_kept,
};

use crate::{
    alerts::{AlertThread, Crossing, Thresholds, Watch},
    app::{App, Parts},
    estimates::Estimates,
    metrics::Metrics,
    network::Network,
    policy::{AppliedLimit, Policy},
    reload::ReloadState,
    server::Shared,
};

pub use error::StartError;
pub use explain::{ExplainedLimit, ExplainedModel, Explanation, Question, Unexplained};
pub use policy::KeyLimit;
pub use reload::ReloadError;
pub use restore::Recovered;
pub use simulate::{
    SimulateError, SimulateProgress, SimulatedCalls, SimulatedLimit, SimulatedRefusals, Simulation,
};
#[cfg(feature = "simulation")]
pub use simulation::{Dial, InMemoryProxy};
pub use spending::Spending;

/// A configuration, compiled and ready to be started.
#[derive(Debug)]
pub struct Setup {
    config: Config,
    policy: Policy,
    estimates: Arc<Estimates>,
    /// Open once it is restored.
    journal: Option<Arc<Journal>>,
}

impl Setup {
    /// Compiles `config` with the price table it names.
    pub fn new(config: Config, prices: Arc<PriceTable>) -> Self {
        let policy = Policy::new(&config, prices);
        Self { config, policy, estimates: Arc::default(), journal: None }
    }

    /// What the configuration says and probably does not mean, as far as only prices tell: models that
    /// none has, limits beyond what one call can be checked against.
    pub fn warnings(&self, at: TimestampMs) -> Vec<String> {
        self.policy.warnings(at)
    }

    /// The limits that calls of a key can meet, the most restrictive first; `None` for a key that is not
    /// configured.
    pub fn key_limits(&self, key: &KeyHash) -> Option<Vec<KeyLimit>> {
        self.policy.key_limits(key)
    }

    /// What happens to a call of a key that names a model without a price; `None` for a key that is not
    /// configured. A budget that only some calls meet may demand more of those.
    pub fn unpriced(&self, key: &KeyHash) -> Option<Unpriced> {
        self.policy.key(key).map(|key| key.unpriced)
    }

    /// Learns from the usage file what estimates of the input have taught, as a start does. Nothing is written,
    /// and a proxy may be using the file. One that does not exist teaches nothing.
    ///
    /// # Errors
    ///
    /// The file exists and cannot be read.
    pub fn learn(
        &self,
        at: TimestampMs,
        progress: impl FnMut(u64, u64),
    ) -> Result<ReplaySummary, UsageError> {
        let learn = |event: &Replayed<'_>| self.estimates.learn_again(&self.policy, event);
        replay_kept(&self.config.usage.file, at, progress, learn)
    }

    /// What would become of a request, up to the store: nothing is sent and nothing is counted. Its input is
    /// corrected by what was [learned](Self::learn).
    ///
    /// # Errors
    ///
    /// It would be refused whatever its counters say.
    pub fn explain(&self, question: &Question<'_>, at: TimestampMs) -> Result<Explanation, Unexplained> {
        explain::explain(&self.policy, &self.estimates, question, at)
    }

    /// What would have become of the calls that usage files tell of, under this configuration. Those before
    /// `since` are taken as they were: what they cost counts in budgets.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or the calls are too many.
    pub fn simulate<P: AsRef<Path>>(
        &self,
        files: &[P],
        since: Option<TimestampMs>,
        progress: impl FnMut(SimulateProgress),
    ) -> Result<Simulation, SimulateError> {
        simulate::simulate(&self.policy, files, since, progress)
    }

    /// Reads the usage file, or a checkpoint and what the file has beyond it, and brings what was spent in the current periods back into `store`, calls that
    /// were open when an earlier process was killed among it. From now on no other process can use the file.
    ///
    /// `progress` is called with the bytes read and the bytes there are. A file that does not exist
    /// is an empty one.
    ///
    /// # Errors
    ///
    /// The file exists and cannot be read, or another process uses it.
    pub fn restore(
        &mut self,
        store: &MemoryStore,
        progress: impl FnMut(u64, u64),
    ) -> Result<ReplaySummary, UsageError> {
        let mut journal = Journal::open(&self.config.usage.file)?;
        let summary = restore::restore(&mut journal, &self.policy, &self.estimates, store, progress)?;
        self.journal = Some(Arc::new(journal));
        Ok(summary)
    }

    /// As [`restore`](Self::restore) for a store that many copies share: it has counted what was spent. Calls
    /// that were open when an earlier process was killed are recorded as spent, which is what they stay charged
    /// as. From now on a settlement stays in the journal until that is told that the store has answered.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn recover(&mut self, progress: impl FnMut(u64, u64)) -> Result<Recovered, UsageError> {
        let mut journal = Journal::open(&self.config.usage.file)?;
        journal.keep_settlements();
        // What was spent is asked for by nobody.
        let now = TimestampMs::new(u64::MAX);
        let learn = |event: &Replayed<'_>| self.estimates.learn_again(&self.policy, event);
        let summary = journal.restore(now, progress, learn)?;
        let unsettled = journal.take_unsettled();
        let journal = Arc::new(journal);
        self.journal = Some(Arc::clone(&journal));
        Ok(Recovered::new(summary, journal, unsettled))
    }

    /// Opens both listeners and starts `workers` threads.
    ///
    /// # Errors
    ///
    /// A listener, a worker, a CA file or the usage file cannot be used.
    pub fn start(
        self,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        workers: NonZeroUsize,
    ) -> Result<Proxy, StartError> {
        let (listen, admin_listen) = (self.config.server.listen, self.config.server.admin_listen);
        let options = writer_options(&self.config.usage);
        let (usage_file, alerts) = (self.config.usage.file.clone(), self.config.alerts.clone());
        let known = self.policy.known_budgets();
        let (shared, crossings) = self.shared(store, clock, Network::default(), options, workers.get())?;
        let shared = Arc::new(shared);
        let alerts = start_alerts(&shared, &usage_file, &alerts, &known, crossings)?;
        let ended = CancellationToken::new();
        // Whoever is told that the proxy is ready finds it: the admin's port is bound before the workers
        // begin, and answered after.
        let admin = bind_admin(admin_listen)?;
        let (workers, address) = start_workers(listen, &shared, workers)?;
        let (admin, admin_address) = start_admin(admin, &shared, &ended)?;
        Ok(Proxy { shared, ended, address, admin_address, workers, admin: Some(admin), alerts })
    }

    /// What all workers share.
    fn shared(
        self,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        network: Network,
        writer: WriterOptions,
        workers: usize,
    ) -> Result<(Shared, mpsc::Receiver<Crossing>), StartError> {
        let Self { config, policy, estimates, journal } = self;
        let usage = match journal {
            Some(journal) => Writer::resume(journal, writer)?,
            None => Writer::open(&config.usage.file, writer)?,
        };
        let (watch, crossings) = Watch::new(Thresholds::of(&config.alerts));
        let parts = Parts {
            network,
            alerts: Arc::new(watch),
            store,
            clock,
            usage: Arc::new(usage),
            metrics: Arc::new(Metrics::new()),
            estimates,
            once: Arc::default(),
            max_body_bytes: config.server.max_body_bytes,
            large_bodies: upload::large_bodies(),
            cutting: CancellationToken::new(),
            tasks: TaskTracker::new(),
            settling: TaskTracker::new(),
        };
        let app = App::new(&config, policy, parts, workers)?;
        let connections = config.server.max_connections.min(Semaphore::MAX_PERMITS);
        let shared = Shared {
            app: ArcSwap::from_pointee(app),
            reload: ReloadState::new(&config),
            connections: Arc::new(Semaphore::new(connections)),
            header_timeout: config.server.header_timeout,
            drain: config.server.drain,
            stop: CancellationToken::new(),
            cut: AtomicU64::new(0),
        };
        Ok((shared, crossings))
    }
}

fn writer_options(usage: &UsageLog) -> WriterOptions {
    WriterOptions {
        fsync: match usage.fsync {
            tollgate_config::Fsync::Never => Fsync::Never,
            tollgate_config::Fsync::Second => Fsync::Second,
            tollgate_config::Fsync::Always => Fsync::Always,
        },
        rotate_bytes: usage.rotate_bytes,
        rotate_daily: usage.rotate_daily,
        keep_files: usage.keep_files,
        ..WriterOptions::default()
    }
}

/// Starts the thread for alerts, and tells of what was crossed before.
fn start_alerts(
    shared: &Shared,
    usage_file: &Path,
    alerts: &[Alert],
    known: &[AppliedLimit],
    crossings: mpsc::Receiver<Crossing>,
) -> Result<AlertThread, StartError> {
    let app = shared.app.load();
    let (clock, metrics, network) = (app.clock.clone(), app.metrics.clone(), app.network.clone());
    let thread = AlertThread::start(usage_file, alerts, crossings, (clock, metrics, network))?;
    app.alerts.look(&*app.store, known, app.clock.now());
    Ok(thread)
}

fn start_workers(
    address: SocketAddr,
    shared: &Arc<Shared>,
    count: NonZeroUsize,
) -> Result<(Vec<JoinHandle<()>>, SocketAddr), StartError> {
    let at = |source| StartError::Listen { address, source };
    let listeners = listen::listeners(address, count.get()).map_err(at)?;
    let bound = match listeners.first() {
        Some(listener) => listener.local_addr().map_err(at)?,
        None => address,
    };
    let spawn = |(index, listener)| server::spawn(index, listener, shared.clone());
    let workers = listeners.into_iter().enumerate().map(spawn).collect::<Result<_, _>>()?;
    Ok((workers, bound))
}

fn bind_admin(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let at = |source| StartError::Listen { address, source };
    let listener = listen::listeners(address, 1).map_err(at)?.remove(0);
    let bound = listener.local_addr().map_err(at)?;
    Ok((listener, bound))
}

fn start_admin(
    (listener, bound): (TcpListener, SocketAddr),
    shared: &Arc<Shared>,
    ended: &CancellationToken,
) -> Result<(JoinHandle<()>, SocketAddr), StartError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Worker)?;
    let (shared, ended) = (shared.clone(), ended.clone());
    let serve = move || {
        runtime.block_on(async move {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => admin::run(listener, shared, ended).await,
                Err(error) => tracing::error!(%error, "the admin listener cannot be used"),
            }
        });
    };
    let thread =
        std::thread::Builder::new().name("admin".to_owned()).spawn(serve).map_err(StartError::Worker)?;
    Ok((thread, bound))
}

/// A running proxy. Dropping it stops it without waiting for open requests.
pub struct Proxy {
    shared: Arc<Shared>,
    ended: CancellationToken,
    address: SocketAddr,
    admin_address: SocketAddr,
    workers: Vec<JoinHandle<()>>,
    admin: Option<JoinHandle<()>>,
    alerts: AlertThread,
}

impl Proxy {
    /// Where clients connect.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where health and metrics are.
    pub const fn admin_address(&self) -> SocketAddr {
        self.admin_address
    }

    /// What it has spent, for a shared store that has forgotten it.
    pub fn spending(&self) -> Spending {
        Spending {
            shared: Arc::downgrade(&self.shared),
            usage_file: self.shared.reload.usage_file().to_owned(),
        }
    }

    /// Waits until everything recorded so far is in the usage file. Blocks.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn flush_usage(&self) -> Result<(), UsageError> {
        self.shared.app.load().usage.flush()
    }

    /// Stops accepting, lets open requests finish for up to `server.drain_seconds`, settles them,
    /// writes the last events. Blocks until all of that is done.
    ///
    /// # Errors
    ///
    /// The last events could not be written.
    pub fn stop(mut self) -> Result<Stopped, UsageError> {
        self.shared.stop.cancel();
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                tracing::error!("a worker ended with a panic");
            }
        }
        let closed = self.shared.app.load().usage.close();
        self.ended.cancel();
        if self.admin.take().is_some_and(|admin| admin.join().is_err()) {
            tracing::error!("the admin listener ended with a panic");
        }
        closed?;
        Ok(Stopped { connections_cut: self.shared.cut.load(std::sync::atomic::Ordering::Relaxed) })
    }
}

/// How a stop went.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stopped {
    /// Connections that outlasted the drain and were cut.
    pub connections_cut: u64,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stop.cancel();
        self.ended.cancel();
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("address", &self.address).finish_non_exhaustive()
    }
}
