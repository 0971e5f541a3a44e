//! All rules, found by what they are about.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use foldhash::quality::RandomState;
use tollgate_config::{Config, Scope};

use super::LimitRule;

/// The rules of a configuration by scope and id: a call is compared with those of its own values
/// only, however many there are.
#[derive(Debug, Default)]
pub(super) struct Rules {
    by_scope: [OfScope; Scope::ALL.len()],
}

#[derive(Debug, Default)]
struct OfScope {
    /// For every value.
    every: Vec<Arc<LimitRule>>,
    /// For one value; models in lower case.
    by_id: HashMap<Arc<str>, Vec<Arc<LimitRule>>, RandomState>,
    /// Those of both that demand something of models without a price.
    demanding: Vec<Arc<LimitRule>>,
}

impl Rules {
    pub(super) fn new(config: &Config) -> Self {
        let mut rules = Self::default();
        for rule in config.tenants.iter().flat_map(LimitRule::of_tenant) {
            rules.insert(rule);
        }
        for rule in config.limits.iter().flat_map(LimitRule::of_limit) {
            rules.insert(rule);
        }
        for rule in config.runs.iter().flat_map(LimitRule::of_run) {
            rules.insert(rule);
        }
        rules
    }

    fn insert(&mut self, rule: LimitRule) {
        let rule = Arc::new(rule);
        let Some(of_scope) = self.by_scope.get_mut(rule.scope as usize) else { return };
        if rule.unpriced.is_some() {
            of_scope.demanding.push(rule.clone());
        }
        match rule.id.clone() {
            Some(id) if rule.scope == Scope::Model => {
                of_scope.by_id.entry(id.to_ascii_lowercase().into()).or_default().push(rule);
            }
            Some(id) => of_scope.by_id.entry(id).or_default().push(rule),
            None => of_scope.every.push(rule),
        }
    }

    /// The rules for `value` of `scope`: those for it alone, then those for every value.
    pub(super) fn of(&self, scope: Scope, value: &str) -> impl Iterator<Item = &Arc<LimitRule>> {
        let of_scope = self.by_scope.get(scope as usize);
        let value = match scope {
            Scope::Model if value.bytes().any(|byte| byte.is_ascii_uppercase()) => {
                Cow::Owned(value.to_ascii_lowercase())
            }
            _ => Cow::Borrowed(value),
        };
        let own = of_scope.and_then(|of_scope| of_scope.by_id.get(&*value)).into_iter().flatten();
        own.chain(of_scope.into_iter().flat_map(|of_scope| &of_scope.every))
    }

    /// Whether there is any for `scope`.
    pub(super) fn any(&self, scope: Scope) -> bool {
        self.of_scope(scope).next().is_some()
    }

    /// The rules of `scope`, in no order.
    pub(super) fn of_scope(&self, scope: Scope) -> impl Iterator<Item = &Arc<LimitRule>> {
        let of_scope = self.by_scope.get(scope as usize).into_iter();
        of_scope.flat_map(|of_scope| of_scope.by_id.values().flatten().chain(&of_scope.every))
    }

    /// Those of `scope` that demand something of models without a price.
    pub(super) fn demanding(&self, scope: Scope) -> &[Arc<LimitRule>] {
        self.by_scope.get(scope as usize).map_or(&[], |of_scope| &of_scope.demanding)
    }

    /// All of them, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<LimitRule>> {
        Scope::ALL.into_iter().flat_map(|scope| self.of_scope(scope))
    }
}
