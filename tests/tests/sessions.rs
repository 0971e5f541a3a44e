//! Which session a call belongs to, and what is bounded by it.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use serde_json::{Value, json};
use tollgate_limiter::DurationMs;
use tollgate_tests::{Answer, Client, Gateway, GatewayOptions, UNIT_PRICES, count, parallel};

const KEY: &str = "[[tenants]]\nid = \"t\"\n[[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n\
                   caller_attributes = [\"user\"]\n\
                   [[tenants.keys]]\nid = \"k2\"\nkey_env = \"other_key\"\n";
const ANTHROPIC: &str = "/v1/messages";
const OPENAI: &str = "/v1/chat/completions";

fn with(config: &str) -> Gateway {
    Gateway::start(options(config))
}

fn options(config: &str) -> GatewayOptions {
    GatewayOptions {
        config: format!("{KEY}{config}"),
        prices: Some(UNIT_PRICES.to_owned()),
        ..GatewayOptions::default()
    }
}

/// A call of a loop that has gone on for some turns.
fn turn(task: &str, turns: usize) -> Value {
    let mut messages = vec![json!({"role": "user", "content": task})];
    for turn in 0..turns {
        messages.push(json!({"role": "assistant", "content": format!("Step {turn}.")}));
        messages.push(json!({"role": "user", "content": "Go on."}));
    }
    json!({"model": "unit", "max_tokens": 10, "messages": messages})
}

async fn post(gateway: &Gateway, path: &str, key: &str, body: &Value, headers: &[&str]) -> Answer {
    Client::new(gateway.address()).post(path, key, body, headers).await
}

/// The session of the latest event and whether it was derived.
fn latest(gateway: &Gateway) -> (Option<String>, bool) {
    let event = gateway.usage_events().pop().expect("an event");
    (event["session"].as_str().map(str::to_owned), event["session_derived"] == true)
}

#[tokio::test]
async fn the_first_of_header_agent_field_and_prompt_names_the_session() {
    let gateway = with("[sessions]\nopenai_field = \"prompt_cache_key\"\n");
    let named = |more: Value| {
        let mut body = turn("Hello", 0);
        for (name, value) in more.as_object().expect("fields") {
            body[name] = value.clone();
        }
        body
    };
    let agent = named(json!({"metadata": {"user_id": "user_d_account_a_session_s-1"}}));
    let object =
        named(json!({"metadata": {"user_id": r#"{"device_id":"d","account_uuid":"a","session_id":"s-2"}"#}}));
    let field = named(json!({"prompt_cache_key": "k-1", "safety_identifier": "i-1"}));
    let sent = |id: &str| (Some(id.to_owned()), false);
    for (path, body, headers, expected) in [
        (ANTHROPIC, &agent, &["x-tollgate-session: h-1"][..], sent("h-1")),
        (ANTHROPIC, &agent, &[], sent("s-1")),
        (ANTHROPIC, &object, &[], sent("s-2")),
        (OPENAI, &field, &[], sent("k-1")),
    ] {
        assert_eq!(post(&gateway, path, "key_of_t", body, headers).await.status, 200);
        assert_eq!(latest(&gateway), expected);
    }
    // What is no valid id names none: the prompt does.
    let spaced = named(json!({"prompt_cache_key": "two words"}));
    assert_eq!(post(&gateway, OPENAI, "key_of_t", &spaced, &[]).await.status, 200);
    let (session, derived) = latest(&gateway);
    assert!(derived && session.is_some_and(|session| session.starts_with("prompt-")));
}

#[tokio::test]
async fn an_agent_s_user_is_the_same_in_all_its_sessions() {
    let gateway = with("[[limits]]\nscope = \"user\"\nrequests_per_hour = 1\n");
    let mut body = turn("Hello", 0);
    body["metadata"] = json!({"user_id": "user_d_account_a_session_s-1"});
    assert_eq!(post(&gateway, ANTHROPIC, "key_of_t", &body, &[]).await.status, 200);
    assert_eq!(gateway.usage_events()[0]["attributes"]["user"], "user_d_account_a");
    body["metadata"] = json!({"user_id": r#"{"device_id":"d","account_uuid":"a","session_id":"s-2"}"#});
    assert_eq!(post(&gateway, ANTHROPIC, "key_of_t", &body, &[]).await.status, 429);
}

#[tokio::test]
async fn a_loop_has_one_derived_session_and_another_loop_key_or_user_another() {
    let gateway = with("");
    let mut sessions = Vec::new();
    for (path, key, body, headers) in [
        (ANTHROPIC, "key_of_t", turn("Fix it", 0), &[][..]),
        (ANTHROPIC, "key_of_t", turn("Fix it", 1), &[]),
        (ANTHROPIC, "key_of_t", turn("Fix it", 30), &[]),
        (ANTHROPIC, "key_of_t", turn("Fix that", 0), &[]),
        (ANTHROPIC, "other_key", turn("Fix it", 0), &[]),
        (ANTHROPIC, "key_of_t", turn("Fix it", 0), &["x-tollgate-user: ann"]),
    ] {
        assert_eq!(post(&gateway, path, key, &body, headers).await.status, 200);
        let (session, derived) = latest(&gateway);
        assert!(derived);
        sessions.push(session.expect("a session"));
    }
    assert!(sessions[0] == sessions[1] && sessions[0] == sessions[2], "{sessions:?}");
    let mut distinct = sessions.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), 4, "{sessions:?}");
}

/// C2, without a word of the client about sessions: a cap of 0.10 USD, two parallel calls of 0.08 each.
#[tokio::test]
async fn c02_a_session_s_cap_holds_for_calls_that_name_none() {
    let budget = "[[limits]]\nscope = \"session\"\nbudget_usd = 0.10\nwindow = \"session\"\n";
    let gateway = Gateway::start(GatewayOptions {
        reservation: "output_tokens = \"max\"".to_owned(),
        ..options(budget)
    });
    let mut body = turn("Fix it", 0);
    body["max_tokens"] = json!(79_980);
    let headers = &["x-mock-input-tokens: 20", "x-mock-output-tokens: 79980"];
    let statuses = parallel(&[&gateway], 2, &body, headers).await;
    assert_eq!((count(&statuses, 200), count(&statuses, 402)), (1, 1));
    assert_eq!(gateway.cost_pico_usd("t"), 80_000_000_000, "0.08 USD, not 0.16");
    let mut later = turn("Fix it", 3);
    later["max_tokens"] = json!(79_980);
    assert_eq!(post(&gateway, ANTHROPIC, "key_of_t", &later, headers).await.status, 402);
    let mut other = turn("Fix that", 0);
    other["max_tokens"] = json!(79_980);
    assert_eq!(post(&gateway, ANTHROPIC, "key_of_t", &other, headers).await.status, 200);
    // It is forgotten a day after its last call.
    gateway.manual_clock().advance(DurationMs::new(86_400_000));
    assert_eq!(post(&gateway, ANTHROPIC, "key_of_t", &later, headers).await.status, 200);
}

#[tokio::test]
async fn a_derived_session_is_the_same_after_a_restart_and_none_is_derived_where_that_is_off() {
    let budget = "[[limits]]\nscope = \"session\"\nbudget_usd = 0.10\nwindow = \"session\"\n";
    let first = with(budget);
    let dear = ["x-mock-input-tokens: 0", "x-mock-output-tokens: 99995"];
    assert_eq!(post(&first, ANTHROPIC, "key_of_t", &turn("Fix it", 0), &dear).await.status, 200);
    first.stop();
    let start = |config: &str| {
        Gateway::start(GatewayOptions { directory: Some(first.directory.clone()), ..options(config) })
    };
    let again = start(budget);
    assert_eq!(post(&again, ANTHROPIC, "key_of_t", &turn("Fix it", 1), &[]).await.status, 402);
    assert_eq!(post(&again, ANTHROPIC, "key_of_t", &turn("Fix that", 1), &[]).await.status, 200);
    again.stop();
    let underived = start(&format!("{budget}[sessions]\nderive = false\n"));
    assert_eq!(post(&underived, ANTHROPIC, "key_of_t", &turn("Fix it", 1), &[]).await.status, 200);
    assert_eq!(latest(&underived), (None, false));
}
