//! The `tollgate` command.

mod check;
mod cli;
mod copy;
mod demo;
mod describe;
mod explain;
mod key;
mod load;
mod mock;
mod out;
mod price;
mod progress;
mod serve;
mod signals;
mod simulate;
mod store;
mod table;
mod usage;
mod watch;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command, KeyCommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Key { command: KeyCommand::New(args) } => key::new(&args),
        Command::Price(args) => price::run(&args),
        Command::Usage(args) => usage::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Mock(args) => mock::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("tollgate: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}
