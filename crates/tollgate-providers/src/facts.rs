//! What admission must know about a request.

pub use tollgate_pricing::CacheWrite;

use crate::estimate::InputSizes;
use crate::prompt::PromptPrefix;
use crate::rewrite::LimitPlaces;
use crate::{Call, Endpoint, anthropic, openai};

/// What a request's body says that decides its reservation and how its answer is metered.
#[derive(Clone, Debug, Default)]
pub struct RequestFacts {
    /// The model as the request names it.
    pub model: String,
    /// The request's own output limit in tokens, for one choice. Where a request has two (OpenAI's
    /// `max_tokens` and `max_completion_tokens`) the larger: whichever the provider obeys, it holds.
    pub output_limit: Option<u64>,
    /// How many answers are asked for (`n`); the output limit holds for each.
    pub choices: u64,
    /// Whether the answer is to be streamed.
    pub stream: bool,
    /// The service tier that is asked for, with what else changes the price (a region, a speed) joined
    /// to it by `+`.
    pub service_tier: Option<String>,
    /// The dearest prompt-cache write that the request asks for.
    pub cache_write: CacheWrite,
    /// Sizes of everything the model reads.
    pub input: InputSizes,
    /// The prompt holds what is not in the body: file ids, remote URLs, conversation ids, MCP servers.
    /// The estimate holds an image at the largest there is, a document at 25,000 tokens, a recording at
    /// five minutes, and nothing for what a conversation or a server may add.
    pub hidden_input: bool,
    /// The most web searches the request allows; `None` if it has no search tool.
    pub web_searches_max: Option<u64>,
    /// Other models that the request names, each once: those of tools that ask a model (Anthropic's
    /// advisor), and those that a compatible server may fall back to (`models`). At most 16, each of at
    /// most 256 bytes. What they use is billed at their own price ([`crate::Metered::others`]) or, where
    /// one answers in place of `model`, as that of the answer's model.
    pub other_models: Vec<String>,
    /// Whom the request says it is made for: OpenAI's `user` or else its `safety_identifier`, Anthropic's
    /// `metadata.user_id` without its session. Empty where it is longer than 512 bytes, `None` where it is empty or no string.
    pub user: Option<String>,
    /// What may tell the session it belongs to.
    pub session: SessionFacts,
    /// Audio goes in or may come out.
    pub audio: bool,
    pub(crate) ttls: CacheTtls,
    pub(crate) usage_flag: openai::UsageFlag,
    pub(crate) limit_places: LimitPlaces,
    /// How much of the output the request gives to thinking (Anthropic's `budget_tokens`).
    pub(crate) thinking_budget: Option<u64>,
}

impl RequestFacts {
    /// The smallest output limit of a choice that the provider takes: above what is given to thinking.
    pub fn output_limit_min(&self) -> u64 {
        self.thinking_budget.map_or(1, |budget| budget.saturating_add(1))
    }

    /// Whether the body shows all that the model will read: no tool of the provider's puts anything in.
    pub fn shows_all_input(&self) -> bool {
        !self.hidden_input
            && self.web_searches_max.is_none()
            && self.other_models.is_empty()
            && self.input.server_tool_tokens == 0
    }

    /// Whether the request is for a stream that will not report its usage unless the request is
    /// rewritten ([`crate::rewrite()`]). The client then expects no usage chunk.
    pub fn lacks_usage_in_stream(&self) -> bool {
        self.stream && self.usage_flag != openai::UsageFlag::Settled
    }
}

/// What a request says that is the same for the calls of one session. Texts have at most 512 bytes.
#[derive(Clone, Debug, Default)]
pub struct SessionFacts {
    /// The session that an agent names: a part of Anthropic's `metadata.user_id`.
    pub of_agent: Option<String>,
    /// OpenAI's `prompt_cache_key`.
    pub prompt_cache_key: Option<String>,
    /// OpenAI's `safety_identifier`.
    pub safety_identifier: Option<String>,
    /// System prompt, tools and first user message; `None` where no user message says anything.
    pub prompt: Option<PromptPrefix>,
}

/// The cache lifetimes a request asks for: they attribute a write that is reported without a split.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct CacheTtls {
    pub(crate) five_minutes: bool,
    pub(crate) one_hour: bool,
}

/// Why a request cannot be read. The client's fault, always: answer with 400.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    /// What is wrong and what to change; holds no content of the request.
    pub message: String,
    /// The field at fault, if it is one.
    pub param: Option<&'static str>,
}

impl RequestError {
    pub(crate) fn new(param: Option<&'static str>, message: impl Into<String>) -> Self {
        Self { message: message.into(), param }
    }
}

/// Reads the facts of a request from its body, in one pass, without a tree or a copy of it.
///
/// A call without a body ([`Call::Models`]) has the default facts.
///
/// # Errors
/// [`RequestError`] if the body is not one JSON object, lacks what the call requires, has a value of
/// the wrong type or range, or names a field twice (another reader could take the other one).
pub fn inspect(endpoint: Endpoint, body: &[u8]) -> Result<RequestFacts, RequestError> {
    match endpoint.call {
        Call::Messages => anthropic::inspect(body, true),
        Call::CountTokens => anthropic::inspect(body, false),
        Call::ChatCompletions => openai::inspect(body),
        Call::Models => Ok(RequestFacts { choices: 1, ..RequestFacts::default() }),
    }
}
