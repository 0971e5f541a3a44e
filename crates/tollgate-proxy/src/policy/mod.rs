//! The configuration as the request path needs it: keys by hash, and for each key the limits that can
//! match its calls.
//!
//! What a key's calls always meet is compiled when the configuration is loaded. What depends on a call
//! (its model, provider and session, attributes that the caller sets) is looked up by value. No call
//! looks through rules that are about others.

mod measure;
mod past;
mod recent;
mod rule;
mod rules;
mod survey;
#[cfg(test)]
pub(crate) mod tests;

use std::{collections::HashMap, fmt, sync::Arc};

use foldhash::quality::RandomState;
use tollgate_config::{Config, Key, KeyHash, ModelGlobs, OutputReservation, Route, Scope, Tenant, Unpriced};
use tollgate_limiter::TimestampMs;
use tollgate_pricing::{ModelPrice, PriceTable};
use tollgate_providers::Protocol;
use tollgate_usage::Attributes;

use self::{
    recent::{Kind, Recent},
    rules::Rules,
};
use crate::upstream::protocol;

pub use self::survey::KeyLimit;
pub(crate) use self::{
    measure::Measure,
    rule::{AppliedLimit, LimitRule},
};

/// Everything a request is judged by. Immutable; a reload makes a new one.
pub(crate) struct Policy {
    keys: HashMap<KeyHash, Arc<KeyPolicy>, RandomState>,
    rules: Rules,
    /// Whether a rule asks which model is called.
    looks_at_models: bool,
    /// Whether a rule asks which provider is called.
    looks_at_providers: bool,
    routes: Vec<Route>,
    /// The providers, in the file's order.
    pub(crate) providers: Vec<ProviderName>,
    /// The price table.
    pub(crate) prices: Arc<PriceTable>,
    /// How much output is reserved.
    pub(crate) output_reservation: OutputReservation,
    /// What happens to a model without a price where no budget says more.
    pub(crate) unpriced: Unpriced,
}

/// A provider, as calls are routed to it.
pub(crate) struct ProviderName {
    /// Its id.
    pub(crate) id: Arc<str>,
    /// What it speaks.
    pub(crate) protocol: Protocol,
}

/// What one key may do.
pub(crate) struct KeyPolicy {
    /// The key's tenant.
    pub(crate) tenant: Arc<str>,
    /// The key's name.
    pub(crate) key: Arc<str>,
    /// The models it may call.
    pub(crate) models: Option<ModelGlobs>,
    /// What its calls carry.
    pub(crate) attributes: Attributes,
    /// What a call may add to that.
    pub(crate) caller_attributes: Arc<[Scope]>,
    /// Limits that every call meets.
    fixed: Arc<[AppliedLimit]>,
    /// Those of them that a call meets which costs nothing.
    fixed_unbilled: Arc<[AppliedLimit]>,
    /// Limits that the key's calls meet in some sessions or with some models; where each session has a
    /// counter of its own, it is not named yet.
    bound: Box<[AppliedLimit]>,
    /// Limits of its latest calls.
    recent: Recent,
}

/// Whose call it is.
#[derive(Clone, Copy)]
pub(crate) struct Owner<'a> {
    tenant: &'a str,
    key: &'a str,
}

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
    /// Compiles `config` with the price table it names.
    pub(crate) fn new(config: &Config, prices: Arc<PriceTable>) -> Self {
        let rules = Rules::new(config);
        let keys = config.tenants.iter().flat_map(|tenant| tenant.keys.iter().map(move |key| (tenant, key)));
        let compiled =
            |(tenant, key): (&Tenant, &Key)| (key.hash, Arc::new(KeyPolicy::new(tenant, key, &rules)));
        Self {
            keys: keys.map(compiled).collect(),
            looks_at_providers: rules.any(Scope::Provider),
            looks_at_models: rules.any(Scope::Model) || rules.all().any(|rule| rule.models.is_some()),
            rules,
            routes: config.routes.clone(),
            providers: config.providers.iter().map(ProviderName::new).collect(),
            prices,
            output_reservation: config.reservation.output_tokens,
            unpriced: config.pricing.unpriced,
        }
    }

    /// The key whose hash this is.
    pub(crate) fn key(&self, hash: &KeyHash) -> Option<&Arc<KeyPolicy>> {
        self.keys.get(hash)
    }

    /// The provider id that the first matching route names.
    pub(crate) fn route(&self, model: &str) -> Option<&str> {
        self.routes.iter().find(|route| route.models.matches(model)).map(|route| &*route.provider)
    }

    /// The models that a call may make use of, for limits that are about models; none where no rule is.
    pub(crate) fn models_called<'a>(
        &'a self,
        names: impl Iterator<Item = &'a str>,
        at: TimestampMs,
    ) -> Vec<Called<'a>> {
        if !self.looks_at_models {
            return Vec::new();
        }
        names.map(|name| self.called(name, at)).collect()
    }

    /// A model as the price table knows it.
    pub(crate) fn called<'a>(&'a self, name: &'a str, at: TimestampMs) -> Called<'a> {
        Called::new(name, self.prices.lookup(name, at))
    }

    /// The limits that a call of `key` meets. `is_billed`: it costs tokens and money.
    pub(crate) fn limits(
        &self,
        key: &KeyPolicy,
        call: &Circumstances<'_>,
        is_billed: bool,
    ) -> Arc<[AppliedLimit]> {
        let common = self.common_limits(key, call, is_billed);
        if call.caller.is_empty() && call.session.is_none() {
            return common;
        }
        let mut met = Met { owner: key.owner(), call, is_billed, limits: Vec::new() };
        key.bound.iter().filter(|limit| limit.rule.is_per_session()).for_each(|limit| met.meet_bound(limit));
        for (scope, value) in call.caller {
            self.rules.of(*scope, value).for_each(|rule| met.meet(rule, value));
        }
        if let Some(session) = call.session {
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
}

impl ProviderName {
    fn new(provider: &tollgate_config::Provider) -> Self {
        Self { id: provider.id.clone(), protocol: protocol(provider.protocol) }
    }
}

impl KeyPolicy {
    fn new(tenant: &Tenant, key: &Key, rules: &Rules) -> Self {
        let owner = Owner { tenant: &tenant.id, key: &key.id };
        let (mut fixed, mut bound) = (Vec::new(), Vec::new());
        let attributes = Scope::ATTRIBUTES
            .into_iter()
            .filter_map(|scope| key.attributes.get(scope.name()).map(|value| (scope, value)));
        let global = Arc::from(Scope::Global.name());
        let own = [(Scope::Global, &global), (Scope::Tenant, &tenant.id), (Scope::Key, &key.id)];
        for (scope, value) in own.into_iter().chain(attributes) {
            for rule in rules.of(scope, value) {
                let limit = rule.applied(value.clone(), owner, None);
                if rule.models.is_some() || rule.is_per_session() {
                    bound.push(limit);
                } else {
                    fixed.push(limit);
                }
            }
        }
        let fixed_unbilled = fixed.iter().filter(|limit| limit.rule.measure.counts_unbilled());
        Self {
            tenant: tenant.id.clone(),
            key: key.id.clone(),
            models: key.models.clone(),
            attributes: key.attributes.clone(),
            caller_attributes: key.caller_attributes.clone(),
            fixed_unbilled: fixed_unbilled.cloned().collect(),
            fixed: fixed.into(),
            bound: bound.into(),
            recent: Recent::default(),
        }
    }

    fn owner(&self) -> Owner<'_> {
        Owner { tenant: &self.tenant, key: &self.key }
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

    /// A rule for a value that the call has brought.
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
            for rule in by_name.filter(|rule| rule.id.is_some() && model.name != model.id) {
                self.meet_model_rule(rule, model.name, *model);
            }
        }
    }

    fn meet_model_rule(&mut self, rule: &Arc<LimitRule>, value: &str, model: Called<'_>) {
        // A call may name one model by two names.
        let is_met = |met: &AppliedLimit| Arc::ptr_eq(&met.rule, rule) && &*met.id == value;
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

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}
