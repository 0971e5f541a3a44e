//! One half of a slot: a line, with what tells whether it is whole and which of two is newer.

/// The room of a half for long lines. Sparse: what is never written takes no space on the disk.
pub(super) const HALF_BYTES: usize = 8 << 10;

/// The room of a half for nearly all lines: both halves are in one page of memory.
const SHORT_BYTES: usize = 2 << 10;

/// The room of a slot: two short halves and two long ones.
pub(super) const SLOT_BYTES: usize = 2 * SHORT_BYTES + 2 * HALF_BYTES;

/// Where the halves of a slot begin.
pub(super) const PLACES: [usize; 4] = [0, SHORT_BYTES, 2 * SHORT_BYTES, 2 * SHORT_BYTES + HALF_BYTES];

/// Where a half goes that has so many bytes: not where the one before it is.
pub(super) const fn place(sequence: u64, half_bytes: usize) -> usize {
    match (half_bytes <= SHORT_BYTES, sequence.is_multiple_of(2)) {
        (true, true) => PLACES[0],
        (true, false) => PLACES[1],
        (false, true) => PLACES[2],
        (false, false) => PLACES[3],
    }
}

/// What stands before the line.
pub(crate) const HEADER_BYTES: usize = 32;

/// The longest line. What a request may say of itself and a configuration of its keys makes lines of at
/// most six thousand bytes.
pub(crate) const LINE_BYTES_MAX: usize = HALF_BYTES - HEADER_BYTES;

/// Tells a half from what else may be in the file, and its format from later ones.
const MAGIC: [u8; 8] = *b"TGOPEN1\n";

/// What a half holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Half<'a> {
    /// Of two halves the one with the larger number is the newer.
    pub(super) sequence: u64,
    pub(super) line: &'a [u8],
}

/// Completes `half`, a line behind room for the header.
pub(super) fn seal(half: &mut [u8], sequence: u64) {
    let Some((header, line)) = half.split_first_chunk_mut::<HEADER_BYTES>() else { return };
    let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
    let fields = [u64::from_le_bytes(MAGIC), sequence, length, checksum(sequence, line)];
    for (place, field) in header.as_chunks_mut::<8>().0.iter_mut().zip(fields) {
        *place = field.to_le_bytes();
    }
}

/// What the bytes of a half hold; `None`: nothing, or what was torn.
pub(super) fn read(half: &[u8]) -> Option<Half<'_>> {
    let (header, rest) = half.split_first_chunk::<HEADER_BYTES>()?;
    let [magic, sequence, length, sum] = header.as_chunks::<8>().0 else { return None };
    let line = rest.get(..usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    let sequence = u64::from_le_bytes(*sequence);
    let is_whole = *magic == MAGIC && u64::from_le_bytes(*sum) == checksum(sequence, line);
    is_whole.then_some(Half { sequence, line })
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

    fn sealed(sequence: u64, line: &[u8]) -> Vec<u8> {
        let mut half = vec![0; HEADER_BYTES];
        half.extend_from_slice(line);
        seal(&mut half, sequence);
        half
    }

    proptest::proptest! {
        #[test]
        fn a_half_torn_over_another_is_no_half(
            old in proptest::collection::vec(0_u8..255, 0..200),
            new in proptest::collection::vec(0_u8..255, 1..200),
            torn in 0_usize..232,
        ) {
            let whole = sealed(3, &new);
            let mut bytes = sealed(1, &old);
            bytes.resize(HALF_BYTES, 0);
            bytes[..whole.len()].copy_from_slice(&whole);
            proptest::prop_assert_eq!(read(&bytes), Some(Half { sequence: 3, line: &new }));

            let torn = torn.min(whole.len() - 1);
            let mut bytes = sealed(1, &old);
            bytes.resize(HALF_BYTES, 0);
            bytes[..torn].copy_from_slice(&whole[..torn]);
            // The first bytes of all halves are alike, and so may the last ones be.
            let is_old = bytes.starts_with(&sealed(1, &old));
            let is_new = bytes.starts_with(&whole);
            proptest::prop_assert_eq!(read(&bytes).is_some(), is_old || is_new);
        }
    }

    #[test]
    fn nothing_is_read_where_nothing_was_written() {
        assert_eq!(read(&[0; HALF_BYTES]), None);
        assert_eq!(read(b"short"), None);
        let mut longer = sealed(1, b"line");
        longer.pop();
        assert_eq!(read(&longer), None);
    }
}
