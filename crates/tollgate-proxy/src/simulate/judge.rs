//! What a recorded call meets under the new configuration, and what it adds to each of its limits.

use std::sync::Arc;

use tollgate_config::Unpriced;
use tollgate_limiter::{Entry, ExactAmount, Plan, TimestampMs};
use tollgate_pricing::Prices;

use crate::{
    policy::{AppliedLimit, Called, Circumstances, KeyPolicy, Policy},
    quote::unpriced_rule,
};

use super::{
    calls::{Kind, PastCall},
    tally::Places,
};

/// A kind of calls as the new configuration takes it.
pub(super) struct JudgedKind<'a> {
    /// Its key, or why no call of the kind passes.
    key: Result<Arc<KeyPolicy>, &'static str>,
    pub(super) kind: &'a Kind,
    asked: Model<'a>,
    charged: Model<'a>,
    /// The limits that the latest of its calls met, and their places.
    latest: Option<(Arc<[AppliedLimit]>, Places)>,
}

/// A model of the price table: to find it may take longer than to decide a call.
#[derive(Clone, Copy)]
struct Model<'a> {
    name: &'a str,
    prices: Option<Prices<'a>>,
}

impl<'a> Model<'a> {
    fn called(self, at: TimestampMs) -> Called<'a> {
        Called::new(self.name, self.prices.and_then(|prices| prices.at(at)))
    }
}

/// A call with its limits.
pub(super) struct JudgedCall {
    pub(super) limits: Arc<[AppliedLimit]>,
    pub(super) plan: Arc<Plan>,
}

impl<'a> JudgedKind<'a> {
    pub(super) fn new(policy: &'a Policy, kind: &'a Kind) -> Self {
        let allowed = |key: &&Arc<KeyPolicy>| match &key.models {
            Some(models) => models.matches(&kind.asked),
            None => true,
        };
        let key = match policy.key_named(&kind.key) {
            None => Err("unauthenticated"),
            Some(key) if kind.is_billed && !allowed(&key) => Err("model_not_allowed"),
            Some(key) if kind.caller.iter().any(|(scope, _)| !key.caller_attributes.contains(scope)) => {
                Err("attribute_not_allowed")
            }
            Some(key) => Ok(key.clone()),
        };
        let model = |name| Model { name, prices: policy.prices.prices(name) };
        Self { key, kind, asked: model(&kind.asked), charged: model(&kind.charged), latest: None }
    }

    /// The places of limits that one of its calls meets: mostly of the same as the one before.
    pub(super) fn places(
        &mut self,
        limits: &Arc<[AppliedLimit]>,
        place: impl FnMut(&AppliedLimit) -> usize,
    ) -> Places {
        if let Some((_, places)) = self.latest.as_ref().filter(|(latest, _)| Arc::ptr_eq(latest, limits)) {
            return places.clone();
        }
        let places: Places = limits.iter().map(place).collect();
        self.latest = Some((limits.clone(), places.clone()));
        places
    }

    /// The limits that a call meets with what it reserves of each; or why it is refused whatever its
    /// counters say.
    pub(super) fn judge(
        &self,
        policy: &Policy,
        call: &PastCall,
        session: Option<&str>,
    ) -> Result<JudgedCall, &'static str> {
        let key = self.key.as_ref().map_err(|reason| *reason)?;
        let limits = self.limits(policy, key, self.asked, session, call.at);
        if self.kind.is_billed {
            let called = self.asked.called(call.at);
            if !called.is_priced && unpriced_rule(key, &limits, called) == Unpriced::Block {
                return Err("model_unpriced");
            }
        }
        let reserved = call.reserved();
        let entry = |limit: &AppliedLimit| Entry {
            limit: limit.limit.clone(),
            charge: limit.rule.measure.charge(&reserved),
        };
        let plan = Plan::new(limits.iter().map(entry).collect()).map_err(|_| "too_many_limits")?;
        Ok(JudgedCall { limits, plan: Arc::new(plan) })
    }

    /// What each limit of the plan is settled to: of limits about models, what was used of them. A request
    /// for a model was made, whichever answered.
    pub(super) fn actuals(&self, call: &PastCall, limits: &[AppliedLimit]) -> Vec<ExactAmount> {
        let used = call.used();
        let is_other = self.kind.charged != self.kind.asked;
        let charged = is_other.then(|| self.charged.called(call.at));
        let actual = |limit: &AppliedLimit| {
            let is_others = |charged: Called<'_>| !limit.counts(charged.name, charged.id);
            let is_of_others = charged.is_some_and(|charged| limit.is_of_models() && is_others(charged));
            limit.rule.measure.exact(if is_of_others { &crate::amounts::Amounts::FREE } else { &used })
        };
        limits.iter().map(actual).collect()
    }

    /// Limits about the model that answered which the plan does not have: they are charged afterwards.
    pub(super) fn unplanned(
        &self,
        policy: &Policy,
        call: &PastCall,
        session: Option<&str>,
        planned: &[AppliedLimit],
    ) -> Vec<AppliedLimit> {
        let Ok(key) = &self.key else { return Vec::new() };
        if self.kind.charged == self.kind.asked || !self.kind.is_billed {
            return Vec::new();
        }
        let limits = self.limits(policy, key, self.charged, session, call.at);
        let is_planned = |limit: &AppliedLimit| planned.iter().any(|p| p.limit.key == limit.limit.key);
        limits.iter().filter(|limit| limit.is_of_models() && !is_planned(limit)).cloned().collect()
    }

    fn limits(
        &self,
        policy: &Policy,
        key: &KeyPolicy,
        model: Model<'_>,
        session: Option<&str>,
        at: TimestampMs,
    ) -> Arc<[AppliedLimit]> {
        let named = (!model.name.is_empty()).then(|| model.called(at));
        let models = policy.models_looked_at(named.into_iter());
        let circumstances = Circumstances {
            caller: &self.kind.caller,
            session,
            provider: &self.kind.provider,
            models: &models,
        };
        policy.limits(key, &circumstances, self.kind.is_billed)
    }
}
