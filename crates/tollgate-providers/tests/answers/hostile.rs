//! Laws that hold for any bytes and any cuts.

use super::*;
use proptest::prelude::*;

fn of_cuts(endpoint: Endpoint, is_streamed: bool, bytes: &[u8], cuts: &[usize]) -> String {
    let mut meter = Meter::new(endpoint, &RequestFacts::default(), is_streamed);
    let mut rest = bytes;
    for cut in cuts {
        let (head, tail) = rest.split_at(cut % (rest.len() + 1));
        meter.feed(head);
        rest = tail;
    }
    meter.feed(rest);
    format!("{:?}", meter.finish())
}

/// Fragments of which streams and bodies are made, whole and broken.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let parts: Vec<&'static [u8]> = vec![
        b"data: ",
        b"data:",
        b"event: error\n",
        b"\n\n",
        b"\r\n",
        b"\r",
        b"\n",
        b": c\n",
        b"[DONE]",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\"",
        b"\\",
        b"\\u00e9",
        b"\xEF\xBB\xBF",
        b"\xC3",
        b"null",
        b"-1e999",
        br#"{"choices":[{"index":0,"delta":{"content":"a\"b"},"finish_reason":"stop"}]"#,
        br#","usage":{"prompt_tokens":3,"completion_tokens":4}}"#,
        br#"{"type":"message_start","message":{"model":"m","usage":{"input_tokens":5,"output_tokens":1}}}"#,
        br#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":18446744073709551615}}"#,
        br#"{"type":"message_stop"}"#,
        br#""usage":{"iterations":[{"model":"x","input_tokens":1},{}]}"#,
        br#""error":{"message":"#,
    ];
    prop_oneof![4 => proptest::sample::select(parts).prop_map(<[u8]>::to_vec), 1 => proptest::collection::vec(any::<u8>(), 0..6)]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(fragment(), 0..24).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn c104_no_cut_changes_the_result_and_no_bytes_panic(
        bytes in bytes(),
        cuts in proptest::collection::vec(any::<usize>(), 0..8),
        is_streamed: bool,
    ) {
        for endpoint in [MESSAGES, CHAT] {
            let whole = of_cuts(endpoint, is_streamed, &bytes, &[]);
            prop_assert_eq!(of_cuts(endpoint, is_streamed, &bytes, &cuts), whole);
        }
    }

    #[test]
    fn classes_never_add_up_to_more_than_was_reported(prompt: u32, cached: u32, written: u32, completion: u32, reasoning: u32) {
        let body = format!(
            r#"{{"choices":[],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion},"prompt_tokens_details":{{"cached_tokens":{cached},"cache_write_tokens":{written}}},"completion_tokens_details":{{"reasoning_tokens":{reasoning}}}}}}}"#
        );
        if let Reported::Usage(usage) = meter(CHAT, &RequestFacts::default(), false, &body).usage {
            prop_assert_eq!(usage.input_total(), u64::from(prompt));
            prop_assert_eq!(usage.output, u64::from(completion));
            prop_assert!(usage.reasoning <= usage.output);
        }
    }
}

/// A body nested deeper than levels are told apart is scanned, without a stack.
#[test]
fn depth_costs_nothing() {
    let deep = format!(
        r#"{{"choices":{}{}{},"usage":{{"prompt_tokens":1,"completion_tokens":2}}}}"#,
        r#"[{"a":"#.repeat(100_000),
        "0",
        "}]".repeat(100_000)
    );
    assert_eq!(complete(CHAT, false, &deep).total(), 3);
}
