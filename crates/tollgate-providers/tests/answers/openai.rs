//! OpenAI answers.

use super::*;

const FINISH: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}"#;

fn text(text: &str) -> String {
    format!(
        r#"{{"model":"gpt-5.6","service_tier":"default","choices":[{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":null}}],"usage":null}}"#
    )
}

fn usage(prompt: u64, completion: u64) -> String {
    format!(
        r#"{{"model":"gpt-5.6","choices":[],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion}}}}}"#
    )
}

fn body(usage: &str) -> String {
    format!(
        r#"{{"model":"gpt-5.6","choices":[{{"index":0,"message":{{"content":"Hi."}},"finish_reason":"stop"}}],"usage":{usage}}}"#
    )
}

#[test]
fn c79_cached_tokens_are_part_of_the_prompt() {
    let usage = r#"{"prompt_tokens":17903,"completion_tokens":10,"total_tokens":17913,"prompt_tokens_details":{"cached_tokens":17817}}"#;
    let expected = Usage { input: 86, cache_read: 17_817, output: 10, ..Usage::default() };
    assert_eq!(complete(CHAT, false, &body(usage)), expected);
}

#[test]
fn every_class_is_disjoint_and_subsets_are_no_classes() {
    let usage = r#"{"prompt_tokens":1000,"completion_tokens":300,
        "prompt_tokens_details":{"cached_tokens":400,"cache_write_tokens":250,"audio_tokens":60},
        "completion_tokens_details":{"reasoning_tokens":120,"audio_tokens":30,"rejected_prediction_tokens":5}}"#;
    let expected = Usage {
        input: 350,
        cache_read: 400,
        cache_write: 250,
        output: 300,
        reasoning: 120,
        audio_input: 60,
        audio_output: 30,
        ..Usage::default()
    };
    assert_eq!(complete(CHAT, false, &body(usage)), expected);
    assert_eq!(expected.total(), 1_300);
}

#[test]
fn c54_c56_a_part_larger_than_its_whole_is_cut_down_and_said() {
    let usage = r#"{"prompt_tokens":208,"completion_tokens":27,"prompt_tokens_details":{"cached_tokens":314},"completion_tokens_details":{"reasoning_tokens":99}}"#;
    let metered = meter(CHAT, &RequestFacts::default(), false, &body(usage));
    assert!(metered.is_contradictory);
    let expected = Usage { cache_read: 208, output: 27, reasoning: 27, ..Usage::default() };
    assert_eq!(reported(&metered), expected);
}

#[test]
fn the_last_chunk_carries_the_usage() {
    let body = openai_stream(&[&text("Hel"), &text("lo"), FINISH, &usage(13, 20), "[DONE]"]);
    assert_eq!(complete(CHAT, true, &body), Usage { input: 13, output: 20, ..Usage::default() });
    let metered = meter(CHAT, &RequestFacts::default(), true, &body);
    assert_eq!(metered.service_tier.as_deref(), Some("default"));
    assert_eq!(metered.model.as_deref(), Some("gpt-5.6"));
}

#[test]
fn c91_usage_on_every_chunk_counts_once() {
    let chunk = |completion: u64, finish: &str| {
        format!(
            r#"{{"choices":[{{"index":0,"delta":{{"content":"x"}},"finish_reason":{finish}}}],"usage":{{"prompt_tokens":64,"completion_tokens":{completion}}}}}"#
        )
    };
    let body = openai_stream(&[&chunk(13, "null"), &chunk(20, "\"stop\"")]);
    assert_eq!(complete(CHAT, true, &body), Usage { input: 64, output: 20, ..Usage::default() });
}

#[test]
fn c101_a_frame_without_choices_is_read() {
    let frame = r#"{"usage":{"prompt_tokens":5,"completion_tokens":7}}"#;
    let body = openai_stream(&[&text("x"), FINISH, frame, "[DONE]"]);
    assert_eq!(complete(CHAT, true, &body), Usage { input: 5, output: 7, ..Usage::default() });
}

#[test]
fn c103_no_space_after_the_colon() {
    let body = openai_stream(&[&text("x"), FINISH, &usage(5, 7), "[DONE]"]).replace("data: ", "data:");
    assert_eq!(complete(CHAT, true, &body).total(), 12);
}

#[test]
fn c112_usage_on_the_last_content_chunk_is_read() {
    let last = r#"{"choices":[{"index":0,"delta":{"content":"."},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":7}}"#;
    assert_eq!(complete(CHAT, true, &openai_stream(&[&text("x"), last])).total(), 12);
}

#[test]
fn the_end_needs_done_or_the_usage_with_every_choice_finished() {
    let facts = facts(CHAT, r#"{"model":"gpt-5.6","messages":[],"n":2,"stream":true}"#);
    let second = FINISH.replace(r#""index":0"#, r#""index":1"#);
    let end = |events: &[&str]| meter(CHAT, &facts, true, &openai_stream(events)).end;
    assert_eq!(end(&[&text("x"), FINISH, &usage(1, 2)]), StreamEnd::Cut);
    assert_eq!(end(&[&text("x"), FINISH, &second]), StreamEnd::Cut);
    assert_eq!(end(&[&text("x"), FINISH, &second, &usage(1, 2)]), StreamEnd::Complete);
    assert_eq!(end(&[&text("x"), "[DONE]"]), StreamEnd::Complete);
    assert_eq!(end(&[]), StreamEnd::Cut);
}

#[test]
fn an_error_object_in_a_chunk_is_an_error_and_its_usage_counts() {
    let chunk = r#"{"error":{"code":502,"message":"Provider returned error"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}],"usage":{"prompt_tokens":43,"completion_tokens":10}}"#;
    let metered = meter(CHAT, &RequestFacts::default(), true, &openai_stream(&[&text("x"), chunk, "[DONE]"]));
    assert_eq!((metered.end, metered.is_final), (StreamEnd::Error, true));
    assert_eq!(reported(&metered).total(), 53);
}

#[test]
fn c78_zero_usage_without_content_is_zero() {
    let body = openai_stream(&[FINISH, &usage(0, 0), "[DONE]"]);
    assert_eq!(complete(CHAT, true, &body), Usage::default());
    let body = openai_stream(&[&text("x"), FINISH, &usage(0, 0), "[DONE]"]);
    assert_eq!(meter(CHAT, &RequestFacts::default(), true, &body).usage, Reported::Missing);
}

#[test]
fn an_image_in_an_answer_is_no_text() {
    let image = format!("data:image/png;base64,{}", "iVBORw0K".repeat(10_000));
    let delta = format!(r#"{{"content":"Here.","images":[{{"image_url":{{"url":"{image}"}}}}]}}"#);
    let body = openai_stream(&[&format!(r#"{{"choices":[{{"index":0,"delta":{delta}}}]}}"#)]);
    let seen = meter(CHAT, &RequestFacts::default(), true, &body).output_seen.get();
    assert!((1..10).contains(&seen), "{seen}");
}

#[test]
fn output_seen_counts_text_thought_and_tool_arguments() {
    let words = "several words of an answer ".repeat(20);
    let seen = |delta: &str| {
        let chunk = format!(r#"{{"choices":[{{"index":0,"delta":{{{delta}}},"finish_reason":null}}]}}"#);
        let metered = meter(CHAT, &RequestFacts::default(), true, &openai_stream(&[&chunk]));
        (metered.content_seen, metered.output_seen.get())
    };
    for delta in [
        format!(r#""content":"{words}""#),
        format!(r#""reasoning_content":"{words}""#),
        format!(r#""tool_calls":[{{"index":0,"function":{{"name":"f","arguments":"{words}"}}}}]"#),
    ] {
        let (content_seen, tokens) = seen(&delta);
        assert!(content_seen && (100..250).contains(&tokens), "{tokens}");
    }
    assert_eq!(seen(r#""role":"assistant","content":"""#), (false, 0));
}

#[test]
fn the_routed_model_is_the_last_that_has_a_name() {
    let chunk = |model: &str| {
        format!(
            r#"{{"model":"{model}","choices":[{{"index":0,"delta":{{"content":"x"}},"finish_reason":null}}]}}"#
        )
    };
    let body = openai_stream(&[&chunk(""), &chunk("gpt-5-mini"), FINISH, r#"{"choices":[],"model":""}"#]);
    assert_eq!(meter(CHAT, &RequestFacts::default(), true, &body).model.as_deref(), Some("gpt-5-mini"));
}

#[test]
fn c69_the_tier_that_was_served_is_told() {
    let body = r#"{"service_tier":"flex","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;
    let tier = |body: &str| meter(CHAT, &RequestFacts::default(), false, body).service_tier;
    assert_eq!(tier(body).as_deref(), Some("flex"));
    assert_eq!(tier(&body.replace("\"flex\"", "null")), None);
}

#[test]
fn a_usage_of_another_shape_is_missing_and_not_zero() {
    for usage in ["{}", r#"{"input_tokens":30,"output_tokens":90}"#, r#"{"prompt_tokens":null}"#] {
        let body = format!(r#"{{"model":"m","choices":[],"usage":{usage}}}"#);
        let metered = meter(CHAT, &RequestFacts::default(), false, &body);
        assert!(matches!(metered.usage, Reported::Missing) && !metered.is_final, "{usage}: {metered:?}");
    }
}

#[test]
fn a_string_that_ends_in_an_escape_ends() {
    let usage = r#"{"prompt_tokens":5,"completion_tokens":7}"#;
    for content in [r"\u4e2d", r"\\", r#"\""#, r"\n", r"\ud83c\udf89", r"a\u0022", ""] {
        let body = body(usage).replace("Hi.", content);
        assert_eq!(complete(CHAT, false, &body).total(), 12, "{content}");
    }
}

fn metered(events: &[&str]) -> Metered {
    meter(CHAT, &RequestFacts::default(), true, &openai_stream(events))
}

#[test]
fn a_usage_before_the_end_is_not_the_last_word() {
    for events in [
        vec![usage(27, 0), text("Hello"), FINISH.to_owned()],
        vec![usage(27, 0), text("Hello")],
        // Every chunk reports, but the one that ends.
        vec![
            text("Hel").replace(r#""usage":null"#, r#""usage":{"prompt_tokens":27,"completion_tokens":1}"#),
            FINISH.to_owned(),
        ],
        // The end has come, but the report is older than the content.
        vec![usage(27, 0), text("Hello"), FINISH.to_owned(), "[DONE]".to_owned()],
        vec![usage(27, 0), text("Hello"), "[DONE]".to_owned()],
        // Content goes on after what looked like the end.
        vec![FINISH.to_owned(), usage(27, 0), text("Hello")],
        // An empty reason is none.
        vec![FINISH.replace("stop", ""), usage(27, 1)],
    ] {
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        let metered = metered(&events);
        assert!(!metered.is_final, "{events:?}: {metered:?}");
        assert_eq!(reported(&metered).input, 27);
        let is_done = events.contains(&"[DONE]");
        assert_eq!(metered.end, if is_done { StreamEnd::Complete } else { StreamEnd::Cut }, "{events:?}");
    }
}

#[test]
fn a_usage_in_or_after_the_last_chunk_is_the_last_word() {
    let before = r#"{"usage":{"prompt_tokens":27,"completion_tokens":9},"choices":[{"index":0,"delta":{"content":"."},"finish_reason":"stop"}]}"#;
    for events in [
        vec![before],
        vec![&*text("x"), FINISH, &usage(27, 9)],
        vec![&*usage(27, 0), &*text("x"), FINISH, &usage(27, 9)],
        vec![&*text("x"), &usage(27, 9), "[DONE]"],
        vec![&*text("x"), &usage(27, 9), FINISH, "[DONE]"],
    ] {
        let metered = metered(&events);
        assert!(metered.is_final && metered.end == StreamEnd::Complete, "{events:?}: {metered:?}");
        assert_eq!(reported(&metered).output, 9);
    }
}

#[test]
fn content_is_finished_though_usage_and_end_are_missing() {
    let finished = |events: &[&str]| {
        let metered = metered(events);
        (metered.is_finished, metered.end)
    };
    assert_eq!(finished(&[&text("x")]), (false, StreamEnd::Cut));
    assert_eq!(finished(&[&text("x"), FINISH]), (true, StreamEnd::Cut));
    assert_eq!(finished(&[&text("x"), "[DONE]"]), (true, StreamEnd::Complete));
    let two = facts(CHAT, r#"{"model":"gpt-5.6","messages":[],"n":2,"stream":true}"#);
    let of_two = |events: &[&str]| meter(CHAT, &two, true, &openai_stream(events)).is_finished;
    assert!(!of_two(&[&text("x"), FINISH]));
    assert!(of_two(&[&text("x"), FINISH, &FINISH.replace(r#""index":0"#, r#""index":1"#)]));
    let whole = body(r#"{"prompt_tokens":1,"completion_tokens":1}"#);
    assert!(meter(CHAT, &RequestFacts::default(), false, &whole).is_finished);
    let torn = meter(CHAT, &RequestFacts::default(), false, &whole[..whole.len() - 1]);
    assert!(!torn.is_finished && !torn.is_final);
}

#[test]
fn a_usage_too_large_to_be_read_leaves_none_final() {
    let large = format!(
        r#"{{"choices":[],"usage":{{"prompt_tokens":5,"completion_tokens":900,"x":"{}"}}}}"#,
        "x".repeat(70_000)
    );
    let cumulative = FINISH.replace("null", r#"{"prompt_tokens":5,"completion_tokens":7}"#);
    let metered = metered(&[&text("x"), &cumulative, &large, "[DONE]"]);
    assert!(metered.has_unread && !metered.is_final, "{metered:?}");
    assert_eq!(reported(&metered).output, 7);
    let body = meter(CHAT, &RequestFacts::default(), false, &large);
    assert!(body.has_unread && !body.is_final && body.usage == Reported::Missing);
    let error = format!(r#"{{"error":{{"message":"{}"}}}}"#, "x".repeat(70_000));
    assert_eq!(meter(CHAT, &RequestFacts::default(), true, &openai_stream(&[&error])).end, StreamEnd::Error);
}

#[test]
fn names_are_bounded() {
    let with = |model: &str, tier: &str| {
        let body = format!(
            r#"{{"model":{model},"service_tier":{tier},"choices":[],"usage":{{"prompt_tokens":1,"completion_tokens":1}}}}"#
        );
        let metered = meter(CHAT, &RequestFacts::default(), false, &body);
        (
            metered.model.map(|name| name.len()),
            metered.service_tier.map(|name| name.len()),
            metered.is_contradictory,
        )
    };
    let name = |bytes: usize| format!("\"{}\"", "x".repeat(bytes));
    assert_eq!(with(&name(512), &name(64)), (Some(512), Some(64), false));
    assert_eq!(with(&name(513), &name(1)), (None, Some(1), true));
    assert_eq!(with(&name(1), &name(65)), (Some(1), None, true));
    assert_eq!(with(&name(70_000), &name(1)), (None, Some(1), true));
    assert_eq!(with("5", "{}"), (None, None, true));
    assert_eq!(with("null", "null"), (None, None, false));
}

#[test]
fn searches_that_an_answer_does_not_count_are_taken_as_made() {
    let facts = facts(CHAT, r#"{"model":"gpt-4o-search-preview","messages":[],"web_search_options":{}}"#);
    let searches = |usage: &str| match meter(CHAT, &facts, false, &body(usage)).usage {
        Reported::Usage(usage) => Some(usage.web_searches),
        Reported::Missing => None,
    };
    assert_eq!(searches(r#"{"prompt_tokens":5,"completion_tokens":7}"#), Some(1));
    assert_eq!(searches(r#"{"prompt_tokens":0,"completion_tokens":0}"#), None, "zero stays missing");
    assert_eq!(complete(CHAT, false, &body(r#"{"prompt_tokens":5,"completion_tokens":7}"#)).web_searches, 0);
}

#[test]
fn a_count_that_comes_again_stands_whatever_came_before_it() {
    let nonsense = FINISH.replace("null", r#"{"prompt_tokens":-5,"completion_tokens":1.5}"#);
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":5e0,"completion_tokens":7}}"#;
    let metered = metered(&[&text("x"), &nonsense, usage, "[DONE]"]);
    assert!(metered.is_final && metered.is_contradictory, "{metered:?}");
    assert_eq!((reported(&metered).input, reported(&metered).output), (5, 7));
}
