//! The file of the log, as far as the journal needs one.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::UsageError;

/// Where the log is kept.
pub(crate) trait Disk: Send + Sync + 'static {
    /// Writes all of `bytes` at `offset`.
    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Fills `bytes` with what was written at `offset`.
    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Has the disk confirm what was written.
    fn sync(&self) -> io::Result<()>;

    /// Forgets all that was written, and has the disk confirm it.
    fn clear(&self) -> io::Result<()>;

    /// Lets another process have the file.
    fn release(&self) -> io::Result<()>;
}

impl Disk for File {
    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn clear(&self) -> io::Result<()> {
        self.set_len(0)?;
        self.sync_all()
    }

    fn release(&self) -> io::Result<()> {
        self.unlock()
    }
}

/// Opens or creates the file at `path` for this process alone. The lock ends with the process.
pub(super) fn open(path: &Path) -> Result<File, UsageError> {
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let file = open.map_err(|source| UsageError::new(path, "open", source))?;
    file.try_lock().map_err(|refused| match refused {
        TryLockError::Error(source) => UsageError::new(path, "lock", source),
        TryLockError::WouldBlock => {
            let message = "another process uses it: give each process a `usage.file` of its own";
            UsageError::new(path, "lock", io::Error::new(io::ErrorKind::WouldBlock, message))
        }
    })?;
    Ok(file)
}
