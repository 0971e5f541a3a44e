//! cargo-deny over `deny.toml`.

use std::process::Command;

use super::steps::Context;
use crate::{command, tool::Tool};

const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };

/// Checks licences, bans and sources. Advisories need a database from the network: `deny.toml`.
pub(super) fn run(context: &Context) -> Result<(), String> {
    let mut check = Command::new(DENY.installed(&context.target)?);
    check.args(["check", "--hide-inclusion-graph", "licenses", "bans", "sources"]).current_dir(&context.root);
    command::run(&mut check)
}
