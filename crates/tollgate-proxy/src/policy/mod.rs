//! The configuration as the request path needs it: keys by hash, and for each key the limits that can
//! match its calls.
//!
//! What a key's calls always meet is compiled when the configuration is loaded. What depends on a call
//! (its model, provider and session, attributes that the caller sets) is looked up by value. No call
//! looks through rules that are about others.

mod key;
mod measure;
mod met;
mod past;
mod reach;
mod recent;
mod rule;
mod rules;
mod survey;
#[cfg(test)]
pub(crate) mod tests;

use std::{collections::HashMap, fmt, sync::Arc};

use foldhash::quality::RandomState;
use tollgate_config::{Config, Key, KeyHash, OutputReservation, Route, Scope, Sessions, Tenant};
use tollgate_limiter::{TimestampMs, Tokens};
use tollgate_pricing::PriceTable;
use tollgate_providers::Protocol;

use self::rules::Rules;
use crate::upstream::protocol;

pub use self::survey::KeyLimit;
pub(crate) use self::{
    key::{KeyPolicy, Owner},
    measure::Measure,
    met::{Called, Circumstances},
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
    /// Whether a rule asks which session a call belongs to.
    looks_at_sessions: bool,
    routes: Vec<Route>,
    /// The providers, in the file's order.
    pub(crate) providers: Vec<ProviderName>,
    /// The price table.
    pub(crate) prices: Arc<PriceTable>,
    /// What tells the session of a call.
    pub(crate) sessions: Sessions,
    /// How much output is reserved.
    pub(crate) output_reservation: OutputReservation,
    /// Whether an output limit is lowered to what the budgets afford.
    pub(crate) fit: bool,
    /// How much output one extension of a stream's reservation is for.
    pub(crate) extend_tokens: Tokens,
    /// Whether a stream that cannot be extended is cut off.
    pub(crate) cutoff: bool,
}

/// A provider, as calls are routed to it.
pub(crate) struct ProviderName {
    /// Its id.
    pub(crate) id: Arc<str>,
    /// What it speaks.
    pub(crate) protocol: Protocol,
}

impl Policy {
    /// Compiles `config` with the price table it names.
    pub(crate) fn new(config: &Config, prices: Arc<PriceTable>) -> Self {
        let rules = Rules::new(config);
        let keys = config.tenants.iter().flat_map(|tenant| tenant.keys.iter().map(move |key| (tenant, key)));
        let compiled = |(tenant, key): (&Tenant, &Key)| {
            let policy = KeyPolicy::new(tenant, key, &rules, &prices, config.pricing.unpriced);
            (key.hash, Arc::new(policy))
        };
        let looks_at_sessions = rules.all().any(|rule| rule.is_per_session());
        Self {
            keys: keys.map(compiled).collect(),
            looks_at_providers: rules.any(Scope::Provider),
            looks_at_sessions,
            looks_at_models: rules.any(Scope::Model) || rules.all().any(|rule| rule.models.is_some()),
            rules,
            routes: config.routes.clone(),
            providers: config.providers.iter().map(ProviderName::new).collect(),
            prices,
            sessions: config.sessions,
            output_reservation: config.reservation.output_tokens,
            fit: config.reservation.fit,
            extend_tokens: config.reservation.extend_tokens,
            cutoff: config.reservation.cutoff,
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
        self.models_looked_at(names.map(|name| self.called(name, at)))
    }

    /// The same of models that were looked up.
    pub(crate) fn models_looked_at<'a>(&self, models: impl Iterator<Item = Called<'a>>) -> Vec<Called<'a>> {
        if self.looks_at_models { models.collect() } else { Vec::new() }
    }

    /// A model as the price table knows it.
    pub(crate) fn called<'a>(&'a self, name: &'a str, at: TimestampMs) -> Called<'a> {
        Called::new(name, self.prices.lookup(name, at))
    }
}

impl ProviderName {
    fn new(provider: &tollgate_config::Provider) -> Self {
        Self { id: provider.id.clone(), protocol: protocol(provider.protocol) }
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}
