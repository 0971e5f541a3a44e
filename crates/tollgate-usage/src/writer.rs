//! Appends events to a file from a thread of its own.
//!
//! A response hands its event over and goes on: it never waits for the disk. Lines are written
//! whole and in order. What waits is bounded; beyond the bound events are dropped, counted and
//! logged. While the file cannot be written the writer keeps what it has and tries again.

mod file;
mod lines;
mod queue;
mod thread;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::error::UsageError;
use crate::event::Event;
use file::Append;
use queue::Queue;

/// How the writer batches and what it bounds.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// The most events that wait for the disk.
    pub waiting_max: usize,
    /// How long the first event of a batch waits for others: what `kill -9` can lose.
    pub batch_interval: Duration,
    /// How long the writer waits between two attempts after an error.
    pub retry_interval: Duration,
    /// The longest that [`Writer::flush`] and [`Writer::close`] wait.
    pub flush_timeout: Duration,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            waiting_max: 65_536,
            batch_interval: Duration::from_millis(25),
            retry_interval: Duration::from_secs(1),
            flush_timeout: Duration::from_secs(10),
        }
    }
}

thread_local! {
    /// Where a thread forms its lines: as long as the longest event it has met.
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The writing end of a usage file.
#[derive(Debug)]
pub struct Writer {
    queue: Arc<Queue>,
    path: PathBuf,
    flush_timeout: Duration,
}

impl Writer {
    /// Opens `path` for appending, creates it if it is not there, and starts the thread.
    ///
    /// A file that ends within a line gets a line break first, so that what comes next is not lost
    /// with what was torn.
    ///
    /// # Errors
    /// The file cannot be opened, or the thread cannot be started.
    pub fn open(path: &Path, options: WriterOptions) -> Result<Self, UsageError> {
        Self::start(file::open(path)?, path, options)
    }

    fn start(target: impl Append, path: &Path, options: WriterOptions) -> Result<Self, UsageError> {
        let queue = Arc::new(Queue::new(options.waiting_max));
        thread::spawn(target, Arc::clone(&queue), options)
            .map_err(|source| UsageError::new(path, "start the writer's thread", source))?;
        Ok(Self { queue, path: path.to_owned(), flush_timeout: options.flush_timeout })
    }

    /// Hands an event over. Never blocks on the disk; drops and counts the event when too many wait
    /// or the writer is closed.
    pub fn record(&self, event: &Event) {
        LINE.with_borrow_mut(|line| {
            line.clear();
            event.write_json(line);
            line.push(b'\n');
            self.queue.push(line);
        });
    }

    /// Events that were dropped since the start.
    pub fn dropped(&self) -> u64 {
        self.queue.dropped()
    }

    /// Whether the last attempt to write succeeded and nothing is being dropped.
    pub fn healthy(&self) -> bool {
        self.queue.healthy()
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

#[cfg(test)]
mod tests;
