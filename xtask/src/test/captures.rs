//! The suite over recorded exchanges, which lie beside the project, not in it.

use std::{env, path::PathBuf};

use super::{command, steps::Context};

/// Names the folder of recorded exchanges.
const VARIABLE: &str = "TOLLGATE_CAPTURES";

/// Where they lie if the variable is not set, seen from the project's root.
const BESIDE_THE_PROJECT: &str = "../shared/data/captures";

/// Runs the suite; without recordings it fails in CI and says so elsewhere.
pub(super) fn run(context: &Context) -> Result<(), String> {
    let Some(folder) = folder(context) else {
        let message = format!("no recorded exchanges: set {VARIABLE} to their folder");
        if env::var_os("CI").is_some() {
            return Err(message);
        }
        eprintln!("left out, {message}");
        return Ok(());
    };
    let arguments = ["test", "--workspace", "--locked", "--test", "captures"];
    command::run(context.cargo(&arguments).env(VARIABLE, folder))
}

fn folder(context: &Context) -> Option<PathBuf> {
    let named = env::var_os(VARIABLE).map(PathBuf::from);
    let folder = named.unwrap_or_else(|| context.root.join(BESIDE_THE_PROJECT));
    folder.join("INDEX.md").is_file().then_some(folder)
}
