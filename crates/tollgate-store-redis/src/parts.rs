//! A plan in parts: what one script can reach, and so what is decided in one step. On one server that is all of it.
//! In a cluster a part is what lies under one hash tag, and the first one is that of the plan's first limit.

use bytes::Bytes;
use tollgate_limiter::{Plan, ReservationId};
use tollgate_store::{StoreError, is_hard_budget};

use crate::{
    keys::Keys,
    request::{self, Fingerprint},
};

/// Entries of a plan whose keys one script can reach.
#[derive(Debug)]
pub(crate) struct Part {
    /// Their places in the plan.
    pub(crate) places: Vec<usize>,
    /// The keys of their counters.
    pub(crate) counters: Vec<String>,
    /// The plan as scripts read it, of these entries.
    pub(crate) entries: Bytes,
    /// The key of the reservation's record here.
    pub(crate) record: String,
    /// The key of its extensions.
    pub(crate) extensions: String,
    /// The key of the mark that Redis knows what was spent here, if a hard budget asks for it.
    pub(crate) mark: Option<String>,
}

/// A plan in its parts.
#[derive(Debug)]
pub(crate) struct Parts {
    /// The part that is asked first. It holds the entries of nobody where the plan is empty.
    pub(crate) first: Part,
    /// The others, which are asked together.
    pub(crate) others: Vec<Part>,
    /// Tells the whole plan from others.
    pub(crate) fingerprint: Bytes,
}

impl Parts {
    /// The parts of `plan`. `is_guarded`: hard budgets ask for marks.
    ///
    /// # Errors
    ///
    /// [`StoreError::Mismatch`] for a limit that scripts could not count exactly.
    pub(crate) fn of(
        keys: &Keys,
        id: ReservationId,
        plan: &Plan,
        is_guarded: bool,
    ) -> Result<Self, StoreError> {
        let mut fingerprint = Fingerprint::default();
        let home = plan.entries().first().map_or("", |entry| entry.limit.key.partition());
        let new = |partition: &str| Part {
            places: Vec::new(),
            counters: Vec::new(),
            entries: Bytes::new(),
            record: keys.record(id, partition),
            extensions: keys.extensions(id, partition),
            mark: None,
        };
        let mut tags = vec![keys.tag(home)];
        let mut parts = vec![(new(home), Vec::new())];
        for (place, entry) in plan.entries().iter().enumerate() {
            let partition = entry.limit.key.partition();
            let tag = keys.tag(partition);
            let bytes = request::entry(entry)?;
            fingerprint.add(entry, &bytes);
            let number = tags.iter().position(|known| *known == tag).unwrap_or_else(|| {
                tags.push(tag);
                parts.push((new(partition), Vec::new()));
                tags.len() - 1
            });
            let Some((part, entries)) = parts.get_mut(number) else { continue };
            part.places.push(place);
            part.counters.push(keys.counter(&entry.limit.key));
            entries.extend(bytes);
            if is_guarded && is_hard_budget(&entry.limit) {
                part.mark = Some(keys.ready(tag));
            }
        }
        let mut parts = parts.into_iter().map(|(part, entries)| Part { entries: entries.into(), ..part });
        let first = parts.next().unwrap_or_else(|| new(home));
        Ok(Self { first, others: parts.collect(), fingerprint: fingerprint.finish() })
    }

    /// Whether there is more than one.
    pub(crate) fn is_split(&self) -> bool {
        !self.others.is_empty()
    }
}

impl Part {
    /// Of amounts in the order of the plan those of this part.
    pub(crate) fn of_all<T: Copy>(&self, all: &[T]) -> Vec<T> {
        self.places.iter().filter_map(|place| all.get(*place).copied()).collect()
    }
}
