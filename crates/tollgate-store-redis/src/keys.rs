//! The one place that builds key names.
//!
//! Every key of a counter or reservation is `<prefix>:{<tag>}:<kind>:<name>`: what stands in braces decides the slot
//! of a Redis Cluster. On one server the tag is the partition. In a cluster partitions share [`TAGS`] tags: each has a
//! mark of its own that says that what was spent is known there. Braces and `%` in names are encoded.

use std::fmt::Write as _;

use bytes::Bytes;
use tollgate_limiter::{CounterKey, ReservationId};

/// How many hash tags there are in a cluster. It is part of all key names.
const TAGS: u64 = 256;

/// Builds the key names of one deployment.
#[derive(Debug)]
pub(crate) struct Keys {
    prefix: String,
    is_cluster: bool,
}

/// What one script can reach: all, or in a cluster what has one hash tag.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Tag(u64);

impl Keys {
    pub(crate) fn new(prefix: &str, is_cluster: bool) -> Self {
        let mut encoded = String::new();
        encode(&mut encoded, prefix);
        Self { prefix: encoded, is_cluster }
    }

    /// Where a partition is.
    pub(crate) fn tag(&self, partition: &str) -> Tag {
        if self.is_cluster { Tag(fnv1a(partition) % TAGS) } else { Tag(0) }
    }

    /// All there are.
    pub(crate) fn tags(&self) -> impl Iterator<Item = Tag> + use<> {
        (0..if self.is_cluster { TAGS } else { 1 }).map(Tag)
    }

    /// The key of a counter.
    pub(crate) fn counter(&self, key: &CounterKey) -> Bytes {
        let mut names = Names::of(1);
        names.add(|name| self.write_counter(name, key));
        names.finish().pop().unwrap_or_default()
    }

    /// Writes the key of a counter.
    pub(crate) fn write_counter(&self, name: &mut String, key: &CounterKey) {
        self.start(name, key.partition(), 'c');
        if self.is_cluster {
            // Other partitions have the same tag. The length tells where this one ends. Writing to a string
            // cannot fail.
            let _ = write!(name, "{}:", key.partition().len());
            encode(name, key.partition());
            name.push(':');
        }
        encode(name, key.name());
    }

    /// Writes the key of a reservation's record beside the counters of a partition.
    pub(crate) fn write_record(&self, name: &mut String, id: ReservationId, partition: &str) {
        self.start(name, partition, 'r');
        let _ = write!(name, "{id}");
    }

    /// Writes the key of its extensions.
    pub(crate) fn write_extensions(&self, name: &mut String, id: ReservationId, partition: &str) {
        self.start(name, partition, 'x');
        let _ = write!(name, "{id}");
    }

    /// The key of the copies that have brought back what they had spent.
    pub(crate) fn copies(&self, tag: Tag) -> Bytes {
        self.of_tag(tag, "copies")
    }

    /// The key of the parts that a copy has told, then of its note that it has told all.
    pub(crate) fn told(&self, tag: Tag, copy: &str) -> Bytes {
        let mut name = "told:".to_owned();
        encode(&mut name, copy);
        self.of_tag(tag, &name)
    }

    /// The key that is there when enough of them have.
    pub(crate) fn ready(&self, tag: Tag) -> Bytes {
        self.of_tag(tag, "ready")
    }

    /// The key of the lives of copies.
    pub(crate) fn lives(&self) -> Bytes {
        self.of_tag(Tag(0), "lives")
    }

    /// What the names of all records look like, for `SCAN`.
    pub(crate) fn all_records(&self) -> String {
        let mut pattern = String::new();
        for character in self.prefix.chars() {
            if matches!(character, '*' | '?' | '[' | ']' | '\\') {
                pattern.push('\\');
            }
            pattern.push(character);
        }
        pattern + ":{*}:r:*"
    }

    /// What all keys of one slot begin with: everything up to the end of the hash tag.
    pub(crate) fn of_slot(key: &[u8]) -> &[u8] {
        key.split_inclusive(|byte| *byte == b'}').next().unwrap_or_default()
    }

    fn of_tag(&self, Tag(tag): Tag, name: &str) -> Bytes {
        let prefix = &self.prefix;
        if self.is_cluster { format!("{prefix}:{{{tag}}}:{name}") } else { format!("{prefix}:{name}") }.into()
    }

    fn start(&self, name: &mut String, partition: &str, kind: char) {
        name.push_str(&self.prefix);
        name.push_str(":{");
        if self.is_cluster {
            let _ = write!(name, "{}", self.tag(partition).0);
        } else {
            if partition.is_empty() {
                // Empty braces would be no hash tag. No other partition is encoded to this.
                name.push('%');
            }
            encode(name, partition);
        }
        name.push_str("}:");
        name.push(kind);
        name.push(':');
    }
}

/// Key names, one after the other in one piece of memory.
#[derive(Debug)]
pub(crate) struct Names {
    text: String,
    ends: Vec<usize>,
}

impl Names {
    /// For about so many.
    pub(crate) fn of(count: usize) -> Self {
        const BYTES_EACH: usize = 64;
        Self { text: String::with_capacity(count * BYTES_EACH), ends: Vec::with_capacity(count) }
    }

    /// Adds the name that `write` writes.
    pub(crate) fn add(&mut self, write: impl FnOnce(&mut String)) {
        write(&mut self.text);
        self.ends.push(self.text.len());
    }

    /// All of them.
    pub(crate) fn finish(self) -> Vec<Bytes> {
        let (text, mut start) = (Bytes::from(self.text), 0);
        self.ends.into_iter().map(|end| text.slice(std::mem::replace(&mut start, end)..end)).collect()
    }
}

/// The 64-bit FNV-1a hash: the same in every version, as key names have to be.
/// <http://www.isthe.com/chongo/tech/comp/fnv/>
fn fnv1a(text: &str) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    text.bytes().fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

fn encode(name: &mut String, text: &str) {
    // Nearly all names are as they are. Without a way out the loop takes many bytes at a time.
    if !text.bytes().fold(false, |found, byte| found | matches!(byte, b'{' | b'}' | b'%')) {
        return name.push_str(text);
    }
    for character in text.chars() {
        match character {
            '{' => name.push_str("%7B"),
            '}' => name.push_str("%7D"),
            '%' => name.push_str("%25"),
            other => name.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tollgate_limiter::{CounterKey, ReservationId};

    use super::{Keys, TAGS, fnv1a};

    /// What stands in the first braces.
    fn tag(key: &[u8]) -> &str {
        std::str::from_utf8(key).unwrap().split_once('{').unwrap().1.split_once('}').unwrap().0
    }

    fn written(write: impl FnOnce(&mut String)) -> String {
        let mut name = String::new();
        write(&mut name);
        name
    }

    #[test]
    fn names_are_told_apart_and_share_the_slot_of_their_partition() {
        for is_cluster in [false, true] {
            let keys = Keys::new("toll{gate", is_cluster);
            let texts = ["", "a", "{a}", "%", "%7B", "a}:c:b", "{", "1:a:", ":"];
            let mut names = HashSet::new();
            for partition in texts {
                let mut tags = HashSet::new();
                for name in texts {
                    let key = keys.counter(&CounterKey::new(partition, name));
                    assert!(!tag(&key).is_empty());
                    tags.insert(tag(&key).to_owned());
                    assert!(names.insert(key));
                }
                let record = written(|name| keys.write_record(name, ReservationId::new(7), partition));
                tags.insert(tag(record.as_bytes()).to_owned());
                assert_eq!(tags.len(), 1);
            }
        }
    }

    #[test]
    fn a_record_is_told_from_its_extensions() {
        let (keys, id) = (Keys::new("t", false), ReservationId::new(7));
        let record = written(|name| keys.write_record(name, id, "a"));
        assert_ne!(record, written(|name| keys.write_extensions(name, id, "a")));
    }

    #[test]
    fn c125_in_a_cluster_a_partition_lies_beside_the_mark_of_its_tag() {
        let keys = Keys::new("t", true);
        assert_eq!(keys.tags().count() as u64, TAGS);
        for partition in ["acme", "global", "team:ml", ""] {
            let (counter, place) = (keys.counter(&CounterKey::new(partition, "usd")), keys.tag(partition));
            assert_eq!(tag(&counter), tag(&keys.ready(place)));
            assert_eq!(tag(&counter), tag(&keys.copies(place)));
        }
        let whole = Keys::new("t", false);
        assert_eq!(whole.tags().count(), 1);
        assert_eq!(whole.ready(whole.tag("acme")), "t:ready");
    }

    /// Test vectors of the hash's authors.
    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(
            [fnv1a(""), fnv1a("a"), fnv1a("foobar")],
            [0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8]
        );
    }
}
