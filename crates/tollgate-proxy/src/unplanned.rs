//! Charges the limits of a model that answered and that the request had not named: limits of the model
//! really called apply, whatever was asked for.

use std::sync::Arc;

use tollgate_limiter::{ENTRIES_MAX, Entry, ExactAmount, Plan, ReservationId, TimestampMs};
use tollgate_store::Held;
use tollgate_usage::Settlement;

use crate::{
    app::App,
    attributes,
    call::Admitted,
    policy::{AppliedLimit, Circumstances},
    settle::Bill,
};

/// What a call used, as charges to the limits about models that its plan did not have, each without a reservation. The
/// call is over, so that none of them can refuse it: later calls see the debt.
pub(crate) fn charges(
    app: &Arc<App>,
    admitted: &Admitted,
    bill: &Bill,
    ended: TimestampMs,
) -> Vec<Settlement> {
    let limits = unplanned(app, admitted, bill);
    let used = |limit: &AppliedLimit| limit.rule.measure.exact(&bill.used(limit, &app.policy, admitted.at));
    // As many at a time as one plan holds: none may stay uncharged.
    let some = limits.chunks(ENTRIES_MAX);
    let charges = some.filter_map(|some| charge(app, admitted, some, some.iter().map(used).collect()));
    charges.map(|(held, actuals)| Settlement { held, actuals, ended }).collect()
}

fn charge(
    app: &Arc<App>,
    admitted: &Admitted,
    limits: &[AppliedLimit],
    actuals: Vec<ExactAmount>,
) -> Option<(Held, Vec<ExactAmount>)> {
    let entries = limits.iter().zip(&actuals);
    let entries =
        entries.map(|(limit, actual)| Entry { limit: limit.limit.clone(), charge: actual.rounded_up() });
    let plan = match Plan::new(entries.collect()) {
        Ok(plan) => Arc::new(plan),
        Err(error) => {
            tracing::error!(request_id = %admitted.request_id, %error, "limits of the models called are not charged");
            return None;
        }
    };
    app.alerts.settling(&*app.store, &admitted.key.tenant, limits, &actuals, admitted.at);
    let held = Held { id: ReservationId::new(rand::random()), plan, at: admitted.at };
    Some((held, actuals))
}

/// The limits about models that the models really called meet, and the plan does not have.
fn unplanned(app: &App, admitted: &Admitted, bill: &Bill) -> Vec<AppliedLimit> {
    let models = app.policy.models_called(bill.models(), admitted.at);
    let asked = [&*admitted.quote.model];
    if models.is_empty() || !admitted.quote.billed || bill.models().eq(asked) {
        return Vec::new();
    }
    let caller: Vec<_> = attributes::chosen(&admitted.key, &admitted.attributes)
        .map(|(scope, value)| (scope, value.clone()))
        .collect();
    let circumstances = Circumstances {
        caller: &caller,
        session: admitted.session.as_ref().map(|session| &*session.id),
        provider: &admitted.provider,
        models: &models,
    };
    let limits = app.policy.limits(&admitted.key, &circumstances, true);
    let is_planned =
        |limit: &AppliedLimit| admitted.limits.iter().any(|planned| planned.limit.key == limit.limit.key);
    limits.iter().filter(|limit| limit.is_of_models() && !is_planned(limit)).cloned().collect()
}
