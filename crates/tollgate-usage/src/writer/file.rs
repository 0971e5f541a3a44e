//! The file: append only, lines whole.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::error::UsageError;

/// A file that is only appended to.
#[derive(Debug)]
pub(super) struct AppendFile {
    file: File,
}

impl AppendFile {
    /// Opens or creates it, and ends a torn last line.
    pub(super) fn open(path: &Path) -> Result<Self, UsageError> {
        let open = OpenOptions::new().read(true).append(true).create(true).open(path);
        let mut file = open.map_err(|source| UsageError::new(path, "open for appending", source))?;
        let torn =
            ends_within_line(&mut file).map_err(|source| UsageError::new(path, "read the end", source))?;
        if torn {
            tracing::warn!(file = %path.display(), "the usage file ends within a line; that line is lost");
            file.write_all(b"\n").map_err(|source| UsageError::new(path, "end the torn line", source))?;
        }
        Ok(Self { file })
    }

    /// Appends `bytes` and takes what was written off them, so that a repeated call goes on where a
    /// failed one stopped.
    pub(super) fn append(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let mut done = 0;
        let result = self.append_from(bytes, &mut done);
        bytes.drain(..done);
        result
    }

    fn append_from(&mut self, bytes: &[u8], done: &mut usize) -> io::Result<()> {
        while let Some(rest) = bytes.get(*done..).filter(|rest| !rest.is_empty()) {
            match self.file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => *done = done.saturating_add(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Has the disk confirm what was appended. What cannot be synchronised (a pipe, a terminal) is
    /// left alone.
    pub(super) fn sync(&self) -> io::Result<()> {
        match self.file.sync_all() {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            result => result,
        }
    }
}

fn ends_within_line(file: &mut File) -> io::Result<bool> {
    if !file.metadata()?.is_file() || file.metadata()?.len() == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}
