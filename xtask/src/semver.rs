//! `cargo xtask semver`: the public interfaces beside those of the last release.

use std::{path::Path, process::Command};

use crate::{command, tool::Tool, workspace::Workspace};

/// What others build on.
const CRATES: &[&str] = &["tollgate-limiter", "tollgate-store", "tollgate-tower"];

/// Runs on the stable compiler.
const SEMVER_CHECKS: Tool = Tool { name: "cargo-semver-checks", version: "0.51.0" };

/// Compares each crate with its state at the last tag `v…`, and fails where the change needs a larger
/// step of the version than the manifest takes.
///
/// # Errors
///
/// Such a change, or what kept it from being looked for.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let Some(release) = last_release(root)? else {
        println!("semver: there is no tag `v…` yet, so nothing to compare with; see CONTRIBUTING.md");
        return Ok(());
    };
    let released: Vec<_> = CRATES.iter().filter(|name| is_part_of(root, &release, name)).collect();
    if released.is_empty() {
        println!("semver: {release} has none of {}", CRATES.join(", "));
        return Ok(());
    }
    let target = Workspace::read(root)?.target_directory;
    let mut check = Command::new(SEMVER_CHECKS.installed(&target)?);
    check.args(["semver-checks", "--baseline-rev", &release]).current_dir(root);
    for name in released {
        check.args(["--package", name]);
    }
    command::run(&mut check)
}

/// The latest tag of a release in the history of what is checked out.
fn last_release(root: &Path) -> Result<Option<String>, String> {
    let tags = ["tag", "--list", "v[0-9]*", "--merged", "HEAD", "--sort=-version:refname"];
    let listed = command::output(Command::new("git").args(tags).current_dir(root))?;
    Ok(listed.lines().next().map(str::to_owned))
}

fn is_part_of(root: &Path, release: &str, name: &str) -> bool {
    let manifest = format!("{release}:crates/{name}/Cargo.toml");
    let mut look = Command::new("git");
    look.args(["cat-file", "-e", &manifest]).current_dir(root);
    look.output().is_ok_and(|output| output.status.success())
}
