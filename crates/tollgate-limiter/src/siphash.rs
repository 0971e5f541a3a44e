//! SipHash-2-4 (Aumasson and Bernstein, 2012, <https://www.aumasson.jp/siphash/siphash.pdf>).
//!
//! A hash under a key that everybody knows keeps nobody from looking for collisions, but of all 64
//! bits they cost some 2³² tries a pair. So a table that mixes a secret of its own into the hash is
//! as safe as one that hashes the text with it.

/// The hash of `text` under a key.
pub(crate) fn siphash(key: (u64, u64), text: &[u8]) -> u64 {
    let mut state = State([
        key.0 ^ 0x736f_6d65_7073_6575,
        key.1 ^ 0x646f_7261_6e64_6f6d,
        key.0 ^ 0x6c79_6765_6e65_7261,
        key.1 ^ 0x7465_6462_7974_6573,
    ]);
    let (words, rest) = text.as_chunks();
    for word in words {
        state.absorb(u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    for (place, byte) in last.iter_mut().zip(rest) {
        *place = *byte;
    }
    // The last word ends with the length's low byte.
    let [.., end] = &mut last;
    let [length, ..] = text.len().to_le_bytes();
    *end = length;
    state.absorb(u64::from_le_bytes(last));
    state.finish()
}

struct State([u64; 4]);

impl State {
    fn absorb(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.round();
        self.0[0] ^= word;
    }

    fn finish(mut self) -> u64 {
        self.0[2] ^= 0xff;
        for _ in 0..4 {
            self.round();
        }
        let [a, b, c, d] = self.0;
        a ^ b ^ c ^ d
    }

    fn round(&mut self) {
        let [mut a, mut b, mut c, mut d] = self.0;
        a = a.wrapping_add(b);
        b = b.rotate_left(13) ^ a;
        a = a.rotate_left(32);
        c = c.wrapping_add(d);
        d = d.rotate_left(16) ^ c;
        a = a.wrapping_add(d);
        d = d.rotate_left(21) ^ a;
        c = c.wrapping_add(b);
        b = b.rotate_left(17) ^ c;
        c = c.rotate_left(32);
        self.0 = [a, b, c, d];
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::{hash::Hasher, vec::Vec};

    use super::siphash;

    /// The example of the paper's appendix: key 00 … 0f, text 00 … 0e.
    #[test]
    fn the_example_of_the_paper() {
        let text: Vec<u8> = (0..15).collect();
        let key = (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        assert_eq!(siphash(key, &text), 0xa129_ca61_49be_45e5);
    }

    /// The standard library's own, which it has deprecated for other reasons.
    #[test]
    #[expect(deprecated, reason = "an implementation of others to compare with")]
    fn texts_of_all_lengths_hash_as_the_standard_library_does() {
        let text: Vec<u8> = (0..=255).chain(0..=255).collect();
        for length in 0..text.len() {
            let mut other = std::hash::SipHasher::new_with_keys(7, u64::MAX);
            other.write(&text[..length]);
            assert_eq!(siphash((7, u64::MAX), &text[..length]), other.finish(), "{length} bytes");
        }
    }
}
