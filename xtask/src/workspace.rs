//! The workspace as cargo knows it.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde::Deserialize;

/// What `cargo metadata` tells of the workspace's own crates.
#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    pub(crate) packages: Vec<Package>,
    pub(crate) target_directory: PathBuf,
}

/// One crate.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) dependencies: Vec<Dependency>,
}

/// One line of a crate's dependencies.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` for a normal dependency, else `dev` or `build`.
    pub(crate) kind: Option<String>,
    #[serde(default)]
    pub(crate) optional: bool,
}

impl Workspace {
    /// Asks cargo; needs no network.
    ///
    /// # Errors
    ///
    /// What cargo said, or that its answer cannot be read.
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
            .current_dir(root)
            .output()
            .map_err(|error| format!("cargo metadata: {error}"))?;
        if !output.status.success() {
            return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
    }
}
