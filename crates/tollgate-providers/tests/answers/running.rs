//! What a meter says while its answer runs.

use tollgate_providers::{Meter, Metered, RequestFacts};

use super::{CHAT, MESSAGES, anthropic_stream, openai_stream};

/// Feeds a stream event by event; what is said after each: the reports so far, the output and the input.
fn said(meter: &mut Meter, stream: &str) -> Vec<(u64, u64, Option<u64>)> {
    let after = |event: &str| {
        meter.feed(event.as_bytes());
        let running = meter.running();
        assert_eq!(running.output_seen, meter.output_seen());
        (meter.reports(), running.output_seen.get(), running.usage.map(|usage| usage.input))
    };
    stream.split_inclusive("\n\n").map(after).collect()
}

/// At its end an answer has used what it was said to have.
fn assert_agrees(meter: &mut Meter) {
    assert!(meter.is_finished());
    let running = meter.running();
    let (usage, seen) = (running.usage, running.output_seen);
    let model = running.model.map(str::to_owned);
    let metered: Metered = meter.finish();
    assert_eq!(
        (usage.map(|usage| usage.input), seen, model),
        (metered.usage_seen().map(|usage| usage.input), metered.output_seen, metered.model,)
    );
}

#[test]
fn text_arguments_and_thinking_are_output_as_they_pass() {
    let stream = anthropic_stream(&[
        r#"{"type":"message_start","message":{"model":"claude-sonnet-5-5","usage":{"input_tokens":25,"output_tokens":1}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Let me think of it."}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hello to all of you."}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"city\": \"Bonn\"}"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":17}}"#,
        r#"{"type":"message_stop"}"#,
    ]);
    let mut meter = Meter::new(MESSAGES, &RequestFacts::default(), true);
    let said = said(&mut meter, &stream);
    let outputs: Vec<u64> = said.iter().map(|(_, output, _)| *output).collect();
    assert!(
        outputs[0] == 0 && outputs[0] < outputs[1] && outputs[1] < outputs[2] && outputs[2] < outputs[3],
        "{said:?}"
    );
    assert_eq!(said.iter().map(|(reports, ..)| *reports).collect::<Vec<_>>(), [1, 1, 1, 1, 2, 2]);
    assert!(said.iter().all(|(_, _, input)| *input == Some(25)));
    assert_agrees(&mut meter);
}

#[test]
fn what_is_not_reported_is_missing_until_it_is() {
    let chunk = |delta: &str, finish: &str, usage: &str| {
        format!(
            r#"{{"model":"gpt-6-astra","choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]{usage}}}"#
        )
    };
    let chunks = [
        chunk(r#"{"content":"Hello to all of you."}"#, "null", r#","usage":null"#),
        chunk(
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\": 1}"}}]}"#,
            "null",
            r#","usage":null"#,
        ),
        chunk("{}", "\"stop\"", r#","usage":null"#),
        r#"{"model":"gpt-6-astra","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":12}}"#
            .to_owned(),
    ];
    let stream = openai_stream(&chunks.each_ref().map(String::as_str));
    let mut meter = Meter::new(CHAT, &RequestFacts::default(), true);
    let said = said(&mut meter, &stream);
    assert!(said[0].1 > 0 && said[0].1 < said[1].1, "{said:?}");
    let reports: Vec<_> = said.iter().map(|(reports, _, input)| (*reports, *input)).collect();
    assert_eq!(reports, [(0, None), (0, None), (0, None), (1, Some(9))]);
    assert_agrees(&mut meter);
}

#[test]
fn a_string_counts_while_it_comes() {
    let mut meter = Meter::new(CHAT, &RequestFacts::default(), true);
    meter.feed(b"data: {\"choices\":[{\"delta\":{\"content\":\"");
    let mut before = 0;
    for _ in 0..20 {
        meter.feed("word ".repeat(30_000).as_bytes());
        let seen = meter.output_seen().get();
        assert!(seen > before, "{seen} after {before}");
        before = seen;
    }
}
