//! A plan in parts: what one script can reach, and so what is decided in one step. On one server that is all of it.
//! In a cluster a part is what lies under one hash tag, and the first one is that of the plan's first limit.

use bytes::Bytes;
use tollgate_limiter::{Plan, ReservationId};
use tollgate_store::{StoreError, is_hard_budget};

use crate::{
    keys::{Keys, Names, Tag},
    request::{self, Fingerprint},
};

/// Entries of a plan whose keys one script can reach.
#[derive(Debug)]
pub(crate) struct Part {
    /// Of all its keys.
    pub(crate) tag: Tag,
    /// Their places in the plan.
    pub(crate) places: Vec<usize>,
    /// The keys of their counters.
    pub(crate) counters: Vec<Bytes>,
    /// The plan as scripts read it, of these entries.
    pub(crate) entries: Bytes,
    /// The key of the reservation's record here.
    pub(crate) record: Bytes,
    /// The key of its extensions.
    pub(crate) extensions: Bytes,
    /// The key of the mark that Redis knows what was spent here, if a hard budget asks for it.
    pub(crate) mark: Option<Bytes>,
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
        let new = |partition: &str, tag| Draft::of(keys, id, partition, tag, plan.entries().len());
        let mut drafts = vec![new(home, keys.tag(home))];
        for (place, entry) in plan.entries().iter().enumerate() {
            let partition = entry.limit.key.partition();
            let tag = keys.tag(partition);
            let bytes = request::entry(entry)?;
            fingerprint.add(entry, &bytes);
            let number = drafts.iter().position(|known| known.tag == tag).unwrap_or_else(|| {
                drafts.push(new(partition, tag));
                drafts.len() - 1
            });
            let Some(draft) = drafts.get_mut(number) else { continue };
            draft.places.push(place);
            draft.names.add(|name| keys.write_counter(name, &entry.limit.key));
            draft.entries.extend(bytes);
            draft.is_guarded |= is_guarded && is_hard_budget(&entry.limit);
        }
        let mut parts = drafts.into_iter().map(|draft| draft.finish(keys));
        let first = parts.next().unwrap_or_else(|| new(home, keys.tag(home)).finish(keys));
        Ok(Self { first, others: parts.collect(), fingerprint: fingerprint.finish() })
    }

    /// All of them, the first one first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Part> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Whether there is more than one.
    pub(crate) fn is_split(&self) -> bool {
        !self.others.is_empty()
    }
}

/// A part that is being put together.
struct Draft {
    tag: Tag,
    places: Vec<usize>,
    /// The record's, the extensions', those of the counters.
    names: Names,
    entries: Vec<u8>,
    /// Whether it asks for the mark.
    is_guarded: bool,
}

impl Draft {
    /// A part of up to so many entries.
    fn of(keys: &Keys, id: ReservationId, partition: &str, tag: Tag, entries: usize) -> Self {
        let mut names = Names::of(entries + 2);
        names.add(|name| keys.write_record(name, id, partition));
        names.add(|name| keys.write_extensions(name, id, partition));
        let (places, entries) =
            (Vec::with_capacity(entries), Vec::with_capacity(entries * request::ENTRY_BYTES));
        Self { tag, places, names, entries, is_guarded: false }
    }

    fn finish(self, keys: &Keys) -> Part {
        let Self { tag, places, names, entries, is_guarded } = self;
        let mut names = names.finish().into_iter();
        Part {
            tag,
            places,
            record: names.next().unwrap_or_default(),
            extensions: names.next().unwrap_or_default(),
            counters: names.collect(),
            entries: entries.into(),
            mark: is_guarded.then(|| keys.ready(tag)),
        }
    }
}

impl Part {
    /// Of amounts in the order of the plan those of this part.
    pub(crate) fn of_all<T: Copy>(&self, all: &[T]) -> Vec<T> {
        self.places.iter().filter_map(|place| all.get(*place).copied()).collect()
    }
}
