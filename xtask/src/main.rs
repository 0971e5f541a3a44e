//! Tasks for working on the project: `cargo xtask <task>`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::SUCCESS
}
