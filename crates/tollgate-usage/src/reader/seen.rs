//! Which calls were there before.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use foldhash::quality;

/// A set of [names](Names) at 16 bytes each.
#[derive(Default)]
pub(super) struct Seen(HashSet<u128, quality::RandomState>);

impl Seen {
    /// Whether `name` is new. What has no name is always new.
    pub(super) fn insert(&mut self, name: Option<u128>) -> bool {
        name.is_none_or(|name| self.0.insert(name))
    }
}

/// Request ids as numbers. Of one another's clones they make the same.
///
/// Our own ids are 128 bits in hexadecimal and are taken as such; of any other id two hashes with
/// keys that nobody knows are put together.
#[derive(Clone, Default)]
pub(super) struct Names(RandomState, RandomState);

impl Names {
    /// The name that `id` is; `None`: an empty one names nothing.
    pub(super) fn of(&self, id: &str) -> Option<u128> {
        (!id.is_empty()).then(|| hex_bits(id.as_bytes()).unwrap_or_else(|| self.hash(id)))
    }

    fn hash(&self, id: &str) -> u128 {
        let Self(high, low) = self;
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
