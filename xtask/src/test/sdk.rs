//! The official Python SDKs against the release binary, in a virtual environment below the target
//! folder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::steps::Context;
use crate::command;

const SUITE: &str = "tests/sdk";
const PIN_FILES: &[&str] = &["requirements.txt", "constraints.txt"];

/// Installs the pinned SDKs if they are not there yet, and runs the suite.
pub(super) fn run(context: &Context) -> Result<(), String> {
    let suite = context.root.join(SUITE);
    let python = installed(&suite, &context.target.join("sdk-venv"))?;
    let cache = context.target.join("sdk-cache");
    let mut pytest = Command::new(python);
    pytest.args(["-B", "-m", "pytest", "--quiet", "-o"]).arg(format!("cache_dir={}", cache.display()));
    command::run(pytest.arg(&suite).env("TOLLGATE_BIN", context.binary()))
}

/// The Python of a virtual environment that holds exactly the pinned packages.
fn installed(suite: &Path, venv: &Path) -> Result<PathBuf, String> {
    let python = venv.join("bin").join("python");
    let stamp = venv.join("installed.txt");
    let pins = pins(suite)?;
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == pins) {
        return Ok(python);
    }
    command::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(venv))?;
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]);
    command::run(install.arg(suite.join("requirements.txt")))?;
    fs::write(&stamp, pins).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(python)
}

fn pins(suite: &Path) -> Result<String, String> {
    let mut pins = String::new();
    for name in PIN_FILES {
        let path = suite.join(name);
        pins += &fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(pins)
}
