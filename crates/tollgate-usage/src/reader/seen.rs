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
fn hex_bits(id: &[u8]) -> Option<u128> {
    let digits: &[u8; 32] = id.try_into().ok()?;
    digits.iter().try_fold(0, |bits: u128, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(bits << 4 | u128::from(value))
    })
}
