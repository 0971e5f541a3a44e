//! Usage files by size and by day.
//!
//! A file that is done gets the name of its first day and a number: `usage.jsonl` becomes
//! `usage.2026-11-30.1.jsonl`. It is renamed between two batches of whole lines, so that no line is split
//! or lost; killed between the renaming and the next file, there is simply none of today's name.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::WriterOptions;
use super::file::{self, Append};
use crate::checkpoint::Tip;
use crate::error::UsageError;
use crate::timestamp::day_of_line;

/// A day as lines have it: `2026-11-30`.
pub(crate) type Day = [u8; 10];

/// Enough of a line to have its moment in it.
const BEGINNING_BYTES: u64 = 128;

/// The usage file, replaced by a new one when it is too long or its day is over.
pub(super) struct Rotating {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// The day of the first line.
    day: Option<Day>,
    bytes_max: Option<u64>,
    daily: bool,
    /// How far checkpoints may go.
    tip: Arc<Tip>,
    rotations: u64,
}

impl Rotating {
    pub(super) fn open(path: &Path, options: &WriterOptions, tip: Arc<Tip>) -> Result<Self, UsageError> {
        let file = file::open(path)?;
        let (bytes_max, daily) = (options.rotate_bytes, options.rotate_daily);
        let path = path.to_owned();
        let mut rotating = Self { path, file, bytes: 0, day: None, bytes_max, daily, tip, rotations: 0 };
        let looked = rotating.look();
        looked.map_err(|source| UsageError::new(&rotating.path, "read the beginning", source))?;
        rotating.tip.is_at(rotating.bytes);
        Ok(rotating)
    }

    /// Finds out what there is already.
    fn look(&mut self) -> io::Result<()> {
        self.bytes = self.file.metadata()?.len();
        let mut beginning = Vec::new();
        if self.bytes > 0 && (self.daily || self.bytes_max.is_some()) {
            File::open(&self.path)?.take(BEGINNING_BYTES).read_to_end(&mut beginning)?;
        }
        self.day = day_of_line(&beginning);
        Ok(())
    }

    fn is_done(&self, lines: &[u8], day: Option<Day>) -> bool {
        let adds = u64::try_from(lines.len()).unwrap_or(u64::MAX);
        let is_full = self.bytes_max.is_some_and(|max| self.bytes.saturating_add(adds) > max);
        let is_of_yesterday = self.daily && day.is_some() && self.day.is_some() && day > self.day;
        self.bytes > 0 && (is_full || is_of_yesterday)
    }

    /// Whether the file was moved away, deleted or replaced by somebody else.
    fn is_gone(&self) -> io::Result<bool> {
        let own = self.file.metadata()?;
        match fs::metadata(&self.path) {
            Ok(there) => Ok((there.dev(), there.ino()) != (own.dev(), own.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Goes on to the file that has the name after `rename`, which is made if there is none.
    fn replace(&mut self, rename: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
        let tip = Arc::clone(&self.tip);
        tip.replace(|| {
            rename(&self.path)?;
            // Should it fail, lines go on to the file that they went to before.
            self.file = file::open(&self.path).map_err(|error| error.source)?;
            self.rotations = self.rotations.saturating_add(1);
            self.look()?;
            Ok(self.bytes)
        })
    }

    fn rotate(&mut self, day: Day) -> io::Result<()> {
        self.file.sync_all()?;
        self.replace(|path| fs::rename(path, next_name(path, day)?))
    }
}

impl Append for Rotating {
    fn begin(&mut self, lines: &[u8]) {
        if self.is_gone().unwrap_or(false) {
            let replaced = self.replace(|_gone| Ok(()));
            let (file, error) = (self.path.display(), replaced.err());
            let error = error.as_ref().map(tracing::field::display);
            tracing::error!(%file, error, "the usage file was moved away while in use: lines go on to a new one");
        }
        let day = day_of_line(lines);
        if let Some(named) = self.day.or(day).filter(|_| self.is_done(lines, day))
            && let Err(error) = self.rotate(named)
        {
            tracing::error!(%error, file = %self.path.display(), "the usage file cannot be rotated");
        }
        self.day = self.day.or(day);
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.bytes = self.bytes.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        Ok(count)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }

    fn over(&mut self) -> u64 {
        self.tip.is_at(self.bytes);
        self.rotations
    }
}

/// The usage file at `path` and those that it was rotated to, as far as they exist: the oldest first.
pub(crate) fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let current = path.exists().then(|| path.to_owned());
    Ok(rotated_files(path)?.into_iter().chain(current).collect())
}

/// The files that `path` was rotated to, the oldest first.
pub(crate) fn rotated_files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut rotated = rotated(path)?;
    rotated.sort_unstable();
    Ok(rotated.into_iter().map(|(_, _, file)| file).collect())
}

fn next_name(path: &Path, day: Day) -> io::Result<PathBuf> {
    let of_day = rotated(path)?.into_iter().filter(|(of, ..)| *of == day);
    let number = of_day.map(|(_, number, _)| number).max().unwrap_or(0).saturating_add(1);
    let day = str::from_utf8(&day).unwrap_or_default();
    let (stem, extension) = parts(path);
    Ok(path.with_file_name(format!("{stem}.{day}.{number}{extension}")))
}

/// Day, number and name of each file that `path` was rotated to.
fn rotated(path: &Path) -> io::Result<Vec<(Day, u64, PathBuf)>> {
    let (stem, extension) = parts(path);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found = Vec::new();
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        let parsed = name.to_str().and_then(|name| {
            let middle = name.strip_prefix(&*stem)?.strip_suffix(&*extension)?.strip_prefix('.')?;
            let (day, number) = middle.split_once('.')?;
            let day: Day = day.as_bytes().try_into().ok()?;
            let is_day = day.iter().enumerate().all(|(at, byte)| match at {
                4 | 7 => *byte == b'-',
                _ => byte.is_ascii_digit(),
            });
            Some((day, number.parse().ok()?)).filter(|_| is_day)
        });
        if let Some((day, number)) = parsed {
            found.push((day, number, path.with_file_name(name)));
        }
    }
    Ok(found)
}

/// The file's name without its extension, and the extension with its dot.
fn parts(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
    let extension = text(path.extension()).map_or_else(String::new, |extension| format!(".{extension}"));
    (text(path.file_stem()).unwrap_or_default(), extension)
}

#[cfg(test)]
mod tests;
