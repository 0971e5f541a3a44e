//! Running a program and saying what went wrong.

use std::process::{Command, Stdio};

/// Runs `command` with its output on the terminal.
///
/// # Errors
///
/// It could not start, or ended with another status than 0.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{}: {error}", name(command)))?;
    if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", name(command))) }
}

/// Runs `command` and returns what it printed.
///
/// # Errors
///
/// It could not start, or ended with another status than 0.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let output =
        command.stderr(Stdio::inherit()).output().map_err(|error| format!("{}: {error}", name(command)))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(format!("{} ended with {}\n{text}", name(command), output.status))
}

fn name(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
