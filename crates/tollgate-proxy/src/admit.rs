//! Estimates, prices and reserves a request, or refuses it.

use std::sync::Arc;

use tollgate_config::Scope;
use tollgate_limiter::{Plan, Refusal, ReservationId, Standing, TimestampMs, Verdict};
use tollgate_providers::{Endpoint, RequestFacts};
use tollgate_store::{Attempt, Held, StoreError};
use tollgate_usage::{Attributes, Event, RefusalEvent, Session};

use crate::{
    app::App,
    call::{Admitted, Call, NotWrittenDown},
    fit,
    once::Named,
    policy::{AppliedLimit, KeyPolicy},
    quote::{Asked, Judged},
    refuse::{self, Refused},
};

/// A request that is about to be judged.
pub(crate) struct Candidate<'a> {
    pub(crate) request_id: ReservationId,
    /// The same as text.
    pub(crate) id_text: Arc<str>,
    pub(crate) key: &'a Arc<KeyPolicy>,
    pub(crate) provider: Arc<str>,
    pub(crate) endpoint: Endpoint,
    /// `None` for a call without a body.
    pub(crate) facts: Option<&'a RequestFacts>,
    pub(crate) path: Arc<str>,
    pub(crate) session: Option<Session>,
    /// What the key fixes and the caller has set.
    pub(crate) attributes: Attributes,
    /// What the caller has set.
    pub(crate) caller: &'a [(Scope, Arc<str>)],
    /// Its own name, if it has one.
    pub(crate) named: Option<Arc<Named>>,
    pub(crate) arrived: std::time::Duration,
}

/// What the store said.
pub(crate) struct Decision {
    /// The call to go on with, or what to answer.
    pub(crate) outcome: Result<Call, Refused>,
    /// For the `ratelimit-*` headers.
    pub(crate) standing: Option<Standing>,
}

/// Reserves the candidate against all of its key's limits in one step.
pub(crate) async fn admit(app: &Arc<App>, candidate: Candidate<'_>) -> Decision {
    let at = app.clock.now();
    let judged = Judged::new(&app.policy, &candidate.asked(app), at);
    let (judged, plan) = match judged.and_then(|judged| Ok((judged.plan()?, judged))) {
        Ok((plan, judged)) => (judged, Arc::new(plan)),
        Err(refused) => {
            record_refusal(app, &candidate, at, &refused, None, 0);
            return Decision { outcome: Err(refused), standing: None };
        }
    };
    let mut turn = ask(app, &candidate, judged, plan, at).await;
    // What the budgets have left is found out by their refusals.
    for _ in 0..fit::FITS_MAX {
        let Turn::Refused(refused) = &turn else { break };
        let (refusal, judged) = &**refused;
        let facts = candidate.facts.filter(|_| app.policy.fit);
        let fitted = facts.and_then(|facts| fit::fit(&app.policy, facts, judged, refusal, at));
        let Some((Ok(plan), judged)) = fitted.map(|judged| (judged.plan(), judged)) else { break };
        // A refused first attempt leaves nothing: the id is free for another plan.
        turn = ask(app, &candidate, judged, Arc::new(plan), at).await;
    }
    match turn {
        Turn::Admitted(call, standing) => Decision { outcome: Ok(call), standing },
        Turn::Refused(refused) => {
            let (refusal, Judged { limits, .. }) = *refused;
            let refused = Refused::by_limit(&refusal, &limits);
            for refusing in &refusal.refusing {
                limits.get(refusing.index).into_iter().for_each(|limit| app.metrics.refused(limit));
            }
            let limit = refuse::refusing_limit(&refusal, &limits);
            record_refusal(app, &candidate, at, &refused, limit, refusal.binding.needed.get());
            Decision { outcome: Err(refused), standing: refusal.tightest }
        }
        Turn::Failed(message) => {
            Decision { outcome: Err(Refused::unavailable("store_unavailable", message)), standing: None }
        }
    }
}

/// What is said where there is no verdict.
const UNDECIDED: &str = "The limits cannot be checked at the moment. Try again in a few seconds.";

/// What is said of a call that would be forgotten if the process were killed.
const UNWRITTEN: &str = "This call cannot be written down at the moment, and its budget must not forget it. Try \
                         again in a few seconds.";

/// What the store said to one plan.
enum Turn {
    Admitted(Call, Option<Standing>),
    /// Together with what it refused.
    Refused(Box<(Refusal, Judged)>),
    /// With what the client is told.
    Failed(&'static str),
}

/// Asks the store once.
async fn ask(
    app: &Arc<App>,
    candidate: &Candidate<'_>,
    judged: Judged,
    plan: Arc<Plan>,
    at: TimestampMs,
) -> Turn {
    let limits = judged.limits.clone();
    // The call exists before the store is asked: whatever happens from here on, it ends in its drop.
    let mut call = Call::new(app.clone(), candidate.admitted(judged, plan.clone(), at));
    let before = app.clock.elapsed();
    let verdict = app.store.reserve(candidate.request_id, plan, Attempt::First).await;
    app.metrics.decision.observe(app.clock.elapsed().saturating_sub(before).as_secs_f64());
    match verdict {
        Ok(Verdict::Admitted(admission)) => {
            if let Err(NotWrittenDown) = call.admitted(admission.at).await {
                return Turn::Failed(UNWRITTEN);
            }
            for index in admission.over_soft.iter() {
                warn_over_soft(app, candidate, limits.get(index));
            }
            Turn::Admitted(call, admission.tightest)
        }
        Ok(Verdict::Refused(refusal)) => match call.refused() {
            Some(judged) => Turn::Refused(Box::new((refusal, judged))),
            None => Turn::Failed(UNDECIDED),
        },
        Err(error) => {
            log_undecided(candidate, &error);
            if !error.may_have_applied() {
                call.refused();
            }
            Turn::Failed(UNDECIDED)
        }
    }
}

impl Candidate<'_> {
    fn asked<'b>(&'b self, app: &'b App) -> Asked<'b> {
        Asked {
            request_id: self.request_id,
            key: self.key,
            caller: self.caller,
            session: self.session.as_ref().map(|session| &*session.id),
            provider: &self.provider,
            endpoint: self.endpoint,
            facts: self.facts,
            estimates: &app.estimates,
        }
    }

    fn admitted(&self, judged: Judged, plan: Arc<Plan>, at: TimestampMs) -> Admitted {
        let Judged { quote, limits } = judged;
        Admitted {
            request_id: self.id_text.clone(),
            key: self.key.clone(),
            attributes: self.attributes.clone(),
            provider: self.provider.clone(),
            path: self.path.clone(),
            session: self.session.clone(),
            limits,
            held: Held { id: self.request_id, plan, at },
            quote,
            first_reserved: None,
            _named: self.named.clone(),
            stream: self.facts.is_some_and(|facts| facts.stream),
            at,
            arrived: self.arrived,
        }
    }
}

/// One line a call where the call is wrong; for a store that cannot decide it, the store has lines of its own.
fn log_undecided(candidate: &Candidate<'_>, error: &StoreError) {
    let request_id = candidate.request_id;
    match error {
        StoreError::Mismatch(_) => tracing::error!(%request_id, %error, "the store gave no verdict"),
        _ => tracing::debug!(%request_id, %error, "the store gave no verdict"),
    }
}

fn warn_over_soft(app: &App, candidate: &Candidate<'_>, limit: Option<&AppliedLimit>) {
    let Some(limit) = limit else { return };
    app.metrics.over_soft(limit);
    tracing::warn!(
        request_id = %candidate.request_id,
        scope = limit.rule.scope.name(),
        id = limit.bounded_id(),
        window = limit.rule.window,
        limit_micro_usd = limit.limit.amount.get(),
        "soft budget exceeded"
    );
}

fn record_refusal(
    app: &App,
    candidate: &Candidate<'_>,
    at: TimestampMs,
    refused: &Refused,
    limit: Option<tollgate_usage::RefusingLimit>,
    charge: u64,
) {
    let retry_after = refused.retry_after_seconds.filter(|_| refused.should_retry != Some(false));
    app.usage.record(&Event::Refusal(RefusalEvent {
        ts: at,
        request_id: candidate.id_text.clone(),
        tenant: candidate.key.tenant.clone(),
        key: candidate.key.key.clone(),
        attributes: candidate.attributes.clone(),
        provider: Some(candidate.provider.clone()),
        model: candidate.facts.map_or_else(|| "".into(), |facts| facts.model.as_str().into()),
        path: candidate.path.clone(),
        status: refused.kind.status(),
        reason: refused.reason,
        limit,
        charge,
        retry_after: retry_after
            .map(|seconds| tollgate_limiter::DurationMs::new(seconds.saturating_mul(1000))),
    }));
}
