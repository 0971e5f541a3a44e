//! Standard output, as a command that may be piped into another must treat it.

use std::io::{self, Write};

use crate::cli::Failure;

/// Writes all of `text`. A reader that has left wants no more of it: that is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::refused(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}
