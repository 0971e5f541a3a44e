//! How large a request may be, and how many limits it may meet.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use serde_json::{Value, json};
use tollgate_tests::{Answer, Client, Gateway, GatewayOptions, UNIT_PRICES};

const KEY: &str = "[[tenants]]\nid = \"t\"\n[[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n\
                   attributes = { team = \"ml\" }\ncaller_attributes = [\"user\", \"org\", \"customer\"]\n";

fn with(limits: &str) -> Gateway {
    Gateway::start(GatewayOptions {
        config: format!("{KEY}{limits}"),
        prices: Some(UNIT_PRICES.to_owned()),
        ..GatewayOptions::default()
    })
}

async fn post(gateway: &Gateway, path: &str, more: &Value, headers: &[&str]) -> Answer {
    let mut body = json!({"model": "unit", "messages": [{"role": "user", "content": "Hello"}]});
    for (name, value) in more.as_object().expect("fields") {
        body[name] = value.clone();
    }
    Client::new(gateway.address()).post(path, "key_of_t", &body, headers).await
}

#[tokio::test]
async fn a_request_s_own_output_limit_counts_against_the_largest_request() {
    let gateway = with("[[limits]]\nscope = \"team\"\nmax_request_tokens = 5_000\n");
    for (more, status) in [
        (json!({"max_tokens": 100_000}), 429),
        (json!({"max_tokens": 5_000}), 429),
        (json!({"max_tokens": 2_000, "n": 3}), 429),
        (json!({"max_tokens": 4_900}), 200),
        (json!({"max_tokens": 2_400, "n": 2}), 200),
        // Without a limit of its own, what is reserved.
        (json!({}), 200),
    ] {
        let answer = post(&gateway, "/v1/chat/completions", &more, &[]).await;
        assert_eq!(answer.status, status, "{more}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_call_that_meets_too_many_limits_is_told_so() {
    let of_each = |scope: &str| {
        let units = ["requests", "tokens", "input_tokens", "output_tokens"];
        let windows = ["second", "minute", "hour", "day"];
        let rates: String = units
            .iter()
            .flat_map(|unit| windows.iter().map(move |window| format!("{unit}_per_{window} = 1_000_000\n")))
            .collect();
        format!("[[limits]]\nscope = \"{scope}\"\n{rates}")
    };
    let scopes = ["global", "tenant", "team", "user", "org"];
    let gateway = with(&scopes.map(of_each).concat());
    let small = json!({"max_tokens": 1});
    let both = ["x-tollgate-user: u", "x-tollgate-org: o"];
    assert_eq!(post(&gateway, "/v1/messages", &small, &both[..1]).await.status, 200, "64 limits");
    for path in ["/v1/messages", "/v1/chat/completions"] {
        let refused = post(&gateway, path, &small, &both).await;
        assert_eq!((refused.status, refused.header("x-tollgate-reason")), (400, "too_many_limits"));
        assert!(refused.text().contains("80 limits") && refused.text().contains("64"), "{}", refused.text());
    }
}

#[tokio::test]
async fn a_limit_of_zero_says_what_it_is() {
    for (limit, status) in [("tokens_per_day = 0\n", 429), ("budget_usd = 0\nwindow = \"day\"\n", 402)] {
        let gateway = with(&format!("[[limits]]\nscope = \"team\"\n{limit}"));
        let refused = post(&gateway, "/v1/messages", &json!({"max_tokens": 1}), &[]).await;
        assert_eq!(refused.status, status);
        assert!(
            refused.text().contains("The limit is 0") && !refused.text().contains("smaller"),
            "{}",
            refused.text()
        );
    }
}

#[tokio::test]
async fn a_refusal_names_session_and_use_and_a_metric_the_models() {
    let gateway = with(
        "[[limits]]\nscope = \"team\"\nbudget_usd = 0.0001\nwindow = \"session\"\n\
         [[limits]]\nscope = \"team\"\noutput_tokens_per_day = 500\n\
         [[limits]]\nscope = \"team\"\nmodels = [\"unit\", \"x-*\"]\noutput_tokens_per_day = 400\n",
    );
    let used = ["x-tollgate-session: run", "x-mock-output-tokens: 90"];
    assert_eq!(post(&gateway, "/v1/messages", &json!({"max_tokens": 10}), &used).await.status, 200);
    let refused = post(&gateway, "/v1/messages", &json!({"max_tokens": 10}), &used).await;
    assert!(
        refused.status == 402 && refused.text().contains("team `ml` in session `run`"),
        "{}",
        refused.text()
    );
    let refused = post(&gateway, "/v1/messages", &json!({"max_tokens": 450}), &[]).await;
    assert!(refused.text().contains("Used 90, held by open requests 0."), "{}", refused.text());
    post(&gateway, "/v1/messages", &json!({"max_tokens": 600}), &[]).await;
    let metrics = Client::new(gateway.admin_address()).get("/metrics", &[]).await.text();
    for models in ["unit,x-*", ""] {
        assert!(
            metrics.contains(&format!("id=\"ml\",models=\"{models}\",unit=\"output_tokens\"")),
            "{metrics}"
        );
    }
}
