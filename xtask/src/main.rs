//! Tasks for working on the project: `cargo xtask <task>`.

mod bench;
mod command;
mod prices;
mod redis;
mod semver;
mod test;
mod tidy;
mod tool;
mod workspace;

use std::{path::Path, process::ExitCode};

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "xtask", about = "Tasks for working on the project")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Measure what the proxy costs beside one that only passes on.
    Bench(bench::Arguments),
    /// Import a public price map into the price table.
    Prices(prices::Arguments),
    /// Find a redis-server for the tests, or install one.
    Redis,
    /// Compare the public interfaces with those of the last release.
    Semver,
    /// Run every check and test, installing what they need.
    Test(test::Arguments),
    /// Check the rules of the house that the compiler does not check.
    Tidy,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Bench(arguments) => bench::run(root(), &arguments).map_err(Into::into),
        Task::Prices(arguments) => prices::run(&arguments),
        Task::Redis => redis::run().map_err(Into::into),
        Task::Semver => semver::run(root()).map_err(Into::into),
        Task::Test(arguments) => test::run(root(), &arguments),
        Task::Tidy => tidy::run(root()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// The repository's root.
fn root() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest)
}
