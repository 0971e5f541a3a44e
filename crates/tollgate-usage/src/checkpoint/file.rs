//! The checkpoint's own form: a line that says what it stands for, ids, sums, and a line with a checksum over
//! all of it.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::cover::Covered;
use crate::journal::frame::checksum;
use crate::reader::Part;

/// The version of the form. What sums are by is part of it.
const VERSION: u32 = 1;

/// Before the checksum's sixteen digits and after them.
const END: (&[u8], &[u8]) = (b"{\"checksum\":\"", b"\"}\n");

/// The length of the last line.
const END_BYTES: u64 = 32;

/// What is summed up at a time.
const BLOCK_BYTES: usize = 64 << 10;

/// The longest line that a head may be: some ten thousand files.
const HEAD_BYTES_MAX: u64 = 4 << 20;

/// What a checkpoint stands for.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Head {
    #[serde(rename = "checkpoint")]
    version: u32,
    /// The newest call's admission.
    pub(super) newest_ms: u64,
    /// The usage files, the oldest first.
    pub(super) files: Vec<Covered>,
    /// Calls that the files have, and the journal may still have.
    closed: u64,
}

/// A checkpoint that was read.
#[derive(Debug)]
pub(super) struct Checkpoint {
    pub(super) head: Head,
    pub(super) closed: Vec<String>,
    /// The lines of sums.
    pub(super) sums: Part,
}

/// Writes a checkpoint to a file beside `path`, waits until it is on the disk, and puts it in place of `path`.
pub(super) fn write(
    path: &Path,
    (newest_ms, files): (u64, Vec<Covered>),
    closed: &[Arc<str>],
    lines: impl FnOnce(&mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>,
) -> io::Result<()> {
    let beside = super::beside(path, ".new");
    let mut out = Summed::new(BufWriter::new(File::create(&beside)?));
    let count = u64::try_from(closed.len()).unwrap_or(u64::MAX);
    out.json(&Head { version: VERSION, newest_ms, files, closed: count })?;
    closed.iter().try_for_each(|id| out.json(&&**id))?;
    lines(&mut |line| out.write_all(line))?;
    let file = out.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Reads what the checkpoint at `path` stands for, without its sums; `None`: it is none, or damaged.
pub(super) fn read(path: &Path) -> io::Result<Option<Checkpoint>> {
    let mut file = File::open(path)?;
    let Some(end) = file.metadata()?.len().checked_sub(END_BYTES) else { return Ok(None) };
    if !is_whole(&mut file, end)? {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(0))?;
    let mut reader = BufReader::new(file);
    let (mut line, mut from) = (Vec::new(), 0_u64);
    let mut next = |reader: &mut BufReader<File>, line: &mut Vec<u8>| {
        line.clear();
        let count = reader.take(HEAD_BYTES_MAX).read_until(b'\n', line)?;
        from = from.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        io::Result::Ok(from)
    };
    next(&mut reader, &mut line)?;
    let Ok(head) = serde_json::from_slice::<Head>(&line) else { return Ok(None) };
    if head.version != VERSION {
        return Ok(None);
    }
    let mut from = u64::try_from(line.len()).unwrap_or(u64::MAX);
    let mut closed = Vec::new();
    for _ in 0..head.closed {
        from = next(&mut reader, &mut line)?;
        let Ok(id) = serde_json::from_slice(&line) else { return Ok(None) };
        closed.push(id);
    }
    let sums = Part { path: path.to_owned(), file: reader.into_inner(), from, to: end };
    Ok(Some(Checkpoint { head, closed, sums }))
}

/// Whether the last line, which begins at `end`, has the checksum of what is before it.
fn is_whole(file: &mut File, end: u64) -> io::Result<bool> {
    let mut sum = Summed::new(io::sink());
    io::copy(&mut BufReader::with_capacity(BLOCK_BYTES, Read::by_ref(file)).take(end), &mut sum)?;
    file.seek(SeekFrom::Start(end))?;
    let mut last = Vec::new();
    file.read_to_end(&mut last)?;
    Ok(last == sum.last_line())
}

/// Sums up what it passes on.
struct Summed<W> {
    out: W,
    sum: u64,
    block: Vec<u8>,
}

impl<W: Write> Summed<W> {
    fn new(out: W) -> Self {
        Self { out, sum: 0, block: Vec::with_capacity(BLOCK_BYTES) }
    }

    fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut *self, value)?;
        self.write_all(b"\n")
    }

    fn take_block(&mut self) {
        self.sum = checksum(self.sum, &self.block);
        self.block.clear();
    }

    /// The line that ends what was passed on.
    fn last_line(&mut self) -> Vec<u8> {
        self.take_block();
        let digits = format!("{:016x}", self.sum);
        [END.0, digits.as_bytes(), END.1].concat()
    }

    fn finish(mut self) -> io::Result<W> {
        let last = self.last_line();
        self.out.write_all(&last)?;
        self.out.flush()?;
        Ok(self.out)
    }
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = BLOCK_BYTES.saturating_sub(self.block.len());
        let some = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        self.out.write_all(some)?;
        self.block.extend_from_slice(some);
        if self.block.len() >= BLOCK_BYTES {
            self.take_block();
        }
        Ok(some.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
