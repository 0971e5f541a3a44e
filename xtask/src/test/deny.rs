//! cargo-deny over `deny.toml`.

use std::{path::PathBuf, process::Command};

use super::{command, steps::Context};

/// The version that is installed where none is.
const VERSION: &str = "0.20.2";

/// Checks licences, bans and sources. Advisories need a database from the network: `deny.toml`.
pub(super) fn run(context: &Context) -> Result<(), String> {
    let mut check = Command::new(installed(context)?);
    check.args(["check", "--hide-inclusion-graph", "licenses", "bans", "sources"]).current_dir(&context.root);
    command::run(&mut check)
}

/// The tool below the target folder, built there the first time: without optimisation, since it builds in
/// less than half the time and checks this graph in seconds all the same.
fn installed(context: &Context) -> Result<PathBuf, String> {
    let tools = context.target.join("tools");
    let binary = tools.join("bin").join("cargo-deny");
    if !binary.is_file() {
        let mut install =
            context.cargo(&["install", "cargo-deny", "--version", VERSION, "--debug", "--locked", "--root"]);
        command::run(install.arg(&tools).env("CARGO_PROFILE_DEV_DEBUG", "false"))?;
    }
    Ok(binary)
}
