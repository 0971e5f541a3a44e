//! Appends events to a file from a thread of its own, and keeps open calls in a journal meanwhile.
//!
//! A response hands its event over and goes on: it never waits for the disk. Lines are written
//! whole and in order. What waits is bounded; beyond the bound events are dropped, counted and
//! logged. While the file cannot be written the writer keeps what it has and tries again.

mod file;
mod lines;
mod queue;
mod rotate;
mod sync;
mod thread;
mod written;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tollgate_limiter::TimestampMs;

use crate::checkpoint::{Checkpoints, Schedule, Tip};
use crate::error::UsageError;
use crate::event::{Event, UsageEvent};
use crate::journal::frame::{HEADER_BYTES, LINE_BYTES_MAX};
use crate::journal::{Hold, Journal, Ticket};
use crate::settlement::Settlement;
use file::Append;
use queue::Queue;
use rotate::Rotating;
use sync::Syncer;

pub(crate) use file::open as append_only;
pub(crate) use rotate::{files, rotated_files};
pub use sync::Synced;
pub use written::Written;

/// When the disk is asked to confirm what was written: what a power cut can lose.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Fsync {
    /// When the system likes, and at the end.
    #[default]
    Never,
    /// Once a second, if there is something new.
    Second,
    /// Before a call is sent, and before what the usage file has is no longer kept in the journal.
    Always,
}

/// How the writer batches and what it bounds.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// The most events that wait for the disk.
    pub waiting_max: usize,
    /// How long the first event of a batch waits for others. `kill -9` loses refusals of that time; calls
    /// are in the journal.
    pub batch_interval: Duration,
    /// How long the writer waits between two attempts after an error.
    pub retry_interval: Duration,
    /// The longest that [`Writer::flush`] and [`Writer::close`] wait.
    pub flush_timeout: Duration,
    /// When the disk is asked to confirm.
    pub fsync: Fsync,
    /// The file is replaced by a new one before it has more bytes than this; a batch that is longer has a
    /// file of its own.
    pub rotate_bytes: Option<u64>,
    /// The file is replaced by a new one when an event of a later day comes (in UTC).
    pub rotate_daily: bool,
    /// The most files that it was rotated to; `None`: all are kept. The oldest are deleted once a checkpoint
    /// stands for them.
    pub keep_files: Option<usize>,
    /// A checkpoint is made whenever so many bytes were written, or four times as many as the one before has
    /// where that is more.
    pub checkpoint_bytes: u64,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            waiting_max: 65_536,
            batch_interval: Duration::from_millis(25),
            retry_interval: Duration::from_secs(1),
            flush_timeout: Duration::from_secs(10),
            fsync: Fsync::Never,
            rotate_bytes: None,
            rotate_daily: false,
            keep_files: None,
            checkpoint_bytes: 64 << 20,
        }
    }
}

thread_local! {
    /// Where a thread forms its lines: as long as the longest event it has met.
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };

    /// Where a thread forms what it writes down in the journal.
    static FRAME: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The writing end of a usage file.
#[derive(Debug)]
pub struct Writer {
    queue: Arc<Queue>,
    journal: Arc<Journal>,
    /// `None`: the disk is never asked.
    sync: Option<Syncer>,
    /// Whether calls wait for the disk.
    waits: bool,
    path: PathBuf,
    flush_timeout: Duration,
}

impl Writer {
    /// Opens `path` for appending, creates it if it is not there, and starts the thread. What an earlier
    /// process left in the journal is appended first.
    ///
    /// # Errors
    /// A file cannot be opened or another process has it, or the thread cannot be started.
    pub fn open(path: &Path, options: WriterOptions) -> Result<Self, UsageError> {
        let mut journal = Journal::open(path)?;
        if !journal.is_restored() {
            // What was spent is asked for by nobody.
            journal.restore(TimestampMs::new(u64::MAX), |_, _| (), |_| ())?;
        }
        Self::resume(Arc::new(journal), options)
    }

    /// The same for a journal that is restored already.
    ///
    /// A file that ends within a line gets a line break first, so that what comes next is not lost
    /// with what was torn.
    ///
    /// # Errors
    /// A file cannot be opened, or the thread cannot be started.
    pub fn resume(journal: Arc<Journal>, options: WriterOptions) -> Result<Self, UsageError> {
        let tip = Arc::default();
        let target = Rotating::open(journal.usage_file(), &options, Arc::clone(&tip))?;
        Self::start(target, journal, Some(tip), options)
    }

    /// `tip`: how far checkpoints may go, if there are to be any.
    fn start(
        target: impl Append,
        journal: Arc<Journal>,
        tip: Option<Arc<Tip>>,
        options: WriterOptions,
    ) -> Result<Self, UsageError> {
        if options.fsync != Fsync::Never {
            journal.will_sync();
        }
        let queue = Arc::new(Queue::new(options.waiting_max));
        let path = journal.usage_file().to_owned();
        let failed = |source| UsageError::new(&path, "start the writer's thread", source);
        let schedule = Schedule { every_bytes: options.checkpoint_bytes, keep_files: options.keep_files };
        let checkpoints = tip.map(|tip| Checkpoints::start(Arc::clone(&journal), tip, schedule));
        let checkpoints = checkpoints.transpose().map_err(failed)?;
        thread::spawn(target, Arc::clone(&journal), Arc::clone(&queue), checkpoints, options)
            .map_err(failed)?;
        let start_sync = || Syncer::start(options.fsync, Arc::clone(&journal)).map_err(failed);
        let sync = (options.fsync != Fsync::Never).then(start_sync).transpose()?;
        let (waits, flush_timeout) = (options.fsync == Fsync::Always, options.flush_timeout);
        Ok(Self { queue, journal, sync, waits, path, flush_timeout })
    }

    /// Writes down a call that is admitted and about to be sent. `event` is what it comes back as should
    /// the process die before it is settled, once it is [`Written`]: to the system's memory of the file, some
    /// microseconds. Where that fails the call is to be [forgotten](Self::forget).
    ///
    /// # Errors
    /// It cannot be written down: it would be forgotten.
    pub fn hold(&self, event: &UsageEvent) -> Result<(Hold, Written), UsageError> {
        let (hold, ticket) = in_frame(event, |frame| self.journal.hold(&event.request_id, frame))?;
        Ok((hold, Written::after(Arc::clone(&self.journal), ticket, None)))
    }

    /// What a call that was just written down has to wait for before it is sent; `None`: nothing, unless
    /// it is [`Fsync::Always`].
    pub fn synced(&self) -> Option<Synced> {
        let synced = self.sync.as_ref()?.synced();
        self.waits.then_some(synced)
    }

    /// The call was never sent: nothing of it comes back.
    pub fn cancel(&self, hold: Hold) -> Written {
        self.written(Ok(self.journal.cancel(hold)))
    }

    /// The call could not be written down.
    pub fn forget(&self, hold: Hold) {
        self.journal.forget(hold);
    }

    /// Writes down what the call comes back as from now on: it has reserved more. Where that fails it comes
    /// back as it was before, and the journal has logged and counted the error.
    pub fn extend(&self, hold: &Hold, event: &UsageEvent) -> Written {
        self.written(in_frame(event, |frame| self.journal.renew(hold, frame)))
    }

    /// Hands the event of a call over like [`Writer::record`], and has it survive from when it is [`Written`], together
    /// with its settlements where the journal [keeps](Journal::keep_settlements) them. The call's place in the journal
    /// is given back when the event is in the file and the store has answered.
    pub fn settle(&self, hold: Hold, event: &UsageEvent, settlements: &[Settlement]) -> Written {
        in_frame(event, |frame| {
            let line = HEADER_BYTES..frame.len();
            let ticket = self.journal.settle(&hold, frame, settlements);
            self.queue.push(frame.get(line).unwrap_or_default(), Some(hold));
            self.written(ticket)
        })
    }

    /// What cannot be written down has been logged and counted.
    fn written(&self, ticket: Result<Ticket, UsageError>) -> Written {
        let notes = self.sync.as_ref().map(Syncer::notes);
        ticket.map_or_else(
            |_| Written::nothing(),
            |ticket| Written::after(Arc::clone(&self.journal), ticket, notes),
        )
    }

    /// Hands an event over. Never blocks on the disk; drops and counts the event when too many wait
    /// or the writer is closed.
    pub fn record(&self, event: &Event) {
        LINE.with_borrow_mut(|line| {
            line.clear();
            event.write_json(line);
            line.push(b'\n');
            self.queue.push(line, None);
        });
    }

    /// Events that were dropped since the start.
    pub fn dropped(&self) -> u64 {
        self.queue.dropped()
    }

    /// Calls that could not be written down in the journal since the start.
    pub fn not_held(&self) -> u64 {
        self.journal.failures()
    }

    /// Whether the last attempts to write succeeded and nothing is being dropped.
    pub fn healthy(&self) -> bool {
        self.queue.healthy() && self.journal.healthy()
    }

    /// Waits until everything recorded so far is in the file. Blocks: not for async code.
    ///
    /// # Errors
    /// Writing failed in the meantime, or took longer than [`WriterOptions::flush_timeout`]. The
    /// events are kept for the next attempt.
    pub fn flush(&self) -> Result<(), UsageError> {
        self.queue
            .flush(self.flush_timeout)
            .map_err(|source| UsageError::new(&self.path, "flush events", source))
    }

    /// Writes what is left, has the disk confirm it, and stops the thread. Later events are dropped
    /// and counted. Calling it again is harmless. Blocks: not for async code.
    ///
    /// # Errors
    /// The last attempt to write failed, or took longer than [`WriterOptions::flush_timeout`]:
    /// events are lost, [`Writer::dropped`] counts them.
    pub fn close(&self) -> Result<(), UsageError> {
        self.queue
            .close(self.flush_timeout)
            .map_err(|source| UsageError::new(&self.path, "write the last events", source))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "usage events lost");
        }
    }
}

/// Forms the line of `event` behind room for the header of a frame.
fn in_frame<T>(event: &UsageEvent, then: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    FRAME.with_borrow_mut(|frame| {
        frame.clear();
        frame.resize(HEADER_BYTES, 0);
        event.write_json(frame);
        frame.push(b'\n');
        if frame.len() > HEADER_BYTES + LINE_BYTES_MAX && !event.others.is_empty() {
            // The only part without a bound. The cost has them in it.
            frame.truncate(HEADER_BYTES);
            UsageEvent { others: Vec::new(), ..event.clone() }.write_json(frame);
            frame.push(b'\n');
        }
        then(frame)
    })
}

#[cfg(test)]
mod tests;
