//! What a request is served with: what the configuration decides, and what outlives a reload.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use foldhash::quality::RandomState;
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_config::{Config, Provider};
use tollgate_store::{Clock, Store};
use tollgate_usage::Writer;

use crate::{
    alerts::Watch,
    error::StartError,
    estimates::Estimates,
    metrics::{Metrics, TenantSeries},
    network::Network,
    once::Once,
    policy::Policy,
    tls,
    upstream::Upstream,
};

/// One configuration at work. Immutable: a reload puts another one in its place, and calls that are open
/// keep theirs until they are settled.
pub(crate) struct App {
    pub(crate) policy: Policy,
    /// How long an answer is read on after its client has left.
    pub(crate) drain: Duration,
    pub(crate) parts: Parts,
    /// The series of every configured tenant, so that a settlement looks nothing up by label.
    series: HashMap<Arc<str>, TenantSeries, RandomState>,
    providers: Vec<Provider>,
    /// Each worker's upstreams, in the order of the providers.
    upstreams: Vec<Vec<Arc<Upstream>>>,
}

/// What outlives a configuration.
#[derive(Clone)]
pub(crate) struct Parts {
    /// What providers are reached by.
    pub(crate) network: Network,
    pub(crate) store: Arc<dyn Store>,
    /// Finds budgets that reach a part that is told of.
    pub(crate) alerts: Arc<Watch>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) usage: Arc<Writer>,
    pub(crate) metrics: Arc<Metrics>,
    /// What estimates of the input have taught.
    pub(crate) estimates: Arc<Estimates>,
    /// Requests that have named themselves.
    pub(crate) once: Arc<Once>,
    pub(crate) max_body_bytes: usize,
    /// The memory of large request bodies.
    pub(crate) large_bodies: Arc<Semaphore>,
    /// Set when a drain is over and what is still open is cut.
    pub(crate) cutting: CancellationToken,
    /// Answers that are read on after their request.
    pub(crate) tasks: TaskTracker,
    /// Settlements that wait for the store.
    pub(crate) settling: TaskTracker,
}

impl App {
    /// Puts `config` to work for `workers` threads, with its compiled `policy`.
    pub(crate) fn new(
        config: &Config,
        policy: Policy,
        parts: Parts,
        workers: usize,
    ) -> Result<Self, StartError> {
        Self::following(config, policy, parts, vec![Vec::new(); workers], &[])
    }

    /// The same for the configuration that comes after this one. Providers that have not changed keep
    /// their connections.
    pub(crate) fn succeeded_by(&self, config: &Config, policy: Policy) -> Result<Self, StartError> {
        Self::following(config, policy, self.parts.clone(), self.upstreams.clone(), &self.providers)
    }

    fn following(
        config: &Config,
        policy: Policy,
        parts: Parts,
        mut upstreams: Vec<Vec<Arc<Upstream>>>,
        before: &[Provider],
    ) -> Result<Self, StartError> {
        // Clones of a TLS configuration share its roots and its session cache.
        let tls = config.providers.iter().map(|provider| tls::client_config(provider.ca_pem.as_deref()));
        let tls = tls.collect::<Result<Vec<_>, _>>()?;
        for of_worker in &mut upstreams {
            let same = |provider: &Provider| {
                let index = before.iter().position(|earlier| earlier == provider)?;
                of_worker.get(index).cloned()
            };
            let upstream = |(provider, tls): (&Provider, &rustls::ClientConfig)| match same(provider) {
                Some(upstream) => Ok(upstream),
                None => Upstream::new(provider, tls.clone(), &parts.network).map(Arc::new),
            };
            *of_worker = config.providers.iter().zip(&tls).map(upstream).collect::<Result<_, _>>()?;
        }
        let tenants = config.tenants.iter();
        let series = tenants.map(|tenant| (tenant.id.clone(), parts.metrics.series(&tenant.id))).collect();
        let (drain, providers) = (config.reservation.drain, config.providers.clone());
        Ok(Self { policy, drain, parts, series, providers, upstreams })
    }

    /// A worker's upstreams.
    pub(crate) fn upstreams(&self, worker: usize) -> &[Arc<Upstream>] {
        self.upstreams.get(worker).map_or(&[], |upstreams| upstreams)
    }

    /// The series of a tenant.
    pub(crate) fn series(&self, tenant: &str) -> Option<&TenantSeries> {
        self.series.get(tenant)
    }
}

impl std::ops::Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").finish_non_exhaustive()
    }
}
