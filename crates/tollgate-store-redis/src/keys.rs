//! The one place that builds key names.
//!
//! Every key is `<prefix>:{<partition>}:<kind>:<name>`: what stands in braces decides the slot of a Redis
//! Cluster, so counters and records of one partition stay together. Braces and `%` in names are encoded.

use std::fmt::Write as _;

use tollgate_limiter::{CounterKey, Plan, ReservationId};

/// Builds the key names of one deployment.
#[derive(Debug)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        let mut encoded = String::new();
        encode(&mut encoded, prefix);
        Self { prefix: encoded }
    }

    /// The key of a counter.
    pub(crate) fn counter(&self, key: &CounterKey) -> String {
        let mut name = self.start(key.partition(), 'c', key.name().len());
        encode(&mut name, key.name());
        name
    }

    /// The key of a reservation's record. It lies with the first counter of its plan.
    pub(crate) fn record(&self, id: ReservationId, plan: &Plan) -> String {
        self.of_reservation('r', id, plan)
    }

    /// The key of a reservation's extensions.
    pub(crate) fn extensions(&self, id: ReservationId, plan: &Plan) -> String {
        self.of_reservation('x', id, plan)
    }

    /// The key of the copies that have brought back what they had spent.
    pub(crate) fn copies(&self) -> String {
        format!("{}:copies", self.prefix)
    }

    /// The key that is there when enough of them have.
    pub(crate) fn ready(&self) -> String {
        format!("{}:ready", self.prefix)
    }

    fn of_reservation(&self, kind: char, id: ReservationId, plan: &Plan) -> String {
        let partition = plan.entries().first().map_or("", |entry| entry.limit.key.partition());
        let mut name = self.start(partition, kind, 32);
        // Writing to a string cannot fail.
        let _ = write!(name, "{id}");
        name
    }

    fn start(&self, partition: &str, kind: char, rest: usize) -> String {
        let mut name = String::with_capacity(self.prefix.len() + partition.len() + rest + 8);
        name.push_str(&self.prefix);
        name.push_str(":{");
        if partition.is_empty() {
            // Empty braces would be no hash tag. No other partition is encoded to this.
            name.push('%');
        }
        encode(&mut name, partition);
        name.push_str("}:");
        name.push(kind);
        name.push(':');
        name
    }
}

fn encode(name: &mut String, text: &str) {
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

    use tollgate_limiter::{CounterKey, Plan, ReservationId};

    use super::Keys;

    #[test]
    fn names_are_told_apart_and_share_the_slot_of_their_partition() {
        let keys = Keys::new("toll{gate");
        let texts = ["", "a", "{a}", "%", "%7B", "a}:c:b", "{"];
        let mut names = HashSet::new();
        for partition in texts {
            let mut tags = HashSet::new();
            for name in texts {
                let key = keys.counter(&CounterKey::new(partition, name));
                let tag = key.split_once('{').unwrap().1.split_once('}').unwrap().0.to_owned();
                assert!(!tag.is_empty());
                tags.insert(tag);
                assert!(names.insert(key));
            }
            assert_eq!(tags.len(), 1);
        }
    }

    #[test]
    fn a_record_is_told_from_its_extensions() {
        let (keys, plan, id) = (Keys::new("t"), Plan::default(), ReservationId::new(7));
        assert_ne!(keys.record(id, &plan), keys.extensions(id, &plan));
    }
}
