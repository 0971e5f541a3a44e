//! What callers say of themselves: whom it counts against, and what it may be.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use serde_json::{Value, json};
use tollgate_tests::{Answer, Client, Gateway, GatewayOptions, UNIT_PRICES};

/// Tenant `a` lets its callers choose what tenant `b` fixes.
const TENANTS: &str = "[[tenants]]\nid = \"a\"\n[[tenants.keys]]\nid = \"a\"\nkey_env = \"key_a\"\n\
                       caller_attributes = [\"user\", \"team\"]\n\
                       [[tenants.keys]]\nid = \"a2\"\nkey_env = \"key_a2\"\ncaller_attributes = [\"user\", \"team\"]\n\
                       [[tenants]]\nid = \"b\"\n[[tenants.keys]]\nid = \"b\"\nkey_env = \"key_b\"\n\
                       attributes = { user = \"bob\", team = \"ml\" }\n";

fn options(limits: &str) -> GatewayOptions {
    GatewayOptions {
        config: format!("{TENANTS}{limits}"),
        prices: Some(UNIT_PRICES.to_owned()),
        ..GatewayOptions::default()
    }
}

async fn call(gateway: &Gateway, key: &str, headers: &[&str]) -> Answer {
    post(gateway, "/v1/messages", key, &json!({}), headers).await
}

async fn post(gateway: &Gateway, path: &str, key: &str, more: &Value, headers: &[&str]) -> Answer {
    let mut body =
        json!({"model": "unit", "max_tokens": 10, "messages": [{"role": "user", "content": "Hello"}]});
    for (name, value) in more.as_object().expect("fields") {
        body[name] = value.clone();
    }
    Client::new(gateway.address()).post(path, key, &body, headers).await
}

#[tokio::test]
async fn what_a_caller_chooses_uses_up_nothing_of_another_tenant() {
    let amounts = [
        "requests_per_hour = 2\n",
        "budget_usd = 0.0004\nwindow = \"month\"\n",
        "budget_usd = 0.0004\nwindow = \"session\"\n",
    ];
    for (scope, value, header) in
        [("user", "bob", "x-tollgate-user: bob"), ("team", "ml", "x-tollgate-team: ml")]
    {
        for (amount, id) in amounts.iter().flat_map(|amount| [(amount, ""), (amount, "id")]) {
            let id = if id.is_empty() { String::new() } else { format!("id = \"{value}\"\n") };
            let limits = format!("[[limits]]\nscope = \"{scope}\"\n{id}{amount}");
            let gateway = Gateway::start(options(&limits));
            let spend =
                [header, "x-tollgate-session: s", "x-mock-input-tokens: 10", "x-mock-output-tokens: 300"];
            let mut statuses = Vec::new();
            for _ in 0..4 {
                statuses.push(call(&gateway, "key_a", &spend).await.status);
            }
            assert!(statuses[0] == 200 && statuses[3] != 200, "{limits}: {statuses:?}");
            assert_ne!(call(&gateway, "key_a2", &spend).await.status, 200, "one of the tenant: {limits}");
            let others = call(&gateway, "key_b", &spend[1..]).await;
            assert_eq!(others.status, 200, "{limits}: {}", others.text());
            gateway.stop();
            // After a restart it is the same, as far as money goes.
            let again = Gateway::start(GatewayOptions {
                directory: Some(gateway.directory.clone()),
                ..options(&limits)
            });
            let expected = if amount.starts_with("budget") { 402 } else { 200 };
            assert_eq!(call(&again, "key_a", &spend).await.status, expected, "{limits}");
            assert_eq!(call(&again, "key_b", &spend[1..]).await.status, 200, "{limits}");
        }
    }
}

#[tokio::test]
async fn the_protocol_s_own_field_takes_any_name_that_providers_take() {
    let gateway = Gateway::start(options("[[limits]]\nscope = \"user\"\nrequests_per_minute = 1\n"));
    let (anthropic, openai) = ("/v1/messages", "/v1/chat/completions");
    let longest = "x".repeat(256);
    for user in ["Jane Doe", "josé", "李雷", "a/b", &longest] {
        let asks = [(anthropic, json!({"metadata": {"user_id": user}})), (openai, json!({"user": user}))];
        assert_eq!(post(&gateway, asks[0].0, "key_a", &asks[0].1, &[]).await.status, 200, "{user}");
        let again = post(&gateway, asks[1].0, "key_a", &asks[1].1, &[]).await;
        assert!(again.status == 429 && again.text().contains(user), "{}", again.text());
    }
    // Empty is as good as absent, and then the other field of the protocol counts.
    for more in [json!({"user": ""}), json!({"user": null}), json!({})] {
        for _ in 0..2 {
            assert_eq!(post(&gateway, openai, "key_a", &more, &[]).await.status, 200);
        }
    }
    let identified = |user: &str| json!({"safety_identifier": "s-1", "user": user});
    assert_eq!(post(&gateway, openai, "key_a", &identified(""), &[]).await.status, 200);
    assert_eq!(post(&gateway, openai, "key_a", &json!({"safety_identifier": "s-1"}), &[]).await.status, 429);
    assert_eq!(post(&gateway, openai, "key_a", &identified("u-1"), &[]).await.status, 200);
    for user in
        ["x".repeat(257), "é".repeat(129), "x".repeat(2_000), "a\nb".to_owned(), "a\u{85}b".to_owned()]
    {
        let refused = post(&gateway, openai, "key_a", &json!({"user": user}), &[]).await;
        assert!(refused.status == 400 && refused.text().contains("256 bytes"), "{}", refused.text());
    }
}
