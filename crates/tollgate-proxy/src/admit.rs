//! Estimates, prices and reserves a request, or refuses it.

use std::{iter, sync::Arc};

use tollgate_config::{OutputReservation, Unpriced};
use tollgate_limiter::{Entry, Plan, ReservationId, Standing, TimestampMs, Verdict};
use tollgate_pricing::{ModelPrice, PicoUsd, ReserveRequest};
use tollgate_providers::{Endpoint, ErrorKind, RequestFacts, estimate_input};
use tollgate_store::{Attempt, Held};
use tollgate_usage::{Event, RefusalEvent, Session};

use crate::{
    amounts::Amounts,
    app::App,
    call::{Admitted, Call},
    policy::{KeyPolicy, TenantLimit},
    refuse::{self, Refused},
    settle::Quote,
};

/// What a request under `reservation.output_tokens = "max"` reserves where neither it nor its
/// model's price row names a limit: the largest output limit of today's models.
const OUTPUT_TOKENS_UNNAMED: u64 = 128_000;

/// A request that is about to be judged.
pub(crate) struct Candidate<'a> {
    pub(crate) request_id: ReservationId,
    pub(crate) key: &'a Arc<KeyPolicy>,
    pub(crate) provider: Arc<str>,
    pub(crate) endpoint: Endpoint,
    /// `None` for a call without a body.
    pub(crate) facts: Option<&'a RequestFacts>,
    pub(crate) path: Arc<str>,
    pub(crate) session: Option<Session>,
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
    let quote = match quote(app, &candidate, at) {
        Ok(quote) => quote,
        Err(refused) => {
            record_refusal(app, &candidate, at, &refused, None, 0);
            return Decision { outcome: Err(refused), standing: None };
        }
    };
    let limits = if quote.billed { &candidate.key.billed } else { &candidate.key.unbilled };
    let plan = match plan(limits, &quote.reserved) {
        Ok(plan) => Arc::new(plan),
        Err(refused) => return Decision { outcome: Err(refused), standing: None },
    };
    // The call exists before the store is asked: whatever happens from here on, it ends in its drop.
    let mut call = Call::new(app.clone(), candidate.admitted(limits, plan.clone(), quote, at));
    let before = app.clock.elapsed();
    let verdict = app.store.reserve(candidate.request_id, plan, Attempt::First).await;
    app.metrics.decision.observe(app.clock.elapsed().saturating_sub(before).as_secs_f64());
    match verdict {
        Ok(Verdict::Admitted(admission)) => {
            call.admitted(admission.at);
            for index in admission.over_soft.iter() {
                warn_over_soft(app, &candidate, limits.get(index));
            }
            Decision { outcome: Ok(call), standing: admission.tightest }
        }
        Ok(Verdict::Refused(refusal)) => {
            call.refused();
            let refused = Refused::by_limit(&refusal, limits);
            for refusing in &refusal.refusing {
                limits.get(refusing.index).into_iter().for_each(|limit| app.metrics.refused(limit));
            }
            let limit = refuse::refusing_limit(&refusal, limits);
            record_refusal(app, &candidate, at, &refused, limit, refusal.binding.needed.get());
            Decision { outcome: Err(refused), standing: refusal.tightest }
        }
        Err(error) => {
            tracing::error!(request_id = %candidate.request_id, %error, "the store gave no verdict");
            if !error.may_have_applied() {
                call.refused();
            }
            let message = "The limits cannot be checked at the moment. Try again in a few seconds.";
            Decision { outcome: Err(Refused::unavailable("store_unavailable", message)), standing: None }
        }
    }
}

impl Candidate<'_> {
    fn admitted(
        &self,
        limits: &Arc<[TenantLimit]>,
        plan: Arc<Plan>,
        quote: Quote,
        at: TimestampMs,
    ) -> Admitted {
        Admitted {
            request_id: self.request_id,
            key: self.key.clone(),
            provider: self.provider.clone(),
            path: self.path.clone(),
            session: self.session.clone(),
            limits: limits.clone(),
            held: Held { id: self.request_id, plan, at },
            quote,
            stream: self.facts.is_some_and(|facts| facts.stream),
            at,
            arrived: self.arrived,
        }
    }
}

/// What the request is expected to use, and what is reserved for it.
fn quote(app: &App, candidate: &Candidate<'_>, at: TimestampMs) -> Result<Quote, Refused> {
    let (Some(facts), true) = (candidate.facts, candidate.endpoint.is_billed()) else {
        let model = candidate.facts.map_or_else(|| "".into(), |facts| facts.model.as_str().into());
        return Ok(Quote::unbilled(model));
    };
    let price = app.policy.prices.lookup(&facts.model, at);
    let input = estimate_input(facts);
    let output_tokens = reserved_output(app.policy.output_reservation, facts, price);
    let request = ReserveRequest {
        input_tokens: input.get(),
        output_tokens,
        cache_write: facts.cache_write,
        tier: facts.service_tier.as_deref(),
        web_searches: facts.web_searches_max.unwrap_or(0),
        audio: facts.audio,
    };
    // Each model that a tool of the request names may make a pass of its own over the same input.
    let mut cost = PicoUsd::ZERO;
    for model in iter::once(&facts.model).chain(&facts.other_models) {
        match app.policy.prices.lookup(model, at) {
            Some(price) => cost = cost.saturating_add(price.reserve(&request)),
            None => unpriced(candidate, model)?,
        }
    }
    Ok(Quote {
        billed: true,
        reserved: Amounts { requests: 1, input_tokens: input.get(), output_tokens, cost },
        estimated_input: input,
        model: facts.model.as_str().into(),
        service_tier: facts.service_tier.as_deref().map(Arc::from),
        hidden_input: facts.hidden_input,
    })
}

/// The output limit that goes into a request without one, for each choice: under
/// `reservation.output_tokens = "max"` the whole limit is reserved, so it has to hold.
pub(crate) fn output_limit_to_put_in(app: &App, facts: &RequestFacts) -> Option<u64> {
    if app.policy.output_reservation != OutputReservation::Max || facts.output_limit.is_some() {
        return None;
    }
    Some(unnamed_limit(app.policy.prices.lookup(&facts.model, app.clock.now())))
}

fn unnamed_limit(price: Option<&ModelPrice>) -> u64 {
    price.and_then(ModelPrice::max_output_tokens).unwrap_or(OUTPUT_TOKENS_UNNAMED)
}

/// Refuses a model without a price where the key's rule says so.
fn unpriced(candidate: &Candidate<'_>, model: &str) -> Result<(), Refused> {
    match candidate.key.unpriced {
        Unpriced::Ignore => Ok(()),
        Unpriced::Warn => {
            tracing::warn!(request_id = %candidate.request_id, model, "no price is known for this model");
            Ok(())
        }
        Unpriced::Block => Err(Refused {
            should_retry: Some(false),
            ..Refused::new(
                ErrorKind::BudgetExceeded,
                "model_unpriced",
                format!(
                    "No price is known for model `{model}`, so this call would escape its budget. Add the \
                     model to the price table, or set `unpriced` of the budget."
                ),
            )
        }),
    }
}

fn reserved_output(rule: OutputReservation, facts: &RequestFacts, price: Option<&ModelPrice>) -> u64 {
    match rule {
        OutputReservation::UpTo(cap) => {
            let of_request = facts.output_limit.map(|limit| limit.saturating_mul(facts.choices));
            of_request.unwrap_or(u64::MAX).min(cap.get())
        }
        OutputReservation::Max => {
            facts.output_limit.unwrap_or_else(|| unnamed_limit(price)).saturating_mul(facts.choices)
        }
    }
}

fn plan(limits: &[TenantLimit], reserved: &Amounts) -> Result<Plan, Refused> {
    let entry =
        |limit: &TenantLimit| Entry { limit: limit.limit.clone(), charge: limit.measure.charge(reserved) };
    Plan::new(limits.iter().map(entry).collect()).map_err(|error| {
        tracing::error!(%error, "a key's limits make no plan");
        Refused::new(ErrorKind::Internal, "internal", "This key's limits cannot be checked.")
    })
}

fn warn_over_soft(app: &App, candidate: &Candidate<'_>, limit: Option<&TenantLimit>) {
    let Some(limit) = limit else { return };
    app.metrics.over_soft(limit);
    tracing::warn!(
        request_id = %candidate.request_id,
        scope = limit.scope,
        id = &*limit.id,
        window = limit.window,
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
        request_id: candidate.request_id.to_string().into(),
        tenant: candidate.key.tenant.clone(),
        key: candidate.key.key.clone(),
        attributes: candidate.key.attributes.clone(),
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
