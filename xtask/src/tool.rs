//! Tools that are no part of the build: installed below the target folder where they are missing.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::command;

/// A cargo subcommand, in the version that is installed where none is.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}

impl Tool {
    /// The tool below `target`, built there the first time: without optimisation, since it builds in less
    /// than half the time and is quick enough all the same.
    ///
    /// # Errors
    ///
    /// It could not be built.
    pub(crate) fn installed(&self, target: &Path) -> Result<PathBuf, String> {
        let tools = target.join("tools");
        let binary = tools.join("bin").join(self.name);
        if !binary.is_file() {
            let mut install = Command::new(env!("CARGO"));
            install.args(["install", self.name, "--version", self.version, "--debug", "--locked", "--root"]);
            command::run(install.arg(&tools).env("CARGO_PROFILE_DEV_DEBUG", "false"))?;
        }
        Ok(binary)
    }
}
