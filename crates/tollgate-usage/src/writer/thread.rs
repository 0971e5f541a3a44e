//! The thread: takes batches of lines and appends them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::file::Append;
use super::lines::Lines;
use super::queue::Queue;
use super::{Fsync, WriterOptions};
use crate::checkpoint::Checkpoints;
use crate::journal::Journal;

/// The most bytes of one call to the system.
const PIECE_BYTES: usize = 256 << 10;

/// How long the last checkpoint is waited for. Without it the next start reads more.
const CHECKPOINT_WAIT: Duration = Duration::from_secs(5);

/// Starts the thread. It ends when `queue` is closed.
pub(super) fn spawn(
    target: impl Append,
    journal: Arc<Journal>,
    queue: Arc<Queue>,
    checkpoints: Option<Checkpoints>,
    options: WriterOptions,
) -> io::Result<()> {
    let body = move || Thread { target, journal, queue, checkpoints, rotations: 0, options }.run();
    std::thread::Builder::new().name("usage-writer".to_owned()).spawn(body).map(drop)
}

struct Thread<A> {
    target: A,
    journal: Arc<Journal>,
    queue: Arc<Queue>,
    checkpoints: Option<Checkpoints>,
    /// How often the file was replaced.
    rotations: u64,
    options: WriterOptions,
}

impl<A: Append> Thread<A> {
    fn run(&mut self) {
        let mut spare = Lines::default();
        loop {
            let mut work = self.queue.take(self.options.batch_interval, spare);
            if let Err((error, lost)) = self.write(&work.lines) {
                self.leave(Ok(()));
                return self.queue.finish(lost, Err(error));
            }
            self.journal.free(work.lines.take_holds());
            self.over(work.lines.bytes().len());
            self.queue.written();
            if work.last {
                let synced = self.target.sync();
                self.leave(if synced.is_ok() { self.journal.empty() } else { Ok(()) });
                return self.queue.finish(0, synced);
            }
            spare = work.lines.into_spare();
        }
    }

    /// So many bytes more are in the file, and their calls are over.
    fn over(&mut self, bytes: usize) {
        let rotations = self.target.over();
        let rotated = std::mem::replace(&mut self.rotations, rotations) != rotations;
        self.checkpoints.iter().for_each(|checkpoints| checkpoints.wrote(bytes, rotated));
    }

    /// The journal's end. What it still holds is in the usage file, or comes back at the next start. While a
    /// checkpoint is being made the files are this process's.
    fn leave(&self, emptied: io::Result<()>) {
        let ended = self.checkpoints.as_ref().is_none_or(|checkpoints| checkpoints.end(CHECKPOINT_WAIT));
        let released = if ended { self.journal.release() } else { Ok(()) };
        if let Err(error) = emptied.and(released) {
            tracing::error!(%error, "the journal of open calls cannot be closed");
        }
    }

    /// Writes all of `lines`, however many attempts it takes: until they are in the file, or the
    /// writer is closed, which gets a last attempt. The error is that of the last attempt, with the
    /// number of lines that are not whole in the file.
    fn write(&mut self, lines: &Lines) -> Result<(), (io::Error, usize)> {
        let mut written = 0;
        let mut last_attempt = false;
        self.target.begin(lines.bytes());
        loop {
            match self.append(lines.bytes(), &mut written).and_then(|()| self.confirm()) {
                Ok(()) => return Ok(()),
                Err(error) if last_attempt => return Err((error, lines.unfinished_after(written))),
                Err(error) => last_attempt = !self.queue.failed(&error, self.options.retry_interval),
            }
        }
    }

    /// The journal forgets calls once their events are as safe as was asked for.
    fn confirm(&mut self) -> io::Result<()> {
        if self.options.fsync == Fsync::Always { self.target.sync() } else { Ok(()) }
    }

    /// Appends `bytes` from where the last attempt stopped.
    fn append(&mut self, bytes: &[u8], written: &mut usize) -> io::Result<()> {
        while let Some(rest) = bytes.get(*written..).filter(|rest| !rest.is_empty()) {
            match self.target.append(&rest[..rest.len().min(PIECE_BYTES)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => *written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
