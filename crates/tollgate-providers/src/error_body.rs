//! Our own refusals and failures, in the client's protocol.
//!
//! Shapes: Anthropic and OpenAI as their SDKs read them. The status chooses the SDK's exception
//! class; the type is what programs branch on.

use serde::Serialize;

use crate::Protocol;

/// Why a request is answered by us and not by the provider.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ErrorKind {
    /// The request cannot be read or breaks a rule of the protocol.
    BadRequest,
    /// No key, or one that is not known.
    Unauthenticated,
    /// A budget has no room, or the model has no price under one. SDKs do not retry it.
    BudgetExceeded,
    /// The key may not do this: model not allowed, key disabled.
    Forbidden,
    /// The path is not served.
    NotFound,
    /// The path takes another method.
    MethodNotAllowed,
    /// The body is larger than allowed.
    TooLarge,
    /// A rate limit has no room now.
    RateLimited,
    /// We cannot decide or serve now: store unavailable, shutting down.
    Unavailable,
    /// The provider could not be reached, or broke off before it answered.
    UpstreamUnreachable,
    /// The provider did not answer in time.
    UpstreamTimeout,
    /// A fault of ours.
    Internal,
}

impl ErrorKind {
    /// The HTTP status. 409 and 408 are never used: SDKs retry them.
    pub const fn status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthenticated => 401,
            Self::BudgetExceeded => 402,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::TooLarge => 413,
            Self::RateLimited => 429,
            Self::Internal => 500,
            Self::UpstreamUnreachable => 502,
            Self::Unavailable => 503,
            Self::UpstreamTimeout => 504,
        }
    }

    /// The `type` of an Anthropic error; names as their API reference has them, except the budget's.
    const fn anthropic_type(self) -> &'static str {
        match self {
            Self::BadRequest | Self::MethodNotAllowed => "invalid_request_error",
            Self::Unauthenticated => "authentication_error",
            Self::BudgetExceeded => "budget_exceeded",
            Self::Forbidden => "permission_error",
            Self::NotFound => "not_found_error",
            Self::TooLarge => "request_too_large",
            Self::RateLimited => "rate_limit_error",
            Self::Unavailable => "overloaded_error",
            Self::UpstreamTimeout => "timeout_error",
            Self::UpstreamUnreachable | Self::Internal => "api_error",
        }
    }

    /// The `type` of an OpenAI error.
    const fn openai_type(self) -> &'static str {
        match self {
            Self::BadRequest
            | Self::Unauthenticated
            | Self::NotFound
            | Self::MethodNotAllowed
            | Self::TooLarge => "invalid_request_error",
            Self::BudgetExceeded => "budget_exceeded",
            Self::Forbidden => "permission_error",
            Self::RateLimited => "rate_limit_error",
            Self::Unavailable | Self::UpstreamUnreachable | Self::UpstreamTimeout | Self::Internal => {
                "server_error"
            }
        }
    }
}

/// The JSON body of an error in `protocol`.
///
/// `code` is the stable machine-readable reason (`rate_limited`, `model_unpriced`, …), `message` is
/// for people, `request_id` is the id that the response's header carries too.
pub fn error_body(
    protocol: Protocol,
    kind: ErrorKind,
    code: &str,
    message: &str,
    request_id: &str,
) -> String {
    let body = match protocol {
        Protocol::Anthropic => serde_json::to_string(&AnthropicError {
            r#type: "error",
            error: AnthropicDetail {
                r#type: kind.anthropic_type(),
                message,
                details: ErrorCode { error_code: code },
            },
            request_id,
        }),
        Protocol::OpenAi => serde_json::to_string(&OpenAiError {
            error: OpenAiDetail { message, r#type: kind.openai_type(), code, param: None },
        }),
    };
    // Strings and fixed keys always serialise; an empty body would still carry the status.
    body.unwrap_or_default()
}

#[derive(Serialize)]
struct AnthropicError<'a> {
    r#type: &'static str,
    error: AnthropicDetail<'a>,
    request_id: &'a str,
}

#[derive(Serialize)]
struct AnthropicDetail<'a> {
    r#type: &'static str,
    message: &'a str,
    details: ErrorCode<'a>,
}

/// Where Anthropic itself puts a finer code (seen on its spend-cap errors).
#[derive(Serialize)]
struct ErrorCode<'a> {
    error_code: &'a str,
}

#[derive(Serialize)]
struct OpenAiError<'a> {
    error: OpenAiDetail<'a>,
}

#[derive(Serialize)]
struct OpenAiDetail<'a> {
    message: &'a str,
    r#type: &'static str,
    code: &'a str,
    param: Option<&'static str>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const KINDS: [ErrorKind; 12] = [
        ErrorKind::BadRequest,
        ErrorKind::Unauthenticated,
        ErrorKind::BudgetExceeded,
        ErrorKind::Forbidden,
        ErrorKind::NotFound,
        ErrorKind::MethodNotAllowed,
        ErrorKind::TooLarge,
        ErrorKind::RateLimited,
        ErrorKind::Unavailable,
        ErrorKind::UpstreamUnreachable,
        ErrorKind::UpstreamTimeout,
        ErrorKind::Internal,
    ];

    fn parsed(protocol: Protocol, kind: ErrorKind, message: &str) -> Value {
        serde_json::from_str(&error_body(protocol, kind, "a_code", message, "req_1")).unwrap()
    }

    #[test]
    fn c126_a_spent_budget_has_a_status_that_is_not_retried_and_a_stable_type() {
        assert_eq!(ErrorKind::BudgetExceeded.status(), 402);
        assert_eq!(
            parsed(Protocol::Anthropic, ErrorKind::BudgetExceeded, "no money"),
            json!({"type": "error", "request_id": "req_1", "error": {
                "type": "budget_exceeded", "message": "no money", "details": {"error_code": "a_code"}}})
        );
        assert_eq!(
            parsed(Protocol::OpenAi, ErrorKind::BudgetExceeded, "no money"),
            json!({"error": {"message": "no money", "type": "budget_exceeded", "code": "a_code", "param": null}})
        );
    }

    #[test]
    fn every_kind_has_a_body_in_every_protocol() {
        for kind in KINDS {
            let anthropic = parsed(Protocol::Anthropic, kind, "m");
            assert_eq!(anthropic["type"], "error");
            assert!(anthropic["error"]["type"].as_str().is_some_and(|t| !t.is_empty()));
            let openai = parsed(Protocol::OpenAi, kind, "m");
            assert!(openai["error"]["param"].is_null() && openai["error"]["type"].is_string());
            assert!((400..600).contains(&kind.status()) && kind.status() != 408 && kind.status() != 409);
        }
    }

    #[test]
    fn a_message_cannot_break_out_of_its_string() {
        let hostile = "\"},\"x\":\u{0}\n\\ \u{2028} é";
        for protocol in [Protocol::Anthropic, Protocol::OpenAi] {
            assert_eq!(parsed(protocol, ErrorKind::BadRequest, hostile)["error"]["message"], hostile);
        }
    }
}
