//! How far the usage file may be summed up.

use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::cover::Opened;
use crate::writer::files;

/// Shared by the thread that appends and the one that sums up.
#[derive(Debug, Default)]
pub(crate) struct Tip(Mutex<u64>);

impl Tip {
    /// So many bytes of the usage file are whole lines of calls that the journal keeps no longer.
    pub(crate) fn is_at(&self, bytes: u64) {
        *self.lock() = bytes;
    }

    /// Runs `rename`, after which the usage file is another one of the length that it tells.
    pub(crate) fn replace<E>(&self, rename: impl FnOnce() -> Result<u64, E>) -> Result<(), E> {
        let mut bytes = self.lock();
        *bytes = rename()?;
        Ok(())
    }

    /// The usage file at `path` up to here, behind those that it was rotated to, which are whole. Empty files
    /// are left out.
    pub(super) fn open(&self, path: &Path) -> io::Result<Vec<Opened>> {
        // No file is renamed meanwhile.
        let bytes = self.lock();
        let mut opened = files(path)?.into_iter().map(Opened::open).collect::<io::Result<Vec<_>>>()?;
        match opened.last_mut().filter(|last| last.path == path) {
            Some(current) if current.bytes >= *bytes => current.bytes = *bytes,
            // The file was taken away, or could not be replaced: lines go on to one of another name.
            _ => return Ok(Vec::new()),
        }
        opened.retain(|file| file.bytes > 0);
        Ok(opened)
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
