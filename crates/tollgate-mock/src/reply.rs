//! What an answer consists of, before it becomes bytes of a protocol.

use crate::behaviour::{Behaviour, UsageReport};
use crate::request::{Asked, Protocol};
use crate::sse::Event;
use crate::usage::Usage;

/// The moment at which every answer claims to have been made, in seconds since 1970: 2026-01-01.
pub(crate) const CREATED_S: u64 = 1_767_225_600;

/// Output tokens of an answer for which nobody set a number.
const OUTPUT_TOKENS: u64 = 40;
const BYTES_A_TOKEN: u64 = 4;
const TEXT_EVENTS: u64 = 32;
/// Text made for reported tokens stays below this, however many tokens are reported.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// The resolved parameters of a successful answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Makes ids: the number of the request.
    pub(crate) number: u64,
    pub(crate) model: String,
    pub(crate) service_tier: Option<String>,
    /// What it really used.
    pub(crate) usage: Usage,
    pub(crate) report: UsageReport,
    pub(crate) hit_limit: bool,
    pub(crate) tool: Option<String>,
    pub(crate) choices: u64,
    pub(crate) include_usage: bool,
    text_bytes: usize,
    events: usize,
}

impl Answer {
    pub(crate) fn new(number: u64, asked: &Asked, behaviour: &Behaviour) -> Self {
        let usage = usage(asked, behaviour);
        let text_tokens = usage.output_tokens.saturating_sub(usage.reasoning_tokens);
        let text_bytes = match behaviour.text_bytes {
            Some(bytes) => u64::from(bytes),
            None => text_tokens.saturating_mul(BYTES_A_TOKEN).min(TEXT_BYTES_MAX),
        };
        let events = behaviour.pace.events.map_or(text_tokens.clamp(1, TEXT_EVENTS), u64::from);
        Self {
            number,
            model: behaviour.model.clone().unwrap_or_else(|| asked.model.clone()),
            service_tier: behaviour.service_tier.clone(),
            usage,
            report: behaviour.report,
            hit_limit: asked.output_limit.is_some_and(|limit| usage.output_tokens >= limit),
            tool: asked.first_tool.clone().filter(|_| behaviour.tool_use),
            choices: asked.choices,
            include_usage: asked.include_usage,
            text_bytes: usize::try_from(text_bytes).unwrap_or(usize::MAX),
            events: usize::try_from(events).unwrap_or(usize::MAX),
        }
    }

    /// What the answer says it used.
    pub(crate) fn reported(&self) -> Option<Usage> {
        match self.report {
            UsageReport::Missing => None,
            UsageReport::Zero => Some(Usage::default()),
            UsageReport::Report | UsageReport::EveryChunk | UsageReport::Bare => Some(self.usage),
        }
    }

    /// The answer's text, or the JSON arguments of its tool call.
    pub(crate) fn text(&self) -> String {
        if self.tool.is_some() { TOOL_ARGUMENTS.to_owned() } else { words(self.text_bytes) }
    }

    /// [`Answer::text`] in as many pieces as the stream has content events.
    pub(crate) fn text_pieces(&self) -> Vec<String> {
        let text = self.text();
        let cut = |index| text.floor_char_boundary(part(text.len(), index, self.events));
        (0..self.events)
            .map(|index| text.get(cut(index)..cut(index + 1)).unwrap_or_default().to_owned())
            .collect()
    }
}

/// The arguments with which the mock calls every tool.
const TOOL_ARGUMENTS: &str = r#"{"query":"the weather at the tollgate"}"#;

/// A string as a JSON literal.
pub(crate) fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// How a whole answer or a stream is told from the other.
#[derive(Debug)]
pub(crate) enum Content {
    Plain(String),
    Stream(Vec<Event>),
}

pub(crate) fn content(protocol: Protocol, asked: &Asked, answer: &Answer) -> Content {
    match (protocol, asked.stream) {
        (Protocol::Anthropic, false) => Content::Plain(crate::anthropic::message(answer)),
        (Protocol::Anthropic, true) => Content::Stream(crate::anthropic::events(answer)),
        (Protocol::OpenAi, false) => Content::Plain(crate::openai::completion(answer)),
        (Protocol::OpenAi, true) => Content::Stream(crate::openai::events(answer)),
    }
}

fn usage(asked: &Asked, behaviour: &Behaviour) -> Usage {
    let rule = &behaviour.usage;
    let output_default =
        || OUTPUT_TOKENS.min(asked.output_limit.unwrap_or(OUTPUT_TOKENS)).saturating_mul(asked.choices);
    let output_tokens = rule.output_tokens.unwrap_or_else(output_default);
    Usage {
        input_tokens: rule.input_tokens.unwrap_or_else(|| input_tokens(asked.body_bytes)),
        cache_read_tokens: rule.cache_read_tokens,
        cache_write_5m_tokens: rule.cache_write_5m_tokens,
        cache_write_1h_tokens: rule.cache_write_1h_tokens,
        output_tokens,
        reasoning_tokens: rule.reasoning_tokens.min(output_tokens),
        web_searches: rule.web_searches,
    }
}

/// The input tokens of a body of so many bytes.
pub(crate) fn input_tokens(body_bytes: u64) -> u64 {
    body_bytes.div_ceil(BYTES_A_TOKEN)
}

/// Where the piece with this index begins if a whole is cut into equal parts.
fn part(whole: usize, index: usize, parts: usize) -> usize {
    (whole / parts) * index + (whole % parts).min(index)
}

/// Text of so many bytes, or up to three fewer; characters of several bytes are among them.
fn words(bytes: usize) -> String {
    const SENTENCE: &str = "The keeper of the tollgate counts each cart that passes – naïvely. ";
    let mut text = SENTENCE.repeat(bytes / SENTENCE.len() + 1);
    text.truncate(text.floor_char_boundary(bytes));
    text
}
