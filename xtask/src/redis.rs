//! A `redis-server` for the tests to start: found, or installed where that can be done without asking.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

use crate::command;

/// Names the program, where it is not on the path. The tests read it too.
const PROGRAM: &str = "TOLLGATE_REDIS_SERVER";
const PACKAGE: &str = "redis-server";

/// Finds the program, installs it where it is missing, and says where it is.
///
/// # Errors
///
/// It is missing and cannot be installed: that is done with apt-get, as root.
pub(crate) fn run() -> Result<(), String> {
    let program = match found() {
        Some(program) => program,
        None => {
            install()?;
            found().ok_or("the package was installed and has no redis-server on the path")?
        }
    };
    let version = command::output(Command::new(&program).arg("--version"))?;
    eprintln!("{}: {}", program.display(), version.trim());
    Ok(())
}

fn found() -> Option<PathBuf> {
    let named = env::var_os(PROGRAM).map(PathBuf::from);
    named.or_else(|| on_path(&env::var_os("PATH")?))
}

fn on_path(path: &OsString) -> Option<PathBuf> {
    env::split_paths(path).map(|folder| folder.join("redis-server")).find(|program| program.is_file())
}

/// Installs Debian's package. Its service is not started: init scripts do nothing in runlevel 1.
fn install() -> Result<(), String> {
    if !Path::new("/usr/bin/apt-get").is_file() || !is_root() {
        return Err(format!(
            "the tests of the Redis store need a redis-server (6.2 or later): install one, or name it in {PROGRAM}"
        ));
    }
    let apt = |arguments: &[&str]| {
        let mut apt = Command::new("apt-get");
        apt.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
        command::run(&mut apt)
    };
    let install = ["install", "--yes", "--quiet", "--no-install-recommends", PACKAGE];
    // The list of packages may be missing or old.
    apt(&install).or_else(|_| {
        apt(&["update", "--quiet"])?;
        apt(&install)
    })
}

fn is_root() -> bool {
    command::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}
