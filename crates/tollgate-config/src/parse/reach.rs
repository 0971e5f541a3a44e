//! Which limits can meet a call at all: one that never does would be a setting without effect.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::key::ATTRIBUTE_CHARS_MAX;
use super::provider::Declared;
use crate::nearest::nearest;
use crate::problems::{Place, Problems};
use crate::section::{Field, Section};
use crate::{Key, Scope, ScopedLimit, Tenant};

/// The longest name of a model.
const MODEL_BYTES_MAX: usize = 256;

/// The longest id of a session.
const SESSION_BYTES_MAX: usize = 128;

/// The longest attribute that a call can carry.
const SENT_BYTES_MAX: usize = 256;

/// A misspelt name is compared with at most as many known ones.
const COMPARED_MAX: usize = 1_000;

/// What calls can carry, by what providers, tenants and keys say.
pub(super) struct Reach<'a> {
    /// The values that are fixed by the configuration.
    values: BTreeMap<Scope, BTreeSet<&'a str>>,
    /// Attributes that some key lets its callers set.
    from_callers: BTreeSet<Scope>,
}

impl<'a> Reach<'a> {
    pub(super) fn new(providers: &'a [Declared], tenants: &'a [Tenant]) -> Self {
        let mut values: BTreeMap<Scope, BTreeSet<&str>> = BTreeMap::new();
        let mut add = |scope, value: &'a str| values.entry(scope).or_default().insert(value);
        for id in providers.iter().filter_map(|declared| declared.id.as_deref()) {
            add(Scope::Provider, id);
        }
        let mut from_callers = BTreeSet::new();
        for tenant in tenants {
            add(Scope::Tenant, &tenant.id);
            for key in &tenant.keys {
                add(Scope::Key, &key.id);
                for (scope, value) in attributes(key) {
                    add(scope, value);
                }
                from_callers.extend(key.caller_attributes.iter().copied());
            }
        }
        Self { values, from_callers }
    }

    /// The `id` of a limit of `scope`.
    ///
    /// An unknown tenant or provider is an error. An unknown key or attribute is a warning
    /// ([`Reach::check`]): a key can be revoked without touching the limits that were made for it.
    pub(super) fn id(&self, scope: Scope, field: &Field<'_>) -> Option<Arc<str>> {
        let id = field.text()?;
        let printable = |chars_max: usize| {
            !id.is_empty() && id.chars().count() <= chars_max && !id.contains(char::is_control)
        };
        let problem = match scope {
            Scope::Tenant | Scope::Provider if !self.has(scope, id) => Some(self.unknown(scope, id)),
            Scope::Model if !printable(MODEL_BYTES_MAX) || id.len() > MODEL_BYTES_MAX => {
                Some(format!("must be the name of a model: 1 to {MODEL_BYTES_MAX} bytes"))
            }
            Scope::Model if id.contains(['*', '?']) => {
                Some("must be the name of one model: globs go into `models`".to_owned())
            }
            Scope::Session
                if !printable(SESSION_BYTES_MAX) || !id.bytes().all(|byte| byte.is_ascii_graphic()) =>
            {
                Some(format!("must be 1 to {SESSION_BYTES_MAX} visible ASCII characters without spaces"))
            }
            _ if !printable(ATTRIBUTE_CHARS_MAX) => Some(format!(
                "must be 1 to {ATTRIBUTE_CHARS_MAX} characters, none of them a control character"
            )),
            _ => None,
        };
        match problem {
            Some(problem) => {
                field.fail(problem);
                None
            }
            None => Some(id.into()),
        }
    }

    /// Warns of a limit that no call can meet.
    pub(super) fn check(&self, problems: &Problems, limit: &ScopedLimit, section: &Section<'_>) {
        let scope = limit.scope;
        let is_attribute = Scope::ATTRIBUTES.contains(&scope);
        if !is_attribute && scope != Scope::Key {
            return;
        }
        let from_callers = self.from_callers.contains(&scope);
        match &limit.id {
            Some(id) if self.has(scope, id) || from_callers && can_be_sent(scope, id) => {}
            Some(id) => {
                let mut message = self.unknown(scope, id);
                if from_callers {
                    message.push_str(
                        ", and no call can: a header takes visible ASCII characters without spaces",
                    );
                }
                problems.warn(&section.place_of("id"), format!("{message}: this limit never applies"));
            }
            None if !from_callers && self.values.get(&scope).is_none_or(BTreeSet::is_empty) => {
                let message = format!("no key carries the attribute `{scope}`: this limit never applies");
                problems.warn(&section.place_of("scope"), message);
            }
            None => {}
        }
    }

    fn has(&self, scope: Scope, id: &str) -> bool {
        self.values.get(&scope).is_some_and(|values| values.contains(id))
    }

    fn unknown(&self, scope: Scope, id: &str) -> String {
        let known: Vec<&str> = self.values.get(&scope).into_iter().flatten().copied().collect();
        let compared = known.get(..known.len().min(COMPARED_MAX)).unwrap_or_default();
        let hint =
            nearest(id, compared).map_or_else(String::new, |near| format!("; the nearest one is {near:?}"));
        if Scope::ATTRIBUTES.contains(&scope) {
            format!("no key carries the {scope} {id:?}{hint}")
        } else {
            format!("no {scope} has the id {id:?}{hint}")
        }
    }
}

/// Whether a caller can set an attribute to `value`: in a header or, for the user, in the request's body.
fn can_be_sent(scope: Scope, value: &str) -> bool {
    let in_header = value.bytes().all(|byte| byte.is_ascii_graphic());
    value.len() <= SENT_BYTES_MAX && (in_header || scope == Scope::User)
}

/// Warns of tenants that no limit bounds.
pub(super) fn warn_of_unbounded(
    problems: &Problems,
    tenants: &[Tenant],
    without_limits: &[(Arc<str>, Place)],
    limits: &[ScopedLimit],
) {
    let present: HashSet<(Scope, Option<&str>)> =
        limits.iter().map(|limit| (limit.scope, limit.id.as_deref())).collect();
    let scopes: BTreeSet<Scope> = limits.iter().map(|limit| limit.scope).collect();
    // What models, providers and sessions a tenant's calls will have is not known.
    let may_meet = |scope: &Scope| matches!(scope, Scope::Model | Scope::Provider | Scope::Session);
    let key_meets = |key: &Key| {
        is_for(&present, Scope::Key, &key.id)
            || attributes(key).any(|(scope, value)| is_for(&present, scope, value))
            || key.caller_attributes.iter().any(|scope| scopes.contains(scope))
    };
    if scopes.contains(&Scope::Global) || scopes.iter().any(may_meet) {
        return;
    }
    let by_id: BTreeMap<&str, &Tenant> = tenants.iter().map(|tenant| (&*tenant.id, tenant)).collect();
    for (id, place) in without_limits {
        let keys = by_id.get(&**id).map_or(&[][..], |tenant| &tenant.keys);
        if !is_for(&present, Scope::Tenant, id) && !keys.iter().any(key_meets) {
            problems.warn(place, "has neither limit nor budget: its calls are not bounded");
        }
    }
}

/// Whether a limit is for this value of a scope, or for every value.
fn is_for<'v>(present: &HashSet<(Scope, Option<&'v str>)>, scope: Scope, value: &'v str) -> bool {
    present.contains(&(scope, None)) || present.contains(&(scope, Some(value)))
}

fn attributes(key: &Key) -> impl Iterator<Item = (Scope, &str)> {
    let scoped = |attribute: Scope| Some((attribute, &**key.attributes.get(attribute.name())?));
    Scope::ATTRIBUTES.into_iter().filter_map(scoped)
}
