//! What every worker shares: the policy, the store, the clock, the usage writer, metrics.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use tollgate_store::{Clock, Store};
use tollgate_usage::Writer;

use crate::{metrics::Metrics, policy::Policy};

/// The proxy's shared parts.
pub(crate) struct App {
    pub(crate) policy: Policy,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) usage: Writer,
    pub(crate) metrics: Metrics,
    pub(crate) max_body_bytes: usize,
    /// The memory of large request bodies.
    pub(crate) large_bodies: Arc<Semaphore>,
    /// How long an answer is read on after its client has left.
    pub(crate) drain: Duration,
    /// Set when a drain is over and what is still open is cut.
    pub(crate) cutting: AtomicBool,
    /// Work that goes on after its request: drains, and settlements that wait for the store.
    pub(crate) tasks: TaskTracker,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").finish_non_exhaustive()
    }
}
