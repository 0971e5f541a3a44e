//! A plan in parts: what one script can reach, and so what is decided in one step. On one server that is all of it.
//! In a cluster a part is what lies under one hash tag, and the first one is that of the plan's first limit.

use tollgate_limiter::{Plan, ReservationId};
use tollgate_store::{StoreError, is_hard_budget};

use crate::{keys::Keys, request};

/// Texts that scripts are given for each entry.
const WORDS: usize = 5;

/// Entries of a plan whose keys one script can reach.
#[derive(Debug)]
pub(crate) struct Part {
    /// Their places in the plan.
    pub(crate) places: Vec<usize>,
    /// The keys of their counters.
    pub(crate) counters: Vec<String>,
    /// The plan as scripts read it, of these entries.
    pub(crate) words: Vec<String>,
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
    pub(crate) fingerprint: String,
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
        let words = request::plan(plan)?;
        let fingerprint = request::fingerprint(plan, &words);
        let home = plan.entries().first().map_or("", |entry| entry.limit.key.partition());
        let new = |partition: &str| Part {
            places: Vec::new(),
            counters: Vec::new(),
            words: Vec::new(),
            record: keys.record(id, partition),
            extensions: keys.extensions(id, partition),
            mark: None,
        };
        let mut tags = vec![keys.tag(home)];
        let mut parts = vec![new(home)];
        let mut words = words.into_iter();
        for (place, entry) in plan.entries().iter().enumerate() {
            let partition = entry.limit.key.partition();
            let tag = keys.tag(partition);
            let number = tags.iter().position(|known| *known == tag).unwrap_or_else(|| {
                tags.push(tag);
                parts.push(new(partition));
                tags.len() - 1
            });
            let Some(part) = parts.get_mut(number) else { continue };
            part.places.push(place);
            part.counters.push(keys.counter(&entry.limit.key));
            part.words.extend(words.by_ref().take(WORDS));
            if is_guarded && is_hard_budget(&entry.limit) {
                part.mark = Some(keys.ready(tag));
            }
        }
        let first = parts.remove(0);
        Ok(Self { first, others: parts, fingerprint })
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
