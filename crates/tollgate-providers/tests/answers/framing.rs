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

#[test]
fn an_event_too_large_to_hold_is_passed_over_and_said() {
    let large = format!(r#"{{"choices":[{{"delta":{{"content":"{}"}}}}]}}"#, "x".repeat(3 << 20));
    let end = [r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#, "[DONE]"];
    let stream = openai_stream(&[&large, end[0], end[1]]);
    let metered = meter(CHAT, &RequestFacts::default(), true, &stream);
    assert!(metered.has_unread && metered.content_seen);
    assert_eq!(reported(&metered).total(), 7);
    assert_eq!(of_pieces(CHAT, stream.as_bytes().chunks(1000)), of_pieces(CHAT, [stream.as_bytes()]));
}

#[test]
fn a_torn_last_event_is_not_used() {
    let (endpoint, stream) = &streams()[1];
    // Its usage is there, but not the brace that closes it.
    let torn = &stream[..stream.find("34}}").unwrap() + 3];
    let metered = meter(*endpoint, &RequestFacts::default(), true, torn);
    assert_eq!((metered.usage, metered.end), (Reported::Missing, StreamEnd::Cut));
}
