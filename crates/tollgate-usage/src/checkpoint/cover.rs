//! Which files a checkpoint stands for, and how far: told by what is in them, since rotation renames them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::journal::frame::checksum;
use crate::reader::Part;

/// So much of the beginning and of what is before the end tells one file from another.
const LOOK_BYTES: u64 = 4 << 10;

/// A file, as far as a checkpoint stands for it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Covered {
    /// Its name then, for people.
    pub(super) name: String,
    /// Whole lines from its beginning.
    pub(super) bytes: u64,
    head: u64,
    tail: u64,
}

impl Covered {
    pub(super) fn of(path: &Path, file: &File, bytes: u64) -> io::Result<Self> {
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let head = look(file, 0, bytes.min(LOOK_BYTES))?;
        let tail = look(file, bytes.saturating_sub(LOOK_BYTES), bytes.min(LOOK_BYTES))?;
        Ok(Self { name, bytes, head, tail })
    }

    /// Whether `file` begins with what is covered.
    fn is_in(&self, file: &Opened) -> io::Result<bool> {
        if file.bytes < self.bytes {
            return Ok(false);
        }
        let found = Self::of(&file.path, &file.file, self.bytes)?;
        Ok((found.head, found.tail) == (self.head, self.tail))
    }
}

/// A usage file that is open for reading.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) path: PathBuf,
    pub(super) file: File,
    /// How many bytes of it may be read.
    pub(super) bytes: u64,
}

impl Opened {
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let file = File::open(&path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path, file, bytes })
    }

    pub(super) fn from(self, from: u64) -> Part {
        Part { path: self.path, file: self.file, from, to: self.bytes }
    }
}

/// From where on each of `files` is not covered; `None`: they are not the files that `covered` is of.
///
/// All are in the order of time. Of the covered ones the first may be gone, but not the last; behind it may
/// come others.
pub(super) fn beginnings(covered: &[Covered], files: &[Opened]) -> io::Result<Option<Vec<u64>>> {
    let Some(first) = files.first() else { return Ok(None) };
    let mut kept = covered;
    while let Some(entry) = kept.first() {
        if entry.is_in(first)? {
            break;
        }
        kept = kept.get(1..).unwrap_or_default();
    }
    if kept.is_empty() || kept.len() > files.len() {
        return Ok(None);
    }
    for (entry, file) in kept.iter().zip(files) {
        if !entry.is_in(file)? {
            return Ok(None);
        }
    }
    let beginnings = kept.iter().map(|entry| entry.bytes).chain(std::iter::repeat(0));
    Ok(Some(beginnings.take(files.len()).collect()))
}

fn look(file: &File, from: u64, bytes: u64) -> io::Result<u64> {
    let mut buffer = vec![0; usize::try_from(bytes).unwrap_or(0)];
    file.read_exact_at(&mut buffer, from)?;
    Ok(checksum(bytes, &buffer))
}
