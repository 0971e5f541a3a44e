//! The journal of open calls: what a usage file cannot know yet, kept where `kill -9` does not reach it.
//!
//! The file `<usage.file>.open` is a [`log`] of frames, each with a line and what tells a whole one from a torn
//! one ([`frame`]). A line is *what the usage file gets should the process die now*: from the admission on, the
//! line of a call that broke off and costs what is reserved; from the settlement on, the line that the writer's
//! thread is about to append. So whatever is read back at a start needs no form of its own. The last frame of
//! a call counts.
//!
//! **Together.** Frames wait in a batch until one of those who wait for them writes it: what parallel calls have
//! to write down in the same moment is one call to the system ([`Written`](crate::Written)).
//!
//! **Order.** A call is admitted, its line is written, then it is sent. It ends, its last line is written,
//! then the end of its answer leaves, and the same line is handed to the writer's thread. That appends it
//! to the usage file and gives the call's place in the log back after. A kill
//!
//! - before the frame of the admission is whole: the call was not sent, and nothing tells of it;
//! - between admission and settlement: the call comes back as spent at what was reserved;
//! - between settlement and append: it comes back as it was settled;
//! - after the append, in the log or not: the usage file has the id, the log's line is left alone;
//! - before a shared store has answered to the settlement: the next process has it ([`Journal::keep_settlements`]);
//! - while the log goes on to its other area: that is not whole yet, and the one before counts.
//!
//! **Recovery** ([`Journal::restore`]) appends the lines whose ids the usage file does not have, waits
//! until they are on the disk, and clears the log after. Killed in between it finds the ids in the usage
//! file at the next start; killed within the append it finds a torn line there, which is none, and the
//! log. Settlements that are kept begin the log's other area.

pub(crate) mod disk;
pub(crate) mod frame;
#[cfg(test)]
mod kept;
mod left;
mod log;
#[cfg(test)]
mod power_cut;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate_limiter::{ReservationId, TimestampMs};

use crate::checkpoint;
use crate::error::UsageError;
use crate::reader::{self, ReplaySummary, Replayed};
use crate::settlement::{self, Settlement};
use crate::writer::append_only;
use disk::Disk;
use frame::{CONTENT_BYTES_MAX, HEADER_BYTES};
use left::{Kept, Left};
use log::{AREA_BYTES, Log};

pub(crate) use log::Ticket;

const FRAME_BYTES_MAX: usize = HEADER_BYTES + CONTENT_BYTES_MAX;

/// The journal of one usage file. As long as it is open no other process can open it.
pub struct Journal {
    usage_file: PathBuf,
    path: PathBuf,
    disk: Box<dyn Disk>,
    log: Mutex<Log>,
    /// Whether the disk is asked to confirm now and then.
    syncs: AtomicBool,
    /// Whether settlements stay until the store has answered to them.
    keeps_settlements: bool,
    /// What an earlier process left, until it is restored.
    left: Left,
    /// The settlements among it, once it is restored.
    unsettled: Vec<Settlement>,
    failing: AtomicBool,
    failures: AtomicU64,
    /// It is another process's: nothing more is written.
    is_released: AtomicBool,
}

/// An open call's place in the log. When it is dropped instead of settled, its line stays and comes back at the
/// next start.
#[derive(Debug)]
#[must_use = "a call whose place is given up comes back as spent at the next start"]
pub struct Hold {
    index: u32,
    id: Arc<str>,
}

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
        Ok(Self { left, ..Self::over(Box::new(file), usage_file, path, AREA_BYTES) })
    }

    fn over(disk: Box<dyn Disk>, usage_file: &Path, path: PathBuf, area_bytes: u64) -> Self {
        Self {
            usage_file: usage_file.to_owned(),
            path,
            disk,
            log: Mutex::new(Log::new(area_bytes)),
            syncs: AtomicBool::new(false),
            keeps_settlements: false,
            left: Left::default(),
            unsettled: Vec::new(),
            failing: AtomicBool::new(false),
            is_released: AtomicBool::new(false),
            failures: AtomicU64::new(0),
        }
    }

    /// From now on a settlement that is written down stays until it is [settled](Self::settled), and those that an
    /// earlier process left are kept: for a store that may be away.
    pub const fn keep_settlements(&mut self) {
        self.keeps_settlements = true;
    }

    /// The settlements that an earlier process left, once it is restored.
    pub fn take_unsettled(&mut self) -> Vec<Settlement> {
        std::mem::take(&mut self.unsettled)
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
        let lines = left.to_lines();
        if !lines.is_empty() {
            self.append(&lines)?;
            reader::replay_text(&self.usage_file, &lines, each);
            tracing::warn!(calls = summary.recovered, "calls of an earlier process come back as spent");
        }
        if !self.is_restored() {
            let next = left.next();
            let kept = if self.keeps_settlements { left.kept() } else { Vec::new() };
            self.begin(next, kept).map_err(|source| UsageError::new(&self.path, "clear", source))?;
        }
        self.left = Left::default();
        Ok(summary)
    }

    /// Begins the log with what is kept of an earlier process, or with nothing.
    fn begin(&mut self, next: (usize, u64), kept: Vec<Kept>) -> io::Result<()> {
        if kept.is_empty() {
            return self.disk.clear();
        }
        let mut unsettled = Vec::new();
        let calls = kept.into_iter().map(|(id, frame, settlements)| {
            let ids = settlements.iter().map(|settlement| settlement.held.id).collect();
            unsettled.extend(settlements);
            (id, frame, ids)
        });
        let log = Log::resume(&*self.disk, next, calls, AREA_BYTES)?;
        self.disk.sync()?;
        (self.unsettled, self.log) = (unsettled, Mutex::new(log));
        Ok(())
    }

    /// From here on the disk is asked to confirm, at least once a second while something is written.
    pub(crate) fn will_sync(&self) {
        self.syncs.store(true, Ordering::Relaxed);
    }

    /// The ids that the log may still have of calls that are over.
    pub(crate) fn closed_ids(&self) -> Vec<Arc<str>> {
        let mut ids = self.log().over();
        ids.sort_unstable();
        ids.dedup();
        ids
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

    /// Takes a place for the call `id`, with its line in `frame` behind room for a header.
    pub(crate) fn hold(&self, id: &Arc<str>, frame: &[u8]) -> Result<(Hold, Ticket), UsageError> {
        self.check(frame)?;
        let mut log = self.log();
        let Some(index) = log.open() else {
            drop(log);
            let error = io::Error::new(io::ErrorKind::QuotaExceeded, "too many calls are open");
            return Err(self.failed(1, error));
        };
        let ticket = log.push(Some(index), frame);
        Ok((Hold { index, id: Arc::clone(id) }, ticket))
    }

    /// Another line in place of the one that the call has.
    pub(crate) fn renew(&self, hold: &Hold, frame: &[u8]) -> Result<Ticket, UsageError> {
        self.check(frame)?;
        Ok(self.log().push(Some(hold.index), frame))
    }

    /// The last line of a call. Its settlements are added to `frame` and kept with it, if they are to be kept, and not so
    /// long that there is no room for them.
    pub(crate) fn settle(
        &self,
        hold: &Hold,
        frame: &mut Vec<u8>,
        settlements: &[Settlement],
    ) -> Result<Ticket, UsageError> {
        let line_end = frame.len();
        let kept = if self.keeps_settlements { settlements } else { &[] };
        kept.iter().for_each(|settlement| settlement::write(frame, settlement));
        let is_short = frame.len() <= FRAME_BYTES_MAX;
        let (frame, kept) = if is_short { (&**frame, kept) } else { (&frame[..line_end], &[][..]) };
        self.check(frame)?;
        let mut log = self.log();
        kept.iter().for_each(|settlement| log.settling(hold.index, settlement.held.id));
        Ok(log.push(Some(hold.index), frame))
    }

    /// Keeps a settlement that waits for the store, unless it is kept. Where that cannot be written down it waits in
    /// memory alone, and the journal has logged and counted the error.
    pub fn keep(&self, settlement: &Settlement) {
        let reservation = settlement.held.id;
        if !self.keeps_settlements || self.log().is_settling(reservation) {
            return;
        }
        let mut frame = vec![0; HEADER_BYTES];
        settlement::write(&mut frame, settlement);
        let id = settlement::name_of(reservation).into();
        let Ok((hold, ticket)) = self.hold(&id, &frame) else { return };
        let mut log = self.log();
        log.keep(hold.index, reservation, id);
        drop(log);
        // Where it fails, the place is given back with the answer.
        let _ = self.write_out(&ticket);
    }

    /// The settlement of `id`, which is [written down](crate::Writer::settle) with its call, is answered to, or need not be.
    pub fn settled(&self, id: ReservationId) {
        if self.keeps_settlements {
            self.log().settled(id, false);
        }
    }

    /// The store has answered to a settlement of `id` that waited, [kept](Self::keep) or not.
    pub fn written_through(&self, id: ReservationId) {
        if self.keeps_settlements {
            self.log().settled(id, true);
        }
    }

    fn check(&self, frame: &[u8]) -> Result<(), UsageError> {
        if frame.len() <= FRAME_BYTES_MAX {
            return Ok(());
        }
        Err(self.failed(1, io::Error::new(io::ErrorKind::InvalidInput, "the line of a call is too long")))
    }

    /// The call was never sent: nothing of it comes back once this is written.
    pub(crate) fn cancel(&self, hold: Hold) -> Ticket {
        let mut log = self.log();
        let ticket = log.push(None, &frame::cancelled(&hold.id));
        // A checkpoint that is made before need not know it: the usage file never has it.
        log.close(hold.index, None);
        ticket
    }

    /// Writes what waits, unless that is done, and says whether the frame of `ticket` is written.
    ///
    /// # Errors
    /// It could not be written.
    pub(crate) fn write_out(&self, ticket: &Ticket) -> Result<(), UsageError> {
        let outcome = ticket.outcome().unwrap_or_else(|| self.write_batch(ticket));
        if outcome { Ok(()) } else { Err(self.error(io::Error::other("the disk refused it"))) }
    }

    fn write_batch(&self, ticket: &Ticket) -> bool {
        let mut log = self.log();
        // Another may have written it meanwhile.
        if let Some(outcome) = ticket.outcome() {
            return outcome;
        }
        if self.is_released.load(Ordering::Relaxed) {
            return false;
        }
        let (lines, written) = log.write(&*self.disk);
        let left =
            if log.is_long(self.syncs.load(Ordering::Relaxed)) { log.leave(&*self.disk) } else { Ok(()) };
        drop(log);
        if let Err(error) = left {
            tracing::warn!(file = %self.path.display(), %error, "the journal grows: its other area cannot be begun");
        }
        match written {
            Ok(()) => self.succeeded(),
            Err(error) => drop(self.failed(lines, error)),
        }
        ticket.outcome().unwrap_or(false)
    }

    fn succeeded(&self) {
        if self.failing.load(Ordering::Relaxed) && self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!(file = %self.path.display(), "open calls can be written down again");
        }
    }

    /// Has the disk confirm all lines that were written.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let begun = self.log().begun();
        self.disk.sync()?;
        self.log().confirmed(begun);
        Ok(())
    }

    /// Gives the places back of calls that are in the usage file.
    pub(crate) fn free(&self, holds: impl IntoIterator<Item = Hold>) {
        let mut log = self.log();
        holds.into_iter().for_each(|hold| log.appended(hold.index, hold.id));
    }

    /// Gives the place back of a call of which nothing could be written.
    pub(crate) fn forget(&self, hold: Hold) {
        self.log().close(hold.index, None);
    }

    /// Everything is in the usage file and on the disk: the next process finds an empty journal.
    pub(crate) fn empty(&self) -> io::Result<()> {
        let mut log = self.log();
        if !log.is_idle() {
            return Ok(());
        }
        self.disk.clear()?;
        *log = Log::new(AREA_BYTES);
        Ok(())
    }

    /// Lets the next process have the journal, as it is.
    pub(crate) fn release(&self) -> io::Result<()> {
        let _log = self.log();
        self.is_released.store(true, Ordering::Relaxed);
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

    fn error(&self, source: io::Error) -> UsageError {
        UsageError::new(&self.path, "write down an open call", source)
    }

    /// So many lines could not be written.
    fn failed(&self, lines: u64, source: io::Error) -> UsageError {
        self.failures.fetch_add(lines, Ordering::Relaxed);
        let error = self.error(source);
        if !self.failing.swap(true, Ordering::Relaxed) {
            tracing::error!(%error, "open calls cannot be written down");
        }
        error
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        // Every change is complete before the lock is given back.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
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
