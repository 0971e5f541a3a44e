//! What an earlier process left in the log.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::frame::{self, Frame, HEADER_BYTES, Says};
use super::log::AREAS;
use crate::reader;
use crate::settlement::{self, Settlement};

/// What the file had when it was opened.
#[derive(Clone, Debug, Default)]
pub(super) struct Left {
    /// By their ids.
    calls: HashMap<String, Call>,
    file_bytes: u64,
    /// The area that they are in, and the number of its last frame.
    area: usize,
    last: u64,
}

/// A call, or a settlement that is nobody's.
#[derive(Clone, Debug)]
struct Call {
    /// Empty: the usage file has it, or nothing is to be in it.
    line: Vec<u8>,
    /// Those that the store had not answered to, as lines.
    settlements: Vec<u8>,
}

/// A call whose settlements are kept: its id, its frame, and the settlements.
pub(super) type Kept = (Arc<str>, Vec<u8>, Vec<Settlement>);

impl Left {
    /// The newest frame of each call in the newest whole area of `file`.
    pub(super) fn read(file: &File, path: &Path) -> io::Result<Self> {
        let file_bytes = file.metadata()?.len();
        let mut newest: Option<(usize, Area)> = None;
        for (number, begin) in (0..).zip(AREAS) {
            let area = Area::read(file, begin, path)?;
            let is_newer = newest.as_ref().is_none_or(|(_, newest)| newest.first < area.first);
            if area.is_whole && is_newer {
                newest = Some((number, area));
            }
        }
        if newest.is_none() && file_bytes > 0 {
            warn_of_nothing(file, path)?;
        }
        let (area, Area { calls, last, .. }) = newest.unwrap_or_default();
        Ok(Self { calls, file_bytes, area, last })
    }

    /// The usage file has the call `id`.
    pub(super) fn close(&mut self, id: &str) {
        if !self.calls.is_empty()
            && let Some(call) = self.calls.get_mut(id)
        {
            call.line.clear();
        }
    }

    /// How many calls are left that the usage file does not have.
    pub(super) fn len(&self) -> u64 {
        u64::try_from(self.lines().count()).unwrap_or(u64::MAX)
    }

    /// Whether there was nothing at all, not even of calls that are closed.
    pub(super) fn is_nothing(&self) -> bool {
        self.file_bytes == 0
    }

    /// The lines that the usage file does not have in one piece, the earliest admission first: a line begins with its
    /// moment.
    pub(super) fn to_lines(&self) -> Vec<u8> {
        let mut lines: Vec<_> = self.lines().collect();
        lines.sort_unstable();
        lines.concat()
    }

    fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.calls.values().map(|call| &*call.line).filter(|line| !line.is_empty())
    }

    /// Where a log begins that has the calls with settlements: another area, and a number that none of the file has,
    /// not even of a batch that failed.
    pub(super) const fn next(&self) -> (usize, u64) {
        (1 - self.area, self.last.saturating_add(1 << 32))
    }

    /// The calls with settlements, once the usage file has them all. Each reservation is in one of them: where it was given
    /// back by itself, its call went on without the store.
    pub(super) fn kept(self) -> Vec<Kept> {
        let alone = self.calls.iter().filter(|(id, _)| settlement::is_name(id));
        let alone = alone.flat_map(|(_, call)| settlement::read(&call.settlements));
        let alone: HashSet<_> = alone.map(|settlement| settlement.held.id).collect();
        let kept = |(id, call): (String, Call)| {
            let is_own =
                |settlement: &Settlement| settlement::is_name(&id) || !alone.contains(&settlement.held.id);
            let settlements: Vec<_> = settlement::read(&call.settlements).filter(is_own).collect();
            let mut frame = vec![0; HEADER_BYTES];
            settlements.iter().for_each(|one| settlement::write(&mut frame, one));
            (!settlements.is_empty()).then(|| (id.into(), frame, settlements))
        };
        self.calls.into_iter().filter_map(kept).collect()
    }
}

/// An area as far as its frames follow each other.
#[derive(Debug, Default)]
struct Area {
    calls: HashMap<String, Call>,
    /// The numbers of its first frame and its last one.
    first: u64,
    last: u64,
    is_whole: bool,
}

impl Area {
    fn read(file: &File, begin: u64, path: &Path) -> io::Result<Self> {
        let mut area = Self::default();
        let (mut next, mut bytes) = (None, Vec::new());
        let mut source = BufReader::new(Section { file, offset: begin });
        while next_frame(&mut source, &mut bytes)? {
            let Some(frame) = frame::read(&bytes) else { break };
            // What follows the last frame is of an earlier use of the area, or of a batch that failed. After one
            // the log goes on with a larger number, and says so.
            let goes_on =
                |next| frame.sequence == next || (frame.sequence > next && frame.says() == Says::Whole);
            if !next.is_none_or(goes_on) {
                break;
            }
            if next.is_none() {
                area.first = frame.sequence;
            }
            area.last = frame.sequence;
            next = Some(frame.sequence.saturating_add(1));
            area.take(&frame, path);
        }
        Ok(area)
    }

    fn take(&mut self, frame: &Frame<'_>, path: &Path) {
        match frame.says() {
            Says::Whole => self.is_whole = true,
            Says::Cancelled(id) => {
                self.calls.remove(String::from_utf8_lossy(id).as_ref());
            }
            Says::Call { line, settlements } => {
                let id =
                    if line.is_empty() { settlement::name(settlements) } else { reader::request_id(line) };
                let Some(id) = id else {
                    tracing::warn!(file = %path.display(), "a frame holds no usage line: skipped");
                    return;
                };
                self.calls.insert(id, Call { line: line.to_owned(), settlements: settlements.to_owned() });
            }
        }
    }
}

/// Reads into `bytes` what may be a frame. False: there is nothing that could be one.
fn next_frame(source: &mut impl Read, bytes: &mut Vec<u8>) -> io::Result<bool> {
    let mut fill = |bytes: &mut [u8]| match source.read_exact(bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    };
    bytes.resize(HEADER_BYTES, 0);
    if !fill(bytes)? {
        return Ok(false);
    }
    let Some(line_bytes) = frame::line_bytes(bytes) else { return Ok(false) };
    bytes.resize(HEADER_BYTES.saturating_add(line_bytes), 0);
    fill(bytes.get_mut(HEADER_BYTES..).unwrap_or_default())
}

/// A file from a place on.
struct Section<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for Section<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.offset)?;
        self.offset = self.offset.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        Ok(count)
    }
}

/// A file that is not empty and has no area that can be read.
fn warn_of_nothing(file: &File, path: &Path) -> io::Result<()> {
    let mut start = [0; HEADER_BYTES];
    let count = file.read_at(&mut start, 0)?;
    let reason = if frame::is_of_another_version(start.get(..count).unwrap_or_default()) {
        "it is of another version"
    } else {
        "it is damaged, or the first line of it was torn"
    };
    tracing::warn!(file = %path.display(), reason, "nothing comes back from the journal");
    Ok(())
}
