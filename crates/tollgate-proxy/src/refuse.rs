//! Answers of our own: errors in the client's protocol.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use tollgate_limiter::{DurationMs, EntryRefusal, MicroUsd, Outcome, Refusal, Standing};
use tollgate_providers::{ErrorKind, Protocol, error_body};

use crate::{
    body::Body,
    headers,
    policy::{Measure, TenantLimit},
};

/// The longest `retry-after` that every official SDK obeys; beyond it some retry at once.
const RETRY_AFTER_OBEYED_SECONDS: u64 = 60;

/// What `retry-after` says when waiting does not help: no SDK that obeys it waits longer.
const RETRY_AFTER_NEVER_SECONDS: u64 = 60;

/// What `retry-after` says while open reservations hold the money: they end with their answers.
const RETRY_AFTER_HELD_SECONDS: u64 = 5;

/// What `retry-after` says while the store is away.
pub(crate) const RETRY_AFTER_UNAVAILABLE_SECONDS: u64 = 5;

/// A refusal, ready to be written.
#[derive(Debug)]
pub(crate) struct Refused {
    /// The kind of error: decides the status and the protocol's type.
    pub(crate) kind: ErrorKind,
    /// The word in `x-tollgate-reason` and, where the protocol has one, the error's code.
    pub(crate) reason: &'static str,
    /// What went wrong and what to change.
    pub(crate) message: String,
    /// Seconds after which a repetition may succeed.
    pub(crate) retry_after_seconds: Option<u64>,
    /// Whether official SDKs should retry by themselves; `None` leaves it to their rules.
    pub(crate) should_retry: Option<bool>,
}

impl Refused {
    /// A refusal that no repetition cures.
    pub(crate) fn new(kind: ErrorKind, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, reason, message: message.into(), retry_after_seconds: None, should_retry: None }
    }

    /// 503 while something of ours is away.
    pub(crate) fn unavailable(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            retry_after_seconds: Some(RETRY_AFTER_UNAVAILABLE_SECONDS),
            ..Self::new(ErrorKind::Unavailable, reason, message)
        }
    }

    /// The answer to a refusal by limits. `limits` are those of the plan, in its order.
    pub(crate) fn by_limit(refusal: &Refusal, limits: &[TenantLimit]) -> Self {
        let binding = &refusal.binding;
        let Some(limit) = limits.get(binding.index) else {
            return Self::new(
                ErrorKind::Internal,
                "internal",
                "a limit refused that the request does not have",
            );
        };
        match limit.measure {
            Measure::MicroUsd => over_budget(binding, limit),
            Measure::Unit(_) => over_rate(binding, limit),
        }
    }

    /// The response in `protocol`.
    pub(crate) fn into_response(self, protocol: Protocol, request_id: &str) -> Response<Body> {
        let text = error_body(protocol, self.kind, self.reason, &self.message, request_id);
        let mut response = Response::new(Body::whole(text));
        *response.status_mut() =
            StatusCode::from_u16(self.kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let map = response.headers_mut();
        map.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        map.insert(headers::REASON, HeaderValue::from_static(self.reason));
        if let Some(seconds) = self.retry_after_seconds {
            map.insert(header::RETRY_AFTER, seconds.into());
        }
        if let Some(retry) = self.should_retry {
            map.insert(headers::SHOULD_RETRY, HeaderValue::from_static(if retry { "true" } else { "false" }));
        }
        response
    }
}

/// 402. Money that open requests hold may come back; money that is spent does not.
fn over_budget(binding: &EntryRefusal, limit: &TenantLimit) -> Refused {
    let held = binding.fits_without_holds();
    let mut message = format!(
        "{} budget of {} `{}` does not allow this request: limit {}, spent {}, held by open requests {}, \
         this request needs {}.",
        capitalised(limit.window),
        limit.scope,
        limit.id,
        usd(binding.limit.get()),
        usd(binding.spent.get()),
        usd(binding.held.get()),
        usd(binding.needed.get()),
    );
    if held {
        message.push_str(" It may fit once open requests are settled.");
    } else if binding.needed > binding.limit {
        message.push_str(" It is larger than the whole budget: make the request smaller or raise the limit.");
    } else {
        match binding.resets_at {
            Some(at) => message.push_str(&format!(" The budget resets at {}.", rfc3339(at.get()))),
            None => message.push_str(" The budget does not reset: raise its limit to go on."),
        }
    }
    Refused {
        kind: ErrorKind::BudgetExceeded,
        reason: if held { "budget_held" } else { "budget_exceeded" },
        message,
        retry_after_seconds: held.then_some(RETRY_AFTER_HELD_SECONDS),
        should_retry: (!held).then_some(false),
    }
}

/// 429. Waiting helps, unless the request alone is larger than the limit.
fn over_rate(binding: &EntryRefusal, limit: &TenantLimit) -> Refused {
    let unit = limit.measure.name().replace('_', " ");
    let (needed, amount) = (binding.needed, binding.limit);
    match binding.outcome {
        Outcome::Wait(wait) => {
            let seconds = whole_seconds(wait);
            let message = format!(
                "Limit of {amount} {unit} per {} of {} `{}` reached: used {}, held by open requests {}, \
                 this request needs {needed}. It fits in {seconds} s.",
                limit.window, limit.scope, limit.id, binding.spent, binding.held,
            );
            Refused {
                retry_after_seconds: Some(seconds),
                should_retry: Some(seconds <= RETRY_AFTER_OBEYED_SECONDS),
                ..Refused::new(ErrorKind::RateLimited, "rate_limited", message)
            }
        }
        _ => {
            let message = format!(
                "This request needs {needed} {unit}, and {} `{}` may use {amount} per {}: it can never pass. \
                 Make the request smaller (a shorter prompt or a lower output limit) or raise the limit.",
                limit.scope, limit.id, limit.window,
            );
            Refused {
                retry_after_seconds: Some(RETRY_AFTER_NEVER_SECONDS),
                should_retry: Some(false),
                ..Refused::new(ErrorKind::RateLimited, "request_too_large", message)
            }
        }
    }
}

/// Writes where the tightest rate limit stands.
pub(crate) fn ratelimit_headers(map: &mut HeaderMap, standing: Option<&Standing>) {
    let Some(standing) = standing else { return };
    map.insert(headers::RATELIMIT_LIMIT, standing.limit.get().into());
    map.insert(headers::RATELIMIT_REMAINING, standing.remaining.get().into());
    map.insert(headers::RATELIMIT_RESET, whole_seconds(standing.resets_in).into());
}

/// The limit that refused, for the event.
pub(crate) fn refusing_limit(
    refusal: &Refusal,
    limits: &[TenantLimit],
) -> Option<tollgate_usage::RefusingLimit> {
    let binding = &refusal.binding;
    let limit = limits.get(binding.index)?;
    Some(tollgate_usage::RefusingLimit {
        scope: limit.scope,
        id: Arc::clone(&limit.id),
        unit: limit.measure.name(),
        window: limit.window,
        limit: binding.limit.get(),
        spent: binding.spent.get(),
        held: binding.held.get(),
    })
}

const fn whole_seconds(span: DurationMs) -> u64 {
    span.get().div_ceil(1000)
}

/// Micro-USD as dollars with six decimals: exact, so that small budgets can be told apart.
fn usd(micro_usd: u64) -> String {
    let micro = MicroUsd::new(micro_usd).get();
    format!("{}.{:06} USD", micro / 1_000_000, micro % 1_000_000)
}

fn rfc3339(ms: u64) -> String {
    let timestamp = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    timestamp.map_or_else(|| "a later time".to_owned(), |timestamp| timestamp.to_string())
}

fn capitalised(window: &str) -> &str {
    match window {
        "minute" => "Minute",
        "hour" => "Hour",
        "day" => "Day",
        "week" => "Week",
        "month" => "Month",
        _ => "Total",
    }
}
