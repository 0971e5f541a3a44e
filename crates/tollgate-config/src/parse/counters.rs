//! Finds two limits that would share a counter: one of them would be charged twice, or never.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::context::Distinct;
use crate::problems::{Place, Problems};
use crate::{ModelGlobs, Scope};

/// Whom a limit is about, apart from what it counts.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Subject {
    scope: Scope,
    id: Option<Arc<str>>,
    /// The globs as a set: their order and repetitions mean nothing.
    models: Option<BTreeSet<String>>,
}

impl Subject {
    pub(super) fn new(scope: Scope, id: Option<Arc<str>>, models: Option<&ModelGlobs>) -> Self {
        // The names of models mean the same in any case.
        let id = if scope == Scope::Model { id.map(|id| id.to_ascii_lowercase().into()) } else { id };
        Self { scope, id, models: models.map(ModelGlobs::as_set) }
    }
}

/// The counters that have been named so far. What belongs to a counter is neither its amount nor the
/// algorithm that counts.
pub(super) struct Counters(Distinct<(Subject, &'static str, &'static str)>);

impl Counters {
    pub(super) const fn new() -> Self {
        Self(Distinct::new())
    }

    /// Complains at `place` if the counter of `unit` and `window` was there before.
    pub(super) fn check(
        &mut self,
        problems: &Problems,
        subject: &Subject,
        (unit, window): (&'static str, &'static str),
        place: &Place,
    ) {
        let what = "this combination of scope, id, models, unit and window";
        self.0.check(problems, (subject.clone(), unit, window), place, what);
    }

    /// Notes a counter that cannot have been there before.
    pub(super) fn note(
        &mut self,
        subject: &Subject,
        (unit, window): (&'static str, &'static str),
        place: &Place,
    ) {
        self.0.note((subject.clone(), unit, window), place);
    }
}
