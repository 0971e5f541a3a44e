//! The journal of open calls: what a usage file cannot know yet, kept where `kill -9` does not reach it.
//!
//! The file `<usage.file>.open` has a slot for each call that is open. A slot holds *the line that the
//! usage file gets should the process die now*: from the admission on, the line of a call that broke off
//! and costs what is reserved; from the settlement on, the line that the writer's thread is about to
//! append. So whatever is read back at a start needs no form of its own.
//!
//! **Torn writes.** A slot has two halves ([`half`]). A line is written into the half that does not hold
//! the newest one, with a number and a checksum: of whole lines the newest counts, and a torn one is none. So a write that a kill or a power cut tears leaves the slot as it was before it.
//!
//! **Order.** A call is admitted, its line is written, then it is sent. It ends, its last line is written,
//! then the end of its answer leaves, and the same line is handed to the writer's thread. That appends it
//! to the usage file and frees the slot after. A kill
//!
//! - before the line of the admission is whole: the call was not sent; the slot tells of the call that had
//!   it before, whose line is in the usage file;
//! - between admission and settlement: the call comes back as spent at what was reserved;
//! - between settlement and append: it comes back as it was settled;
//! - after the append, in the slot or not: the usage file has the id, the slot's line is left alone.
//!
//! **Recovery** ([`Journal::restore`]) appends the lines whose ids the usage file does not have, waits
//! until they are on the disk, and clears the slots after. Killed in between it finds the ids in the usage
//! file at the next start; killed within the append it finds a torn line there, which is none, and the
//! slots.

pub(crate) mod disk;
pub(crate) mod half;
mod left;
mod slots;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_limiter::TimestampMs;

use crate::checkpoint;
use crate::error::UsageError;
use crate::reader::{self, ReplaySummary, Replayed};
use crate::writer::append_only;
use disk::Disk;
use half::{HALF_BYTES, HEADER_BYTES, SLOT_BYTES};
use left::Left;
use slots::{Place, Slots};

/// The most calls that are open at a time. A quarter of a million needs connections and memory that no
/// single process has; the file would be 5 GiB, most of it holes.
pub(crate) const SLOTS_MAX: u32 = 1 << 18;

const SLOT_BYTES_U64: u64 = SLOT_BYTES as u64;

/// The journal of one usage file. As long as it is open no other process can open it.
pub struct Journal {
    usage_file: PathBuf,
    path: PathBuf,
    disk: Box<dyn Disk>,
    slots: Mutex<Slots>,
    /// What an earlier process left, until it is restored.
    left: Left,
    failing: AtomicBool,
    failures: AtomicU64,
}

/// An open call's slot. When it is dropped instead of settled, its line stays and comes back at the next
/// start.
#[derive(Debug)]
#[must_use = "a call whose slot is given up comes back as spent at the next start"]
pub struct Hold(Place);

impl Journal {
    /// Opens the journal of the usage file at `usage_file`, and reads what an earlier process left.
    ///
    /// # Errors
    /// The journal cannot be opened or read, or another process has it.
    pub fn open(usage_file: &Path) -> Result<Self, UsageError> {
        let usage_file = &followed(usage_file);
        let mut path = usage_file.as_os_str().to_owned();
        path.push(".open");
        let path = PathBuf::from(path);
        let file = disk::open(&path)?;
        let left = Left::read(&file, &path).map_err(|source| UsageError::new(&path, "read", source))?;
        Ok(Self { left, ..Self::over(Box::new(file), usage_file, path) })
    }

    fn over(disk: Box<dyn Disk>, usage_file: &Path, path: PathBuf) -> Self {
        Self {
            usage_file: usage_file.to_owned(),
            path,
            disk,
            slots: Mutex::default(),
            left: Left::default(),
            failing: AtomicBool::new(false),
            failures: AtomicU64::new(0),
        }
    }

    /// The usage file.
    pub fn usage_file(&self) -> &Path {
        &self.usage_file
    }

    /// Calls `each` with every event of the usage file and of those that it was rotated to, like
    /// [`replay`](crate::replay), and then with those that an earlier process left in the journal. In place of
    /// all events that a checkpoint stands for, if one is good for a start at `now`, come its
    /// [sums](crate::StandsFor::Calls), each kind in the order of time. Before it returns what was in the journal is in the usage file
    /// and on the disk, and gone from the journal. A usage file that is not there is an empty one.
    ///
    /// # Errors
    /// The usage file cannot be read or appended to. Nothing is lost: the next call or process goes on.
    pub fn restore(
        &mut self,
        now: TimestampMs,
        progress: impl FnMut(u64, u64),
        mut each: impl FnMut(&Replayed<'_>),
    ) -> Result<ReplaySummary, UsageError> {
        let mut left = self.left.clone();
        let past = checkpoint::past(&self.usage_file, now)?;
        past.closed.iter().for_each(|id| left.close(id));
        let mut summary = reader::replay_parts(past.sums, past.rest, progress, |event| {
            left.close(event.request_id);
            each(event);
        })?;
        summary.recovered = left.len();
        let lines = left.into_lines();
        if !lines.is_empty() {
            self.append(&lines)?;
            reader::replay_text(&self.usage_file, &lines, each);
            tracing::warn!(calls = summary.recovered, "calls of an earlier process come back as spent");
        }
        if !self.is_restored() {
            self.disk.clear().map_err(|source| UsageError::new(&self.path, "clear", source))?;
        }
        self.left = Left::default();
        Ok(summary)
    }

    /// The ids that slots still have of calls that are over.
    pub(crate) fn closed_ids(&self) -> io::Result<Vec<String>> {
        let closed = self.slots().closed();
        left::closed_ids(&File::open(&self.path)?, &closed)
    }

    /// Appends `lines` to the usage file and has the disk confirm them.
    fn append(&self, lines: &[u8]) -> Result<(), UsageError> {
        let mut file: File = append_only(&self.usage_file)?;
        let written = file.write_all(lines).and_then(|()| file.sync_all());
        written.map_err(|source| UsageError::new(&self.usage_file, "append recovered calls", source))
    }

    /// Whether nothing is left of an earlier process.
    pub(crate) fn is_restored(&self) -> bool {
        self.left.is_nothing()
    }

    /// Takes a slot for a call and writes its line, in `half` behind room for a header.
    pub(crate) fn hold(&self, half: &mut [u8]) -> Result<Hold, UsageError> {
        let Some(place) = self.slots().take() else {
            let error = io::Error::new(io::ErrorKind::QuotaExceeded, "too many calls are open");
            return Err(self.failed(error));
        };
        let mut hold = Hold(place);
        match self.renew(&mut hold, half) {
            Ok(()) => Ok(hold),
            Err(error) => {
                // The call is not sent, or goes on without a slot: either way nothing is to come back.
                self.free(hold);
                Err(error)
            }
        }
    }

    /// Writes another line in the place of the one that the slot has.
    pub(crate) fn renew(&self, hold: &mut Hold, half: &mut [u8]) -> Result<(), UsageError> {
        if half.len() > HALF_BYTES {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "the line of a call is too long");
            return Err(self.failed(error));
        }
        let Hold(place) = hold;
        let sequence = place.sequence.saturating_add(1);
        half::seal(half, sequence);
        let within = u64::try_from(half::place(sequence, half.len())).unwrap_or(u64::MAX);
        let offset = u64::from(place.index) * SLOT_BYTES_U64;
        self.disk.write(half, offset.saturating_add(within)).map_err(|source| self.failed(source))?;
        place.sequence = sequence;
        if self.failing.load(Ordering::Relaxed) && self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!(file = %self.path.display(), "open calls can be written down again");
        }
        Ok(())
    }

    /// Gives a slot back whose call was never sent.
    pub(crate) fn cancel(&self, mut hold: Hold) {
        // Should it fail the call comes back as spent: the error is logged and counted.
        let _ = self.renew(&mut hold, &mut [0; HEADER_BYTES]);
        self.free(hold);
    }

    /// Has the disk confirm all lines.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    /// Gives a slot back whose call is in the usage file, or was never sent.
    pub(crate) fn free(&self, Hold(place): Hold) {
        self.slots().free(place);
    }

    /// Everything is in the usage file and on the disk: the next process finds an empty journal.
    pub(crate) fn empty(&self) -> io::Result<()> {
        if self.slots().all_free() { self.disk.clear() } else { Ok(()) }
    }

    /// Lets the next process have the journal, as it is.
    pub(crate) fn release(&self) -> io::Result<()> {
        self.disk.release()
    }

    /// Lines that could not be written since the start.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Whether the last line could be written.
    pub(crate) fn healthy(&self) -> bool {
        !self.failing.load(Ordering::Relaxed)
    }

    fn failed(&self, source: io::Error) -> UsageError {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let error = UsageError::new(&self.path, "write down an open call", source);
        if !self.failing.swap(true, Ordering::Relaxed) {
            tracing::error!(%error, "open calls cannot be written down");
        }
        error
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        // Every change is complete before the lock is given back.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The file that `usage_file` is a link to: by whatever name, it has one journal and with it one process. A
/// device is no such file, and nothing is put beside it.
fn followed(usage_file: &Path) -> PathBuf {
    if usage_file.is_symlink() {
        // What it leads to may not be there yet. An error comes back when the writer opens it.
        let _ = File::options().append(true).create(true).open(usage_file);
    }
    let target = usage_file.canonicalize().ok();
    target.filter(|target| target.is_file()).unwrap_or_else(|| usage_file.to_owned())
}
