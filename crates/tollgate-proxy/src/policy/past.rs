//! The budgets that a call of the past belongs to, by what its usage event says.

use std::sync::Arc;

use tollgate_config::Scope;
use tollgate_limiter::Limit;
use tollgate_usage::Replayed;

use super::{Called, LimitRule, Measure, Owner, Policy};

impl Policy {
    /// Calls `each` with every budget that a recorded call was spent from, as today's rules have it.
    pub(crate) fn budgets_of(&self, event: &Replayed<'_>, mut each: impl FnMut(&Limit)) {
        let past = Past {
            owner: Owner { tenant: event.tenant, key: event.key },
            session: event.session,
            model: self.charged_as(event),
        };
        let mut spend = |scope, value: &str, is_chosen| {
            for rule in self.rules.of(scope, value) {
                past.budget(rule, value, is_chosen).iter().for_each(|limit| each(limit));
            }
        };
        spend(Scope::Global, Scope::Global.name(), false);
        spend(Scope::Tenant, event.tenant, false);
        spend(Scope::Key, event.key, false);
        spend(Scope::Provider, event.provider, false);
        spend(Scope::Model, past.model.id, false);
        event.session.into_iter().for_each(|session| spend(Scope::Session, session, false));
        for (name, value) in event.attributes() {
            let scope = Scope::ATTRIBUTES.into_iter().find(|scope| scope.name() == name);
            scope.into_iter().for_each(|scope| spend(scope, value, event.is_from_caller(name)));
        }
        if !past.model.is_called_by_id() {
            for rule in self.rules.of(Scope::Model, past.model.name).filter(|rule| rule.id.is_some()) {
                past.budget(rule, past.model.name, false).iter().for_each(|limit| each(limit));
            }
        }
    }
}

impl Policy {
    /// The model whose budgets a recorded call was spent from: the one that answered or, where its name
    /// has no price, the one that was asked for.
    pub(crate) fn charged_as<'e>(&'e self, event: &'e Replayed<'_>) -> Called<'e> {
        let answered = self.called(event.model, event.ts);
        match event.requested_model.filter(|_| !answered.is_priced) {
            Some(requested) => self.called(requested, event.ts),
            None => answered,
        }
    }
}

/// A recorded call.
struct Past<'a> {
    owner: Owner<'a>,
    session: Option<&'a str>,
    model: Called<'a>,
}

impl Past<'_> {
    /// The limit of a budget that the call belongs to. `is_chosen`: the caller had set `value`.
    fn budget(&self, rule: &Arc<LimitRule>, value: &str, is_chosen: bool) -> Option<Arc<Limit>> {
        let belongs = rule.measure == Measure::MicroUsd
            && rule.passes(self.model.name, self.model.id)
            && (self.session.is_some() || !rule.is_per_session());
        let value = || rule.id.clone().unwrap_or_else(|| value.into());
        let limit = || match is_chosen {
            true => rule.chosen(value(), self.owner, self.session),
            false => rule.applied(value(), self.owner, self.session),
        };
        belongs.then(|| limit().limit)
    }
}
