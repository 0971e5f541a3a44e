//! Reads usage files on all processors: lines are understood on threads of their own, and what they come to is
//! taken on the caller's, in the files' order.
//!
//! Each thread has the next block in its turn, so that nothing has to be put in order. What goes back and forth
//! are a few batches, whose room is used again.

use std::fs::File;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Scope};

use super::blocks::{Block, Blocks};
use super::books::{Books, Misread, Told};
use super::parse::Parser;
use super::seen::Names;
use super::{Past, ReplaySummary};
use crate::error::UsageError;

/// The most threads that understand lines: one thread that takes keeps up with no more.
const DIGESTS_MAX: usize = 4;

/// Batches that each of them has: one to work on, and one to go on with.
const BATCHES_EACH: usize = 2;

/// What a caller needs of past calls, made on another thread.
pub trait Digest: Send {
    /// What one call or refusal comes to.
    type Record: Send;

    /// Makes a record. Calls that are there once more come too: their records are dropped.
    fn digest(&mut self, past: Past<'_>) -> Self::Record;
}

/// Reads the events and refusals of several files, one after the other: each request id counts once over all
/// of them. Each thread has a digest that `make` makes; `take` gets the number of one and a record of its, in
/// the files' order. `progress` hears from time to time how many bytes of how many are done.
///
/// The digests come back in the order of their numbers. Memory: 16 bytes a request id, and a few blocks with
/// their records.
///
/// # Errors
/// One of the files cannot be opened or read.
pub fn digest_all<P: AsRef<Path>, D: Digest>(
    paths: &[P],
    mut progress: impl FnMut(u64, u64),
    make: impl Fn() -> D,
    take: impl FnMut(usize, D::Record),
) -> Result<(ReplaySummary, Vec<D>), UsageError> {
    let sizes = paths.iter().map(|path| size(path.as_ref())).collect::<Result<Vec<_>, _>>()?;
    let (mut before, total) = (0, sizes.iter().sum::<u64>());
    let count = thread::available_parallelism().map_or(1, usize::from).min(DIGESTS_MAX);
    let mut digests: Vec<D> = (0..count).map(|_| make()).collect();
    let summary = thread::scope(|scope| {
        let names = Names::default();
        let desks = digests.iter_mut().map(|digest| Desk::open(scope, digest, names.clone())).collect();
        let mut round = Round { desks, turn: 0, out: 0, books: Books::default(), take };
        for (path, bytes) in paths.iter().zip(&sizes) {
            round.read(path.as_ref(), |done| progress(before + done, total.max(before + done)))?;
            before += bytes;
        }
        Ok(round.books.summary)
    })?;
    Ok((summary, digests))
}

fn size(path: &Path) -> Result<u64, UsageError> {
    let found = path.metadata().map_err(|source| UsageError::new(path, "open for reading", source))?;
    Ok(found.len())
}

/// A block, and what its lines come to.
struct Batch<T> {
    block: Block,
    lines: u64,
    told: Vec<(Told, T)>,
    misread: Vec<Misread>,
}

impl<T> Batch<T> {
    fn new() -> Self {
        Self { block: Block::new(), lines: 0, told: Vec::new(), misread: Vec::new() }
    }

    /// Understands the block.
    fn digest(&mut self, parser: &mut Parser, names: &Names, digest: &mut impl Digest<Record = T>) {
        let Self { block, lines, told, misread } = self;
        *lines = 0;
        for line in block.lines() {
            *lines += 1;
            let read = parser.line(&line, |past| told.push((Told::by(&past, names), digest.digest(past))));
            if let Err(problem) = read {
                misread.push(Misread { line: *lines, ended: line.ended, problem });
            }
        }
    }
}

/// A thread that understands batches, in the order in which it gets them.
struct Desk<T> {
    to: SyncSender<Batch<T>>,
    from: Receiver<Batch<T>>,
}

impl<T: Send> Desk<T> {
    fn open<'scope, D: Digest<Record = T>>(
        scope: &'scope Scope<'scope, '_>,
        digest: &'scope mut D,
        names: Names,
    ) -> Self
    where
        T: 'scope,
    {
        let (to, work) = sync_channel::<Batch<T>>(BATCHES_EACH);
        let (done, from) = sync_channel(BATCHES_EACH);
        scope.spawn(move || {
            let mut parser = Parser::of_all();
            for mut batch in work {
                batch.digest(&mut parser, &names, digest);
                if done.send(batch).is_err() {
                    break;
                }
            }
        });
        Self { to, from }
    }
}

/// Goes round the desks: gives each a block, and takes what its latest but one came to.
struct Round<T, F> {
    desks: Vec<Desk<T>>,
    /// How many batches were given away so far.
    turn: usize,
    /// How many of them have not come back.
    out: usize,
    books: Books,
    take: F,
}

impl<T, F: FnMut(usize, T)> Round<T, F> {
    fn read(&mut self, path: &Path, mut progress: impl FnMut(u64)) -> Result<(), UsageError> {
        let file = File::open(path).map_err(|source| UsageError::new(path, "open for reading", source))?;
        let (mut blocks, mut lines_before) = (Blocks::new(file), 0);
        let all = self.desks.len() * BATCHES_EACH;
        loop {
            let back = if self.out < all { Some(Batch::new()) } else { self.back(path, &mut lines_before) };
            let Some(mut batch) = back else { break };
            let is_more =
                blocks.next(&mut batch.block).map_err(|source| UsageError::new(path, "read", source))?;
            if !is_more {
                break;
            }
            self.give(batch);
            progress(blocks.bytes_read());
        }
        while self.back(path, &mut lines_before).is_some() {}
        self.books.end(path);
        Ok(())
    }

    fn give(&mut self, batch: Batch<T>) {
        let place = self.turn % self.desks.len();
        let given = self.desks.get(place).is_some_and(|desk| desk.to.send(batch).is_ok());
        self.turn += usize::from(given);
        self.out += usize::from(given);
    }

    /// Takes the records of the batch that is out longest; `None`: none is.
    fn back(&mut self, path: &Path, lines_before: &mut u64) -> Option<Batch<T>> {
        let place = self.turn.checked_sub(self.out).filter(|turn| *turn < self.turn)? % self.desks.len();
        // A thread that has panicked takes the caller along in the end.
        let mut batch = self.desks.get(place)?.from.recv().ok()?;
        self.out -= 1;
        for (told, record) in batch.told.drain(..) {
            if self.books.count(told) {
                (self.take)(place, record);
            }
        }
        for misread in batch.misread.drain(..) {
            self.books.misread(path, &Misread { line: *lines_before + misread.line, ..misread });
        }
        *lines_before += batch.lines;
        Some(batch)
    }
}
