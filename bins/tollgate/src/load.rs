//! Loads a configuration and the price table it names.

use std::{path::Path, sync::Arc};

use tollgate_config::Config;
use tollgate_pricing::PriceTable;

use crate::{
    cli::Failure,
    watch::{NotedEnvironment, Watch},
};

/// The configuration at `path` and the price table it names.
pub(crate) fn load(path: &Path) -> Result<(Config, Arc<PriceTable>), Failure> {
    watched(path).0
}

/// The same, with a watch over every file that had a part in it.
pub(crate) fn watched(path: &Path) -> (Result<(Config, Arc<PriceTable>), Failure>, Watch) {
    let environment = NotedEnvironment::default();
    let loaded = load_through(path, &environment);
    (loaded, environment.watch())
}

fn load_through(path: &Path, environment: &NotedEnvironment) -> Result<(Config, Arc<PriceTable>), Failure> {
    let config = Config::load(path, environment).map_err(Failure::config)?;
    let prices = match &config.pricing.file {
        None => PriceTable::builtin(),
        Some(file) => {
            environment.note(file);
            read_table(file).map_err(|error| Failure::config(format!("pricing.file: {error}")))?
        }
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
