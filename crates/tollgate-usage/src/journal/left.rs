//! What an earlier process left in the slots.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::half::{self, PLACES, SLOT_BYTES};
use super::{SLOT_BYTES_U64, SLOTS_MAX};
use crate::reader;

/// What the file had when it was opened.
#[derive(Clone, Debug, Default)]
pub(super) struct Left {
    /// Lines by the id of their call.
    lines: HashMap<String, Vec<u8>>,
    file_bytes: u64,
}

impl Left {
    /// The newest whole line of each slot of `file`.
    pub(super) fn read(file: &File, path: &Path) -> io::Result<Self> {
        let file_bytes = file.metadata()?.len();
        let slots = file_bytes.div_ceil(SLOT_BYTES_U64).min(u64::from(SLOTS_MAX));
        let mut bytes = vec![0; SLOT_BYTES];
        let mut lines = HashMap::new();
        for slot in 0..slots {
            read_some(file, &mut bytes, slot * SLOT_BYTES_U64)?;
            let halves = PLACES.iter().filter_map(|place| half::read(bytes.get(*place..)?));
            let newest = halves.max_by_key(|half| half.sequence);
            // An empty line: the call was not sent.
            let Some(newest) = newest.filter(|half| !half.line.is_empty()) else { continue };
            match reader::request_id(newest.line) {
                Some(id) => {
                    lines.insert(id, newest.line.to_owned());
                }
                None => tracing::warn!(file = %path.display(), slot, "a slot holds no usage line: skipped"),
            }
        }
        Ok(Self { lines, file_bytes })
    }

    /// The usage file has the call `id`.
    pub(super) fn close(&mut self, id: &str) {
        if !self.lines.is_empty() {
            self.lines.remove(id);
        }
    }

    /// How many calls are left.
    pub(super) fn len(&self) -> u64 {
        u64::try_from(self.lines.len()).unwrap_or(u64::MAX)
    }

    /// Whether there was nothing at all, not even of calls that are closed.
    pub(super) fn is_nothing(&self) -> bool {
        self.file_bytes == 0
    }

    /// Their lines in one piece, the earliest admission first: a line begins with its moment.
    pub(super) fn into_lines(self) -> Vec<u8> {
        let mut lines: Vec<_> = self.lines.into_values().collect();
        lines.sort_unstable();
        lines.concat()
    }
}

/// The ids that the slots of `file` have of calls that are over: of each slot those that were written with a
/// number up to that of `closed`. A half that is being written is of a call that is not over.
pub(super) fn closed_ids(file: &File, closed: &[u64]) -> io::Result<Vec<String>> {
    let mut bytes = vec![0; SLOT_BYTES];
    let mut ids = Vec::new();
    for (slot, closed) in (0..).zip(closed) {
        read_some(file, &mut bytes, slot * SLOT_BYTES_U64)?;
        let halves = PLACES.iter().filter_map(|place| half::read(bytes.get(*place..)?));
        let over = halves.filter(|half| half.sequence <= *closed && !half.line.is_empty());
        ids.extend(over.filter_map(|half| reader::request_id(half.line)));
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// Fills `buffer` from `offset` on; what lies behind the file's end is zeros.
fn read_some(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        let at = offset.saturating_add(u64::try_from(filled).unwrap_or(u64::MAX));
        match file.read_at(&mut buffer[filled..], at) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer[filled..].fill(0);
    Ok(())
}
