//! The name of a counter.

use alloc::sync::Arc;
use core::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
};

use crate::siphash::siphash;

/// Names one counter. Counters of one partition are decided together in one step.
///
/// It hashes its texts once, when it is made.
///
/// With the feature `serde` it is written as its two texts.
#[derive(Clone)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(from = "Texts", into = "Texts")
)]
pub struct CounterKey {
    partition: Arc<str>,
    name: Arc<str>,
    partition_hash: u64,
    hash: u64,
}

impl CounterKey {
    /// The counter `name` of `partition` (a tenant, or a scope that all tenants share).
    pub fn new(partition: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        let (partition, name) = (partition.into(), name.into());
        let partition_hash = siphash((0, 0), partition.as_bytes());
        let hash = siphash((partition_hash, 0), name.as_bytes());
        Self { partition, name, partition_hash, hash }
    }

    /// The partition: what a store may keep in one shard or slot.
    pub fn partition(&self) -> &str {
        &self.partition
    }

    /// The counter's name within its partition.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A hash of the partition, the same in every process: a store that shards by it mixes in a
    /// secret of its own.
    pub const fn partition_hash(&self) -> u64 {
        self.partition_hash
    }
}

/// What is written of a key.
#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
struct Texts {
    partition: alloc::string::String,
    name: alloc::string::String,
}

#[cfg(feature = "serde")]
impl From<Texts> for CounterKey {
    fn from(texts: Texts) -> Self {
        Self::new(texts.partition, texts.name)
    }
}

#[cfg(feature = "serde")]
impl From<CounterKey> for Texts {
    fn from(key: CounterKey) -> Self {
        Self { partition: key.partition().into(), name: key.name().into() }
    }
}

impl PartialEq for CounterKey {
    fn eq(&self, other: &Self) -> bool {
        let same = |one: &Arc<str>, other: &Arc<str>| Arc::ptr_eq(one, other) || one == other;
        self.hash == other.hash && same(&self.name, &other.name) && same(&self.partition, &other.partition)
    }
}

impl Eq for CounterKey {}

impl Hash for CounterKey {
    /// The hash of both texts, the same in every process: a table mixes in a secret of its own.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Ord for CounterKey {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.partition(), self.name()).cmp(&(other.partition(), other.name()))
    }
}

impl PartialOrd for CounterKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for CounterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.partition, self.name)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::{BTreeSet, HashSet};

    use super::CounterKey;

    #[test]
    fn keys_of_any_length_are_found_again_and_told_apart() {
        let long = "x".repeat(200);
        let texts = ["", "a", "ab", "b", long.as_str()];
        let pairs = texts.iter().flat_map(|partition| texts.iter().map(move |name| (*partition, *name)));
        let key = |(partition, name)| CounterKey::new(partition, name);
        let (hashed, sorted): (HashSet<_>, BTreeSet<_>) =
            pairs.clone().map(|pair| (key(pair), key(pair))).unzip();
        assert_eq!((hashed.len(), sorted.len()), (texts.len() * texts.len(), texts.len() * texts.len()));
        for pair in pairs {
            assert!(hashed.contains(&key(pair)) && sorted.contains(&key(pair)));
        }
        assert!(sorted.iter().map(|key| (key.partition(), key.name())).is_sorted());
    }
}
