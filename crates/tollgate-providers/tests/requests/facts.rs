//! What a request says.

use super::*;
use tollgate_providers::CacheWrite;

#[test]
fn a_messages_request_tells_its_facts() {
    let facts = facts(
        MESSAGES,
        r#"{"model":"claude-sonnet-5-5","max_tokens":4096,"stream":true,"service_tier":"standard_only",
            "inference_geo":"us","system":"Be brief.","metadata":{"user_id":"u"},
            "messages":[{"role":"user","content":"Hello"}]}"#,
    );
    assert_eq!(facts.model, "claude-sonnet-5-5");
    assert_eq!((facts.output_limit, facts.choices, facts.stream), (Some(4096), 1, true));
    assert_eq!(facts.service_tier.as_deref(), Some("us"));
    assert_eq!(facts.cache_write, CacheWrite::None);
    assert_eq!((facts.hidden_input, facts.audio, facts.web_searches_max), (false, false, None));
}

#[test]
fn c8_a_long_prompt_without_a_limit_has_an_estimate_and_no_limit() {
    let prose = "The committee met again on Tuesday to discuss the harbour. ".repeat(12_000);
    let facts =
        facts(CHAT, &format!(r#"{{"model":"gpt-4o","messages":[{{"role":"user","content":"{prose}"}}]}}"#));
    assert_eq!(facts.output_limit, None);
    let tokens = estimate_input(&facts).get();
    assert!((144_000..200_000).contains(&tokens), "{tokens}");
}

#[test]
fn of_two_output_limits_the_larger_holds() {
    let limit =
        |fields: &str| facts(CHAT, &format!(r#"{{"model":"m","messages":[],{fields}}}"#)).output_limit;
    assert_eq!(limit(r#""max_tokens":10"#), Some(10));
    assert_eq!(limit(r#""max_completion_tokens":20"#), Some(20));
    assert_eq!(limit(r#""max_tokens":10,"max_completion_tokens":20"#), Some(20));
    assert_eq!(limit(r#""max_tokens":30,"max_completion_tokens":20"#), Some(30));
    assert_eq!(limit(r#""max_tokens":null,"n":null"#), None);
}

#[test]
fn choices_audio_and_search_are_told() {
    let facts = facts(
        CHAT,
        r#"{"model":"gpt-audio","messages":[],"n":3,"service_tier":"flex","modalities":["text","audio"],
            "audio":{"voice":"alloy","format":"wav"},"web_search_options":{}}"#,
    );
    assert_eq!((facts.choices, facts.audio, facts.web_searches_max), (3, true, Some(1)));
    assert_eq!(facts.service_tier.as_deref(), Some("flex"));
}

#[test]
fn cache_breakpoints_are_found_wherever_they_stand() {
    let write = |body: &str| facts(MESSAGES, body).cache_write;
    let with = |extra: &str| format!(r#"{{"model":"m","max_tokens":1,"messages":[],{extra}}}"#);
    let five = r#""cache_control":{"type":"ephemeral"}"#;
    let hour = r#""cache_control":{"type":"ephemeral","ttl":"1h"}"#;
    for place in [
        |control: &str| control.to_owned(),
        |control: &str| format!(r#""system":[{{"type":"text","text":"x",{control}}}]"#),
        |control: &str| format!(r#""tools":[{{"name":"t","input_schema":{{}},{control}}}]"#),
    ] {
        assert_eq!(write(&with(&place(five))), CacheWrite::FiveMinutes);
        assert_eq!(write(&with(&place(hour))), CacheWrite::OneHour);
    }
    let nested = r#"{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"x","cache_control":{"ttl":"1h"}}]}"#;
    assert_eq!(write(&messages(nested)), CacheWrite::OneHour);
    assert_eq!(write(&with(r#""system":"cache_control","cache_control":null"#)), CacheWrite::None);
    // What a tool was called with is the model's text, not the request's.
    let called = r#"{"type":"tool_use","id":"t","name":"n","input":{"ttl":"1h"}}"#;
    assert_eq!(write(&messages(called)), CacheWrite::None);
}

#[test]
fn searches_are_bounded_by_max_uses() {
    let searches = |tools: &str| {
        facts(MESSAGES, &format!(r#"{{"model":"m","max_tokens":1,"messages":[],"tools":[{tools}]}}"#))
            .web_searches_max
    };
    assert_eq!(searches(r#"{"max_uses":3,"type":"web_search_20250305","name":"web_search"}"#), Some(3));
    assert_eq!(searches(r#"{"type":"web_search_20250305","name":"web_search"}"#), Some(10));
    assert_eq!(searches(r#"{"name":"web_search","input_schema":{"type":"object"}}"#), None);
}

#[test]
fn what_is_not_in_the_body_is_hidden() {
    for block in [
        r#"{"type":"image","source":{"type":"url","url":"https://example.com/a.png"}}"#,
        r#"{"type":"document","source":{"type":"file","file_id":"file_1"}}"#,
        r#"{"type":"container_upload","file_id":"file_1"}"#,
    ] {
        assert!(facts(MESSAGES, &messages(block)).hidden_input, "{block}");
    }
    for part in [
        r#"{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}"#,
        r#"{"type":"file","file":{"file_id":"file-1"}}"#,
    ] {
        assert!(facts(CHAT, &chat(part)).hidden_input, "{part}");
    }
    assert!(!facts(MESSAGES, &messages(r#"{"type":"text","text":"https://example.com"}"#)).hidden_input);
    let with_servers =
        r#"{"model":"m","max_tokens":1,"messages":[],"mcp_servers":[{"url":"https://example.com"}]}"#;
    assert!(facts(MESSAGES, with_servers).hidden_input);
}

#[test]
fn a_count_needs_no_limit_and_a_list_of_models_no_body() {
    let counted = facts(COUNT_TOKENS, r#"{"model":"m","messages":[]}"#);
    assert_eq!(counted.output_limit, None);
    let models = Endpoint { protocol: Protocol::OpenAi, call: Call::Models };
    assert!(inspect(models, b"").is_ok());
}

#[test]
fn an_escaped_key_is_the_same_key_and_a_byte_order_mark_is_passed_over() {
    let body = "\u{feff} {\"mod\\u0065l\":\"gpt\\u002d4o\",\"m\\u0065ssages\":[]}";
    assert_eq!(facts(CHAT, body).model, "gpt-4o");
}

#[test]
fn everything_the_model_reads_counts() {
    let words = "some words that are read by the model ".repeat(10);
    let base = tokens(MESSAGES, &messages(""));
    for block in [
        format!(r#"{{"type":"text","text":"{words}"}}"#),
        format!(r#"{{"type":"thinking","thinking":"{words}","signature":""}}"#),
        format!(r#"{{"type":"tool_use","id":"t","name":"n","input":{{"a":{{"b":["{words}"]}}}}}}"#),
        format!(r#"{{"type":"tool_use","id":"t","name":"n","input":{{"{words}":1}}}}"#),
        format!(r#"{{"type":"tool_result","tool_use_id":"t","content":"{words}"}}"#),
        format!(r#"{{"type":"tool_result","content":[{{"type":"text","text":"{words}"}}]}}"#),
        format!(
            r#"{{"type":"document","source":{{"type":"text","media_type":"text/plain","data":"{words}"}}}}"#
        ),
        format!(r#"{{"type":"document","source":{{"data":"{words}","type":"text"}},"title":"t"}}"#),
        format!(
            r#"{{"type":"document","source":{{"type":"content","content":[{{"type":"text","text":"{words}"}}]}}}}"#
        ),
        format!(r#"{{"type":"search_result","source":"{words}","title":"t","content":[]}}"#),
    ] {
        let tokens = tokens(MESSAGES, &messages(&block)) - base;
        assert!((80..200).contains(&tokens), "{tokens}: {block}");
    }
    for field in ["system", "tools"] {
        let value = if field == "system" {
            format!("\"{words}\"")
        } else {
            format!(r#"[{{"name":"n","input_schema":{{"properties":{{"p":{{"description":"{words}"}}}}}}}}]"#)
        };
        let body =
            format!(r#"{{"model":"claude-haiku-4-5","max_tokens":1,"messages":[],"{field}":{value}}}"#);
        assert!(tokens(MESSAGES, &body) > base + 80, "{field}");
    }
}

#[test]
fn a_newer_claude_makes_more_tokens_of_the_same_text() {
    let body = messages(&format!(r#"{{"type":"text","text":"{}"}}"#, "plain words in a row ".repeat(100)));
    let (older, newer) =
        (tokens(MESSAGES, &body), tokens(MESSAGES, &body.replace("claude-haiku-4-5", "claude-sonnet-5")));
    assert!((125..=132).contains(&(newer * 100 / older)), "{older} {newer}");
}

#[test]
fn models_beside_the_request_s_own_are_told() {
    let advised = r#"{"model":"claude-haiku-4-5","max_tokens":1,"messages":[],"tools":[
        {"type":"advisor_20260301","name":"advisor","model":"claude-opus-4-8","max_uses":2},
        {"model":"claude-opus-4-8","type":"advisor_20260301","name":"again"},
        {"name":"own","description":"d","input_schema":{"properties":{"model":{"type":"string"}}},"model":null}]}"#;
    assert_eq!(facts(MESSAGES, advised).other_models, ["claude-opus-4-8"]);
    let fallbacks = r#"{"model":"a","messages":[],"models":["b","c","b"]}"#;
    assert_eq!(facts(CHAT, fallbacks).other_models, ["b", "c"]);
    assert_eq!(facts(CHAT, r#"{"model":"a","messages":[],"models":null}"#).other_models, [""; 0]);
}
