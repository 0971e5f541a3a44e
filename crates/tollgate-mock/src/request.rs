//! What the mock reads in a request body.

use serde::Deserialize;

/// The shape of requests and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Anthropic,
    OpenAi,
}

/// The parts of a request that the answer depends on.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) model: String,
    pub(crate) stream: bool,
    pub(crate) has_stream_options: bool,
    pub(crate) include_usage: bool,
    pub(crate) output_limit: Option<u64>,
    pub(crate) choices: u64,
    pub(crate) first_tool: Option<String>,
    pub(crate) body_bytes: u64,
}

impl Asked {
    /// Reads a request for an answer.
    ///
    /// # Errors
    /// The text that the provider's 400 would carry.
    pub(crate) fn parse(protocol: Protocol, body: &[u8]) -> Result<Self, String> {
        let raw: Raw = serde_json::from_slice(body)
            .map_err(|error| format!("We could not parse the JSON body of your request: {error}"))?;
        let model = raw.model.ok_or("model: Field required")?;
        if raw.messages.is_none() {
            return Err("messages: Field required".to_owned());
        }
        let output_limit = match protocol {
            Protocol::Anthropic => raw.max_tokens,
            Protocol::OpenAi => raw.max_completion_tokens.or(raw.max_tokens),
        };
        Ok(Self {
            model,
            stream: raw.stream.unwrap_or(false),
            has_stream_options: raw.stream_options.is_some(),
            include_usage: raw.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
            output_limit,
            choices: raw.n.unwrap_or(1).clamp(1, CHOICES_MAX),
            first_tool: raw.tools.into_iter().flatten().find_map(Tool::name),
            body_bytes: u64::try_from(body.len()).unwrap_or(u64::MAX),
        })
    }
}

/// As many choices as OpenAI gives at most.
const CHOICES_MAX: u64 = 128;

#[derive(Deserialize)]
struct Raw {
    model: Option<String>,
    messages: Option<serde::de::IgnoredAny>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    n: Option<u64>,
    tools: Option<Vec<Tool>>,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct Tool {
    name: Option<String>,
    function: Option<Function>,
}

impl Tool {
    fn name(self) -> Option<String> {
        self.name.or(self.function.map(|function| function.name))
    }
}

#[derive(Deserialize)]
struct Function {
    name: String,
}
