//! Checkpoints: what a year of usage files comes to, in one file that is read in their place at a start.
//!
//! `<usage.file>.checkpoint` says which files it stands for and how far, and has the calls in them summed up
//! ([`aggregate`]) as lines that the reader of usage files reads. A start reads it, then what the files have
//! beyond it, then the journal. A checkpoint is made of the one before and what the files have beyond that:
//! nothing is kept in memory in between.
//!
//! What tells that a checkpoint is of the files that are there is in [`cover`]; one that is not, is damaged or
//! of another version is left alone with a warning, and everything is read.
//!
//! **Order.** 1. It is noted how far the usage file goes. Only lines count whose calls the journal keeps no longer.
//! 2. Ids are noted that the journal may still have of calls that are over: their frames are not cleared, and such
//! an id may be before the end that was noted, where no start reads it any more. 3. The journal
//! and the usage files are synced. 4. The checkpoint is written beside its place, synced, and renamed.
//! 5. Rotated files that it stands for may be deleted.
//!
//! **Killed** at a write of 4, before the renaming, the checkpoint before is there, and right for ever: files
//! only grow. Killed between two deletions of 5 some files are gone that are summed up: the first of those that
//! a checkpoint stands for may be missing. A power cut leaves no less of the files than the checkpoint stands
//! for, since they were synced before it.
//!
//! **What is in the journal and before the noted end counts once.** Its call was over at 1, so none of its frames is
//! put into the journal after. If an area has one of them at a start, in whichever state the disk has it — none from
//! before 3, which is after 2 — it was one of the two areas of 2 or came after, and the checkpoint has the id. **What
//! is not in the files is not taken for over**: at 2 only such calls count as over that the journal keeps no longer,
//! which is after they were appended; 3 syncs what was appended.

mod aggregate;
mod cover;
mod file;
#[cfg(test)]
mod tests;
mod thread;
mod tip;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tollgate_limiter::TimestampMs;

use crate::error::UsageError;
use crate::journal::Journal;
use crate::reader::{self, Part};
use crate::writer::{files, rotated_files};
use aggregate::Aggregate;
use cover::{Covered, Opened};

pub(crate) use thread::{Checkpoints, Schedule};
pub(crate) use tip::Tip;

/// What a start reads.
#[derive(Debug, Default)]
pub(crate) struct Past {
    /// The sums of a checkpoint.
    pub(crate) sums: Option<Part>,
    /// The ids of calls that it stands for, and the journal may still have.
    pub(crate) closed: Vec<String>,
    /// What it does not stand for.
    pub(crate) rest: Vec<Part>,
}

/// What a start at `now` reads of the usage file at `usage_file` and its rotated ones.
pub(crate) fn past(usage_file: &Path, now: TimestampMs) -> Result<Past, UsageError> {
    // Before the files: one that is deleted meanwhile is summed up in this checkpoint or still open.
    let found = Found::read(usage_file);
    let opened = open_all(usage_file);
    let opened = opened.map_err(|source| UsageError::new(usage_file, "open for reading", source))?;
    Ok(found.past(opened, Some(now)))
}

fn open_all(usage_file: &Path) -> io::Result<Vec<Opened>> {
    files(usage_file)?.into_iter().map(Opened::open).collect()
}

/// What is in a checkpoint's place.
struct Found {
    path: PathBuf,
    read: io::Result<Option<file::Checkpoint>>,
}

impl Found {
    fn read(usage_file: &Path) -> Self {
        let path = beside(usage_file, ".checkpoint");
        Self { read: file::read(&path), path }
    }

    /// What is to be read to know all that `files` have; `now`: at a start of that moment.
    fn past(self, files: Vec<Opened>, now: Option<TimestampMs>) -> Past {
        let Self { path, read } = self;
        let problem = match read {
            Ok(Some(checkpoint)) => match beginnings(&checkpoint.head, &files, now) {
                Ok(beginnings) => {
                    let rest = files.into_iter().zip(beginnings).map(|(file, from)| file.from(from));
                    let (sums, closed, rest) = (checkpoint.sums, checkpoint.closed, rest.collect());
                    return Past { sums: Some(sums), closed, rest };
                }
                Err(problem) => Some(problem),
            },
            Ok(None) => Some("it is damaged, or of another version".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) = problem {
            tracing::warn!(file = %path.display(), problem, "the checkpoint is not used: everything is read");
        }
        Past { rest: files.into_iter().map(|file| file.from(0)).collect(), ..Past::default() }
    }
}

/// From where on each of `files` is not in a checkpoint, or why that is of no use.
fn beginnings(head: &file::Head, files: &[Opened], now: Option<TimestampMs>) -> Result<Vec<u64>, String> {
    let oldest_start = aggregate::oldest_start(TimestampMs::new(head.newest_ms));
    if now.is_some_and(|now| now < oldest_start) {
        return Err("the clock was set back by more than an hour".to_owned());
    }
    let beginnings = cover::beginnings(&head.files, files).map_err(|error| error.to_string())?;
    beginnings.ok_or_else(|| "the usage files are not those that it was made of".to_owned())
}

/// How many bytes no checkpoint stands for, and how many the one has that stands for the others.
fn found(usage_file: &Path) -> io::Result<(u64, u64)> {
    let past = Found::read(usage_file).past(open_all(usage_file)?, None);
    let bytes = |part: &Part| part.to.saturating_sub(part.from);
    Ok((past.rest.iter().map(bytes).sum(), past.sums.as_ref().map_or(0, bytes)))
}

/// Makes a checkpoint of all that is in the usage files up to `tip`, and deletes the oldest rotated files
/// beyond `keep_files`. Says how many bytes it has; 0: there is nothing to make one of.
fn make(journal: &Journal, tip: &Tip, keep_files: Option<usize>) -> Result<u64, UsageError> {
    let usage_file = journal.usage_file();
    let path = beside(usage_file, ".checkpoint");
    let failed = |source| UsageError::new(&path, "make a checkpoint", source);
    let opened = tip.open(usage_file).map_err(failed)?;
    if opened.is_empty() {
        return Ok(0);
    }
    let covered = opened.iter().map(|file| Covered::of(&file.path, &file.file, file.bytes));
    let covered = covered.collect::<io::Result<Vec<_>>>().map_err(failed)?;
    let closed = journal.closed_ids();
    journal.sync().map_err(failed)?;
    opened.iter().try_for_each(|file| file.file.sync_all()).map_err(failed)?;

    let past = Found::read(usage_file).past(opened, None);
    let mut aggregate = Aggregate::new();
    reader::replay_parts(past.sums, past.rest, |_, _| (), |event| aggregate.add(event))?;
    aggregate.compact();
    if aggregate.is_too_large() {
        return Err(failed(io::Error::new(
            io::ErrorKind::QuotaExceeded,
            "there are too many different calls",
        )));
    }
    let head = (aggregate.newest().get(), covered.clone());
    file::write(&path, head, &closed, |line| aggregate.lines(line)).map_err(failed)?;
    if let Some(keep) = keep_files {
        delete(usage_file, &covered, keep).map_err(failed)?;
    }
    fs::metadata(&path).map(|made| made.len()).map_err(failed)
}

/// Deletes the oldest rotated files but `keep`, as far as a checkpoint stands for all of them.
fn delete(usage_file: &Path, covered: &[Covered], keep: usize) -> io::Result<()> {
    let rotated = rotated_files(usage_file)?;
    let beyond = rotated.len().saturating_sub(keep);
    for (file, covered) in rotated.iter().take(beyond).zip(covered) {
        let is_it = file.file_name().is_some_and(|name| *name == *covered.name);
        if !is_it || fs::metadata(file)?.len() != covered.bytes {
            break;
        }
        fs::remove_file(file)?;
        tracing::info!(file = %file.display(), "a usage file beyond keep_files was deleted");
    }
    Ok(())
}

/// `path` with something behind it.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}
