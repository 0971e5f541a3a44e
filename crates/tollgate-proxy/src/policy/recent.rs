//! The limits of a key's latest kinds of calls: most calls are like one before.

use std::sync::{Arc, Mutex, PoisonError};

use super::AppliedLimit;

/// How many kinds of calls a key remembers: a few models, each through one provider. What is not
/// remembered is compiled again, so that a caller who varies them gains nothing.
const KINDS_MAX: usize = 4;

type Limits = Arc<[AppliedLimit]>;

/// The latest kinds of calls.
#[derive(Default)]
pub(super) struct Recent(Mutex<Kinds>);

#[derive(Default)]
struct Kinds {
    /// At most [`KINDS_MAX`].
    kinds: Vec<(Kind<Box<str>>, Limits)>,
    /// The place of the one to be forgotten next.
    oldest: usize,
}

/// What the limits of a call depend on that has neither session nor attributes of its own.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) struct Kind<T> {
    /// The model, by a name that has a price; empty where no rule asks.
    pub(super) model: T,
    /// The provider's id.
    pub(super) provider: T,
    /// Whether it costs tokens and money.
    pub(super) is_billed: bool,
}

impl Recent {
    /// The limits of calls of a kind, made by `make` if they are not remembered.
    pub(super) fn get(&self, kind: Kind<&str>, make: impl FnOnce() -> Limits) -> Limits {
        if let Some(found) = self.kinds(|kinds| kinds.find(kind)) {
            return found;
        }
        let made = make();
        self.kinds(|kinds| kinds.remember(kind, made.clone()));
        made
    }

    fn kinds<T>(&self, then: impl FnOnce(&mut Kinds) -> T) -> T {
        then(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Kinds {
    fn find(&self, kind: Kind<&str>) -> Option<Limits> {
        let same = |(known, _): &&(Kind<Box<str>>, Limits)| {
            let Kind { model, provider, is_billed } = known;
            kind == Kind { model: &**model, provider: &**provider, is_billed: *is_billed }
        };
        self.kinds.iter().find(same).map(|(_, limits)| limits.clone())
    }

    fn remember(&mut self, kind: Kind<&str>, limits: Limits) {
        let Kind { model, provider, is_billed } = kind;
        let kind = Kind { model: model.into(), provider: provider.into(), is_billed };
        match self.kinds.get_mut(self.oldest) {
            Some(oldest) => *oldest = (kind, limits),
            None => self.kinds.push((kind, limits)),
        }
        self.oldest = (self.oldest + 1).rem_euclid(KINDS_MAX);
    }
}
