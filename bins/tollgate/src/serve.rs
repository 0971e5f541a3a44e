//! `tollgate serve`: loads, restores, serves, drains.

use std::{io::IsTerminal, num::NonZeroUsize, path::Path, sync::Arc, thread::available_parallelism};

use indicatif::{ProgressBar, ProgressStyle};
use tollgate_config::{Config, ProcessEnvironment};
use tollgate_pricing::PriceTable;
use tollgate_proxy::Setup;
use tollgate_store::{Clock, MemoryStore, SystemClock};
use tracing_subscriber::EnvFilter;

use crate::{
    cli::{ConfigArgs, Failure},
    signals,
};

/// The most worker threads that `serve` starts by itself.
const WORKERS_MAX: usize = 64;

pub(crate) fn run(args: &ConfigArgs) -> Result<(), Failure> {
    start_logging();
    let (config, prices) = load(&args.config)?;
    let warnings = config.warnings.clone();
    let setup = Setup::new(config, prices);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    for warning in warnings.iter().chain(&setup.warnings(clock.now())) {
        tracing::warn!("{warning}");
    }
    let store = Arc::new(MemoryStore::new(clock.clone()));
    restore(&setup, &store)?;
    let proxy = setup.start(store, clock, workers()).map_err(Failure::refused)?;
    tracing::info!(listen = %proxy.address(), admin = %proxy.admin_address(), "serving");
    signals::wait_for_stop().map_err(Failure::refused)?;
    tracing::info!("draining");
    let stopped = proxy.stop().map_err(Failure::refused)?;
    tracing::info!(connections_cut = stopped.connections_cut, "stopped");
    Ok(())
}

/// The configuration at `path` and the price table it names.
pub(crate) fn load(path: &Path) -> Result<(Config, Arc<PriceTable>), Failure> {
    let config = Config::load(path, &ProcessEnvironment).map_err(Failure::config)?;
    let prices = match &config.pricing.file {
        None => PriceTable::builtin(),
        Some(file) => read_table(file).map_err(|error| Failure::config(format!("pricing.file: {error}")))?,
    };
    check_usage_file(&config.usage.file).map_err(|problem| {
        Failure::config(format!("usage.file: {}: {problem}", config.usage.file.display()))
    })?;
    Ok((config, prices))
}

/// Events are appended to a file and read back from it: a pipe or a device cannot hold them.
fn check_usage_file(file: &Path) -> Result<(), &'static str> {
    match file.metadata() {
        Ok(found) if found.is_file() => Ok(()),
        Ok(_) => Err("must be a regular file"),
        Err(_) => match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() && !parent.is_dir() => {
                Err("its directory does not exist: create it, or name another file")
            }
            _ => Ok(()),
        },
    }
}

/// The price table in `file`.
pub(crate) fn read_table(file: &Path) -> Result<Arc<PriceTable>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let table = PriceTable::from_yaml(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(Arc::new(table))
}

fn restore(setup: &Setup, store: &MemoryStore) -> Result<(), Failure> {
    let bar = progress_bar();
    let summary = setup
        .restore(store, |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        })
        .map_err(Failure::refused)?;
    bar.finish_and_clear();
    tracing::info!(
        events = summary.events,
        duplicates = summary.duplicates,
        skipped_lines = summary.skipped_lines,
        torn_tail = summary.torn_tail,
        "spend restored from the usage file"
    );
    Ok(())
}

fn progress_bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = "reading usage {bar:30} {bytes}/{total_bytes} {eta}";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style)
}

fn workers() -> NonZeroUsize {
    let cores = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    cores.min(NonZeroUsize::new(WORKERS_MAX).unwrap_or(cores))
}

/// JSON lines on standard error; `TOLLGATE_LOG` filters (`info` when it is not set).
fn start_logging() {
    let filter = EnvFilter::try_from_env("TOLLGATE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
}
