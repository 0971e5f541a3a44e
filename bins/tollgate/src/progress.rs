//! The progress bar of commands that read long files.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over bytes on standard error, hidden where that is no terminal.
pub(crate) fn bytes_bar(what: &'static str) -> ProgressBar {
    bar(&format!("{what} {{bar:30}} {{bytes}}/{{total_bytes}} {{eta}}"))
}

/// The same over calls.
pub(crate) fn calls_bar(what: &'static str) -> ProgressBar {
    bar(&format!("{what} {{bar:30}} {{pos}}/{{len}} {{eta}}"))
}

fn bar(template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style)
}
