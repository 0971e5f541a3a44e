//! The budgets and runs that a call of the past belongs to, by what its usage event says.

use std::sync::Arc;

use http::Method;
use tollgate_config::{Scope, Unit};
use tollgate_limiter::{ExactAmount, Limit, Rule};
use tollgate_providers::route;
use tollgate_usage::{Replayed, StandsFor};

use super::{Called, LimitRule, Measure, Owner, Policy};

impl Policy {
    /// Calls `each` with every budget and run that a recorded call was spent from, as today's rules have it,
    /// and with what was spent of it. Of several calls at once: with their sum.
    pub(crate) fn spent_of(&self, event: &Replayed<'_>, mut each: impl FnMut(&Limit, ExactAmount)) {
        let past = Past {
            owner: Owner { tenant: event.tenant, key: event.key },
            event,
            model: self.charged_as(event),
        };
        let mut spend = |scope, value: &str, is_chosen| {
            for rule in self.rules.of(scope, value) {
                if let Some((limit, spent)) = past.spent(rule, value, is_chosen) {
                    each(&limit, spent);
                }
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
                if let Some((limit, spent)) = past.spent(rule, past.model.name, false) {
                    each(&limit, spent);
                }
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
    event: &'a Replayed<'a>,
    model: Called<'a>,
}

impl Past<'_> {
    /// The limit of a budget or run that the call belongs to, with what it spent of it. `is_chosen`: the
    /// caller had set `value`.
    fn spent(
        &self,
        rule: &Arc<LimitRule>,
        value: &str,
        is_chosen: bool,
    ) -> Option<(Arc<Limit>, ExactAmount)> {
        let session = self.event.session;
        let belongs =
            rule.passes(self.model.name, self.model.id) && (session.is_some() || !rule.is_per_session());
        let spent = self.measured(rule).filter(|_| belongs)?;
        let value = rule.id.clone().unwrap_or_else(|| value.into());
        let limit = match is_chosen {
            true => rule.chosen(value, self.owner, session),
            false => rule.applied(value, self.owner, session),
        };
        Some((limit.limit, spent))
    }

    /// What the call spent, where that comes back: not of rates and of what is open.
    fn measured(&self, rule: &LimitRule) -> Option<ExactAmount> {
        if let StandsFor::Estimates(_) = self.event.stands_for {
            return None;
        }
        let is_sum = matches!(rule.rule, Rule::Idle { .. });
        match rule.measure {
            Measure::MicroUsd => Some(self.event.cost),
            Measure::Steps | Measure::Elapsed => {
                self.is_billed().then_some(ExactAmount::whole(self.event.calls()))
            }
            Measure::Unit(Unit::Tokens) if is_sum => Some(ExactAmount::whole(self.event.tokens_spent())),
            Measure::Unit(_) | Measure::Concurrent | Measure::RequestTokens => None,
        }
    }

    /// Whether its provider would have billed the call. Paths that are no longer known were.
    fn is_billed(&self) -> bool {
        let call = [Method::POST, Method::GET]
            .iter()
            .find_map(|method| route(method.as_str(), self.event.path, None).ok());
        call.is_none_or(|endpoint| endpoint.is_billed())
    }
}
