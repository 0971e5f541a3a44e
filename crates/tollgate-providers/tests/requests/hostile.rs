//! Laws that hold for any body.

use super::*;
use proptest::prelude::*;

fn nested(levels: usize, open: &str, close: &str) -> String {
    format!(r#"{{"model":"m","max_tokens":1,"messages":[{}1{}]}}"#, open.repeat(levels), close.repeat(levels))
}

#[test]
fn deep_nesting_is_refused_wherever_it_is_and_needs_little_stack() {
    let check = || {
        for (open, close) in
            [("[", "]"), (r#"{"a":"#, "}"), (r#"{"source":{"content":["#, "]}}"), (r#"{"input":"#, "}")]
        {
            for endpoint in [MESSAGES, CHAT, COUNT_TOKENS] {
                assert!(inspect(endpoint, nested(30, open, close).as_bytes()).is_ok(), "{open}");
                let error = inspect(endpoint, nested(100_000, open, close).as_bytes()).unwrap_err();
                assert!(error.message.contains("nested"), "{error}");
                let unclosed = inspect(endpoint, nested(100_000, open, "").as_bytes()).unwrap_err();
                assert!(unclosed.message.contains("nested"), "{unclosed}");
            }
        }
        for field in ["unknown", "system", "tools", "cache_control", "stream_options", "model", "tool_choice"]
        {
            let deep = format!(r#"{{"{field}":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
            assert!(inspect(MESSAGES, deep.as_bytes()).is_err() && inspect(CHAT, deep.as_bytes()).is_err());
        }
    };
    // A quarter of what a worker thread has.
    std::thread::Builder::new().stack_size(512 * 1024).spawn(check).unwrap().join().unwrap();
}

fn json() -> impl Strategy<Value = String> {
    let key = prop_oneof![
        proptest::sample::select(vec![
            "model",
            "max_tokens",
            "messages",
            "n",
            "stream",
            "stream_options",
            "include_usage",
            "tools",
            "type",
            "source",
            "data",
            "media_type",
            "image_url",
            "url",
            "content",
            "text",
            "cache_control",
            "ttl",
            "input",
            "input_audio",
            "file",
            "file_id",
            "system",
            "detail",
            "tool_choice",
            "max_uses",
        ])
        .prop_map(str::to_owned),
        "\\PC{0,6}",
    ];
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        "\\PC{0,40}".prop_map(Into::into),
        proptest::sample::select(vec![
            "data:image/png;base64,iVBORw0KGgo",
            "text",
            "1h",
            "image/png",
            "https://a"
        ])
        .prop_map(Into::into),
    ];
    let value = leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
            proptest::collection::btree_map(key.clone(), inner, 0..5)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    });
    value.prop_map(|value| value.to_string())
}

proptest! {
    #[test]
    fn no_bytes_make_inspection_panic(
        body in prop_oneof![json().prop_map(String::into_bytes), proptest::collection::vec(any::<u8>(), 0..200)],
        cut in any::<usize>(),
    ) {
        let cut = cut % (body.len() + 1);
        for endpoint in [MESSAGES, CHAT, COUNT_TOKENS] {
            for part in [&body[..], &body[..cut], &body[cut..]] {
                if let Ok(facts) = inspect(endpoint, part) {
                    estimate_input(&facts);
                }
            }
        }
    }

    #[test]
    fn any_value_anywhere_is_read_or_refused(value in json()) {
        for (endpoint, body) in [
            (MESSAGES, messages(&value)),
            (CHAT, chat(&value)),
            (MESSAGES, format!(r#"{{"model":"m","max_tokens":1,"messages":[],"system":{value},"tools":[{value}]}}"#)),
        ] {
            let read = inspect(endpoint, body.as_bytes());
            // A tool that names a model must name one.
            let is_refused = value.contains("\"model\":") && body.contains("\"tools\":")
                && read.as_ref().is_err_and(|error| error.param == Some("tools"));
            prop_assert!(read.is_ok() || is_refused, "{:?}: {}", read, body);
        }
    }

    #[test]
    fn more_text_is_never_fewer_tokens(text in "[a-zé中0-9 ,.]{0,80}", more in "[a-z ]{1,40}") {
        let of = |text: &str| tokens(CHAT, &chat(&format!(r#"{{"type":"text","text":"{text}"}},{{"type":"text","text":"x"}}"#)));
        let both = tokens(CHAT, &chat(&format!(r#"{{"type":"text","text":"{text}"}},{{"type":"text","text":"x{more}"}}"#)));
        prop_assert!(both >= of(&text));
    }
}
