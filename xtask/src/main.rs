//! Tasks for working on the project: `cargo xtask <task>`.

mod prices;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "xtask", about = "Tasks for working on the project")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Import a public price map into the price table.
    Prices(prices::Arguments),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Prices(arguments) => prices::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}
