//! Reads usage files on the caller's thread, line by line.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::blocks::{Block, Blocks, Content, Line};
use super::books::{Books, Misread, Told};
use super::parse::Parser;
use super::seen::Names;
use super::{Past, ReplaySummary, Replayed};
use crate::error::UsageError;

/// A part of a file: whole lines.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Part {
    /// All that the file at `path` has now.
    pub(super) fn whole(path: &Path) -> Result<Self, UsageError> {
        let failed = |source| UsageError::new(path, "open for reading", source);
        let file = File::open(path).map_err(failed)?;
        let to = file.metadata().map_err(failed)?.len();
        Ok(Self { path: path.to_owned(), file, from: 0, to })
    }

    const fn bytes(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// Calls `each` with the usage events of parts of files, behind the lines that a checkpoint has at its own part,
/// which is the first.
pub(crate) fn replay_parts(
    checkpoint: Option<Part>,
    parts: Vec<Part>,
    mut progress: impl FnMut(u64, u64),
    each: impl FnMut(&Replayed<'_>),
) -> Result<ReplaySummary, UsageError> {
    let total = checkpoint.iter().chain(&parts).map(Part::bytes).sum::<u64>();
    let mut before = 0_u64;
    let mut replay = Replay::new(each);
    let parts = parts.into_iter().map(|part| (part, false));
    for (part, summed) in checkpoint.map(|part| (part, true)).into_iter().chain(parts) {
        replay.parser.takes_sums = summed;
        let bytes = part.bytes();
        replay.read(part, |done| progress(before.saturating_add(done), total))?;
        before = before.saturating_add(bytes);
    }
    Ok(replay.books.summary)
}

/// Calls `each` with the usage events of `lines`, which are to be found in the file at `path`.
pub(crate) fn replay_text(path: &Path, lines: &[u8], each: impl FnMut(&Replayed<'_>)) {
    let mut replay = Replay::new(each);
    for (text, number) in lines.split(|byte| *byte == b'\n').zip(1..) {
        replay.take(path, number, &Line { content: Content::Text(text), ended: true });
    }
}

struct Replay<F> {
    each: F,
    parser: Parser,
    names: Names,
    books: Books,
}

impl<F: FnMut(&Replayed<'_>)> Replay<F> {
    fn new(each: F) -> Self {
        Self { each, parser: Parser::default(), names: Names::default(), books: Books::default() }
    }

    fn read(&mut self, part: Part, mut progress: impl FnMut(u64)) -> Result<(), UsageError> {
        let bytes = part.bytes();
        let Part { path, mut file, from, .. } = part;
        let failed = |source| UsageError::new(&path, "read", source);
        file.seek(SeekFrom::Start(from)).map_err(failed)?;
        let (mut blocks, mut block) = (Blocks::new(file.take(bytes)), Block::new());
        let mut lines = 1..;
        while blocks.next(&mut block).map_err(failed)? {
            for (line, number) in block.lines().zip(&mut lines) {
                self.take(&path, number, &line);
            }
            progress(blocks.bytes_read());
        }
        self.books.end(&path);
        Ok(())
    }

    fn take(&mut self, path: &Path, number: u64, line: &Line<'_>) {
        let Self { each, parser, names, books } = self;
        let read = parser.line(line, |past| {
            if books.count(Told::by(&past, names))
                && let Past::Usage(event) = past
            {
                each(event);
            }
        });
        match read {
            Ok(read) => books.read(read),
            Err(problem) => books.misread(path, &Misread { line: number, ended: line.ended, problem }),
        }
    }
}
