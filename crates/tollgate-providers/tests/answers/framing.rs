//! One stream in every framing that a server may use, cut everywhere.

use super::*;

/// Text with characters of two, three and four bytes.
fn streams() -> [(Endpoint, String); 2] {
    let anthropic = anthropic_stream(&[
        r#"{"type":"message_start","message":{"model":"claude-sonnet-5-5","usage":{"input_tokens":12,"output_tokens":1}}}"#,
        r#"{"type":"ping"}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"né 中 🎉 \" ok \u4e2d"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":34}}"#,
        r#"{"type":"message_stop"}"#,
    ]);
    let openai = openai_stream(&[
        r#"{"model":"gpt-5.6","choices":[{"index":0,"delta":{"content":"né 中 🎉"},"finish_reason":"stop"}],"usage":null}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":34}}"#,
        "[DONE]",
    ]);
    [(MESSAGES, anthropic), (CHAT, openai)]
}

fn of_pieces<'p>(endpoint: Endpoint, pieces: impl IntoIterator<Item = &'p [u8]>) -> String {
    let mut meter = Meter::new(endpoint, &RequestFacts::default(), true);
    pieces.into_iter().for_each(|piece| meter.feed(piece));
    format!("{:?}", meter.finish())
}

#[test]
fn c104_cut_at_every_offset_and_byte_by_byte() {
    for (endpoint, stream) in streams() {
        let bytes = stream.as_bytes();
        let whole = of_pieces(endpoint, [bytes]);
        assert!(whole.contains("input: 12") && whole.contains("output: 34"), "{whole}");
        for offset in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(offset);
            assert_eq!(of_pieces(endpoint, [head, tail]), whole, "at {offset}");
        }
        assert_eq!(of_pieces(endpoint, bytes.chunks(1)), whole);
        assert_eq!(of_pieces(endpoint, [bytes.trim_ascii_end()]), whole, "no final blank line");
    }
}

#[test]
fn every_line_end_and_ornament_reads_alike() {
    for (endpoint, stream) in streams() {
        let whole = of_pieces(endpoint, [stream.as_bytes()]);
        for framed in [
            stream.replace('\n', "\r\n"),
            stream.replace('\n', "\r"),
            format!("\u{feff}{stream}"),
            format!(": a comment\n\n{stream}"),
            stream.replace("\n\n", "\n: PROCESSING\n\n"),
            stream.replace("data:", "id: 7\nretry: 10\nunknown\ndata:"),
            stream.replace("data: ", "data:"),
            stream.replace("\n\n", "\n\n\n\n"),
            stream.replace("event: ", "event:"),
            // JSON over several data lines.
            stream.replace(",\"", ",\ndata: \""),
            stream.replace(",\"", ",\ndata: \"").replace('\n', "\r\n"),
            stream.replace(",\"", ",\ndata: \"").replace('\n', "\r"),
        ] {
            assert_eq!(of_pieces(endpoint, [framed.as_bytes()]), whole, "{framed}");
            assert_eq!(of_pieces(endpoint, framed.as_bytes().chunks(1)), whole, "{framed}");
            assert_eq!(of_pieces(endpoint, framed.as_bytes().chunks(3)), whole, "{framed}");
        }
    }
}

#[test]
fn a_body_in_place_of_a_stream_is_read_as_what_it_is() {
    let body = r#"
        {"model":"gpt-5.6","choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
    assert_eq!(complete(CHAT, true, body).total(), 7);
    let (endpoint, stream) = &streams()[1];
    assert_eq!(complete(*endpoint, false, stream).total(), 46);
}

/// An event of the content "word word …", of about so many bytes.
fn large_event(bytes: usize) -> String {
    format!(r#"{{"choices":[{{"delta":{{"content":"{}"}}}}]}}"#, "word ".repeat(bytes / 5))
}

#[test]
fn an_event_too_large_to_hold_is_read_as_it_comes() {
    let usage = r#"{"padding":"PAD","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
    let usage = usage.replace("PAD", &" ".repeat(2 << 20));
    for large in [64 << 10, (1 << 20) - 50, 1 << 20, 3 << 20] {
        let content = large_event(large);
        let stream = openai_stream(&[&content, &usage, "[DONE]"]);
        let metered = meter(CHAT, &RequestFacts::default(), true, &stream);
        assert!(metered.is_final && metered.content_seen && !metered.has_unread, "{metered:?}");
        assert_eq!(reported(&metered).total(), 7);
        let split = openai_stream(&[&large_event(large / 2), &large_event(large / 2)]);
        let of_two = meter(CHAT, &RequestFacts::default(), true, &split).output_seen.get();
        assert!(metered.output_seen.get().abs_diff(of_two) <= 2, "{metered:?} beside {of_two}");
        // As many data lines, with line ends of all kinds, cut anywhere.
        let lines = stream.replace("{\"delta", "\ndata: {\"delta");
        for framed in [stream.clone(), lines.clone(), lines.replace('\n', "\r"), lines.replace('\n', "\r\n")]
        {
            assert_eq!(of_pieces(CHAT, [framed.as_bytes()]), of_pieces(CHAT, [stream.as_bytes()]));
            assert_eq!(of_pieces(CHAT, framed.as_bytes().chunks(999)), of_pieces(CHAT, [stream.as_bytes()]));
        }
    }
}

#[test]
fn whether_an_event_is_held_does_not_depend_on_where_it_is_cut() {
    let start = r#"data: {"choices":[{"delta":{"content":""#;
    for length in (65_520..65_560).chain([131_070]) {
        let torn = format!("{start}{}", "word ".repeat(30_000).split_at(length - start.len() + 6).0);
        for ended in [torn.clone(), format!("{torn}\n"), format!("{torn}\n\n")] {
            let whole = of_pieces(CHAT, [ended.as_bytes()]);
            for cut in [30, torn.len() - 1, torn.len(), ended.len()] {
                let (one, other) = ended.as_bytes().split_at(cut);
                assert_eq!(of_pieces(CHAT, [one, other]), whole, "{length} bytes cut at {cut}");
            }
        }
    }
}

#[test]
fn a_stream_behind_an_object_is_a_stream() {
    for (endpoint, stream) in &streams() {
        let whole = of_pieces(*endpoint, [stream.as_bytes()]);
        for object in ["{}\n\n", "{}", " {\"a\":[{}]}\r\n"] {
            let framed = format!("{object}{stream}");
            assert_eq!(of_pieces(*endpoint, [framed.as_bytes()]), whole, "{framed}");
            assert_eq!(of_pieces(*endpoint, framed.as_bytes().chunks(1)), whole, "{framed}");
        }
    }
}

#[test]
fn what_came_of_a_large_event_without_its_end_counts() {
    let stream = openai_stream(&[&large_event(1 << 20)]);
    let torn = &stream[..500_000];
    let metered = meter(CHAT, &RequestFacts::default(), true, torn);
    assert!(metered.content_seen && metered.end == StreamEnd::Cut);
    assert!((80_000..200_000).contains(&metered.output_seen.get()), "{metered:?}");
    assert_eq!(of_pieces(CHAT, torn.as_bytes().chunks(777)), of_pieces(CHAT, [torn.as_bytes()]));
}

#[test]
fn a_long_comment_hides_nothing() {
    let (endpoint, stream) = &streams()[0];
    let whole = of_pieces(*endpoint, [stream.as_bytes()]);
    for long in [70_000, 2 << 20] {
        for end in ["\n", "\n\n"] {
            let comment = format!("\n\n: {}{end}", "x".repeat(long));
            let framed = format!("{}\n\n", stream.trim_end().replace("\n\n", &comment));
            assert_eq!(of_pieces(*endpoint, [framed.as_bytes()]), whole);
            assert_eq!(of_pieces(*endpoint, framed.as_bytes().chunks(4_096)), whole);
        }
    }
}

#[test]
fn a_torn_last_event_is_not_used() {
    let (endpoint, stream) = &streams()[1];
    // Its usage is there, but not the brace that closes it.
    let torn = &stream[..stream.find("34}}").unwrap() + 3];
    let metered = meter(*endpoint, &RequestFacts::default(), true, torn);
    assert_eq!((metered.usage, metered.end), (Reported::Missing, StreamEnd::Cut));
}
