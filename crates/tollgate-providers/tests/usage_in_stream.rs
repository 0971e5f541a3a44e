//! What is put into requests (`include_usage`, an output limit) and the usage chunk that is taken out of
//! answers: byte-exactly.

#![allow(clippy::unwrap_used, reason = "a fault here fails the test")]

use bytes::Bytes;
use proptest::prelude::*;
use tollgate_providers::{
    Call, Endpoint, Protocol, Rewrites, StreamFilter, inspect, is_stream_options_rejection, rewrite,
};

const CHAT: Endpoint = Endpoint { protocol: Protocol::OpenAi, call: Call::ChatCompletions };

fn changed(body: &str) -> Option<String> {
    let body = Bytes::copy_from_slice(body.as_bytes());
    let facts = inspect(CHAT, &body).unwrap();
    let changed = rewrite(&body, &facts, Rewrites { usage_in_stream: true, output_limit: None });
    assert_eq!(changed.is_some(), facts.lacks_usage_in_stream());
    changed.map(|changed| String::from_utf8(changed.to_vec()).unwrap())
}

fn limited(endpoint: Endpoint, body: &str, usage_in_stream: bool) -> Option<String> {
    let body = Bytes::copy_from_slice(body.as_bytes());
    let facts = inspect(endpoint, &body).unwrap();
    let changed = rewrite(&body, &facts, Rewrites { usage_in_stream, output_limit: Some(4096) })?;
    let facts = inspect(endpoint, &changed).unwrap();
    assert_eq!(facts.output_limit, Some(4096));
    assert!(!usage_in_stream || !facts.lacks_usage_in_stream());
    Some(String::from_utf8(changed.to_vec()).unwrap())
}

#[test]
fn a_limit_is_put_in_and_every_other_byte_stays() {
    for (before, after) in [
        (r#"{"model":"m","messages":[]}"#, r#"{"max_completion_tokens":4096,"model":"m","messages":[]}"#),
        (
            "\u{feff}\n{ \"model\":\"{é\", \"messages\":[ ], \"max_tokens\":null}\n",
            "\u{feff}\n{\"max_completion_tokens\":4096, \"model\":\"{é\", \"messages\":[ ], \"max_tokens\":null}\n",
        ),
        (
            r#"{"model":"m","max_completion_tokens" : null ,"messages":[]}"#,
            r#"{"model":"m","max_completion_tokens" : 4096 ,"messages":[]}"#,
        ),
    ] {
        assert_eq!(limited(CHAT, before, false).as_deref(), Some(after));
        assert_eq!(limited(CHAT, before, true).as_deref(), Some(after), "there is no stream");
    }
}

#[test]
fn a_limit_stays_where_there_is_one_or_one_is_required() {
    for field in ["max_tokens", "max_completion_tokens"] {
        let body = format!(r#"{{"model":"m","messages":[],"{field}":7}}"#);
        assert_eq!(limited(CHAT, &body, true), None);
    }
    let messages = Endpoint { protocol: Protocol::Anthropic, call: Call::Messages };
    assert_eq!(limited(messages, r#"{"model":"m","messages":[],"max_tokens":7,"stream":true}"#, true), None);
    let count = Endpoint { protocol: Protocol::Anthropic, call: Call::CountTokens };
    assert_eq!(limited(count, r#"{"model":"m","messages":[]}"#, true), None);
}

#[test]
fn a_limit_and_the_flag_are_put_in_together() {
    for (before, after) in [
        (
            r#" {"model":"m","stream":true,"messages":[]}"#,
            r#" {"stream_options":{"include_usage":true},"max_completion_tokens":4096,"model":"m","stream":true,"messages":[]}"#,
        ),
        (
            r#"{"model":"m","stream":true,"messages":[],"stream_options":{"include_usage":false}}"#,
            r#"{"max_completion_tokens":4096,"model":"m","stream":true,"messages":[],"stream_options":{"include_usage":true}}"#,
        ),
        (
            r#"{"stream_options":{},"model":"m","max_completion_tokens":null,"stream":true,"messages":[]}"#,
            r#"{"stream_options":{"include_usage":true},"model":"m","max_completion_tokens":4096,"stream":true,"messages":[]}"#,
        ),
        (
            r#"{"max_completion_tokens":null,"model":"m","stream":true,"messages":[],"stream_options":null}"#,
            r#"{"max_completion_tokens":4096,"model":"m","stream":true,"messages":[],"stream_options":{"include_usage":true}}"#,
        ),
    ] {
        assert_eq!(limited(CHAT, before, true).as_deref(), Some(after));
    }
}

#[test]
fn c98_the_flag_is_put_in_and_every_other_byte_stays() {
    for (before, after) in [
        (
            r#"{"model":"m","stream":true,"messages":[]}"#,
            r#"{"stream_options":{"include_usage":true},"model":"m","stream":true,"messages":[]}"#,
        ),
        (
            " \n{ \"model\" : \"m\", \"stream\":true, \"messages\":[ ]\t}\r\n",
            " \n{\"stream_options\":{\"include_usage\":true}, \"model\" : \"m\", \"stream\":true, \"messages\":[ ]\t}\r\n",
        ),
        (
            "\u{feff}{\"model\":\"{\",\"stream\":true,\"messages\":[]}",
            "\u{feff}{\"stream_options\":{\"include_usage\":true},\"model\":\"{\",\"stream\":true,\"messages\":[]}",
        ),
        (
            r#"{"stream_options":null,"model":"m","stream":true,"messages":[]}"#,
            r#"{"stream_options":{"include_usage":true},"model":"m","stream":true,"messages":[]}"#,
        ),
        (
            r#"{"stream":true,"stream_options":{},"model":"m","messages":[]}"#,
            r#"{"stream":true,"stream_options":{"include_usage":true},"model":"m","messages":[]}"#,
        ),
        (
            r#"{"stream":true,"model":"m","messages":[],"stream_options": { "include_obfuscation" : false } }"#,
            r#"{"stream":true,"model":"m","messages":[],"stream_options": {"include_usage":true, "include_obfuscation" : false } }"#,
        ),
        (
            r#"{"stream":true,"model":"é中","messages":[],"stream_options":{"x":{"include_usage":false},"include_usage": false}}"#,
            r#"{"stream":true,"model":"é中","messages":[],"stream_options":{"x":{"include_usage":false},"include_usage": true}}"#,
        ),
        (
            r#"{"stream":true,"model":"m","messages":[],"stream_options":{"include_us\u0061ge":null}}"#,
            r#"{"stream":true,"model":"m","messages":[],"stream_options":{"include_us\u0061ge":true}}"#,
        ),
    ] {
        assert_eq!(changed(before).as_deref(), Some(after));
        let facts = inspect(CHAT, after.as_bytes()).unwrap();
        assert!(!facts.lacks_usage_in_stream());
        assert_eq!(changed(after), None, "a second time changes nothing");
    }
}

#[test]
fn nothing_is_put_where_nothing_is_streamed_or_usage_is_asked_for() {
    assert_eq!(changed(r#"{"model":"m","messages":[]}"#), None);
    assert_eq!(changed(r#"{"model":"m","stream":false,"messages":[]}"#), None);
    assert_eq!(
        changed(r#"{"model":"m","stream":true,"messages":[],"stream_options":{"include_usage":true}}"#),
        None
    );
}

#[test]
fn c100_a_refusal_of_stream_options_is_recognised() {
    let refusal = br#"{"error":{"message":"Unknown parameter: 'stream_options'.","param":"stream_options"}}"#;
    assert!(is_stream_options_rejection(400, refusal));
    assert!(is_stream_options_rejection(
        422,
        br#"{"detail":[{"loc":["body","stream_options"],"msg":"extra"}]}"#
    ));
    assert!(is_stream_options_rejection(400, b"unsupported: include_usage"));
    assert!(!is_stream_options_rejection(400, br#"{"error":{"message":"max_tokens is too large"}}"#));
    assert!(!is_stream_options_rejection(429, refusal));
    assert!(!is_stream_options_rejection(200, refusal));
}

const CONTENT: &str = r#"data: {"choices":[{"index":0,"delta":{"content":"né \"usage\":{ 中"},"finish_reason":null}],"usage":null}"#;
const USAGE: &str = r#"data: {"id":"c","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#;

/// Events that stay: what looks like the usage chunk and is not.
const KEPT: [&str; 9] = [
    CONTENT,
    "data: [DONE]",
    ": comment",
    r#"data: {"choices":[],"prompt_filter_results":[],"usage":null}"#,
    r#"data: {"choices":[{"index":0,"delta":{"content":"."},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}"#,
    r#"data: {"usage":{"prompt_tokens":1,"completion_tokens":2}}"#,
    r#"data: {"error":{"message":"x"},"choices":[],"usage":{"prompt_tokens":1}}"#,
    r#"data: {"choices":[],"x_groq":{"usage":{"prompt_tokens":1}}}"#,
    "data: not json \"usage\": {",
];

fn filtered<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> Vec<u8> {
    let mut filter = StreamFilter::new();
    let mut out = Vec::new();
    for piece in pieces {
        out.extend_from_slice(&filter.push(Bytes::copy_from_slice(piece)));
    }
    out.extend_from_slice(&filter.finish());
    out
}

fn stream(events: &[&str], line_end: &str) -> String {
    events.iter().map(|event| format!("{event}{line_end}{line_end}")).collect()
}

#[test]
fn c98_the_extra_event_goes_and_every_other_byte_stays_at_any_cut() {
    for line_end in ["\n", "\r\n", "\r"] {
        for usage in
            [USAGE, &USAGE.replace("data: ", "data:"), &USAGE.replace("[]", "[ ]").replace(":{", " : {")]
        {
            let with = stream(&[CONTENT, CONTENT, usage, "data: [DONE]"], line_end);
            let without = stream(&[CONTENT, CONTENT, "data: [DONE]"], line_end);
            for offset in 0..=with.len() {
                let (head, tail) = with.as_bytes().split_at(offset);
                assert_eq!(filtered([head, tail]), without.as_bytes(), "{line_end:?} at {offset}");
            }
            assert_eq!(filtered(with.as_bytes().chunks(1)), without.as_bytes());
            let bom = format!("\u{feff}{with}");
            assert_eq!(filtered([bom.as_bytes()]), format!("\u{feff}{without}").as_bytes());
        }
    }
}

#[test]
fn an_event_of_many_lines_is_judged_whole_however_small_its_pieces() {
    for line_end in ["\n", "\r\n", "\r"] {
        let lines = USAGE.replace(r#","usage""#, &format!(",{line_end}data: {line_end}data:\"usage\""));
        let long = format!("{}{line_end}{lines}", vec![": keep-alive"; 3_000].join(line_end));
        let all = stream(&[CONTENT, &long, "data: [DONE]"], line_end);
        let without = stream(&[CONTENT, "data: [DONE]"], line_end);
        for size in [1, 2, 3, 1_000] {
            assert_eq!(filtered(all.as_bytes().chunks(size)), without.as_bytes(), "{line_end:?} {size}");
        }
    }
}

#[test]
fn what_only_looks_like_the_extra_event_stays() {
    let all = stream(&KEPT, "\n");
    assert_eq!(filtered([all.as_bytes()]), all.as_bytes());
    assert_eq!(filtered(all.as_bytes().chunks(1)), all.as_bytes());
}

#[test]
fn the_extra_event_goes_without_its_blank_line_and_a_torn_one_stays() {
    let before = stream(&[CONTENT], "\n");
    for end in ["", "\n", "\r\n"] {
        assert_eq!(filtered([format!("{before}{USAGE}{end}").as_bytes()]), before.as_bytes());
    }
    let torn = format!("{before}{}", &USAGE[..USAGE.len() - 1]);
    assert_eq!(filtered([torn.as_bytes()]), torn.as_bytes());
}

#[test]
fn whole_events_pass_at_once_and_what_is_held_is_bounded() {
    let mut filter = StreamFilter::new();
    let event = stream(&[CONTENT], "\n");
    assert_eq!(filter.push(Bytes::copy_from_slice(event.as_bytes())), event.as_bytes());
    assert!(filter.push(Bytes::from_static(b"data: {\"choices\"")).is_empty(), "a torn event is held");

    let mut filter = StreamFilter::new();
    let (mut fed, mut passed) = (0, 0);
    for _ in 0..200 {
        fed += 1000;
        passed += filter.push(Bytes::from(vec![b'x'; 1000])).len();
        assert!(fed - passed <= 65 * 1024, "{} held", fed - passed);
    }
    let rest = filter.push(Bytes::copy_from_slice(stream(&["", USAGE], "\n").as_bytes()));
    assert_eq!(passed + rest.len() + filter.finish().len(), fed + 2, "the event after a large one is seen");
}

proptest! {
    #[test]
    fn any_stream_keeps_all_but_the_extra_event(
        picks in proptest::collection::vec(0..=KEPT.len(), 0..12),
        cuts in proptest::collection::vec(any::<usize>(), 0..10),
        line_end in proptest::sample::select(vec!["\n", "\r\n", "\r"]),
    ) {
        let event = |pick: &usize| KEPT.get(*pick).copied().unwrap_or(USAGE);
        let with: Vec<&str> = picks.iter().map(event).collect();
        let without: Vec<&str> = with.iter().copied().filter(|event| *event != USAGE).collect();
        let with = stream(&with, line_end);
        let mut pieces = Vec::new();
        let mut rest = with.as_bytes();
        for cut in cuts {
            let (head, tail) = rest.split_at(cut % (rest.len() + 1));
            pieces.push(head);
            rest = tail;
        }
        pieces.push(rest);
        prop_assert_eq!(filtered(pieces), stream(&without, line_end).into_bytes());
    }

    #[test]
    fn any_bytes_pass_unchanged_unless_they_hold_a_usage(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'\n'), Just(b'\r')], 0..300), size in 1..40_usize) {
        prop_assert_eq!(filtered(bytes.chunks(size)), bytes);
    }
}
