//! What the answers say.

use std::io::Read;

use serde_json::{Value, json};

use super::client::{
    ANTHROPIC, ANTHROPIC_STREAM, OPENAI, OPENAI_STREAM, OPENAI_STREAM_USAGE, call, chat, messages, mock,
    receive, send,
};
use super::client::{DEADLINE, Got};
use crate::{Mock, Options};

const ALL_CLASSES: [(&str, &str); 7] = [
    ("x-mock-input-tokens", "11"),
    ("x-mock-output-tokens", "70"),
    ("x-mock-cache-read-tokens", "5"),
    ("x-mock-cache-write-5m-tokens", "3"),
    ("x-mock-cache-write-1h-tokens", "2"),
    ("x-mock-reasoning-tokens", "30"),
    ("x-mock-web-searches", "1"),
];

#[test]
fn anthropic_message_by_default() {
    let got = messages(&[], ANTHROPIC);
    let body = got.json();
    assert_eq!(got.status(), 200);
    assert_eq!(got.header("content-type"), Some("application/json"));
    assert_eq!(got.header("request-id"), Some("req_mock_1"));
    assert_eq!(got.header("anthropic-ratelimit-requests-remaining"), Some("3999"));
    assert_eq!(body["model"], "claude-sonnet-5-5");
    assert_eq!(body["content"][0]["text"].as_str().unwrap().len(), 160);
    assert_eq!(body["stop_reason"], "end_turn");
    let input_tokens = u64::try_from(ANTHROPIC.len()).unwrap().div_ceil(4);
    assert_eq!(body["usage"]["input_tokens"], input_tokens);
    assert_eq!(body["usage"]["output_tokens"], 40);
    assert_eq!(body["usage"]["service_tier"], "standard");
}

#[test]
fn anthropic_reports_every_class() {
    let expected = json!({
        "input_tokens": 11, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 5,
        "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 2},
        "output_tokens": 70, "output_tokens_details": {"thinking_tokens": 30},
        "server_tool_use": {"web_search_requests": 1}, "service_tier": "standard",
    });
    assert_eq!(messages(&ALL_CLASSES, ANTHROPIC).json()["usage"], expected);
}

#[test]
fn anthropic_stream_in_order() {
    let mut headers = ALL_CLASSES.to_vec();
    headers.push(("x-mock-events", "95"));
    let got = messages(&headers, ANTHROPIC_STREAM);
    assert_eq!(got.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert!(got.is_whole);
    let events = got.events();
    assert_eq!((events.len(), got.chunks.len()), (101, 101), "an event a chunk");
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds[..3], ["message_start", "content_block_start", "ping"]);
    assert!(kinds[3..98].iter().all(|kind| *kind == "content_block_delta"));
    assert_eq!(kinds[98..], ["content_block_stop", "message_delta", "message_stop"]);
    let start = &events[0]["message"]["usage"];
    assert_eq!((&start["input_tokens"], &start["output_tokens"]), (&json!(11), &json!(1)));
    let end = json!({
        "input_tokens": 11, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 5, "output_tokens": 70,
        "output_tokens_details": {"thinking_tokens": 30}, "server_tool_use": {"web_search_requests": 1},
    });
    assert_eq!(events[99]["usage"], end);
}

#[test]
fn a_stream_says_what_a_plain_answer_says() {
    let plain = messages(&[], ANTHROPIC).json();
    for events in ["1", "7", "160", "500"] {
        let streamed = messages(&[("x-mock-events", events)], ANTHROPIC_STREAM).events();
        let pieces: Vec<&str> = streamed.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
        assert_eq!(pieces.len().to_string(), events);
        assert_eq!(pieces.concat(), plain["content"][0]["text"].as_str().unwrap());
    }
}

#[test]
fn openai_reports_every_class() {
    let expected = json!({
        "prompt_tokens": 21, "completion_tokens": 70, "total_tokens": 91,
        "prompt_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 5, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 30, "audio_tokens": 0,
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0},
    });
    let got = chat(&ALL_CLASSES, OPENAI);
    assert_eq!(got.json()["usage"], expected);
    assert_eq!(got.header("x-request-id"), Some("req_mock_1"));
    assert_eq!(got.header("x-ratelimit-remaining-requests"), Some("9999"));
    let streamed = chat(&ALL_CLASSES, OPENAI_STREAM_USAGE).events();
    assert_eq!(streamed[streamed.len() - 2]["usage"], expected);
    assert_eq!(streamed[streamed.len() - 2]["choices"], json!([]));
}

#[test]
fn openai_streams_usage_only_when_asked() {
    let with = chat(&[], OPENAI_STREAM_USAGE).events();
    let without = chat(&[], OPENAI_STREAM).events();
    assert_eq!(with.len(), without.len() + 1);
    assert_eq!(with[0]["usage"], Value::Null);
    assert!(with[0].as_object().unwrap().contains_key("usage"));
    assert!(without.iter().all(|event| event.get("usage").is_none()));
    for events in [&with, &without] {
        assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
        assert_eq!(*events.last().unwrap(), "[DONE]");
    }
    assert_eq!(without[without.len() - 2]["choices"][0]["finish_reason"], "stop");
}

#[test]
fn openai_answers_every_choice() {
    let ask = |stream| {
        format!(
            r#"{{"model":"m","n":3,"max_completion_tokens":10,"stream":{stream},"messages":[{{"role":"user","content":""}}]}}"#
        )
    };
    let plain = chat(&[], &ask(false)).json();
    assert_eq!(plain["choices"].as_array().unwrap().len(), 3);
    assert_eq!(plain["usage"]["completion_tokens"], 30);
    let events = chat(&[], &ask(true)).events();
    let finished: Vec<&Value> =
        events.iter().filter(|event| event["choices"][0]["finish_reason"] == "length").collect();
    assert_eq!(finished.len(), 3);
}

#[test]
fn tools_are_called_when_asked() {
    let tool = [("x-mock-tool-use", "yes")];
    let anthropic = |stream| {
        format!(
            r#"{{"model":"m","max_tokens":99,"stream":{stream},"messages":[],"tools":[{{"name":"look_up","input_schema":{{}}}}]}}"#
        )
    };
    let plain = messages(&tool, &anthropic(false)).json();
    assert_eq!(
        (&plain["content"][0]["name"], &plain["stop_reason"]),
        (&json!("look_up"), &json!("tool_use"))
    );
    let events = messages(&tool, &anthropic(true)).events();
    let joined: String = events.iter().filter_map(|event| event["delta"]["partial_json"].as_str()).collect();
    assert_eq!(serde_json::from_str::<Value>(&joined).unwrap(), plain["content"][0]["input"]);
    let openai = |stream| {
        format!(
            r#"{{"model":"m","stream":{stream},"messages":[],"tools":[{{"type":"function","function":{{"name":"look_up"}}}}]}}"#
        )
    };
    let plain = chat(&tool, &openai(false)).json();
    let function = &plain["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!(function["name"], "look_up");
    let events = chat(&tool, &openai(true)).events();
    let joined: String = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].as_str())
        .collect();
    assert_eq!(joined, function["arguments"].as_str().unwrap());
    assert_eq!(messages(&[], &anthropic(false)).json()["stop_reason"], "end_turn");
}

#[test]
fn usage_can_be_missing_zero_everywhere_or_bare() {
    let usage = |how| [("x-mock-usage", how), ("x-mock-output-tokens", "8"), ("x-mock-events", "4")];
    assert!(messages(&usage("missing"), ANTHROPIC).json().get("usage").is_none());
    assert!(!messages(&usage("missing"), ANTHROPIC_STREAM).text().contains("usage"));
    assert!(chat(&usage("missing"), OPENAI).json().get("usage").is_none());
    assert!(
        chat(&usage("missing"), OPENAI_STREAM_USAGE).events().iter().all(|event| event["usage"].is_null())
    );
    assert_eq!(messages(&usage("zero"), ANTHROPIC).json()["usage"]["output_tokens"], 0);
    assert_eq!(messages(&usage("zero"), ANTHROPIC_STREAM).events()[0]["message"]["usage"]["input_tokens"], 0);
    assert_eq!(chat(&usage("zero"), OPENAI).json()["usage"]["total_tokens"], 0);
    let every = chat(&usage("every-chunk"), OPENAI_STREAM).events();
    let outputs: Vec<u64> =
        every.iter().filter_map(|event| event["usage"]["completion_tokens"].as_u64()).collect();
    assert_eq!(outputs, [0, 2, 4, 6, 8, 8]);
    let bare = chat(&usage("bare"), OPENAI_STREAM).events();
    let frame = bare[bare.len() - 2].as_object().unwrap();
    assert_eq!(frame.keys().collect::<Vec<_>>(), ["usage"]);
}

#[test]
fn model_and_tier_can_differ_from_the_request() {
    let other = [("x-mock-model", "other-model"), ("x-mock-service-tier", "flex")];
    for (got, tier) in
        [(messages(&other, ANTHROPIC), "/usage/service_tier"), (chat(&other, OPENAI), "/service_tier")]
    {
        assert_eq!(got.json()["model"], "other-model");
        assert_eq!(got.json().pointer(tier).unwrap(), "flex");
    }
}

#[test]
fn errors_speak_the_protocol() {
    for (status, kind) in [
        ("400", "invalid_request_error"),
        ("401", "authentication_error"),
        ("404", "not_found_error"),
        ("429", "rate_limit_error"),
        ("500", "api_error"),
        ("503", "api_error"),
        ("529", "overloaded_error"),
    ] {
        let anthropic = messages(&[("x-mock-status", status)], ANTHROPIC_STREAM);
        assert_eq!(anthropic.status().to_string(), status);
        assert_eq!(anthropic.json()["error"]["type"], kind);
        let openai = chat(&[("x-mock-status", status)], OPENAI_STREAM);
        assert_eq!(openai.status().to_string(), status);
        assert!(openai.json()["error"]["message"].is_string());
        let wait = (status == "429").then_some("7");
        assert_eq!((anthropic.header("retry-after"), openai.header("retry-after")), (wait, wait));
    }
    let named = messages(&[("x-mock-status", "529"), ("x-mock-retry-after", "30")], ANTHROPIC);
    assert_eq!(named.header("retry-after"), Some("30"));
}

#[test]
fn c100_stream_options_can_be_rejected() {
    let rejects = [("x-mock-rejects-stream-options", "yes")];
    assert_eq!(chat(&rejects, OPENAI_STREAM_USAGE).status(), 400);
    assert_eq!(chat(&rejects, OPENAI_STREAM).status(), 200);
}

#[test]
fn bad_requests_are_refused() {
    for body in ["", "{", "[]", r#"{"model":1}"#, r#"{"model":"m"}"#, r#"{"messages":[]}"#] {
        assert_eq!(messages(&[], body).json()["error"]["type"], "invalid_request_error");
        assert_eq!(chat(&[], body).status(), 400);
    }
    assert_eq!(call(&mock(), "/v1/unknown", &[], "{}").status(), 404);
    for (name, value) in [
        ("x-mock-nonsense", "1"),
        ("x-mock-status", "200"),
        ("x-mock-usage", "none"),
        ("x-mock-events", "-1"),
    ] {
        let got = messages(&[(name, value)], ANTHROPIC);
        assert_eq!(got.status(), 400);
        assert!(got.text().contains(name), "{}", got.text());
    }
}

#[test]
fn only_the_right_key_is_accepted() {
    let mock = Mock::start(Options { api_key: Some("right".to_owned()), ..Options::default() }).unwrap();
    let status = |headers: &[(&str, &str)]| call(&mock, "/v1/messages", headers, ANTHROPIC).status();
    assert_eq!(status(&[]), 401);
    assert_eq!(status(&[("x-api-key", "wrong")]), 401);
    assert_eq!(status(&[("authorization", "right")]), 401);
    assert_eq!(status(&[("x-api-key", "right")]), 200);
    assert_eq!(status(&[("authorization", "Bearer right")]), 200);
}

#[test]
fn tokens_are_counted_and_models_listed() {
    let mock = mock();
    let tokens = call(&mock, "/v1/messages/count_tokens", &[], ANTHROPIC).json()["input_tokens"].as_u64();
    assert_eq!(tokens, Some(u64::try_from(ANTHROPIC.len()).unwrap().div_ceil(4)));
    let get = |path: &str, headers: &[(&str, &str)]| -> Got {
        receive(&mut send(&mock, "GET", path, headers, ""), DEADLINE)
    };
    let version = [("anthropic-version", "2023-06-01")];
    assert_eq!(get("/v1/models", &[]).json()["object"], "list");
    assert_eq!(get("/v1/models", &version).json()["first_id"], "claude-sonnet-5-5");
    assert_eq!(get("/v1/models/gpt-6-astra", &[]).json()["object"], "model");
    assert_eq!(get("/v1/models/gpt-6-astra", &version).json()["type"], "model");
    assert_eq!(get("/v1/models/none", &[]).json()["error"]["code"], "model_not_found");
}

#[test]
fn answers_can_be_compressed() {
    let plain = messages(&[("x-mock-encoding", "identity")], ANTHROPIC_STREAM);
    assert_eq!(plain.header("content-encoding"), None);
    for encoding in ["gzip", "br"] {
        let headers = [("x-mock-encoding", encoding)];
        let got = messages(&headers, ANTHROPIC_STREAM);
        assert_eq!(got.header("content-encoding"), Some(encoding));
        assert_eq!(decode(encoding, &got.body()), plain.body());
        assert_eq!(got.chunks.len(), plain.chunks.len());
        let first = decode(encoding, &got.chunks[0]);
        assert_eq!(first, plain.chunks[0], "each event can be read when it arrives");
        let whole = messages(&headers, ANTHROPIC);
        assert_eq!(decode(encoding, &whole.body()), messages(&[], ANTHROPIC).body());
    }
}

fn decode(encoding: &str, bytes: &[u8]) -> Vec<u8> {
    let mut reader: Box<dyn Read> = match encoding {
        "gzip" => Box::new(flate2::read::GzDecoder::new(bytes)),
        _ => Box::new(brotli::Decompressor::new(bytes, 4096)),
    };
    let (mut decoded, mut buffer) = (Vec::new(), [0; 4096]);
    // A stream that is not over yet ends in an error after all that is there.
    while let Ok(read) = reader.read(&mut buffer) {
        if read == 0 {
            break;
        }
        decoded.extend_from_slice(&buffer[..read]);
    }
    decoded
}

#[test]
fn events_can_be_framed_in_four_ways() {
    let framed = |framing| messages(&[("x-mock-framing", framing)], ANTHROPIC_STREAM).text();
    let lf = framed("lf");
    assert!(lf.starts_with("event: message_start\ndata: {"));
    assert_eq!(framed("crlf"), lf.replace('\n', "\r\n"));
    assert_eq!(framed("cr"), lf.replace('\n', "\r"));
    assert_eq!(framed("no-space"), lf.replace("event: ", "event:").replace("data: ", "data:"));
}

#[test]
fn bodies_can_be_large_and_in_pieces() {
    let large = messages(&[("x-mock-text-bytes", "3000000"), ("x-mock-pieces", "7")], ANTHROPIC);
    assert!(large.is_whole);
    assert_eq!(large.json()["content"][0]["text"].as_str().unwrap().len(), 3_000_000);
    let split = messages(&[("x-mock-split-bytes", "3")], ANTHROPIC_STREAM);
    assert!(split.chunks.iter().all(|chunk| chunk.len() <= 3));
    assert_eq!(split.text(), messages(&[], ANTHROPIC_STREAM).text());
}
