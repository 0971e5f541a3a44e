//! Text sizes: bytes by the classes that tokenizers treat alike.
//!
//! Prose, code and numbers have very different lengths per token; a ratio over all bytes would be
//! far too high for one or too low for another. Counting a few byte classes costs one vectorised
//! pass and brings the estimate much closer.

/// Bytes of text, by class. Sums over any number of strings.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct TextSizes {
    /// ASCII letters and spaces of ordinary text: several to a token.
    pub(crate) letters: u64,
    /// ASCII digits, punctuation and line ends: nearly a token each.
    pub(crate) marks: u64,
    /// ASCII without words in it: base64, hashes, long URLs, minified code.
    pub(crate) dense: u64,
    /// Bytes of characters beyond ASCII.
    pub(crate) other: u64,
}

impl TextSizes {
    /// Counts one string.
    pub(crate) fn add(&mut self, text: &[u8]) {
        let mut run = Run::default();
        run.add(text);
        self.add_run(run);
    }

    /// Counts a string that was seen piece by piece.
    pub(crate) fn add_run(&mut self, run: Run) {
        let ascii = run.bytes.saturating_sub(run.other);
        self.other = self.other.saturating_add(run.other);
        if run.is_dense() {
            self.dense = self.dense.saturating_add(ascii);
        } else {
            let letters = run.letters.saturating_add(run.spaces);
            self.letters = self.letters.saturating_add(letters);
            self.marks = self.marks.saturating_add(ascii.saturating_sub(letters));
        }
    }

    /// Counts `bytes` of punctuation and the like that are no string.
    pub(crate) fn add_marks(&mut self, bytes: u64) {
        self.marks = self.marks.saturating_add(bytes);
    }
}

/// One string's bytes by class, before it is known whether the string has words.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Run {
    bytes: u64,
    letters: u64,
    spaces: u64,
    other: u64,
}

impl Run {
    /// Strings shorter than this are counted as ordinary text.
    const MIN_DENSE_BYTES: u64 = 40;
    /// With fewer spaces than one to so many bytes, a string has no words.
    const DENSE_BYTES_PER_SPACE: u64 = 20;

    /// Takes the next piece of the string, cut anywhere.
    pub(crate) fn add(&mut self, piece: &[u8]) {
        // Sums of a block fit a byte, which lets the compiler count many bytes at once.
        for block in piece.chunks(255) {
            let (mut letters, mut spaces, mut other) = (0_u8, 0_u8, 0_u8);
            for &byte in block {
                letters += u8::from(byte.is_ascii_alphabetic());
                spaces += u8::from(byte == b' ');
                other += u8::from(byte >= 0x80);
            }
            self.letters = self.letters.saturating_add(u64::from(letters));
            self.spaces = self.spaces.saturating_add(u64::from(spaces));
            self.other = self.other.saturating_add(u64::from(other));
        }
        self.bytes = self.bytes.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
    }

    /// Takes one character beyond ASCII that was written as an escape.
    pub(crate) fn add_escaped_character(&mut self) {
        // Three bytes in UTF-8 for most scripts that are escaped at all.
        self.bytes = self.bytes.saturating_add(3);
        self.other = self.other.saturating_add(3);
    }

    /// Takes `bytes` without looking at them: they count as a string without words.
    pub(crate) fn add_unseen(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Whether the string is empty.
    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    fn is_dense(&self) -> bool {
        let ascii = self.bytes.saturating_sub(self.other);
        ascii >= Self::MIN_DENSE_BYTES && self.spaces.saturating_mul(Self::DENSE_BYTES_PER_SPACE) < ascii
    }
}

/// How many tokens a tokenizer makes, in tokens per 1,000 bytes of each class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextRatio {
    pub(crate) letters: u64,
    pub(crate) marks: u64,
    pub(crate) dense: u64,
    pub(crate) other: u64,
}

impl TextRatio {
    /// The tokens of `text`, rounded up.
    pub(crate) fn tokens(&self, text: &TextSizes) -> u64 {
        [
            (text.letters, self.letters),
            (text.marks, self.marks),
            (text.dense, self.dense),
            (text.other, self.other),
        ]
        .iter()
        .fold(0_u64, |sum, (bytes, per_1000)| sum.saturating_add(bytes.saturating_mul(*per_1000)))
        .div_ceil(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sizes(text: &str) -> TextSizes {
        let mut sizes = TextSizes::default();
        sizes.add(text.as_bytes());
        sizes
    }

    #[test]
    fn classes_are_told_apart() {
        assert_eq!(sizes("to be, 42\n"), TextSizes { letters: 6, marks: 4, ..TextSizes::default() });
        assert_eq!(sizes("né 中"), TextSizes { letters: 2, other: 5, ..TextSizes::default() });
        assert_eq!(sizes(&"QUJD".repeat(100)), TextSizes { dense: 400, ..TextSizes::default() });
    }

    proptest! {
        #[test]
        fn pieces_count_like_the_whole(text in proptest::collection::vec(any::<u8>(), 0..600), cut in 0..600_usize) {
            let cut = cut.min(text.len());
            let mut pieces = Run::default();
            pieces.add(&text[..cut]);
            pieces.add(&text[cut..]);
            let mut whole = Run::default();
            whole.add(&text);
            prop_assert_eq!(pieces, whole);
        }
    }
}
