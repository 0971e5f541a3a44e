//! Opens the store that the configuration names, with what was spent before.

use std::{sync::Arc, time::Duration};

use tollgate_config::{Config, RedisStore, Store as Configured};
use tollgate_proxy::Setup;
use tollgate_store::{Clock, FailurePolicy, MemoryStore, Store};
use tollgate_store_redis::{Settings, SharedStore};
use tollgate_usage::ReplaySummary;

use crate::{cli::Failure, progress::bytes_bar};

/// For how long Redis knows that a reservation is over, less what a clock may be off.
const REMEMBERED: Duration = Duration::from_secs(9 * 60);

/// A store that is open, and what keeps it so.
pub(crate) struct Open {
    pub(crate) store: Arc<dyn Store>,
    /// The connection, if there is one. It ends with its last settlements when this is dropped.
    _shared: Option<SharedStore>,
}

/// Opens the store of `config`. What was spent comes back from the usage file, or is in Redis already.
pub(crate) fn open(config: &Config, setup: &mut Setup, clock: &Arc<dyn Clock>) -> Result<Open, Failure> {
    match &config.store {
        Configured::Redis(redis) => {
            let shared = SharedStore::start(&settings(redis), policy(redis), clock.clone());
            let shared = shared.map_err(|error| Failure::refused(error.to_string()))?;
            let summary = read(|progress| setup.recover(progress))?;
            tracing::info!(recovered = summary.recovered, "counters are in Redis; open calls recovered");
            Ok(Open { store: Arc::new(shared.store()), _shared: Some(shared) })
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
                "spend restored from the usage file"
            );
            Ok(Open { store, _shared: None })
        }
    }
}

/// Reads the usage file behind a progress bar.
fn read<E: std::fmt::Display>(
    read: impl FnOnce(&mut dyn FnMut(u64, u64)) -> Result<ReplaySummary, E>,
) -> Result<ReplaySummary, Failure> {
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
