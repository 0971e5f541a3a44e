//! What a recorded call meets under the new configuration, and what it adds to each of its limits.

use std::sync::Arc;

use tollgate_config::Unpriced;
use tollgate_limiter::{Entry, ExactAmount, Plan, TimestampMs};

use crate::{
    policy::{AppliedLimit, Circumstances, KeyPolicy, Policy},
    quote::unpriced_rule,
};

use super::calls::{Kind, PastCall};

/// A kind of calls as the new configuration takes it.
pub(super) struct JudgedKind {
    /// Its key, or why no call of the kind passes.
    key: Result<Arc<KeyPolicy>, &'static str>,
    kind: Kind,
}

/// A call with its limits.
pub(super) struct JudgedCall {
    pub(super) limits: Arc<[AppliedLimit]>,
    pub(super) plan: Arc<Plan>,
}

impl JudgedKind {
    pub(super) fn new(policy: &Policy, kind: &Kind) -> Self {
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
        Self { key, kind: kind.clone() }
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
        let limits = self.limits(policy, key, &self.kind.asked, session, call.at);
        if self.kind.is_billed {
            let called = policy.called(&self.kind.asked, call.at);
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
    pub(super) fn actuals(
        &self,
        policy: &Policy,
        call: &PastCall,
        limits: &[AppliedLimit],
    ) -> Vec<ExactAmount> {
        let used = call.used();
        let is_other = self.kind.charged != self.kind.asked;
        let charged = policy.called(&self.kind.charged, call.at);
        let actual = |limit: &AppliedLimit| {
            let is_of_others = is_other && limit.is_of_models() && !limit.counts(charged.name, charged.id);
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
        let limits = self.limits(policy, key, &self.kind.charged, session, call.at);
        let is_planned = |limit: &AppliedLimit| planned.iter().any(|p| p.limit.key == limit.limit.key);
        limits.iter().filter(|limit| limit.is_of_models() && !is_planned(limit)).cloned().collect()
    }

    fn limits(
        &self,
        policy: &Policy,
        key: &KeyPolicy,
        model: &str,
        session: Option<&str>,
        at: TimestampMs,
    ) -> Arc<[AppliedLimit]> {
        let models = match model {
            "" => Vec::new(),
            model => policy.models_called([model].into_iter(), at),
        };
        let circumstances = Circumstances {
            caller: &self.kind.caller,
            session,
            provider: &self.kind.provider,
            models: &models,
        };
        policy.limits(key, &circumstances, self.kind.is_billed)
    }
}
