//! The steps in their order: what fails soonest comes first.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use super::{deny, sdk};
use crate::{command, redis, tidy, workspace::Workspace};

/// Names the folder of recorded exchanges.
const CAPTURES: &str = "TOLLGATE_CAPTURES";

/// How many lives `simulation` tries.
const SIMULATED_LIVES: &str = "4000";

/// One step of the test command.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// Needs no release binary, no download and no long build.
    pub(super) is_quick: bool,
    pub(super) run: fn(&Context) -> Result<(), String>,
}

pub(super) const STEPS: &[Step] = &[
    Step { name: "fmt", what: "formatting", is_quick: true, run: fmt },
    Step { name: "tidy", what: "rules of the house", is_quick: true, run: tidy },
    Step { name: "clippy", what: "lints, warnings denied", is_quick: true, run: clippy },
    Step {
        name: "redis",
        what: "a redis-server for the tests to start",
        is_quick: true,
        run: |_| redis::run(),
    },
    Step { name: "test", what: "unit, property and end-to-end tests", is_quick: true, run: test },
    Step {
        name: "interleavings",
        what: "the memory store's locks under a scheduler that tries orders",
        is_quick: false,
        run: interleavings,
    },
    Step {
        name: "simulation",
        what: "thousands of lives of a deployment on virtual time",
        is_quick: false,
        run: simulation,
    },
    Step { name: "doc", what: "documentation, warnings denied", is_quick: false, run: doc },
    Step {
        name: "deny",
        what: "licences, sources and duplicates of dependencies",
        is_quick: false,
        run: deny::run,
    },
    Step { name: "build", what: "the release binary", is_quick: false, run: build },
    Step { name: "demo", what: "the demo from start to end", is_quick: false, run: demo },
    Step { name: "soak", what: "five minutes of mixed load", is_quick: false, run: soak },
    Step { name: "sdk", what: "the official SDKs against the binary", is_quick: false, run: sdk::run },
];

/// The names of all steps, for the command line.
pub(super) fn names() -> Vec<&'static str> {
    STEPS.iter().map(|step| step.name).collect()
}

/// Where things are.
pub(super) struct Context {
    pub(super) root: PathBuf,
    pub(super) target: PathBuf,
}

impl Context {
    pub(super) fn new(root: &Path, workspace: &Workspace) -> Self {
        Self { root: root.to_path_buf(), target: workspace.target_directory.clone() }
    }

    /// The release binary, which the step `build` makes.
    pub(super) fn binary(&self) -> PathBuf {
        self.target.join("release").join("tollgate")
    }

    /// `cargo` in the project's root.
    pub(super) fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO"));
        command.args(arguments).current_dir(&self.root);
        command
    }
}

fn fmt(context: &Context) -> Result<(), String> {
    command::run(&mut context.cargo(&["fmt", "--all", "--check"]))
}

fn tidy(context: &Context) -> Result<(), String> {
    tidy::run(&context.root).map_err(|problem| problem.to_string())
}

fn clippy(context: &Context) -> Result<(), String> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"];
    command::run(&mut context.cargo(&arguments))
}

fn test(context: &Context) -> Result<(), String> {
    if !captures(context).is_dir() {
        // The suite over them fails by itself in CI.
        eprintln!("LEFT OUT: recorded exchanges; set {CAPTURES} to their folder");
    }
    let arguments = ["test", "--workspace", "--locked", "--no-fail-fast"];
    command::run(&mut context.cargo(&arguments))
}

/// With locks of a scheduler's instead of the system's, which no other build may have.
fn interleavings(context: &Context) -> Result<(), String> {
    let arguments = [
        "test",
        "--package",
        "tollgate-store",
        "--features",
        "shuttle",
        "--test",
        "interleavings",
        "--locked",
    ];
    command::run(&mut context.cargo(&arguments))
}

/// Lives drawn at random. The proxy of this build can do without sockets, which no other can.
fn simulation(context: &Context) -> Result<(), String> {
    let arguments = [
        "test",
        "--package",
        "tollgate-tests",
        "--features",
        "simulation",
        "--test",
        "simulation",
        "--locked",
        "--",
        "--nocapture",
    ];
    command::run(context.cargo(&arguments).env("TOLLGATE_SIM_SEEDS", SIMULATED_LIVES))
}

/// Where the suite over recorded exchanges, which are no part of the project, looks for them.
fn captures(context: &Context) -> PathBuf {
    env::var_os(CAPTURES).map_or_else(|| context.root.join("../shared/data/captures"), PathBuf::from)
}

/// The mixed load that `test` runs for ten seconds, for as long as leaks need to show.
fn soak(context: &Context) -> Result<(), String> {
    let arguments =
        ["test", "--package", "tollgate-tests", "--test", "soak", "--locked", "--", "--nocapture"];
    command::run(context.cargo(&arguments).env("TOLLGATE_SOAK_SECONDS", "300"))
}

fn doc(context: &Context) -> Result<(), String> {
    let arguments = ["doc", "--workspace", "--no-deps", "--locked", "--document-private-items"];
    command::run(context.cargo(&arguments).env("RUSTDOCFLAGS", "--deny warnings"))
}

fn build(context: &Context) -> Result<(), String> {
    command::run(&mut context.cargo(&["build", "--release", "--locked", "--package", "tollgate"]))
}

fn demo(context: &Context) -> Result<(), String> {
    let shown = command::output(Command::new(context.binary()).args(["demo", "--once"]))?;
    print!("{shown}");
    if shown.trim().is_empty() { Err("the demo showed nothing".to_owned()) } else { Ok(()) }
}
