//! What cannot be read is refused, with what to change.

use super::*;

fn refusal(endpoint: Endpoint, body: &str) -> (Option<&'static str>, String) {
    match inspect(endpoint, body.as_bytes()) {
        Err(error) => (error.param, error.message),
        Ok(facts) => panic!("accepted {body:.200}: {facts:?}"),
    }
}

#[test]
fn what_is_not_one_json_object_is_refused() {
    for body in [
        "",
        "   ",
        "\u{feff}",
        "null",
        "[]",
        "\"model\"",
        "{",
        "{\"model\":\"m\"",
        "{\"model\":\"m\",}",
        "{'model':'m'}",
        "{\"model\":\"m\",\"messages\":[]} {}",
        "{\"model\":\"m\",\"messages\":[]}x",
        "model=m",
        "{\"model\":\"\\ud800\",\"messages\":[]}",
        "{\"model\":\"m\",\"messages\":[NaN]}",
    ] {
        for endpoint in [MESSAGES, CHAT] {
            let (param, message) = refusal(endpoint, body);
            assert_eq!(param, None, "{body}");
            assert!(message.contains("JSON"), "{message}");
        }
    }
    let not_utf8 = b"{\"model\":\"\xFF\",\"messages\":[]}";
    assert!(inspect(CHAT, not_utf8).is_err());
}

#[test]
fn a_field_that_stands_twice_is_refused() {
    for (name, value) in [
        ("model", "\"m\""),
        ("max_tokens", "1"),
        ("stream", "true"),
        ("messages", "[]"),
        ("tools", "[]"),
        ("n", "1"),
        ("stream_options", "{}"),
        ("service_tier", "\"auto\""),
    ] {
        let others = r#""max_completion_tokens":5"#;
        let base = [("model", "\"m\""), ("messages", "[]")]
            .iter()
            .filter(|(other, _)| *other != name)
            .map(|(other, value)| format!("\"{other}\":{value},"))
            .collect::<String>();
        let twice = format!("{{{base}\"{name}\":{value},{others},\"{name}\":{value}}}");
        assert_eq!(refusal(CHAT, &twice).0, Some(name));
        let escaped = twice.replacen(
            &format!("\"{name}\""),
            &format!("\"\\u{:04x}{}\"", name.as_bytes()[0], &name[1..]),
            1,
        );
        assert_eq!(refusal(CHAT, &escaped).0, Some(name), "{escaped}");
    }
    assert!(
        refusal(
            CHAT,
            r#"{"model":"m","messages":[],"stream_options":{"include_usage":true,"include_usage":false}}"#
        )
        .1
        .contains("more than once")
    );
}

#[test]
fn a_name_in_another_case_is_refused() {
    let (param, message) = refusal(CHAT, r#"{"model":"cheap","Model":"dear","messages":[]}"#);
    assert_eq!(param, Some("model"));
    assert!(message.contains("write `model`"));
    assert_eq!(refusal(MESSAGES, r#"{"model":"m","MAX_TOKENS":1,"messages":[]}"#).0, Some("max_tokens"));
}

#[test]
fn wrong_types_and_ranges_are_refused_by_name() {
    let long = format!("\"{}\"", "m".repeat(600));
    for (name, value) in [
        ("model", "1"),
        ("model", "null"),
        ("model", "\"\""),
        ("model", "[\"m\"]"),
        ("model", "\"a\\nb\""),
        ("model", &long),
        ("max_tokens", "0"),
        ("max_tokens", "-1"),
        ("max_tokens", "1.5"),
        ("max_tokens", "1e3"),
        ("max_tokens", "\"100\""),
        ("max_tokens", "true"),
        ("max_tokens", "99999999999999999999999"),
        ("stream", "\"true\""),
        ("stream", "1"),
        ("messages", "\"hello\""),
        ("messages", "{}"),
        ("messages", "null"),
        ("service_tier", "7"),
    ] {
        for (endpoint, base) in [
            (MESSAGES, [("model", "\"m\""), ("max_tokens", "5"), ("messages", "[]")]),
            (CHAT, [("model", "\"m\""), ("user", "\"u\""), ("messages", "[]")]),
        ] {
            let others: Vec<_> =
                base.iter().filter(|(n, _)| *n != name).map(|(n, v)| format!("\"{n}\":{v}")).collect();
            let body = format!("{{\"{name}\":{value},{}}}", others.join(","));
            let (param, message) = refusal(endpoint, &body);
            assert_eq!(param, Some(name), "{body}");
            assert!(message.contains(name), "{message}");
        }
    }
    for choices in ["0", "129", "9223372036854775808", "18446744073709551615", "-1", "1.0", "\"2\""] {
        assert_eq!(refusal(CHAT, &format!(r#"{{"model":"m","messages":[],"n":{choices}}}"#)).0, Some("n"));
    }
    for options in ["true", "[]", "\"x\"", r#"{"include_usage":1}"#, r#"{"include_usage":"true"}"#] {
        let body = format!(r#"{{"model":"m","messages":[],"stream_options":{options}}}"#);
        assert_eq!(refusal(CHAT, &body).0, Some("stream_options"), "{options}");
    }
}

#[test]
fn what_is_missing_is_named() {
    assert_eq!(refusal(MESSAGES, r#"{"max_tokens":1,"messages":[]}"#).0, Some("model"));
    assert_eq!(refusal(MESSAGES, r#"{"model":"m","messages":[]}"#).0, Some("max_tokens"));
    assert_eq!(refusal(MESSAGES, r#"{"model":"m","max_tokens":1}"#).0, Some("messages"));
    assert_eq!(refusal(CHAT, "{}").0, Some("model"));
    assert_eq!(refusal(CHAT, r#"{"model":"m"}"#).0, Some("messages"));
}

#[test]
fn a_refusal_holds_nothing_of_the_body() {
    for body in [
        r#"{"model":"m","messages":"sk-sentinel"}"#,
        r#"{"model":"m","messages":[],"n":"sk-sentinel"}"#,
        r#"{"model":"m","messages":[sk-sentinel]}"#,
        r#"{"model":"m","messages":[],"sk-sentinel"}"#,
    ] {
        assert!(!refusal(CHAT, body).1.contains("sentinel"));
    }
}

#[test]
fn models_beside_the_request_s_own_are_bounded() {
    let tools = |models: &[String]| {
        let tools: Vec<String> =
            models.iter().map(|model| format!(r#"{{"type":"advisor_1","model":{model}}}"#)).collect();
        let body = format!(r#"{{"model":"m","max_tokens":1,"messages":[],"tools":[{}]}}"#, tools.join(","));
        inspect(MESSAGES, body.as_bytes()).map(|facts| facts.other_models.len()).map_err(|e| e.param)
    };
    let list = |models: &[String]| {
        let body = format!(r#"{{"model":"m","messages":[],"models":[{}]}}"#, models.join(","));
        inspect(CHAT, body.as_bytes()).map(|facts| facts.other_models.len()).map_err(|e| e.param)
    };
    let named = |count: usize| (0..count).map(|i| format!("\"m{i}\"")).collect::<Vec<_>>();
    let long = |bytes: usize| vec![format!("\"{}\"", "x".repeat(bytes))];
    for (models, expected) in [
        (named(16), Some(16)),
        (named(17), None),
        (long(256), Some(1)),
        (long(257), None),
        (long(600), None),
        (long(0), None),
        (vec!["5".to_owned()], None),
        (vec!["{}".to_owned()], None),
        (vec!["\"a\\n\"".to_owned()], None),
    ] {
        assert_eq!(tools(&models), expected.ok_or(Some("tools")), "{models:.30?}");
        assert_eq!(list(&models), expected.ok_or(Some("models")), "{models:.30?}");
    }
    for models in ["\"a\"", "5", "{}"] {
        let body = format!(r#"{{"model":"m","messages":[],"models":{models}}}"#);
        assert_eq!(inspect(CHAT, body.as_bytes()).unwrap_err().param, Some("models"));
    }
}
