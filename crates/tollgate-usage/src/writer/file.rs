//! The file: append only, lines whole.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::error::UsageError;

/// Where lines are appended to.
pub(super) trait Append: Send + 'static {
    /// A batch of whole lines is about to be appended.
    fn begin(&mut self, _lines: &[u8]) {}

    /// Appends the beginning of `bytes` and says how much that was.
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Has the disk confirm what was appended.
    fn sync(&mut self) -> io::Result<()>;

    /// The calls of all that was appended are over. Says how often the file was replaced so far.
    fn over(&mut self) -> u64 {
        0
    }
}

impl Append for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        match self.sync_all() {
            // A pipe or a terminal has nothing to confirm.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            result => result,
        }
    }
}

/// Opens or creates the file at `path` for appending, and ends a torn last line.
pub(crate) fn open(path: &Path) -> Result<File, UsageError> {
    let open = OpenOptions::new().read(true).append(true).create(true).open(path);
    let mut file = open.map_err(|source| UsageError::new(path, "open for appending", source))?;
    if ends_within_line(&mut file).map_err(|source| UsageError::new(path, "read the end", source))? {
        tracing::warn!(file = %path.display(), "the usage file ends within a line, which is ended here");
        file.write_all(b"\n").map_err(|source| UsageError::new(path, "end the torn line", source))?;
    }
    Ok(file)
}

fn ends_within_line(file: &mut File) -> io::Result<bool> {
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}
