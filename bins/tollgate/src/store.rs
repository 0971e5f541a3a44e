//! Opens the store that the configuration names, with what was spent before.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tollgate_config::{Config, RedisStore, Store as Configured};
use tollgate_proxy::{Setup, Spending};
use tollgate_store::{Clock, FailurePolicy, MemoryStore, Store};
use tollgate_store_redis::{ConnectError, Guard, Settings, SharedStore, Spend};

use crate::{cli::Failure, copy, progress::bytes_bar};

/// For how long Redis knows that a reservation is over, less what a clock may be off.
const REMEMBERED: Duration = Duration::from_secs(9 * 60);

/// A store that is open, and what keeps it so.
pub(crate) struct Open {
    pub(crate) store: Arc<dyn Store>,
    /// To be set when the proxy runs: what this copy has spent, should the store not know it.
    pub(crate) spending: Arc<OnceLock<Spending>>,
    /// The connection, if there is one. It ends with its last settlements when this is dropped.
    _shared: Option<SharedStore>,
}

/// Opens the store of `config`. What was spent comes back from the usage file, or is in Redis already.
pub(crate) fn open(config: &Config, setup: &mut Setup, clock: &Arc<dyn Clock>) -> Result<Open, Failure> {
    let spending = Arc::new(OnceLock::new());
    match &config.store {
        Configured::Redis(redis) => {
            let recovered = read(|progress| setup.recover(progress))?;
            let calls = recovered.summary().recovered;
            // Before Redis may be told again.
            let told = copy::told(&config.usage.file);
            let guard = guard(redis, &config.usage.file, &spending, clock)?;
            let shared = SharedStore::start(&settings(redis), policy(redis), Some(guard), clock.clone());
            let shared = shared.map_err(refused)?;
            let settlements = recovered.settle_in(&shared.store(), told);
            tracing::info!(recovered = calls, settlements, "counters are in Redis; open calls recovered");
            Ok(Open { store: Arc::new(shared.store()), spending, _shared: Some(shared) })
        }
        _ => {
            let store = Arc::new(MemoryStore::new(clock.clone()));
            let summary = read(|progress| setup.restore(&store, progress))?;
            tracing::info!(
                events = summary.events,
                duplicates = summary.duplicates,
                skipped_lines = summary.skipped_lines,
                torn_tail = summary.torn_tail,
                recovered = summary.recovered,
                checkpoint_lines = summary.checkpoint_lines,
                "spend restored from the usage file"
            );
            Ok(Open { store, spending, _shared: None })
        }
    }
}

/// Whether the store that the configuration names may be opened, without doing so.
pub(crate) fn check(config: &Config) -> Result<(), Failure> {
    match &config.store {
        Configured::Redis(redis) => settings(redis).check().map_err(refused),
        _ => Ok(()),
    }
}

fn refused(error: ConnectError) -> Failure {
    match error {
        ConnectError::Url(reason) => Failure::config(format!("store.url cannot be used: {reason}")),
        ConnectError::Certificates(_) => Failure::config(error),
        error => Failure::refused(error),
    }
}

/// Reads the usage file behind a progress bar.
fn read<T, E: std::fmt::Display>(
    read: impl FnOnce(&mut dyn FnMut(u64, u64)) -> Result<T, E>,
) -> Result<T, Failure> {
    let bar = bytes_bar("reading usage");
    let summary = read(&mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })
    .map_err(Failure::refused)?;
    bar.finish_and_clear();
    Ok(summary)
}

fn settings(redis: &RedisStore) -> Settings {
    Settings { url: redis.url.expose().to_owned(), prefix: redis.prefix.to_string(), timeout: redis.timeout }
}

fn policy(redis: &RedisStore) -> FailurePolicy {
    FailurePolicy {
        retry: redis.retry,
        local_share: redis.local_share,
        closed: redis.closed,
        remembered: REMEMBERED,
    }
}

/// What an empty Redis is asked of: as many copies as local limits are divided by have to tell what they spent.
fn guard(
    redis: &RedisStore,
    usage_file: &Path,
    spending: &Arc<OnceLock<Spending>>,
    clock: &Arc<dyn Clock>,
) -> Result<Guard, Failure> {
    let name = copy::name(usage_file).map_err(Failure::refused)?;
    let (spending, clock, usage_file) = (spending.clone(), clock.clone(), usage_file.to_owned());
    let spent = move |each: Spend<'_>| {
        let running = spending.get().ok_or("the proxy does not run yet")?;
        copy::note_told(&usage_file, clock.now())?;
        let told = running.each(each).map_err(|error| error.to_string())?;
        if told { Ok(()) } else { Err("the proxy has stopped".to_owned()) }
    };
    Ok(Guard { copy: name.into(), copies: redis.local_share, spent: Arc::new(spent) })
}
