//! Answers of our own: errors in the client's protocol.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use tollgate_limiter::{DurationMs, Standing};
use tollgate_providers::{ErrorKind, Protocol, error_body};

use crate::{body::Body, headers};

mod limit;
mod run;

pub(crate) use self::limit::refusing_limit;

/// What `retry-after` says while the store is away.
pub(crate) const RETRY_AFTER_UNAVAILABLE_SECONDS: u64 = 5;

/// What `retry-after` says while open reservations hold the money: they end with their answers.
const RETRY_AFTER_HELD_SECONDS: u64 = 5;

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

/// Writes where the tightest rate limit stands.
pub(crate) fn ratelimit_headers(map: &mut HeaderMap, standing: Option<&Standing>) {
    let Some(standing) = standing else { return };
    map.insert(headers::RATELIMIT_LIMIT, standing.limit.get().into());
    map.insert(headers::RATELIMIT_REMAINING, standing.remaining.get().into());
    map.insert(headers::RATELIMIT_RESET, whole_seconds(standing.resets_in).into());
}

const fn whole_seconds(span: DurationMs) -> u64 {
    span.get().div_ceil(1000)
}
