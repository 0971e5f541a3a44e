//! The limits that one call meets.

use std::sync::Arc;

use tollgate_config::Scope;
use tollgate_pricing::ModelPrice;

use super::{AppliedLimit, KeyPolicy, LimitRule, Owner, Policy, recent::Kind, rules::Rules};

/// What a call is, beside whose: what its limits depend on.
#[derive(Clone, Copy)]
pub(crate) struct Circumstances<'a> {
    /// Attributes that the caller has set. The key allows them.
    pub(crate) caller: &'a [(Scope, Arc<str>)],
    /// The session's id.
    pub(crate) session: Option<&'a str>,
    /// The provider that is called.
    pub(crate) provider: &'a str,
    /// The models that may be called ([`Policy::models_called`]).
    pub(crate) models: &'a [Called<'a>],
}

/// A model that is called.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Called<'a> {
    /// As the call names it.
    pub(crate) name: &'a str,
    /// As the price table does, whatever alias or date it is called by; without a price, `name`.
    pub(crate) id: &'a str,
    /// Whether it has a price.
    pub(crate) is_priced: bool,
}

impl Policy {
    /// The limits that a call of `key` meets. `is_billed`: it costs tokens and money.
    pub(crate) fn limits(
        &self,
        key: &KeyPolicy,
        call: &Circumstances<'_>,
        is_billed: bool,
    ) -> Arc<[AppliedLimit]> {
        let common = self.common_limits(key, call, is_billed);
        let session = call.session.filter(|_| self.looks_at_sessions);
        if call.caller.is_empty() && session.is_none() {
            return common;
        }
        let mut met = Met { owner: key.owner(), call, is_billed, limits: Vec::new() };
        key.bound.iter().filter(|limit| limit.rule.is_per_session()).for_each(|limit| met.meet_bound(limit));
        for (scope, value) in call.caller {
            self.rules.of(*scope, value).for_each(|rule| met.meet_chosen(rule, value));
        }
        if let Some(session) = session {
            self.rules.of(Scope::Session, session).for_each(|rule| met.meet(rule, session));
            met.meet_called(&self.rules, true);
        }
        if met.limits.is_empty() {
            return common;
        }
        common.iter().cloned().chain(met.limits).collect()
    }

    /// The limits that all calls of `key` meet that have the same model and provider.
    fn common_limits(
        &self,
        key: &KeyPolicy,
        call: &Circumstances<'_>,
        is_billed: bool,
    ) -> Arc<[AppliedLimit]> {
        let fixed = if is_billed { &key.fixed } else { &key.fixed_unbilled };
        if key.bound.is_empty() && !self.looks_at_models && !self.looks_at_providers {
            return fixed.clone();
        }
        let make = || {
            let mut met = Met { owner: key.owner(), call, is_billed, limits: Vec::new() };
            let bound = key.bound.iter().filter(|limit| !limit.rule.is_per_session());
            bound.for_each(|limit| met.meet_bound(limit));
            met.meet_called(&self.rules, false);
            fixed.iter().cloned().chain(met.limits).collect()
        };
        let model = match call.models {
            [] => "",
            [model] if model.is_priced => model.name,
            // There are any number of names without a price.
            _ => return make(),
        };
        key.recent.get(Kind { model, provider: call.provider, is_billed }, make)
    }
}

impl<'a> Called<'a> {
    /// The model `name`, which has this price.
    pub(crate) fn new(name: &'a str, price: Option<&'a ModelPrice>) -> Self {
        Self { name, id: price.map_or(name, ModelPrice::id), is_priced: price.is_some() }
    }

    /// Whether the call and the price table name it alike, but for case.
    pub(super) fn is_called_by_id(&self) -> bool {
        self.name.eq_ignore_ascii_case(self.id)
    }
}

/// Collects the limits that one call meets beyond those that every call of its key meets.
struct Met<'a> {
    owner: Owner<'a>,
    call: &'a Circumstances<'a>,
    is_billed: bool,
    limits: Vec<AppliedLimit>,
}

impl Met<'_> {
    fn meet_bound(&mut self, limit: &AppliedLimit) {
        if !self.is_for(&limit.rule) {
            return;
        }
        self.limits.push(if limit.rule.is_per_session() {
            limit.rule.applied(limit.id.clone(), self.owner, self.call.session)
        } else {
            limit.clone()
        });
    }

    /// A rule for an attribute that the caller has set.
    fn meet_chosen(&mut self, rule: &Arc<LimitRule>, value: &Arc<str>) {
        if self.is_for(rule) {
            self.limits.push(rule.chosen(value.clone(), self.owner, self.call.session));
        }
    }

    /// A rule for a session or a provider.
    fn meet(&mut self, rule: &Arc<LimitRule>, value: &str) {
        if self.is_for(rule) {
            self.push(rule, value);
        }
    }

    /// The rules for the provider and the models that are called: those with a counter for each
    /// session, or the others.
    fn meet_called(&mut self, rules: &Rules, per_session: bool) {
        let wanted = |rule: &&Arc<LimitRule>| rule.is_per_session() == per_session;
        let call = self.call;
        rules
            .of(Scope::Provider, call.provider)
            .filter(wanted)
            .for_each(|rule| self.meet(rule, call.provider));
        for model in call.models {
            // For its name in the price table, and for its name in the call.
            for rule in rules.of(Scope::Model, model.id).filter(wanted) {
                self.meet_model_rule(rule, model.id, *model);
            }
            let by_name = rules.of(Scope::Model, model.name).filter(wanted);
            for rule in by_name.filter(|rule| rule.id.is_some() && !model.is_called_by_id()) {
                self.meet_model_rule(rule, model.name, *model);
            }
        }
    }

    fn meet_model_rule(&mut self, rule: &Arc<LimitRule>, value: &str, model: Called<'_>) {
        // A call may name one model by two names.
        let is_met = |met: &AppliedLimit| Arc::ptr_eq(&met.rule, rule) && met.id.eq_ignore_ascii_case(value);
        if self.applies(rule) && rule.passes(model.name, model.id) && !self.limits.iter().any(is_met) {
            self.push(rule, value);
        }
    }

    fn push(&mut self, rule: &Arc<LimitRule>, value: &str) {
        let value = rule.id.clone().unwrap_or_else(|| value.into());
        let limit = rule.applied(value, self.owner, self.call.session);
        let is_open = rule.id.is_none() && rule.scope != Scope::Provider;
        self.limits.push(AppliedLimit { is_open, ..limit });
    }

    fn is_for(&self, rule: &LimitRule) -> bool {
        let passes = |model: &Called<'_>| rule.passes(model.name, model.id);
        self.applies(rule) && (rule.models.is_none() || self.call.models.iter().any(passes))
    }

    fn applies(&self, rule: &LimitRule) -> bool {
        (self.is_billed || rule.measure.counts_unbilled())
            && (self.call.session.is_some() || !rule.is_per_session())
    }
}
