//! Which call of which protocol a path is.

/// A wire protocol that a client speaks.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Protocol {
    /// Anthropic's Messages API.
    Anthropic,
    /// OpenAI's Chat Completions API and what is compatible with it.
    OpenAi,
}

impl Protocol {
    /// The name used in configuration, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
        }
    }
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Call {
    /// Anthropic `POST /v1/messages`.
    Messages,
    /// Anthropic `POST /v1/messages/count_tokens`.
    CountTokens,
    /// OpenAI `POST /v1/chat/completions`.
    ChatCompletions,
    /// `GET /v1/models` and `GET /v1/models/{id}`, which both protocols have.
    Models,
}

/// A call of a protocol.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Endpoint {
    /// The protocol it is spoken in: errors answer in it.
    pub protocol: Protocol,
    /// The call.
    pub call: Call,
}

impl Endpoint {
    /// Whether the provider bills this call. One that is not billed counts against request limits only.
    pub const fn is_billed(self) -> bool {
        matches!(self.call, Call::Messages | Call::ChatCompletions)
    }
}

/// Why a path cannot be served.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RouteError {
    /// No protocol has this path, or it cannot be metered: passing it would be a way around budgets.
    #[error("unknown path")]
    UnknownPath,
    /// The path exists with another method.
    #[error("method not allowed; use {allowed}")]
    WrongMethod {
        /// The methods that the path takes, as an `allow` header has them.
        allowed: &'static str,
    },
}

/// The endpoint of `method` and `path` (without its query).
///
/// `hint` is the protocol that the request shows otherwise (an `anthropic-version` header, say). It
/// decides the paths that several protocols have, where OpenAI is the default.
///
/// # Errors
/// [`RouteError`]: the path is unknown, or takes another method.
pub fn route(method: &str, path: &str, hint: Option<Protocol>) -> Result<Endpoint, RouteError> {
    let (endpoint, allowed) = match path {
        "/v1/messages" => (Endpoint { protocol: Protocol::Anthropic, call: Call::Messages }, "POST"),
        "/v1/messages/count_tokens" => {
            (Endpoint { protocol: Protocol::Anthropic, call: Call::CountTokens }, "POST")
        }
        "/v1/chat/completions" => {
            (Endpoint { protocol: Protocol::OpenAi, call: Call::ChatCompletions }, "POST")
        }
        _ if is_models_path(path) => {
            (Endpoint { protocol: hint.unwrap_or(Protocol::OpenAi), call: Call::Models }, "GET")
        }
        _ => return Err(RouteError::UnknownPath),
    };
    if method == allowed { Ok(endpoint) } else { Err(RouteError::WrongMethod { allowed }) }
}

/// `/v1/models` or `/v1/models/{id}`. An id may hold slashes (`vendor/model`), but no step upwards
/// and no empty segment: another path must not hide behind this one.
fn is_models_path(path: &str) -> bool {
    match path.strip_prefix("/v1/models") {
        Some("") => true,
        Some(rest) => rest.strip_prefix('/').is_some_and(|id| id.split('/').all(is_plain_segment)),
        None => false,
    }
}

fn is_plain_segment(segment: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._:@+~".contains(&b);
    !segment.is_empty()
        && segment.len() <= 256
        && segment != "."
        && segment != ".."
        && segment.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(method: &str, path: &str) -> Result<(Protocol, Call), RouteError> {
        route(method, path, None).map(|e| (e.protocol, e.call))
    }

    #[test]
    fn every_served_path_has_its_endpoint() {
        assert_eq!(at("POST", "/v1/messages"), Ok((Protocol::Anthropic, Call::Messages)));
        assert_eq!(at("POST", "/v1/messages/count_tokens"), Ok((Protocol::Anthropic, Call::CountTokens)));
        assert_eq!(at("POST", "/v1/chat/completions"), Ok((Protocol::OpenAi, Call::ChatCompletions)));
        assert_eq!(at("GET", "/v1/models"), Ok((Protocol::OpenAi, Call::Models)));
        assert_eq!(at("GET", "/v1/models/gpt-5.6"), Ok((Protocol::OpenAi, Call::Models)));
        assert_eq!(at("GET", "/v1/models/meta-llama/llama-4:free"), Ok((Protocol::OpenAi, Call::Models)));
    }

    #[test]
    fn the_hint_decides_shared_paths_only() {
        let models = route("GET", "/v1/models", Some(Protocol::Anthropic)).unwrap();
        assert_eq!(models, Endpoint { protocol: Protocol::Anthropic, call: Call::Models });
        let chat = route("POST", "/v1/chat/completions", Some(Protocol::Anthropic)).unwrap();
        assert_eq!(chat.protocol, Protocol::OpenAi);
    }

    #[test]
    fn a_wrong_method_names_the_right_one() {
        assert_eq!(at("GET", "/v1/messages"), Err(RouteError::WrongMethod { allowed: "POST" }));
        assert_eq!(at("post", "/v1/messages"), Err(RouteError::WrongMethod { allowed: "POST" }));
        assert_eq!(at("DELETE", "/v1/models/m"), Err(RouteError::WrongMethod { allowed: "GET" }));
    }

    #[test]
    fn c116_a_path_that_cannot_be_metered_is_closed() {
        for path in [
            "",
            "/",
            "/v1/messages/",
            "/v1//messages",
            "/v1/messages/batches",
            "/v1/responses",
            "/v1/embeddings",
            "/V1/messages",
            "/v1/chat/completions/../../files",
            "/v1/models/",
            "/v1/models/..",
            "/v1/models/../files",
            "/v1/models/a/%2e%2e/files",
            "/v1/models//x",
            "/v1/modelsx",
        ] {
            assert_eq!(at("POST", path), Err(RouteError::UnknownPath), "{path}");
        }
    }

    #[test]
    fn c120_counting_tokens_is_not_billed() {
        let billed = |m: &str, p: &str| route(m, p, None).unwrap().is_billed();
        assert!(billed("POST", "/v1/messages") && billed("POST", "/v1/chat/completions"));
        assert!(!billed("POST", "/v1/messages/count_tokens") && !billed("GET", "/v1/models"));
    }
}
