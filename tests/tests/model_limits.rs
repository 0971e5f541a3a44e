//! Limits about models hold whatever names a call and its answer use for them.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use serde_json::json;
use tollgate_tests::{Answer, Client, Gateway, GatewayOptions};

const KEY: &str = "[[tenants]]\nid = \"t\"\n[[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n\
                   attributes = { team = \"ml\" }\n";

const PRICES: &str = "models:\n  unit:\n    input: 1\n    output: 1\n  dear:\n    input: 5\n    output: 5\n";

/// Every way to limit the model `unit` with something that a call or two use up.
const LIMITS: [&str; 7] = [
    "scope = \"team\"\nmodels = [\"un*\"]\nbudget_usd = 0.0004\nwindow = \"month\"\n",
    "scope = \"model\"\nbudget_usd = 0.0004\nwindow = \"month\"\n",
    "scope = \"model\"\nid = \"unit\"\nbudget_usd = 0.0004\nwindow = \"month\"\n",
    "scope = \"model\"\nrequests_per_hour = 2\n",
    "scope = \"model\"\nid = \"unit\"\nrequests_per_hour = 2\n",
    "scope = \"model\"\nid = \"unit\"\ntokens_per_hour = 400\n",
    "scope = \"global\"\nmodels = [\"unit\"]\noutput_tokens_per_hour = 400\n",
];

fn options(limits: &str) -> GatewayOptions {
    GatewayOptions {
        config: format!("{KEY}{limits}"),
        prices: Some(PRICES.to_owned()),
        ..GatewayOptions::default()
    }
}

async fn ask(gateway: &Gateway, model: &str, headers: &[&str]) -> Answer {
    let body = json!({"model": model, "max_tokens": 10, "messages": [{"role": "user", "content": "Hello"}]});
    Client::new(gateway.address()).post("/v1/chat/completions", "key_of_t", &body, headers).await
}

/// What six calls of `unit` are answered, with 300 tokens of output each, by a model of this name.
async fn six(gateway: &Gateway, answered: &str) -> Vec<u16> {
    let answered = format!("x-mock-model: {answered}");
    let headers = [&*answered, "x-mock-input-tokens: 10", "x-mock-output-tokens: 300"];
    let mut statuses = Vec::new();
    for _ in 0..6 {
        statuses.push(ask(gateway, "unit", &headers).await.status);
    }
    statuses
}

#[tokio::test]
async fn c16_an_answer_under_a_name_without_a_price_counts_as_the_model_that_was_asked_for() {
    for limit in LIMITS {
        let limit = format!("[[limits]]\n{limit}");
        let by_its_name = six(&Gateway::start(options(&limit)), "unit").await;
        assert!(by_its_name[0] == 200 && by_its_name[5] != 200, "{limit}: {by_its_name:?}");
        let gateway = Gateway::start(options(&limit));
        assert_eq!(six(&gateway, "deployment-7").await, by_its_name, "{limit}");
        let event = &gateway.usage_events()[0];
        assert_eq!((&event["model"], &event["requested_model"]), (&json!("deployment-7"), &json!("unit")));
    }
    // Neither name has a price: the call counts as what was asked for.
    let gateway = Gateway::start(options("[[limits]]\nscope = \"model\"\ntokens_per_hour = 400\n"));
    let headers = ["x-mock-model: theirs", "x-mock-output-tokens: 300"];
    for status in [200, 200, 429, 429] {
        assert_eq!(ask(&gateway, "ours", &headers).await.status, status);
    }
}

#[tokio::test]
async fn a_request_that_another_model_answered_is_not_given_back() {
    for limit in [
        "scope = \"model\"\n",
        "scope = \"model\"\nid = \"unit\"\n",
        "scope = \"team\"\nmodels = [\"unit\"]\n",
    ] {
        let gateway = Gateway::start(options(&format!("[[limits]]\n{limit}requests_per_hour = 2\n")));
        assert_eq!(six(&gateway, "dear").await, [200, 200, 429, 429, 429, 429], "{limit}");
    }
}

#[tokio::test]
async fn a_budget_of_a_model_comes_back_whatever_name_answered() {
    for limit in &LIMITS[..3] {
        let limit = format!("[[limits]]\n{limit}");
        let first = Gateway::start(options(&limit));
        assert_eq!(six(&first, "deployment-7").await[5], 402);
        first.stop();
        let directory = Some(first.directory.clone());
        let again = Gateway::start(GatewayOptions { directory, ..options(&limit) });
        assert_eq!(six(&again, "deployment-7").await, [402; 6], "{limit}");
    }
}

#[tokio::test]
async fn no_name_without_a_price_escapes_a_hard_budget_of_a_model() {
    for limit in &LIMITS[..3] {
        let gateway = Gateway::start(options(&format!("[[limits]]\n{limit}")));
        for name in ["UNIT", "Unit-preview", "somebody/unit", "anything"] {
            let refused = ask(&gateway, name, &[]).await;
            assert_eq!(
                (refused.status, refused.header("x-tollgate-reason")),
                (402, "model_unpriced"),
                "{name}"
            );
        }
        assert_eq!(ask(&gateway, "unit", &[]).await.status, 200);
        // Who says so lets them pass.
        let gateway = Gateway::start(options(&format!("[[limits]]\n{limit}unpriced = \"warn\"\n")));
        assert_eq!(ask(&gateway, "anything", &[]).await.status, 200, "{limit}");
    }
    // A key that may not call the model cannot call it by another name either.
    let limits = format!("models = [\"dear\", \"local-*\"]\n[[limits]]\n{}", LIMITS[2]);
    let gateway = Gateway::start(options(&limits));
    assert_eq!(ask(&gateway, "local-1", &[]).await.status, 200);
    let limits = format!("models = [\"unit-2026*\", \"local-*\"]\n[[limits]]\n{}", LIMITS[2]);
    let gateway = Gateway::start(options(&limits));
    assert_eq!(ask(&gateway, "local-1", &[]).await.status, 402);
}

#[tokio::test]
async fn the_case_of_a_model_s_name_means_nothing_to_limits() {
    for limit in
        ["scope = \"model\"\n", "scope = \"model\"\nid = \"Unit\"\n", "scope = \"key\"\nmodels = [\"Un*\"]\n"]
    {
        let gateway = Gateway::start(options(&format!("[[limits]]\n{limit}requests_per_hour = 2\n")));
        for (name, status) in
            [("unit", 200), ("UNIT", 200), ("Unit", 429), ("unit-20260901", 429), ("dear", 200)]
        {
            assert_eq!(ask(&gateway, name, &[]).await.status, status, "{limit}: {name}");
        }
    }
    let gateway = Gateway::start(options("models = [\"unit\"]\n"));
    assert_eq!(ask(&gateway, "UNIT", &[]).await.status, 403, "what a key may call is exact");
}
