//! `cargo xtask test`: everything that must hold before a change lands, from the formatting to the
//! official SDKs against the release binary. It installs what it needs below the target folder.

mod deny;
mod sdk;
mod steps;

use std::{error::Error, path::Path, time::Duration};

use tollgate_store::{Clock as _, SystemClock};

use crate::workspace::Workspace;
use steps::{Context, STEPS, Step};

/// Which steps to run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Run only this step (may be repeated).
    #[arg(long, value_parser = steps::names())]
    only: Vec<String>,
    /// Leave out what needs the release binary, a download or a long build.
    #[arg(long, conflicts_with = "only")]
    quick: bool,
}

/// How one step ended.
struct Done {
    step: &'static Step,
    took: Duration,
    problem: Option<String>,
}

/// Runs the steps, each to its end, and prints what each took.
///
/// # Errors
///
/// Names the steps that failed.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let context = Context::new(root, &Workspace::read(root)?);
    let clock = SystemClock::new();
    let mut all = Vec::new();
    for step in STEPS.iter().filter(|step| arguments.wants(step)) {
        eprintln!("\n=== {}: {}", step.name, step.what);
        let start = clock.elapsed();
        let problem = (step.run)(&context).err();
        if let Some(problem) = &problem {
            eprintln!("{}: {problem}", step.name);
        }
        all.push(Done { step, took: clock.elapsed().saturating_sub(start), problem });
    }
    summarise(&all)
}

impl Arguments {
    fn wants(&self, step: &Step) -> bool {
        if self.only.is_empty() {
            step.is_quick || !self.quick
        } else {
            self.only.iter().any(|name| name == step.name)
        }
    }
}

fn summarise(all: &[Done]) -> Result<(), Box<dyn Error>> {
    eprintln!("\n=== summary");
    for Done { step, took, problem } in all {
        let verdict = problem.as_ref().map_or("ok", |_| "FAILED");
        let (seconds, tenths) = (took.as_secs(), took.subsec_millis() / 100);
        eprintln!("{:<9} {seconds:>5}.{tenths} s  {verdict}", step.name);
    }
    let total: Duration = all.iter().map(|done| done.took).sum();
    eprintln!("{:<9} {:>5}.{} s", "total", total.as_secs(), total.subsec_millis() / 100);

    let failed: Vec<&str> =
        all.iter().filter(|done| done.problem.is_some()).map(|done| done.step.name).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", ")).into()) }
}
