//! One frame of the log: lines, with what tells whether it is whole and which of two is newer.

use crate::settlement;

/// The longest line of a call. What a request may say of itself and a configuration of its keys makes lines of at
/// most six thousand bytes.
pub(crate) const LINE_BYTES_MAX: usize = (8 << 10) - HEADER_BYTES;

/// The most bytes of a call's line and its settlements: 64 limits with names of up to 700 bytes.
pub(crate) const CONTENT_BYTES_MAX: usize = (64 << 10) - HEADER_BYTES;

/// What stands before the line.
pub(crate) const HEADER_BYTES: usize = 32;

/// Tells a frame from what else may be in the file, and its format from others.
const MAGIC: [u8; 8] = *b"TGOPEN2\n";

/// The line of the frame from which on an area is whole, and with which it goes on after a batch that failed.
const WHOLE: &[u8] = b".\n";

/// What stands before the id of a call that was never sent after all.
const CANCELLED: u8 = b'-';

/// What a frame holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Frame<'a> {
    /// Each frame has the number after that of the one before it, or a larger one after a batch that failed.
    pub(super) sequence: u64,
    pub(super) line: &'a [u8],
}

/// What the line of a frame says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Says<'a> {
    /// The line that the usage file gets should the process die now, and the settlements that the store has not
    /// answered to then, if there are any. Settlements that are nobody's have no line before them.
    Call { line: &'a [u8], settlements: &'a [u8] },
    /// The call of this id was not sent: nothing of it comes back.
    Cancelled(&'a [u8]),
    /// All that was open when the area was begun is before this frame.
    Whole,
}

impl<'a> Frame<'a> {
    pub(super) fn says(&self) -> Says<'a> {
        match self.line.split_first() {
            Some((&CANCELLED, id)) => Says::Cancelled(id),
            _ if self.line == WHOLE => Says::Whole,
            Some((&settlement::MARK, _)) => Says::Call { line: &[], settlements: self.line },
            _ => {
                let end =
                    self.line.iter().position(|byte| *byte == b'\n').map_or(self.line.len(), |end| end + 1);
                let (line, settlements) = self.line.split_at(end);
                Says::Call { line, settlements }
            }
        }
    }

    /// How many bytes it takes in the file.
    pub(super) const fn bytes(&self) -> usize {
        HEADER_BYTES + self.line.len()
    }
}

/// A frame, not sealed yet, that says an area is whole.
pub(super) fn whole() -> Vec<u8> {
    [&[0; HEADER_BYTES][..], WHOLE].concat()
}

/// A frame, not sealed yet, that says a call was not sent.
pub(super) fn cancelled(id: &str) -> Vec<u8> {
    [&[0; HEADER_BYTES][..], &[CANCELLED], id.as_bytes()].concat()
}

/// Completes `frame`, a line behind room for the header.
pub(super) fn seal(frame: &mut [u8], sequence: u64) {
    let Some((header, line)) = frame.split_first_chunk_mut::<HEADER_BYTES>() else { return };
    let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
    let fields = [u64::from_le_bytes(MAGIC), sequence, length, checksum(sequence, line)];
    for (place, field) in header.as_chunks_mut::<8>().0.iter_mut().zip(fields) {
        *place = field.to_le_bytes();
    }
}

/// The frame that `bytes` begin with; `None`: there is none, or it was torn.
pub(super) fn read(bytes: &[u8]) -> Option<Frame<'_>> {
    let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let [magic, sequence, length, sum] = header.as_chunks::<8>().0 else { return None };
    let line = rest.get(..usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    let sequence = u64::from_le_bytes(*sequence);
    let is_whole = *magic == MAGIC && u64::from_le_bytes(*sum) == checksum(sequence, line);
    is_whole.then_some(Frame { sequence, line })
}

/// How long the line behind `header` is; `None`: there is no frame.
pub(super) fn line_bytes(header: &[u8]) -> Option<usize> {
    let [magic, _, length, _] = header.as_chunks::<8>().0 else { return None };
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    (*magic == MAGIC && length <= CONTENT_BYTES_MAX).then_some(length)
}

/// Whether `bytes` begin as a journal of another version.
pub(super) fn is_of_another_version(bytes: &[u8]) -> bool {
    bytes.starts_with(b"TGOPEN") && !bytes.starts_with(&MAGIC)
}

/// Tells a whole line from a torn one. Each step is one-to-one in the word it takes in, so that no
/// difference in a single word goes unnoticed.
pub(crate) fn checksum(sequence: u64, line: &[u8]) -> u64 {
    // An odd number with as many ones as zeros: the fraction of the golden ratio.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, rest) = line.as_chunks::<8>();
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(place, byte)| *place = *byte);
    let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
    let ends = [sequence, length, u64::from_le_bytes(last)];
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    words.chain(ends).fold(FACTOR, |sum, word| (sum ^ word).wrapping_mul(FACTOR).rotate_left(29))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 512;

    fn sealed(sequence: u64, line: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; HEADER_BYTES];
        frame.extend_from_slice(line);
        seal(&mut frame, sequence);
        frame
    }

    proptest::proptest! {
        #[test]
        fn a_frame_torn_over_another_is_no_frame(
            old in proptest::collection::vec(0_u8..255, 0..200),
            new in proptest::collection::vec(0_u8..255, 1..200),
            torn in 0_usize..232,
        ) {
            let whole = sealed(3, &new);
            let mut bytes = sealed(1, &old);
            bytes.resize(ROOM, 0);
            bytes[..whole.len()].copy_from_slice(&whole);
            proptest::prop_assert_eq!(read(&bytes), Some(Frame { sequence: 3, line: &new }));

            let torn = torn.min(whole.len() - 1);
            let mut bytes = sealed(1, &old);
            bytes.resize(ROOM, 0);
            bytes[..torn].copy_from_slice(&whole[..torn]);
            // The first bytes of all frames are alike, and so may the last ones be.
            let is_old = bytes.starts_with(&sealed(1, &old));
            let is_new = bytes.starts_with(&whole);
            proptest::prop_assert_eq!(read(&bytes).is_some(), is_old || is_new);
        }
    }

    #[test]
    fn nothing_is_read_where_nothing_was_written() {
        assert_eq!(read(&[0; ROOM]), None);
        assert_eq!(read(b"short"), None);
        let mut longer = sealed(1, b"line");
        longer.pop();
        assert_eq!(read(&longer), None);
    }

    #[test]
    fn a_frame_says_what_it_was_made_to_say() {
        let says = |mut frame: Vec<u8>| {
            seal(&mut frame, 7);
            let line = read(&frame).unwrap().line.to_owned();
            match (Frame { sequence: 7, line: &line }).says() {
                Says::Call { line, settlements } => format!("call {} {}", line.len(), settlements.len()),
                Says::Cancelled(id) => String::from_utf8(id.to_owned()).unwrap(),
                Says::Whole => "whole".to_owned(),
            }
        };
        assert_eq!(says(whole()), "whole");
        assert_eq!(says(cancelled("abc")), "abc");
        assert_eq!(says(sealed(0, b"{\"v\":1}\n")), "call 8 0");
        assert_eq!(says(sealed(0, b"{\"v\":1}\n+{}\n+{}\n")), "call 8 8");
        assert_eq!(says(sealed(0, b"+{}\n")), "call 0 4");
    }
}
