//! `reservation.fit`: an output limit that a budget does not afford is lowered in place of refusing the
//! request.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use tollgate_tests::{Answer, Client, Gateway, GatewayOptions};

const ANTHROPIC: &str = "/v1/messages";
const OPENAI: &str = "/v1/chat/completions";

/// Output costs two micro-USD a token, input nothing: what is left says how long an answer may be.
const PRICES: &str = "models:\n  unit:\n    input: 0\n    output: 2\n    max_output_tokens: 9000\n";

fn gateway(limits: &str) -> Gateway {
    gateway_with(limits, "fit = true")
}

fn gateway_with(limits: &str, reservation: &str) -> Gateway {
    let config = format!(
        "[[tenants]]\nid = \"t\"\n[[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = 0.001\n\
         [[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n{limits}"
    );
    Gateway::start(GatewayOptions {
        config,
        prices: Some(PRICES.to_owned()),
        reservation: reservation.to_owned(),
        ..GatewayOptions::default()
    })
}

/// Posts a body as it is, byte by byte.
async fn post(gateway: &Gateway, path: &str, body: &str) -> Answer {
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: tollgate\r\nauthorization: Bearer key_of_t\r\ncontent-type: application/json\r\n\
         x-mock-output-tokens: 10\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    Client::new(gateway.address()).send(request.as_bytes()).await
}

fn sent(gateway: &Gateway) -> String {
    let requests = gateway.mock.requests();
    String::from_utf8(requests.last().expect("a request").body.to_vec()).expect("text")
}

#[tokio::test]
async fn the_limit_is_lowered_to_what_the_budget_affords_and_every_other_byte_stays() {
    for (path, body, limit, expected) in [
        (
            ANTHROPIC,
            r#"{"model": "unit",  "max_tokens" : 32000 , "messages":[{"role":"user","content":"Hi"}]}"#,
            "500",
            r#"{"model": "unit",  "max_tokens" : 500 , "messages":[{"role":"user","content":"Hi"}]}"#,
        ),
        (
            OPENAI,
            r#"{"max_completion_tokens":32000,"model":"unit","messages":[{"role":"user","content":"Hi"}]}"#,
            "500",
            r#"{"max_completion_tokens":500,"model":"unit","messages":[{"role":"user","content":"Hi"}]}"#,
        ),
        // Both are named: neither may be above what is reserved.
        (
            OPENAI,
            r#"{"max_completion_tokens":700,"model":"unit","messages":[],"max_tokens":400}"#,
            "500",
            r#"{"max_completion_tokens":500,"model":"unit","messages":[],"max_tokens":400}"#,
        ),
        // Three choices share what is left.
        (
            OPENAI,
            r#"{"n":3,"max_tokens":400,"model":"unit","messages":[]}"#,
            "166",
            r#"{"n":3,"max_tokens":166,"model":"unit","messages":[]}"#,
        ),
        // A request without a limit gets one.
        (
            OPENAI,
            r#"{"model":"unit","messages":[],"max_completion_tokens":null}"#,
            "500",
            r#"{"model":"unit","messages":[],"max_completion_tokens":500}"#,
        ),
        (
            OPENAI,
            r#"{"model":"unit","stream":true,"messages":[]}"#,
            "500",
            r#"{"stream_options":{"include_usage":true},"max_completion_tokens":500,"model":"unit","stream":true,"messages":[]}"#,
        ),
        // What the budget affords stays as it is, and nothing is announced.
        (
            ANTHROPIC,
            r#"{"model":"unit","max_tokens":500,"messages":[]}"#,
            "",
            r#"{"model":"unit","max_tokens":500,"messages":[]}"#,
        ),
        // Thinking keeps its part.
        (
            ANTHROPIC,
            r#"{"model":"unit","max_tokens":9000,"thinking":{"type":"enabled","budget_tokens":499},"messages":[]}"#,
            "500",
            r#"{"model":"unit","max_tokens":500,"thinking":{"type":"enabled","budget_tokens":499},"messages":[]}"#,
        ),
    ] {
        let gateway = gateway("");
        let answer = post(&gateway, path, body).await;
        assert_eq!(answer.status, 200, "{body}: {}", answer.text());
        assert_eq!(answer.header("x-tollgate-output-limit"), limit, "{body}");
        assert_eq!(sent(&gateway), expected);
        let events = gateway.usage_events();
        let each: u64 = limit.parse().unwrap_or(500);
        let choices = if body.contains("\"n\":3") { 3 } else { 1 };
        assert_eq!(
            events[0]["reserved_micro_usd"],
            each * choices * 2,
            "all of the limit is reserved: {body}"
        );
    }
}

#[tokio::test]
async fn what_several_budgets_have_left_is_respected_by_all_of_them() {
    let key = "[[limits]]\nscope = \"key\"\nbudget_usd = 0.000201\nwindow = \"month\"\n";
    let gateway = gateway(key);
    let body = r#"{"model":"unit","max_tokens":32000,"messages":[]}"#;
    assert_eq!(post(&gateway, ANTHROPIC, body).await.header("x-tollgate-output-limit"), "100");
    // 10 tokens were used: 181 micro-USD are left of the smaller budget.
    assert_eq!(post(&gateway, ANTHROPIC, body).await.header("x-tollgate-output-limit"), "90");
    assert_eq!(gateway.store.open_reservations(), 0);
}

#[tokio::test]
async fn what_cannot_be_fitted_is_refused_as_ever() {
    let thinking = r#"{"model":"unit","max_tokens":9000,"thinking":{"type":"enabled","budget_tokens":500},"messages":[]}"#;
    let plain = r#"{"model":"unit","max_tokens":9000,"messages":[]}"#;
    let poor = "[[limits]]\nscope = \"key\"\nbudget_usd = 0.000001\nwindow = \"month\"\n";
    let rate = "[[limits]]\nscope = \"key\"\ntokens_per_minute = 100\n";
    for (limits, reservation, body, status) in [
        ("", "fit = true", thinking, 402),
        (poor, "fit = true", plain, 402),
        // A rate that refuses too is not fitted to.
        (rate, "fit = true", plain, 402),
        ("", "output_tokens = \"max\"", plain, 402),
    ] {
        let gateway = gateway_with(limits, reservation);
        let answer = post(&gateway, ANTHROPIC, body).await;
        assert_eq!(answer.status, status, "{limits} {reservation}: {}", answer.text());
        assert_eq!((gateway.mock.requests().len(), gateway.store.open_reservations()), (0, 0));
        assert_eq!(gateway.counter("t", "micro_usd", "day", 1_000).await.spent.units(), 0);
        assert_eq!(gateway.events().len(), 1, "one refusal is recorded, however often it was tried");
    }
}
