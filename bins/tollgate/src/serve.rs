//! `tollgate serve`: loads, restores, serves, reloads, drains.

use std::{num::NonZeroUsize, path::Path, sync::Arc, thread::available_parallelism};

use tollgate_config::Config;
use tollgate_pricing::PriceTable;
use tollgate_proxy::{Proxy, Setup};
use tollgate_store::{Clock, SystemClock};
use tollgate_store_redis::CLIENT_LOG_TARGET;
use tracing_subscriber::EnvFilter;

use crate::{
    cli::{ConfigArgs, Failure},
    load,
    signals::{EarlySignals, Signals, Wish},
    store,
    watch::Watch,
};

/// The most worker threads that `serve` starts by itself.
const WORKERS_MAX: usize = 64;

pub(crate) fn run(args: &ConfigArgs) -> Result<(), Failure> {
    start_logging();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let signals = EarlySignals::new().map_err(Failure::refused)?;
    let (loaded, mut watch) = load::watched(&args.config);
    let loaded = loaded?;
    let config = loaded.0.clone();
    let mut setup = set_up(loaded, &*clock);
    let open = store::open(&config, &mut setup, &clock)?;
    let mut signals = Signals::new(signals).map_err(Failure::refused)?;
    let proxy = setup.start(open.store.clone(), clock.clone(), workers()).map_err(Failure::refused)?;
    // Nobody has set it before.
    let _ = open.spending.set(proxy.spending());
    tracing::info!(listen = %proxy.address(), admin = %proxy.admin_address(), "serving");
    while signals.next(&mut watch) == Wish::Reload {
        watch = reload(&proxy, &args.config, &*clock);
    }
    tracing::info!("draining");
    let stopped = proxy.stop().map_err(Failure::refused)?;
    tracing::info!(connections_cut = stopped.connections_cut, "stopped");
    Ok(())
}

/// Compiles a configuration and logs what it probably does not mean.
fn set_up((config, prices): (Config, Arc<PriceTable>), clock: &dyn Clock) -> Setup {
    let warnings = config.warnings.clone();
    let setup = Setup::new(config, prices);
    for warning in warnings.iter().chain(&setup.warnings(clock.now())) {
        tracing::warn!("{warning}");
    }
    setup
}

/// Takes the configuration over as it is now, or keeps the running one and says why. From then on other
/// files may be watched.
fn reload(proxy: &Proxy, path: &Path, clock: &dyn Clock) -> Watch {
    let (loaded, watch) = load::watched(path);
    match loaded {
        Ok(loaded) => match proxy.reload(set_up(loaded, clock)) {
            Ok(()) => tracing::info!(config = %path.display(), "configuration reloaded"),
            Err(error) => rejected(&error.to_string()),
        },
        Err(failure) => {
            proxy.reload_failed(&failure.message);
            rejected(&failure.message);
        }
    }
    watch
}

fn rejected(problem: &str) {
    tracing::error!(problem, "configuration not reloaded: the running one is kept");
}

fn workers() -> NonZeroUsize {
    let cores = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    cores.min(NonZeroUsize::new(WORKERS_MAX).unwrap_or(cores))
}

/// JSON lines on standard error; `TOLLGATE_LOG` filters (when it is not set, `info` and nothing of the Redis client,
/// whose reconnects would fill the log of an outage).
fn start_logging() {
    let usual = || EnvFilter::new(format!("info,{CLIENT_LOG_TARGET}=off"));
    let filter = EnvFilter::try_from_env("TOLLGATE_LOG").unwrap_or_else(|_| usual());
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
}
