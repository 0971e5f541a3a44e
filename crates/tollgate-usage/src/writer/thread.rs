//! The thread: takes batches, turns them into lines, appends them.

use std::io;
use std::sync::Arc;

use super::WriterOptions;
use super::file::Append;
use super::queue::Queue;
use crate::event::Event;

/// Lines are appended in pieces of about this size, so that a long queue needs no long buffer.
const PIECE_BYTES: usize = 256 << 10;

/// The largest list of events whose memory is kept for the next batch.
const SPARE_EVENTS_MAX: usize = 4_096;

/// Starts the thread. It ends when `queue` is closed.
pub(super) fn spawn(target: impl Append, queue: Arc<Queue>, options: WriterOptions) -> io::Result<()> {
    let body = move || Thread { target, queue, options, lines: Vec::new() }.run();
    std::thread::Builder::new().name("usage-writer".to_owned()).spawn(body).map(drop)
}

struct Thread<A> {
    target: A,
    queue: Arc<Queue>,
    options: WriterOptions,
    /// Whole lines, less what of the first one is already in the file.
    lines: Vec<u8>,
}

impl<A: Append> Thread<A> {
    fn run(&mut self) {
        let mut spare = Vec::new();
        loop {
            let mut work = self.queue.take(self.options.batch_interval, spare);
            if let Err((error, lost)) = self.write(&work.events) {
                return self.queue.finish(lost, Err(error));
            }
            self.queue.written();
            if work.last {
                return self.queue.finish(0, self.target.sync());
            }
            work.events.clear();
            work.events.shrink_to(SPARE_EVENTS_MAX);
            spare = work.events;
        }
    }

    /// Writes all of `events`, however many attempts it takes. The error is the one that was left
    /// when the writer was closed, with the number of events that are not known to be in the file.
    fn write(&mut self, events: &[Event]) -> Result<(), (io::Error, usize)> {
        let mut start = 0;
        for (position, event) in events.iter().enumerate() {
            let end = position + 1;
            self.add_line(event);
            if self.lines.len() >= PIECE_BYTES || end == events.len() {
                self.append_lines().map_err(|error| (error, events.len() - start))?;
                start = end;
            }
        }
        Ok(())
    }

    fn add_line(&mut self, event: &Event) {
        let before = self.lines.len();
        match serde_json::to_writer(&mut self.lines, event) {
            Ok(()) => self.lines.push(b'\n'),
            Err(error) => {
                self.lines.truncate(before);
                tracing::error!(%error, "a usage event has no JSON form");
            }
        }
    }

    /// Tries until the lines are written or the writer is closed; a closed one gets a last attempt.
    fn append_lines(&mut self) -> io::Result<()> {
        let mut last_attempt = false;
        loop {
            match self.attempt() {
                Ok(()) => return Ok(()),
                Err(error) if last_attempt => return Err(error),
                Err(error) => last_attempt = !self.queue.failed(&error, self.options.retry_interval),
            }
        }
    }

    /// Appends the lines and forgets what was written of them, so that the next attempt goes on
    /// where this one stopped.
    fn attempt(&mut self) -> io::Result<()> {
        let mut done = 0;
        let result = loop {
            match self.lines.get(done..) {
                None | Some([]) => break Ok(()),
                Some(rest) => match self.target.append(rest) {
                    Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => done += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => break Err(error),
                },
            }
        };
        self.lines.drain(..done.min(self.lines.len()));
        result
    }
}
