//! OpenAI's bodies.
//!
//! Shapes as in OpenAI's Chat Completions reference: `prompt_tokens` includes cached and cache-written
//! tokens, `completion_tokens` includes reasoning, and a stream reports its usage in a last chunk without
//! choices, only if `stream_options.include_usage` asked for it.

use crate::behaviour::UsageReport;
use crate::reply::{Answer, CREATED_S, json};
use crate::sse::Event;
use crate::usage::Usage;

/// The answer to a plain `/v1/chat/completions`.
pub(crate) fn completion(answer: &Answer) -> String {
    let message = match &answer.tool {
        Some(tool) => format!(
            r#"{{"role":"assistant","content":null,"tool_calls":[{{"id":"call_mock_{}","type":"function","function":{{"name":{},"arguments":{}}}}}],"refusal":null}}"#,
            answer.number,
            json(tool),
            json(&answer.text())
        ),
        None => format!(
            r#"{{"role":"assistant","content":{},"refusal":null,"annotations":[]}}"#,
            json(&answer.text())
        ),
    };
    let finish_reason = finish_reason(answer);
    let choices: Vec<String> = (0..answer.choices)
        .map(|index| {
            format!(
                r#"{{"index":{index},"message":{message},"logprobs":null,"finish_reason":"{finish_reason}"}}"#
            )
        })
        .collect();
    let usage =
        answer.reported().map_or_else(String::new, |usage| format!(r#","usage":{}"#, usage_json(&usage)));
    format!(
        r#"{{"id":"chatcmpl-mock-{}","object":"chat.completion","created":{CREATED_S},"model":{},"choices":[{}]{usage},"service_tier":{},"system_fingerprint":null}}"#,
        answer.number,
        json(&answer.model),
        choices.join(","),
        service_tier(answer)
    )
}

/// The events of a streamed `/v1/chat/completions`.
pub(crate) fn events(answer: &Answer) -> Vec<Event> {
    let pieces = answer.text_pieces();
    let mut chunks = Chunks { answer, sent: 0, total: u64::try_from(pieces.len()).unwrap_or(u64::MAX) };
    let mut events = Vec::with_capacity(pieces.len() + 4);
    for index in 0..answer.choices {
        events.push(Event::frame(None, chunks.choice(index, &opening_delta(answer), None)));
    }
    for (index, text) in (0..answer.choices).cycle().zip(&pieces) {
        let text = json(text);
        let delta = if answer.tool.is_some() {
            format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":{text}}}}}]}}"#)
        } else {
            format!(r#"{{"content":{text}}}"#)
        };
        chunks.sent += 1;
        events.push(Event::content(None, chunks.choice(index, &delta, None)));
    }
    for index in 0..answer.choices {
        events.push(Event::frame(None, chunks.choice(index, "{}", Some(finish_reason(answer)))));
    }
    if let Some(last) = chunks.usage() {
        events.push(Event::frame(None, last));
    }
    events.push(Event::frame(None, "[DONE]".to_owned()));
    events
}

/// The answer to `/v1/models`.
pub(crate) fn models(ids: &[String]) -> String {
    let models: Vec<String> = ids.iter().map(|id| model(id)).collect();
    format!(r#"{{"object":"list","data":[{}]}}"#, models.join(","))
}

/// The answer to `/v1/models/{id}`.
pub(crate) fn model(id: &str) -> String {
    format!(r#"{{"id":{},"object":"model","created":{CREATED_S},"owned_by":"mock"}}"#, json(id))
}

/// An error body.
pub(crate) fn error(status: u16, message: &str) -> String {
    let (kind, code) = match status {
        401 => ("invalid_request_error", r#""invalid_api_key""#),
        403 => ("invalid_request_error", r#""unsupported_country_region_territory""#),
        404 => ("invalid_request_error", r#""model_not_found""#),
        429 => ("requests", r#""rate_limit_exceeded""#),
        400..500 => ("invalid_request_error", "null"),
        _ => ("server_error", "null"),
    };
    format!(r#"{{"error":{{"message":{},"type":"{kind}","param":null,"code":{code}}}}}"#, json(message))
}

/// The error event that ends a stream.
pub(crate) fn error_event() -> Event {
    Event::frame(None, error(500, "The server had an error while processing your request"))
}

/// The headers of every answer.
pub(crate) fn headers(number: u64, status: u16) -> Vec<(&'static str, String)> {
    let left = |amount: &str| if status == 429 { "0".to_owned() } else { amount.to_owned() };
    vec![
        ("x-request-id", format!("req_mock_{number}")),
        ("openai-organization", "org-mock".to_owned()),
        ("openai-processing-ms", "12".to_owned()),
        ("openai-version", "2020-10-01".to_owned()),
        ("x-ratelimit-limit-requests", "10000".to_owned()),
        ("x-ratelimit-limit-tokens", "2000000".to_owned()),
        ("x-ratelimit-remaining-requests", left("9999")),
        ("x-ratelimit-remaining-tokens", left("1999950")),
        ("x-ratelimit-reset-requests", "6ms".to_owned()),
        ("x-ratelimit-reset-tokens", "1ms".to_owned()),
    ]
}

/// The chunks of one stream, which differ in their choices and their usage.
struct Chunks<'a> {
    answer: &'a Answer,
    sent: u64,
    total: u64,
}

impl Chunks<'_> {
    fn choice(&self, index: u64, delta: &str, finish_reason: Option<&str>) -> String {
        let finish_reason = finish_reason.map_or_else(|| "null".to_owned(), json);
        let usage = match self.answer.report {
            UsageReport::EveryChunk => {
                format!(r#","usage":{}"#, usage_json(&self.answer.usage.cut(self.sent, self.total)))
            }
            _ if self.answer.include_usage => r#","usage":null"#.to_owned(),
            _ => String::new(),
        };
        let choice =
            format!(r#"{{"index":{index},"delta":{delta},"logprobs":null,"finish_reason":{finish_reason}}}"#);
        self.chunk(&choice, &usage)
    }

    fn usage(&self) -> Option<String> {
        let usage = usage_json(&self.answer.reported()?);
        match self.answer.report {
            UsageReport::Bare => Some(format!(r#"{{"usage":{usage}}}"#)),
            UsageReport::EveryChunk => None,
            _ if self.answer.include_usage => Some(self.chunk("", &format!(r#","usage":{usage}"#))),
            _ => None,
        }
    }

    fn chunk(&self, choices: &str, usage: &str) -> String {
        format!(
            r#"{{"id":"chatcmpl-mock-{}","object":"chat.completion.chunk","created":{CREATED_S},"model":{},"service_tier":{},"system_fingerprint":null,"choices":[{choices}]{usage}}}"#,
            self.answer.number,
            json(&self.answer.model),
            service_tier(self.answer)
        )
    }
}

fn opening_delta(answer: &Answer) -> String {
    match &answer.tool {
        Some(tool) => format!(
            r#"{{"role":"assistant","content":null,"tool_calls":[{{"index":0,"id":"call_mock_{}","type":"function","function":{{"name":{},"arguments":""}}}}],"refusal":null}}"#,
            answer.number,
            json(tool)
        ),
        None => r#"{"role":"assistant","content":"","refusal":null}"#.to_owned(),
    }
}

fn usage_json(usage: &Usage) -> String {
    let cache_write = match usage.cache_write_tokens() {
        0 => String::new(),
        tokens => format!(r#","cache_write_tokens":{tokens}"#),
    };
    let prompt_tokens = usage.prompt_tokens();
    format!(
        r#"{{"prompt_tokens":{prompt_tokens},"completion_tokens":{},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":{}{cache_write},"audio_tokens":0}},"completion_tokens_details":{{"reasoning_tokens":{},"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}}"#,
        usage.output_tokens,
        prompt_tokens.saturating_add(usage.output_tokens),
        usage.cache_read_tokens,
        usage.reasoning_tokens
    )
}

fn service_tier(answer: &Answer) -> String {
    json(answer.service_tier.as_deref().unwrap_or("default"))
}

fn finish_reason(answer: &Answer) -> &'static str {
    match (&answer.tool, answer.hit_limit) {
        (Some(_), _) => "tool_calls",
        (None, true) => "length",
        (None, false) => "stop",
    }
}
