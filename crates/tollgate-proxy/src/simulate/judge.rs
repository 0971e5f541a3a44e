//! What a recorded call meets under the new configuration, and what it adds to each of its limits.

use std::sync::Arc;

use tollgate_config::Unpriced;
use tollgate_limiter::{Entry, ExactAmount, Plan, TimestampMs};
use tollgate_pricing::Prices;

use crate::{
    policy::{AppliedLimit, Called, Circumstances, KeyPolicy, Policy},
    quote::unpriced_rule,
};

use super::calls::{Calls, Kind, PastCall};

/// Judges calls: no counter plays a part in it.
pub(super) struct Judge<'a> {
    policy: &'a Policy,
    calls: &'a Calls<'a>,
    /// Of each reader.
    kinds: Vec<Vec<JudgedKind<'a>>>,
}

/// A call with its limits.
pub(super) struct JudgedCall {
    pub(super) limits: Arc<[AppliedLimit]>,
    /// What it reserves of them.
    pub(super) plan: Arc<Plan>,
    /// What each limit of the plan is settled to.
    pub(super) actuals: Vec<ExactAmount>,
    /// Limits about the model that answered which the plan does not have: they are charged afterwards.
    pub(super) unplanned: Vec<AppliedLimit>,
}

/// A kind of calls as the new configuration takes it.
struct JudgedKind<'a> {
    /// Its key, or why no call of the kind passes.
    key: Result<Arc<KeyPolicy>, &'static str>,
    kind: &'a Kind,
    asked: Model<'a>,
    charged: Model<'a>,
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

impl<'a> Judge<'a> {
    pub(super) fn new(policy: &'a Policy, calls: &'a Calls<'a>) -> Self {
        let judged = |kinds: &'a [Kind]| kinds.iter().map(|kind| JudgedKind::new(policy, kind)).collect();
        Self { policy, calls, kinds: calls.kinds().map(judged).collect() }
    }

    /// The limits that a call meets with what it reserves and spends of each; or why it is refused whatever
    /// its counters say.
    pub(super) fn judge(&self, call: &PastCall) -> Result<JudgedCall, &'static str> {
        let of_reader = self.kinds.get(call.reader);
        let kind = of_reader.and_then(|kinds| kinds.get(call.kind as usize)).ok_or("unauthenticated")?;
        let session = self.calls.session(call);
        let (limits, plan) = kind.planned(self.policy, call, session)?;
        let actuals = kind.actuals(call, &limits);
        let unplanned = kind.unplanned(self.policy, call, session, &limits);
        Ok(JudgedCall { limits, plan: Arc::new(plan), actuals, unplanned })
    }
}

impl<'a> JudgedKind<'a> {
    fn new(policy: &'a Policy, kind: &'a Kind) -> Self {
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
        Self { key, kind, asked: model(&kind.asked), charged: model(&kind.charged) }
    }

    fn planned(
        &self,
        policy: &Policy,
        call: &PastCall,
        session: Option<&str>,
    ) -> Result<(Arc<[AppliedLimit]>, Plan), &'static str> {
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
        Ok((limits, plan))
    }

    /// Of limits about models, what was used of them. A request for a model was made, whichever answered.
    fn actuals(&self, call: &PastCall, limits: &[AppliedLimit]) -> Vec<ExactAmount> {
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

    fn unplanned(
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
