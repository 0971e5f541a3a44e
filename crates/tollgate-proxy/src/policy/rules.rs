//! All rules, found by what they are about.

use std::{collections::HashMap, sync::Arc};

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
    /// For one value.
    by_id: HashMap<Arc<str>, Vec<Arc<LimitRule>>, RandomState>,
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
        rules
    }

    fn insert(&mut self, rule: LimitRule) {
        let Some(of_scope) = self.by_scope.get_mut(rule.scope as usize) else { return };
        match rule.id.clone() {
            Some(id) => of_scope.by_id.entry(id).or_default().push(Arc::new(rule)),
            None => of_scope.every.push(Arc::new(rule)),
        }
    }

    /// The rules for `value` of `scope`: those for it alone, then those for every value.
    pub(super) fn of(&self, scope: Scope, value: &str) -> impl Iterator<Item = &Arc<LimitRule>> {
        let of_scope = self.by_scope.get(scope as usize);
        let own = of_scope.and_then(|of_scope| of_scope.by_id.get(value)).into_iter().flatten();
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

    /// All of them, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<LimitRule>> {
        Scope::ALL.into_iter().flat_map(|scope| self.of_scope(scope))
    }
}
