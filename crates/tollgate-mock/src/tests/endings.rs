//! How answers begin and end.

use std::net::Shutdown;
use std::time::Duration;

use super::client::{
    ANTHROPIC, ANTHROPIC_STREAM, DEADLINE, Ended, OPENAI_STREAM, call, chat, messages, mock, receive, send,
};

/// How long a hanging connection is listened to.
const SILENCE: Duration = Duration::from_millis(50);

#[test]
fn a_start_can_hang_reset_or_close() {
    let mock = mock();
    for (start, ended) in [("hang", Ended::Silent), ("reset", Ended::Reset), ("close", Ended::Closed)] {
        let mut stream = send(&mock, "POST", "/v1/messages", &[("x-mock-start", start)], ANTHROPIC);
        let patience = if start == "hang" { SILENCE } else { DEADLINE };
        let got = receive(&mut stream, patience);
        assert_eq!((got.head.as_str(), got.ended), ("", ended));
    }
    assert!(mock.billed().is_empty());
}

#[test]
fn a_stream_can_break_after_any_event() {
    for after in ["0", "3", "8"] {
        let count = after.parse::<usize>().unwrap();
        let reset = messages(&[("x-mock-reset-after", after)], ANTHROPIC_STREAM);
        assert_eq!((reset.chunks.len(), reset.is_whole, reset.ended), (count, false, Ended::Reset));
        let closed = messages(&[("x-mock-close-after", after)], ANTHROPIC_STREAM);
        assert_eq!((closed.chunks.len(), closed.is_whole, closed.ended), (count, false, Ended::Closed));
        let cut = messages(&[("x-mock-cut-after", after)], ANTHROPIC_STREAM);
        assert_eq!((cut.chunks.len(), cut.is_whole, cut.ended), (count, true, Ended::Closed));
    }
}

#[test]
fn a_stream_can_hang() {
    let mock = mock();
    let mut stream = send(&mock, "POST", "/v1/messages", &[("x-mock-hang-after", "2")], ANTHROPIC_STREAM);
    let got = receive(&mut stream, SILENCE);
    assert_eq!((got.chunks.len(), got.is_whole, got.ended), (2, false, Ended::Silent));
    assert_eq!(mock.counts().open_answers, 1);
}

#[test]
fn a_stream_can_end_in_an_error_event() {
    let anthropic = messages(&[("x-mock-error-after", "5")], ANTHROPIC_STREAM);
    assert!(anthropic.is_whole);
    assert_eq!(anthropic.chunks.len(), 6);
    assert!(anthropic.chunks[5].starts_with(b"event: error\n"));
    assert_eq!(anthropic.events()[5]["error"]["type"], "overloaded_error");
    let openai = chat(&[("x-mock-error-after", "0")], OPENAI_STREAM).events();
    assert_eq!((openai.len(), &openai[0]["error"]["type"]), (1, &"server_error".into()));
}

#[test]
fn a_plain_body_can_break_in_the_middle() {
    let pieces = |end| [("x-mock-pieces", "4"), (end, "2")];
    let whole = messages(&[], ANTHROPIC).body().len();
    for (end, ended) in [
        ("x-mock-reset-after", Ended::Reset),
        ("x-mock-close-after", Ended::Closed),
        ("x-mock-cut-after", Ended::Closed),
    ] {
        let got = messages(&pieces(end), ANTHROPIC);
        assert_eq!((got.body().len(), got.is_whole, got.ended), (whole.div_ceil(4) * 2, false, ended));
    }
    assert!(messages(&[("x-mock-reset-after", "9")], ANTHROPIC).is_whole, "it has fewer pieces");
}

#[test]
fn events_can_be_spaced() {
    let mock = mock();
    let spaced = [("x-mock-interval-ms", "3600000"), ("x-mock-events", "5")];
    let mut stream = send(&mock, "POST", "/v1/messages", &spaced, ANTHROPIC_STREAM);
    assert_eq!(receive(&mut stream, SILENCE).chunks.len(), 1, "the second is an hour away");
    let soon = [("x-mock-interval-ms", "1"), ("x-mock-first-byte-delay-ms", "1")];
    assert!(call(&mock, "/v1/messages", &soon, ANTHROPIC_STREAM).is_whole);
    let pieces = [("x-mock-interval-ms", "1"), ("x-mock-pieces", "10")];
    assert!(call(&mock, "/v1/messages", &pieces, ANTHROPIC).is_whole);
}

#[test]
fn the_first_byte_can_be_late() {
    let mock = mock();
    let late = [("x-mock-first-byte-delay-ms", "3600000")];
    let mut stream = send(&mock, "POST", "/v1/messages", &late, ANTHROPIC);
    assert_eq!(receive(&mut stream, SILENCE).head, "");
    stream.shutdown(Shutdown::Both).unwrap();
}

#[test]
fn dropping_the_mock_ends_what_hangs() {
    let mock = mock();
    let mut stream = send(&mock, "POST", "/v1/messages", &[("x-mock-hang-after", "1")], ANTHROPIC_STREAM);
    assert_eq!(receive(&mut stream, SILENCE).ended, Ended::Silent);
    mock.stop();
    assert_eq!(receive(&mut stream, DEADLINE).ended, Ended::Closed);
}
