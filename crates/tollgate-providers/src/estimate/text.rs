//! Text sizes: bytes by the classes that tokenizers treat alike.
//!
//! Prose, code and numbers have very different lengths per token; a ratio over all bytes would be
//! far too high for one or too low for another. Counting a few byte classes costs one vectorised
//! pass and brings the estimate much closer.

/// Bytes of text, by class. Sums over any number of strings.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct TextSizes {
    /// ASCII letters and spaces: several to a token.
    pub(crate) letters: u64,
    /// ASCII digits, punctuation and line ends: most of a token each.
    pub(crate) marks: u64,
    /// ASCII that no tokenizer has words for: base64, hashes, ids.
    pub(crate) random: u64,
    /// Bytes of characters that take two in UTF-8: Latin with accents, Cyrillic, Arabic, …
    pub(crate) two_byte: u64,
    /// Bytes of characters that take three: Chinese, Japanese, Indic scripts, …
    pub(crate) three_byte: u64,
    /// Bytes of characters that take four: emoji.
    pub(crate) four_byte: u64,
}

impl TextSizes {
    /// Counts one string.
    pub(crate) fn add_run(&mut self, run: Run) {
        let add = |sum: &mut u64, bytes: u64| *sum = sum.saturating_add(bytes);
        let two_byte = run.two_byte_leads.saturating_mul(2).min(run.beyond_ascii);
        let four_byte = run.four_byte_leads.saturating_mul(4).min(run.beyond_ascii - two_byte);
        add(&mut self.two_byte, two_byte);
        add(&mut self.four_byte, four_byte);
        add(&mut self.three_byte, run.beyond_ascii - two_byte - four_byte);
        if run.is_random() {
            add(&mut self.random, run.ascii());
        } else {
            let letters = run.letters.saturating_add(run.spaces);
            add(&mut self.letters, letters);
            add(&mut self.marks, run.ascii().saturating_sub(letters));
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
    digits: u64,
    spaces: u64,
    beyond_ascii: u64,
    two_byte_leads: u64,
    four_byte_leads: u64,
}

impl Run {
    /// Strings shorter than this are counted as ordinary text.
    const MIN_RANDOM_BYTES: u64 = 40;
    /// With fewer spaces than one to so many bytes, a string has no words.
    const RANDOM_BYTES_PER_SPACE: u64 = 20;
    /// Base64 and ids are letters and digits to at least this part; minified code is not.
    const RANDOM_ALPHANUMERIC_PERCENT: u64 = 85;

    /// Takes the next piece of the string, cut anywhere.
    pub(crate) fn add(&mut self, piece: &[u8]) {
        // Sums of a block fit a byte, which lets the compiler count many bytes at once.
        for block in piece.chunks(255) {
            let mut sums = [0_u8; 6];
            for &byte in block {
                sums[0] += u8::from(byte.is_ascii_alphabetic());
                sums[1] += u8::from(byte.is_ascii_digit());
                sums[2] += u8::from(byte == b' ');
                sums[3] += u8::from(byte >= 0x80);
                sums[4] += u8::from(byte & 0xE0 == 0xC0);
                sums[5] += u8::from(byte >= 0xF0);
            }
            let fields = [
                &mut self.letters,
                &mut self.digits,
                &mut self.spaces,
                &mut self.beyond_ascii,
                &mut self.two_byte_leads,
                &mut self.four_byte_leads,
            ];
            for (field, sum) in fields.into_iter().zip(sums) {
                *field = field.saturating_add(u64::from(sum));
            }
        }
        self.add_unseen(piece.len());
    }

    /// Takes one character beyond ASCII that was written as an escape.
    pub(crate) fn add_escaped_character(&mut self) {
        // Three bytes in UTF-8 for most scripts that are escaped at all.
        self.bytes = self.bytes.saturating_add(3);
        self.beyond_ascii = self.beyond_ascii.saturating_add(3);
    }

    /// Takes `bytes` without looking at them: they count as marks.
    pub(crate) fn add_unseen(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Whether the string is empty.
    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// What tells most strings apart and stays the same when only digits change: letters, spaces, other
    /// ASCII, and bytes beyond.
    pub(crate) fn shape_without_digits(&self) -> [u64; 4] {
        let known = self.letters.saturating_add(self.spaces).saturating_add(self.digits);
        [self.letters, self.spaces, self.ascii().saturating_sub(known), self.beyond_ascii]
    }

    fn ascii(&self) -> u64 {
        self.bytes.saturating_sub(self.beyond_ascii)
    }

    fn is_random(&self) -> bool {
        let ascii = self.ascii();
        let alphanumeric = self.letters.saturating_add(self.digits);
        ascii >= Self::MIN_RANDOM_BYTES
            && self.spaces.saturating_mul(Self::RANDOM_BYTES_PER_SPACE) < ascii
            && alphanumeric.saturating_mul(100) >= ascii.saturating_mul(Self::RANDOM_ALPHANUMERIC_PERCENT)
    }
}

/// How many tokens a tokenizer makes, in tokens per 1,000 bytes of each class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextRatio {
    pub(crate) letters: u64,
    pub(crate) marks: u64,
    pub(crate) random: u64,
    pub(crate) two_byte: u64,
    pub(crate) three_byte: u64,
    pub(crate) four_byte: u64,
}

impl TextRatio {
    /// The tokens of `text`, rounded up.
    pub(crate) fn tokens(&self, text: &TextSizes) -> u64 {
        [
            (text.letters, self.letters),
            (text.marks, self.marks),
            (text.random, self.random),
            (text.two_byte, self.two_byte),
            (text.three_byte, self.three_byte),
            (text.four_byte, self.four_byte),
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
        let mut run = Run::default();
        run.add(text.as_bytes());
        sizes.add_run(run);
        sizes
    }

    #[test]
    fn classes_are_told_apart() {
        assert_eq!(sizes("to be, 42\n"), TextSizes { letters: 6, marks: 4, ..TextSizes::default() });
        let mixed =
            TextSizes { letters: 2, two_byte: 2, three_byte: 3, four_byte: 4, ..TextSizes::default() };
        assert_eq!(sizes("né 中🎉"), mixed);
        assert_eq!(sizes(&"QUJD".repeat(100)), TextSizes { random: 400, ..TextSizes::default() });
        let minified = sizes(&r#"{"a":1,"b":[2]},"#.repeat(10));
        assert_eq!((minified.random, minified.marks), (0, 140));
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
