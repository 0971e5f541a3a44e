//! Another configuration in place of the running one: all of it, or nothing.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use tollgate_config::{Config, Server, Store, UsageLog};

use crate::{Proxy, Setup, alerts::Thresholds, error::StartError};

/// Why a configuration does not take the place of the running one. The running one goes on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// Sections differ that are only read at the start.
    #[error("changes in {} need a restart; nothing of the new configuration is in use", .sections.join(" and "))]
    NeedsRestart {
        /// Their names, such as `[server]`.
        sections: Vec<&'static str>,
    },
    /// Something that the configuration names cannot be used.
    #[error(transparent)]
    Unusable(#[from] StartError),
}

impl Proxy {
    /// Puts another configuration in the place of the running one.
    ///
    /// Requests that come from now on are judged by it: keys, limits, prices, routes, providers and
    /// reservations. Calls that are open end as they began. Counters stay: a limit that is raised or
    /// lowered keeps what was spent. A budget that the running configuration does not have begins at
    /// zero here, and after a restart at what the usage file has of its period.
    ///
    /// # Errors
    ///
    /// [`ReloadError`]: nothing has changed, and `/readyz` says so.
    pub fn reload(&self, setup: Setup) -> Result<(), ReloadError> {
        let result = self.try_reload(setup);
        match &result {
            Ok(()) => self.shared.reload.set_problem(None),
            Err(error) => self.reload_failed(&error.to_string()),
        }
        result
    }

    /// Notes that a configuration that was to take the place of the running one cannot be read, so that
    /// `/readyz` says so until another one can.
    pub fn reload_failed(&self, problem: &str) {
        self.shared.reload.set_problem(Some(problem.to_owned()));
    }

    fn try_reload(&self, Setup { config, policy, .. }: Setup) -> Result<(), ReloadError> {
        self.shared.reload.check(&config)?;
        let next = self.shared.app.load().succeeded_by(&config, policy)?;
        let (watch, store, clock) = (next.alerts.clone(), next.store.clone(), next.clock.clone());
        let known = next.policy.known_budgets();
        self.shared.app.store(next.into());
        self.alerts.set(&config.alerts);
        watch.set(Thresholds::of(&config.alerts));
        watch.look(&*store, &known, clock.now());
        Ok(())
    }
}

/// What reloads are measured by, and how the last one went.
pub(crate) struct ReloadState {
    server: Server,
    store: Store,
    usage: UsageLog,
    problem: Mutex<Option<String>>,
}

impl ReloadState {
    pub(crate) fn new(config: &Config) -> Self {
        let (server, store, usage) = (config.server.clone(), config.store.clone(), config.usage.clone());
        Self { server, store, usage, problem: Mutex::default() }
    }

    /// The usage file, which no reload changes.
    pub(crate) fn usage_file(&self) -> &Path {
        &self.usage.file
    }

    /// Whether `config` differs only where a running proxy can follow.
    fn check(&self, config: &Config) -> Result<(), ReloadError> {
        let differs = [
            ("[server]", self.server != config.server),
            ("[store]", self.store != config.store),
            ("[usage]", self.usage != config.usage),
        ];
        let sections: Vec<_> =
            differs.iter().filter(|(_, differs)| *differs).map(|(section, _)| *section).collect();
        if sections.is_empty() { Ok(()) } else { Err(ReloadError::NeedsRestart { sections }) }
    }

    fn set_problem(&self, problem: Option<String>) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }

    /// Why the last configuration was not taken over, if it was not.
    pub(crate) fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
