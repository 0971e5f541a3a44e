//! Which request ids were there before.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

/// A set of request ids at 16 bytes each.
///
/// Our own ids are 128 bits in hexadecimal and are kept as such; of any other id two hashes with
/// keys that nobody knows are kept.
#[derive(Default)]
pub(super) struct Seen {
    ids: HashSet<u128>,
    hashers: (RandomState, RandomState),
}

impl Seen {
    /// Whether `id` is new. An empty id names nothing and is always new.
    pub(super) fn insert(&mut self, id: &str) -> bool {
        id.is_empty() || self.ids.insert(hex_bits(id.as_bytes()).unwrap_or_else(|| self.hash(id)))
    }

    fn hash(&self, id: &str) -> u128 {
        let (high, low) = &self.hashers;
        u128::from(high.hash_one(id)) << 64 | u128::from(low.hash_one(id))
    }
}

/// The bits of exactly 32 lower-case hexadecimal digits.
///
/// Without a branch on a digit's value, which no processor could predict.
fn hex_bits(id: &[u8]) -> Option<u128> {
    let digits: &[u8; 32] = id.try_into().ok()?;
    let (mut bits, mut wrong) = (0, 0);
    for digit in digits {
        let value = DIGIT_VALUES.get(usize::from(*digit)).copied().unwrap_or(WRONG);
        bits = bits << 4 | u128::from(value & 0xf);
        wrong |= value & WRONG;
    }
    (wrong == 0).then_some(bits)
}

/// Marks what is no digit.
const WRONG: u8 = 0x80;

/// The value of each byte as a hexadecimal digit.
const DIGIT_VALUES: [u8; 256] = {
    let mut values = [WRONG; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value as usize] as usize] = value;
        value += 1;
    }
    values
};
