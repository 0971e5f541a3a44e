//! Decoding base64 as far as needed, without a copy of it.

/// The bytes that base64 text encodes, one at a time. Both alphabets; white space is passed over;
/// ends at padding or at the first character that is neither.
pub(super) struct Decoder<'a> {
    text: std::slice::Iter<'a, u8>,
    bits: u32,
    held_bits: u32,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { text: text.iter(), bits: 0, held_bits: 0 }
    }

    /// Fills as much of `buffer` as there is; returns how much.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> usize {
        let mut filled = 0;
        for slot in buffer {
            let Some(byte) = self.next() else { break };
            *slot = byte;
            filled += 1;
        }
        filled
    }
}

impl Iterator for Decoder<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        while self.held_bits < 8 {
            let value = match *self.text.next()? {
                c @ b'A'..=b'Z' => c - b'A',
                c @ b'a'..=b'z' => c - b'a' + 26,
                c @ b'0'..=b'9' => c - b'0' + 52,
                b'+' | b'-' => 62,
                b'/' | b'_' => 63,
                b' ' | b'\t' | b'\r' | b'\n' => continue,
                _ => return None,
            };
            self.bits = (self.bits << 6) | u32::from(value);
            self.held_bits += 6;
        }
        self.held_bits -= 8;
        let byte = (self.bits >> self.held_bits) & 0xFF;
        self.bits &= (1 << self.held_bits) - 1;
        u8::try_from(byte).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::Decoder;

    fn decoded(text: &str) -> Vec<u8> {
        Decoder::new(text.as_bytes()).collect()
    }

    #[test]
    fn decodes_both_alphabets_with_and_without_padding() {
        assert_eq!(decoded(""), b"");
        assert_eq!(decoded("TQ=="), b"M");
        assert_eq!(decoded("TWE="), b"Ma");
        assert_eq!(decoded("TWFu"), b"Man");
        assert_eq!(decoded("TWFuTQ"), b"ManM");
        assert_eq!(decoded("-_+/"), decoded("+/-_"));
        assert_eq!(decoded("TW\r\nFu"), b"Man");
    }

    #[test]
    fn stops_at_what_is_not_base64() {
        assert_eq!(decoded("TWFu...TWFu"), b"Man");
        assert_eq!(decoded("é"), b"");
    }
}
