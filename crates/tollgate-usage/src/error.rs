//! What can go wrong with a usage file.

use std::io;
use std::path::PathBuf;

/// A usage file could not be used. The cause is always the file system.
#[derive(Debug, thiserror::Error)]
#[error("usage file {}: {action}: {source}", path.display())]
pub struct UsageError {
    pub(crate) path: PathBuf,
    pub(crate) action: &'static str,
    pub(crate) source: io::Error,
}

impl UsageError {
    pub(crate) fn new(path: impl Into<PathBuf>, action: &'static str, source: io::Error) -> Self {
        Self { path: path.into(), action, source }
    }

    /// Whether the file does not exist: for a reader, nothing was ever used.
    pub fn is_missing(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }

    /// Whether the same call may succeed later without anybody's help.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.source.kind(),
            io::ErrorKind::TimedOut | io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
        )
    }
}
