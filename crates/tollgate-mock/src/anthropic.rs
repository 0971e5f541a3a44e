//! Anthropic's bodies.
//!
//! Shapes as in Anthropic's Messages API reference: `usage.input_tokens` excludes both cache classes, a
//! stream's `message_start` carries a placeholder for the output, and `message_delta` the final numbers.

use crate::reply::{Answer, json};
use crate::sse::Event;
use crate::usage::Usage;

/// The answer to a plain `/v1/messages`.
pub(crate) fn message(answer: &Answer) -> String {
    let text = json(&answer.text());
    let block = match &answer.tool {
        Some(tool) => format!(
            r#"{{"type":"tool_use","id":"toolu_mock_{}","name":{},"input":{}}}"#,
            answer.number,
            json(tool),
            answer.text()
        ),
        None => format!(r#"{{"type":"text","text":{text}}}"#),
    };
    let stop_reason = stop_reason(answer);
    let usage = answer.reported().map_or_else(String::new, |usage| {
        format!(r#","usage":{}"#, usage_json(&usage, answer.service_tier.as_deref()))
    });
    format!(
        r#"{{{},"content":[{block}],"stop_reason":"{stop_reason}","stop_sequence":null{usage}}}"#,
        message_head(answer)
    )
}

/// The events of a streamed `/v1/messages`.
pub(crate) fn events(answer: &Answer) -> Vec<Event> {
    let frame = |name, data| Event::frame(Some(name), data);
    let mut events = vec![frame("message_start", message_start(answer))];
    let block = match &answer.tool {
        Some(tool) => format!(
            r#"{{"type":"tool_use","id":"toolu_mock_{}","name":{},"input":{{}}}}"#,
            answer.number,
            json(tool)
        ),
        None => r#"{"type":"text","text":""}"#.to_owned(),
    };
    events.push(frame(
        "content_block_start",
        format!(r#"{{"type":"content_block_start","index":0,"content_block":{block}}}"#),
    ));
    events.push(frame("ping", r#"{"type": "ping"}"#.to_owned()));
    let (delta_type, field) =
        if answer.tool.is_some() { ("input_json_delta", "partial_json") } else { ("text_delta", "text") };
    events.extend(answer.text_pieces().iter().map(|text| {
        let text = json(text);
        Event::content(
            Some("content_block_delta"),
            format!(
                r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"{delta_type}","{field}":{text}}}}}"#
            ),
        )
    }));
    events.push(frame("content_block_stop", r#"{"type":"content_block_stop","index":0}"#.to_owned()));
    events.push(frame("message_delta", message_delta(answer)));
    events.push(frame("message_stop", r#"{"type":"message_stop"}"#.to_owned()));
    events
}

/// The answer to `/v1/messages/count_tokens`.
pub(crate) fn token_count(input_tokens: u64) -> String {
    format!(r#"{{"input_tokens":{input_tokens}}}"#)
}

/// The answer to `/v1/models`.
pub(crate) fn models(ids: &[String]) -> String {
    let models: Vec<String> = ids.iter().map(|id| model(id)).collect();
    let edge = |id: Option<&String>| id.map_or_else(|| "null".to_owned(), |id| json(id));
    format!(
        r#"{{"data":[{}],"has_more":false,"first_id":{},"last_id":{}}}"#,
        models.join(","),
        edge(ids.first()),
        edge(ids.last())
    )
}

/// The answer to `/v1/models/{id}`.
pub(crate) fn model(id: &str) -> String {
    let id = json(id);
    format!(r#"{{"type":"model","id":{id},"display_name":{id},"created_at":"2026-01-01T00:00:00Z"}}"#)
}

/// An error body, for a status or inside a stream.
pub(crate) fn error(status: u16, message: &str, number: u64) -> String {
    let kind = match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        409 => "conflict_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        400..500 => "invalid_request_error",
        _ => "api_error",
    };
    format!(
        r#"{{"type":"error","error":{{"type":"{kind}","message":{}}},"request_id":"{}"}}"#,
        json(message),
        request_id(number)
    )
}

/// The error event that ends a stream.
pub(crate) fn error_event(number: u64) -> Event {
    Event::frame(Some("error"), error(529, "Overloaded", number))
}

/// The headers of every answer.
pub(crate) fn headers(number: u64, status: u16) -> Vec<(&'static str, String)> {
    const RESET: &str = "2026-01-01T00:01:00Z";
    let left = |amount: &str| if status == 429 { "0".to_owned() } else { amount.to_owned() };
    let mut headers = vec![
        ("request-id", request_id(number)),
        ("anthropic-organization-id", "org-mock".to_owned()),
        ("anthropic-ratelimit-requests-limit", "4000".to_owned()),
        ("anthropic-ratelimit-requests-remaining", left("3999")),
        ("anthropic-ratelimit-requests-reset", RESET.to_owned()),
        ("anthropic-ratelimit-input-tokens-limit", "2000000".to_owned()),
        ("anthropic-ratelimit-input-tokens-remaining", left("1999000")),
        ("anthropic-ratelimit-input-tokens-reset", RESET.to_owned()),
        ("anthropic-ratelimit-output-tokens-limit", "400000".to_owned()),
        ("anthropic-ratelimit-output-tokens-remaining", left("400000")),
        ("anthropic-ratelimit-output-tokens-reset", RESET.to_owned()),
        ("anthropic-ratelimit-tokens-limit", "2400000".to_owned()),
        ("anthropic-ratelimit-tokens-remaining", left("2399000")),
        ("anthropic-ratelimit-tokens-reset", RESET.to_owned()),
    ];
    match status {
        400..404 => headers.push(("x-should-retry", "false".to_owned())),
        429 | 529 => headers.push(("x-should-retry", "true".to_owned())),
        _ => {}
    }
    headers
}

fn message_head(answer: &Answer) -> String {
    format!(
        r#""model":{},"id":"msg_mock_{}","type":"message","role":"assistant""#,
        json(&answer.model),
        answer.number
    )
}

fn message_start(answer: &Answer) -> String {
    let usage = answer.reported().map_or_else(String::new, |usage| {
        let first = Usage {
            output_tokens: usage.output_tokens.min(1),
            reasoning_tokens: 0,
            web_searches: 0,
            ..usage
        };
        format!(r#","usage":{}"#, usage_json(&first, answer.service_tier.as_deref()))
    });
    format!(
        r#"{{"type":"message_start","message":{{{},"content":[],"stop_reason":null,"stop_sequence":null{usage}}}}}"#,
        message_head(answer)
    )
}

fn message_delta(answer: &Answer) -> String {
    let stop_reason = stop_reason(answer);
    let usage = answer.reported().map_or_else(String::new, |usage| {
        format!(
            r#","usage":{{"input_tokens":{},"cache_creation_input_tokens":{},"cache_read_input_tokens":{},{}}}"#,
            usage.input_tokens,
            usage.cache_write_tokens(),
            usage.cache_read_tokens,
            output_json(&usage)
        )
    });
    format!(
        r#"{{"type":"message_delta","delta":{{"stop_reason":"{stop_reason}","stop_sequence":null}}{usage}}}"#
    )
}

fn usage_json(usage: &Usage, service_tier: Option<&str>) -> String {
    format!(
        r#"{{"input_tokens":{},"cache_creation_input_tokens":{},"cache_read_input_tokens":{},"cache_creation":{{"ephemeral_5m_input_tokens":{},"ephemeral_1h_input_tokens":{}}},{},"service_tier":{}}}"#,
        usage.input_tokens,
        usage.cache_write_tokens(),
        usage.cache_read_tokens,
        usage.cache_write_5m_tokens,
        usage.cache_write_1h_tokens,
        output_json(usage),
        json(service_tier.unwrap_or("standard"))
    )
}

fn output_json(usage: &Usage) -> String {
    let mut output = format!(r#""output_tokens":{}"#, usage.output_tokens);
    if usage.reasoning_tokens > 0 {
        output.push_str(&format!(
            r#","output_tokens_details":{{"thinking_tokens":{}}}"#,
            usage.reasoning_tokens
        ));
    }
    if usage.web_searches > 0 {
        output.push_str(&format!(r#","server_tool_use":{{"web_search_requests":{}}}"#, usage.web_searches));
    }
    output
}

fn stop_reason(answer: &Answer) -> &'static str {
    match (&answer.tool, answer.hit_limit) {
        (Some(_), _) => "tool_use",
        (None, true) => "max_tokens",
        (None, false) => "end_turn",
    }
}

fn request_id(number: u64) -> String {
    format!("req_mock_{number}")
}
