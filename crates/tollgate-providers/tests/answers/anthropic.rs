//! Anthropic answers.

use super::*;

const DELTA: &str =
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello there, friend."}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

fn start(usage: &str) -> String {
    format!(
        r#"{{"type":"message_start","message":{{"model":"claude-sonnet-5-5","content":[],"usage":{usage}}}}}"#
    )
}

fn last(usage: &str) -> String {
    format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{usage}}}"#)
}

fn stream(first: &str, then: &str) -> String {
    anthropic_stream(&[&start(first), DELTA, &last(then), STOP])
}

fn body(usage: &str) -> String {
    format!(
        r#"{{"type":"message","model":"claude-sonnet-5-5","content":[{{"type":"text","text":"Hi."}}],"usage":{usage}}}"#
    )
}

#[test]
fn c50_cache_writes_are_counted_once() {
    let usage = r#"{"input_tokens":3,"cache_creation_input_tokens":12304,"cache_read_input_tokens":0,"output_tokens":550}"#;
    let expected = Usage { input: 3, cache_write_5m: 12_304, output: 550, ..Usage::default() };
    assert_eq!(complete(MESSAGES, false, &body(usage)), expected);
}

#[test]
fn c51_cache_writes_are_counted_once_in_a_stream() {
    let expected = Usage { input: 6, cache_write_5m: 159_217, output: 2_745, ..Usage::default() };
    let first = r#"{"input_tokens":6,"cache_creation_input_tokens":159217,"cache_creation":{"ephemeral_5m_input_tokens":159217,"ephemeral_1h_input_tokens":0},"output_tokens":4}"#;
    for then in [
        r#"{"output_tokens":2745}"#,
        r#"{"input_tokens":6,"cache_creation_input_tokens":159217,"cache_read_input_tokens":0,"output_tokens":2745}"#,
    ] {
        assert_eq!(complete(MESSAGES, true, &stream(first, then)), expected);
    }
}

#[test]
fn c53_cache_reads_are_no_input_in_a_stream() {
    let first = r#"{"input_tokens":4,"cache_read_input_tokens":2455,"output_tokens":1}"#;
    let expected = Usage { input: 4, cache_read: 2_455, output: 23, ..Usage::default() };
    assert_eq!(complete(MESSAGES, true, &stream(first, r#"{"output_tokens":23}"#)), expected);
}

#[test]
fn c59_c61_writes_for_an_hour_are_told_apart_and_held_to_the_total() {
    let split = r#"{"input_tokens":0,"cache_creation":{"ephemeral_5m_input_tokens":600000,"ephemeral_1h_input_tokens":400000},"output_tokens":1}"#;
    let expected = Usage { cache_write_5m: 600_000, cache_write_1h: 400_000, output: 1, ..Usage::default() };
    assert_eq!(complete(MESSAGES, false, &body(split)), expected);

    let too_much = r#"{"cache_creation_input_tokens":100,"cache_creation":{"ephemeral_5m_input_tokens":50,"ephemeral_1h_input_tokens":130},"output_tokens":1}"#;
    let metered = meter(MESSAGES, &RequestFacts::default(), false, &body(too_much));
    assert!(metered.is_contradictory);
    assert_eq!(reported(&metered), Usage { cache_write_1h: 100, output: 1, ..Usage::default() });
}

#[test]
fn a_write_without_a_split_goes_to_the_lifetime_asked_for() {
    let request =
        |blocks: &str| format!(r#"{{"model":"m","max_tokens":9,"messages":[],"system":[{blocks}]}}"#);
    let five = r#"{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}"#;
    let hour = r#"{"type":"text","text":"b","cache_control":{"ttl":"1h","type":"ephemeral"}}"#;
    let both = format!("{five},{hour}");
    for (blocks, five_minutes, one_hour) in [("", 70, 0), (five, 70, 0), (hour, 0, 70), (&both, 0, 70)] {
        let facts = facts(MESSAGES, &request(blocks));
        let usage = r#"{"input_tokens":1,"cache_creation_input_tokens":70,"output_tokens":1}"#;
        let usage = reported(&meter(MESSAGES, &facts, false, &body(usage)));
        assert_eq!((usage.cache_write_5m, usage.cache_write_1h), (five_minutes, one_hour), "{blocks}");
    }
    // In a stream, what the total has beyond the first split goes to the dearer lifetime.
    let first = r#"{"cache_creation_input_tokens":50,"cache_creation":{"ephemeral_5m_input_tokens":30,"ephemeral_1h_input_tokens":20}}"#;
    let body = stream(first, r#"{"cache_creation_input_tokens":70,"output_tokens":1}"#);
    let usage = reported(&meter(MESSAGES, &facts(MESSAGES, &request(&both)), true, &body));
    assert_eq!((usage.cache_write_5m, usage.cache_write_1h), (30, 40));
}

#[test]
fn c87_a_repeated_input_is_not_added() {
    let body =
        stream(r#"{"input_tokens":27,"output_tokens":1}"#, r#"{"input_tokens":27,"output_tokens":47}"#);
    assert_eq!(complete(MESSAGES, true, &body), Usage { input: 27, output: 47, ..Usage::default() });
}

#[test]
fn c89_input_stays_when_the_last_event_says_output_alone() {
    let body = stream(r#"{"input_tokens":1000,"output_tokens":1}"#, r#"{"output_tokens":50}"#);
    assert_eq!(complete(MESSAGES, true, &body).total(), 1_050);
}

#[test]
fn a_later_smaller_input_replaces_an_earlier_one() {
    let body = stream(
        r#"{"input_tokens":34824,"output_tokens":0}"#,
        r#"{"input_tokens":3883,"cache_read_input_tokens":30464,"output_tokens":49}"#,
    );
    let expected = Usage { input: 3_883, cache_read: 30_464, output: 49, ..Usage::default() };
    assert_eq!(complete(MESSAGES, true, &body), expected);
}

#[test]
fn a_spliced_second_start_replaces_and_does_not_add() {
    let body = anthropic_stream(&[
        &start(r#"{"input_tokens":10,"cache_read_input_tokens":5,"output_tokens":1}"#),
        DELTA,
        &start(r#"{"input_tokens":12,"output_tokens":1}"#),
        DELTA,
        &last(r#"{"output_tokens":9}"#),
        STOP,
    ]);
    assert_eq!(
        complete(MESSAGES, true, &body),
        Usage { input: 12, cache_read: 5, output: 9, ..Usage::default() }
    );
}

#[test]
fn c94_c95_input_is_known_before_an_early_hang_up() {
    let whole = stream(r#"{"input_tokens":900,"output_tokens":3}"#, r#"{"output_tokens":50}"#);
    let cut = &whole[..whole.find("event: message_delta").unwrap()];
    let metered = meter(MESSAGES, &RequestFacts::default(), true, cut);
    assert_eq!((metered.end, metered.is_final, metered.content_seen), (StreamEnd::Cut, false, true));
    let seen = metered.usage_seen().unwrap();
    assert_eq!(seen.input, 900);
    assert!(seen.output >= 5, "output is at least what was seen: {}", seen.output);
}

#[test]
fn a_final_usage_counts_though_the_stream_breaks_after_it() {
    let whole = stream(r#"{"input_tokens":900,"output_tokens":3}"#, r#"{"output_tokens":50}"#);
    let cut = &whole[..whole.find("event: message_stop").unwrap()];
    let metered = meter(MESSAGES, &RequestFacts::default(), true, cut);
    assert_eq!((metered.end, metered.is_final), (StreamEnd::Cut, true));
    assert_eq!(metered.usage_seen().unwrap().output, 50);
}

#[test]
fn an_error_inside_a_stream_is_an_error() {
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let body = anthropic_stream(&[&start(r#"{"input_tokens":7,"output_tokens":1}"#), DELTA, error]);
    let metered = meter(MESSAGES, &RequestFacts::default(), true, &body);
    assert_eq!((metered.end, metered.is_final), (StreamEnd::Error, false));
    assert_eq!(metered.usage_seen().unwrap().input, 7);
}

#[test]
fn c78_an_explicit_zero_is_zero_unless_there_was_content() {
    let zero = r#"{"input_tokens":0,"output_tokens":0}"#;
    let empty = anthropic_stream(&[&start(zero), &last(zero), STOP]);
    assert_eq!(complete(MESSAGES, true, &empty), Usage::default());
    let metered = meter(MESSAGES, &RequestFacts::default(), true, &stream(zero, zero));
    assert_eq!((metered.usage, metered.end), (Reported::Missing, StreamEnd::Complete));
}

#[test]
fn iterations_are_counted_at_their_own_model_and_the_top_level_is_left_aside() {
    let iterations = r#"{"input_tokens":229,"output_tokens":5,"output_tokens_details":{"thinking_tokens":3},"iterations":[
        {"type":"compaction","input_tokens":100,"output_tokens":131,"cache_creation_input_tokens":55096,"cache_creation":{"ephemeral_5m_input_tokens":55096,"ephemeral_1h_input_tokens":0}},
        {"type":"advisor_message","model":"claude-opus-4-8","input_tokens":2543,"output_tokens":18},
        {"type":"message","input_tokens":229,"output_tokens":5}]}"#;
    let metered = meter(MESSAGES, &RequestFacts::default(), false, &body(iterations));
    let own = Usage { input: 329, cache_write_5m: 55_096, output: 136, reasoning: 3, ..Usage::default() };
    assert_eq!(reported(&metered), own);
    assert_eq!(metered.others.len(), 1);
    assert_eq!(metered.others[0].model, "claude-opus-4-8");
    assert_eq!((metered.others[0].usage.input, metered.others[0].usage.output), (2_543, 18));
}

#[test]
fn c64_searches_are_counted_and_tier_and_region_are_told() {
    let usage = r#"{"input_tokens":5,"output_tokens":5,"server_tool_use":{"web_search_requests":1,"web_fetch_requests":2},"service_tier":"priority","inference_geo":"us","speed":"standard"}"#;
    let metered = meter(MESSAGES, &RequestFacts::default(), false, &body(usage));
    let usage = reported(&metered);
    assert_eq!((usage.web_searches, usage.web_fetches), (1, 2));
    assert_eq!(metered.service_tier.as_deref(), Some("priority+us"));
    assert_eq!(metered.model.as_deref(), Some("claude-sonnet-5-5"));
}

#[test]
fn c120_counting_tokens_uses_nothing() {
    let endpoint = Endpoint { protocol: Protocol::Anthropic, call: Call::CountTokens };
    assert_eq!(complete(endpoint, false, r#"{"input_tokens":2000000}"#), Usage::default());
}

#[test]
fn nonsense_in_a_report_is_left_out_and_said() {
    let usage = r#"{"input_tokens":-4,"cache_read_input_tokens":1.5,"output_tokens":"many"}"#;
    let metered = meter(MESSAGES, &RequestFacts::default(), false, &body(usage));
    assert!(metered.is_contradictory);
    assert_eq!(metered.usage, Reported::Missing);
    for count in ["1.5e0", "1e13", "-1", "\"7\"", "1000000000001", "18446744073709551616"] {
        let usage = format!(r#"{{"input_tokens":{count},"output_tokens":5}}"#);
        let metered = meter(MESSAGES, &RequestFacts::default(), false, &body(&usage));
        assert!(
            metered.is_contradictory && !metered.is_final,
            "not the last word, so not billed low: {count}"
        );
    }
    let large = r#"{"input_tokens":1000000000000,"output_tokens":5}"#;
    assert_eq!(complete(MESSAGES, false, &body(large)).total(), 1_000_000_000_005);
}

#[test]
fn an_answer_without_usage_is_missing_and_a_torn_one_is_cut() {
    let whole = r#"{"completion":" Hello.","stop_reason":"stop_sequence","model":"claude-instant-1.2"}"#;
    let metered = meter(MESSAGES, &RequestFacts::default(), false, whole);
    assert_eq!((metered.usage, metered.end), (Reported::Missing, StreamEnd::Complete));
    for torn in ["", "  ", &whole[..40], "<html>Bad gateway</html>"] {
        let metered = meter(MESSAGES, &RequestFacts::default(), false, torn);
        assert_eq!((metered.usage, metered.end), (Reported::Missing, StreamEnd::Cut), "{torn}");
    }
}

#[test]
fn a_body_that_is_torn_within_its_text_counts_what_came() {
    let text = "word ".repeat(200);
    let body = format!(r#"{{"content":[{{"type":"text","text":"{text}"}}],"usage":{{"output_tokens":1}}}}"#);
    let seen = |bytes: usize| meter(MESSAGES, &RequestFacts::default(), false, &body[..bytes]).output_seen;
    let (half, whole) = (seen(500), seen(body.len()));
    assert!(half.get() >= 100 && half < whole, "{half:?} of {whole:?}");
}

fn metered(events: &[&str]) -> Metered {
    meter(MESSAGES, &RequestFacts::default(), true, &anthropic_stream(events))
}

#[test]
fn the_usage_of_the_start_is_not_the_last_word() {
    let first = start(r#"{"input_tokens":27,"output_tokens":1}"#);
    let bare = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
    let empty_reason = last(r#"{"output_tokens":1}"#).replace("end_turn", "");
    for events in [
        vec![&*first, DELTA, bare],
        vec![&first, DELTA, bare, STOP],
        vec![&first, bare, STOP],
        vec![&first, DELTA, &last("null"), STOP],
        vec![&first, DELTA, &last("{}"), STOP],
        vec![&first, DELTA, &empty_reason],
    ] {
        let metered = metered(&events);
        assert!(!metered.is_final, "{events:?}: {metered:?}");
        assert_eq!(reported(&metered).input, 27);
    }
}

#[test]
fn a_usage_with_the_reason_or_after_it_is_the_last_word() {
    let first = start(r#"{"input_tokens":27,"output_tokens":1}"#);
    let bare = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
    let usage = r#"{"type":"message_delta","delta":{},"usage":{"output_tokens":9}}"#;
    for events in [
        vec![&*first, DELTA, &last(r#"{"output_tokens":9}"#)],
        vec![
            &first,
            DELTA,
            r#"{"usage":{"output_tokens":9},"delta":{"stop_reason":"end_turn"},"type":"message_delta"}"#,
        ],
        vec![&first, DELTA, bare, usage],
        vec![&first, DELTA, usage, bare, STOP],
    ] {
        let metered = metered(&events);
        assert!(metered.is_final && metered.is_finished, "{events:?}: {metered:?}");
        assert_eq!(reported(&metered).output, 9);
    }
}

#[test]
fn content_is_finished_by_its_reason_or_the_end() {
    let first = start(r#"{"input_tokens":27,"output_tokens":1}"#);
    let bare = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
    let finished = |events: &[&str]| metered(events).is_finished;
    assert!(!finished(&[&first, DELTA]));
    assert!(finished(&[&first, DELTA, bare]));
    assert!(finished(&[&first, DELTA, STOP]));
    assert_eq!(metered(&[&first, DELTA, bare]).end, StreamEnd::Cut);
}

#[test]
fn iterations_too_many_to_be_read_leave_no_usage_final() {
    let iteration = r#"{"type":"message","input_tokens":1000000,"output_tokens":5}"#;
    let usage = format!(r#"{{"output_tokens":9,"iterations":[{}]}}"#, [iteration; 2_000].join(","));
    let metered = metered(&[&start(r#"{"input_tokens":27,"output_tokens":1}"#), DELTA, &last(&usage), STOP]);
    assert!(metered.has_unread && !metered.is_final, "{metered:?}");
    assert!(metered.is_finished && metered.end == StreamEnd::Complete);
}

#[test]
fn names_are_bounded() {
    let with = |field: &str, value: &str| {
        let usage = format!(r#"{{"input_tokens":3,"output_tokens":5,"{field}":{value}}}"#);
        let metered = meter(MESSAGES, &RequestFacts::default(), false, &body(&usage));
        assert_eq!(reported(&metered).total(), 8, "the counts are read all the same");
        (metered.service_tier, metered.is_contradictory)
    };
    for field in ["service_tier", "inference_geo", "speed"] {
        let longest = "x".repeat(64);
        assert_eq!(with(field, &format!("\"{longest}\"")), (Some(longest), false), "{field}");
        assert_eq!(with(field, &format!("\"{}\"", "x".repeat(65))), (None, true), "{field}");
        assert_eq!(with(field, "[1]"), (None, true), "{field}");
    }
    let iteration = |bytes: usize| {
        let model = "x".repeat(bytes);
        let usage = format!(r#"{{"iterations":[{{"model":"{model}","input_tokens":3,"output_tokens":5}}]}}"#);
        let metered = meter(MESSAGES, &RequestFacts::default(), false, &body(&usage));
        (metered.others.len(), metered.is_contradictory)
    };
    assert_eq!(iteration(512), (1, false));
    assert_eq!(iteration(513), (0, true));
}

#[test]
fn a_tool_s_input_counts_whatever_its_names_are() {
    let words = "word ".repeat(1_000);
    let seen = |key: &str| {
        let start = format!(
            r#"{{"type":"content_block_start","index":0,"content_block":{{"type":"tool_use","id":"toolu_1","name":"write","input":{{"{key}":"{words}","deep":[{{"{key}":"{words}"}}]}}}}}}"#
        );
        metered(&[&start]).output_seen.get()
    };
    for key in ["data", "url", "id", "type", "role", "citations", "content"] {
        assert_eq!(seen(key), seen("path"), "{key}");
    }
    assert!(seen("path") > 2_000);
}

#[test]
fn a_count_that_comes_again_stands_whatever_came_before_it() {
    let whole = last(r#"{"input_tokens":27,"output_tokens":9}"#);
    let metered = metered(&[&start(r#"{"input_tokens":-1,"output_tokens":"many"}"#), DELTA, &whole, STOP]);
    assert!(metered.is_final && metered.is_contradictory, "{metered:?}");
    assert_eq!((reported(&metered).input, reported(&metered).output), (27, 9));
}

#[test]
fn a_whole_number_counts_however_it_is_written() {
    let usage = last(r#"{"input_tokens":27.0,"output_tokens":1.2e1}"#);
    let metered = metered(&[&start(r#"{"input_tokens":1}"#), DELTA, &usage, STOP]);
    assert!(metered.is_final && !metered.is_contradictory, "{metered:?}");
    assert_eq!((reported(&metered).input, reported(&metered).output), (27, 12));
}
