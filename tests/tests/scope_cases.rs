//! Cases of limits over scopes, and what a caller may say about itself.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use std::sync::Arc;

use serde_json::{Value, json};
use tollgate_tests::{
    Answer, Client, Gateway, GatewayOptions, UNIT_PRICES, count, eventually, json_request, parallel,
};

/// A tenant whose key lets its callers say who the user is.
const KEY: &str = "[[tenants]]\nid = \"t\"\n[[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n\
                   attributes = { team = \"ml\" }\ncaller_attributes = [\"user\", \"business_unit\"]\n";

fn with(limits: &str) -> Gateway {
    Gateway::start(options(limits))
}

fn options(limits: &str) -> GatewayOptions {
    GatewayOptions {
        config: format!("{KEY}{limits}"),
        prices: Some(UNIT_PRICES.to_owned()),
        ..GatewayOptions::default()
    }
}

fn body(model: &str, max_tokens: u64) -> Value {
    json!({"model": model, "max_tokens": max_tokens, "messages": [{"role": "user", "content": "Hello"}]})
}

async fn post(gateway: &Gateway, path: &str, body: &Value, headers: &[&str]) -> Answer {
    Client::new(gateway.address()).post(path, "key_of_t", body, headers).await
}

async fn call(gateway: &Gateway, headers: &[&str]) -> Answer {
    post(gateway, "/v1/messages", &body("unit", 10), headers).await
}

#[tokio::test]
async fn a_caller_s_attribute_adds_a_limit_and_loosens_none() {
    let limits = "[[limits]]\nscope = \"user\"\nrequests_per_minute = 1\n\
                  [[limits]]\nscope = \"user\"\nid = \"vip\"\nrequests_per_minute = 100\n\
                  [[limits]]\nscope = \"team\"\nrequests_per_minute = 3\n";
    let gateway = with(limits);
    assert_eq!(call(&gateway, &["x-tollgate-user: u1"]).await.status, 200);
    let refused = call(&gateway, &["x-tollgate-user: u1"]).await;
    assert_eq!(refused.status, 429);
    assert!(refused.text().contains("user `u1`"), "{}", refused.text());
    // The larger limit of one user is another limit, not in place of the one for all.
    assert_eq!(call(&gateway, &["x-tollgate-user: vip"]).await.status, 200);
    assert_eq!(call(&gateway, &["x-tollgate-user: vip"]).await.status, 429);
    // Without a user there is no user's limit; the key's own hold, whatever the caller says.
    assert_eq!(call(&gateway, &[]).await.status, 200);
    let refused = call(&gateway, &["x-tollgate-user: u2"]).await;
    assert!(refused.status == 429 && refused.text().contains("team `ml`"), "{}", refused.text());
    let events = gateway.usage_events();
    assert_eq!(events[0]["attributes"], json!({"team": "ml", "user": "u1"}));
    assert_eq!(events[2]["attributes"], json!({"team": "ml"}));
    let metrics = Client::new(gateway.admin_address()).get("/metrics", &[]).await.text();
    assert!(metrics.contains("scope=\"user\",id=\"*\"") && !metrics.contains("u1"), "{metrics}");
}

#[tokio::test]
async fn the_protocol_s_own_user_counts_where_no_header_names_one() {
    let gateway = with("[[limits]]\nscope = \"user\"\nrequests_per_minute = 1\n");
    let mut anthropic = body("unit", 10);
    anthropic["metadata"] = json!({"user_id": "u1"});
    let mut openai = body("unit", 10);
    openai["user"] = json!("u1");
    assert_eq!(post(&gateway, "/v1/messages", &anthropic, &[]).await.status, 200);
    assert_eq!(post(&gateway, "/v1/chat/completions", &openai, &[]).await.status, 429);
    assert_eq!(post(&gateway, "/v1/chat/completions", &openai, &["x-tollgate-user: u2"]).await.status, 200);
    assert_eq!(call(&gateway, &["x-tollgate-user: u2"]).await.status, 429);
    let long = json!({"model": "unit", "max_tokens": 1, "messages": [], "user": "x".repeat(2_000)});
    assert_eq!(post(&gateway, "/v1/chat/completions", &long, &[]).await.status, 400);
}

#[tokio::test]
async fn what_a_caller_may_not_say_is_refused() {
    let gateway = with("");
    for header in ["x-tollgate-team: ml", "x-tollgate-team: other", "x-tollgate-customer: c"] {
        let refused = call(&gateway, &[header]).await;
        assert_eq!(
            (refused.status, refused.header("x-tollgate-reason")),
            (403, "attribute_not_allowed"),
            "{header}"
        );
    }
    let long = format!("x-tollgate-user: {}", "x".repeat(257));
    for header in [&*long, "x-tollgate-user:", "x-tollgate-user: a b", "x-tollgate-user: \u{e9}"] {
        assert_eq!(call(&gateway, &[header]).await.status, 400, "{header}");
    }
    assert_eq!(call(&gateway, &["x-tollgate-user: a", "x-tollgate-user: b"]).await.status, 400);
    let longest = format!("x-tollgate-user: {}", "x".repeat(128));
    assert_eq!(call(&gateway, &[&longest, "x-tollgate-business-unit: b"]).await.status, 200);
    assert_eq!(gateway.mock.counts().requests, 1);
    let seen = &gateway.mock.requests()[0];
    assert!(!seen.headers.keys().any(|name| name.as_str().starts_with("x-tollgate-")), "{:?}", seen.headers);
}

#[tokio::test]
async fn c02_two_parallel_calls_cannot_both_spend_what_is_left_of_a_session() {
    for limits in [
        "[[limits]]\nscope = \"session\"\nbudget_usd = 0.10\nwindow = \"session\"\n",
        "[[limits]]\nscope = \"tenant\"\nbudget_usd = 0.10\nwindow = \"session\"\n",
        "[[tenants.budgets]]\nlimit_usd = 0.10\nwindow = \"session\"\n",
    ] {
        let headers = &["x-tollgate-session: run", "x-mock-input-tokens: 20", "x-mock-output-tokens: 79980"];
        let gateway = Gateway::start(GatewayOptions {
            reservation: "output_tokens = \"max\"".to_owned(),
            ..options(limits)
        });
        let statuses = parallel(&[&gateway], 2, &body("unit", 79_980), headers).await;
        assert_eq!((count(&statuses, 200), count(&statuses, 402)), (1, 1), "{limits}");
        assert_eq!(gateway.cost_pico_usd("t"), 80_000_000_000, "0.08 USD, not 0.16");
        let later = post(&gateway, "/v1/messages", &body("unit", 79_980), headers).await;
        assert_eq!((later.status, later.header("x-tollgate-reason")), (402, "budget_exceeded"));
        assert!(later.text().contains("Session budget"), "{}", later.text());
        let other = post(&gateway, "/v1/messages", &body("unit", 79_980), &["x-tollgate-session: two"]).await;
        assert_eq!(other.status, 200, "another session has its own");
    }
}

#[tokio::test]
async fn c05_three_copies_on_one_store_share_one_limit() {
    let limits = "[[limits]]\nscope = \"team\"\nrequests_per_minute = 10\n";
    let first = with(limits);
    let sharing = || GatewayOptions { store: Some(first.store.clone()), ..options(limits) };
    let (second, third) = (Gateway::start(sharing()), Gateway::start(sharing()));
    let statuses = parallel(&[&first, &second, &third], 30, &body("unit", 1), &[]).await;
    assert_eq!((count(&statuses, 200), count(&statuses, 429)), (10, 20));
}

#[tokio::test]
async fn raising_a_limit_keeps_what_was_spent() {
    let limit = |amount: &str, mode: &str| {
        format!(
            "[[limits]]\nscope = \"team\"\nid = \"ml\"\nrequests_per_minute = {amount}\nbudget_usd = {amount}\nwindow = \"day\"\nmode = \"{mode}\"\n"
        )
    };
    let first = with(&limit("2", "soft"));
    for status in [200, 200, 429] {
        assert_eq!(call(&first, &[]).await.status, status);
    }
    let sharing = GatewayOptions { store: Some(first.store.clone()), ..options(&limit("3", "hard")) };
    let raised = Gateway::start(sharing);
    for status in [200, 429] {
        assert_eq!(call(&raised, &[]).await.status, status, "two of three are used");
    }
}

#[tokio::test]
async fn c12_the_smallest_limit_of_the_chain_holds() {
    let limits = "[[limits]]\nscope = \"user\"\nrequests_per_minute = 2\n\
                  [[limits]]\nscope = \"key\"\nid = \"minted\"\nrequests_per_minute = 10_000\n\
                  [[tenants]]\nid = \"u\"\n[[tenants.keys]]\nid = \"minted\"\nkey_env = \"key_minted\"\n\
                  attributes = { user = \"ann\" }\n[[tenants.keys]]\nid = \"first\"\nkey_env = \"key_first\"\n\
                  attributes = { user = \"ann\" }\n";
    let gateway = with(limits);
    let client = Client::new(gateway.address());
    let mut statuses = Vec::new();
    for key in ["key_first", "key_minted", "key_minted", "key_first"] {
        statuses.push(client.post("/v1/messages", key, &body("unit", 1), &[]).await.status);
    }
    assert_eq!(statuses, [200, 200, 429, 429]);
}

#[tokio::test]
async fn c14_a_provider_far_below_both_of_its_budgets_is_not_refused() {
    let limits = "[[limits]]\nscope = \"provider\"\nid = \"anthropic\"\nbudget_usd = 15\nwindow = \"day\"\n\
                  [[limits]]\nscope = \"provider\"\nid = \"anthropic\"\nbudget_usd = 100\nwindow = \"month\"\n";
    let gateway = with(limits);
    let spent = ["x-mock-input-tokens: 0", "x-mock-output-tokens: 400000"];
    assert_eq!(call(&gateway, &spent).await.status, 200);
    assert_eq!(gateway.cost_pico_usd("t"), 400_000_000_000, "0.40 USD");
    assert_eq!(call(&gateway, &spent).await.status, 200);
}

#[tokio::test]
async fn c16_the_limit_of_the_model_really_called_is_checked_and_charged() {
    let prices = "models:\n  a:\n    input: 1\n    output: 1\n  b:\n    input: 1\n    output: 1\n";
    let start =
        |limits: &str| Gateway::start(GatewayOptions { prices: Some(prices.to_owned()), ..options(limits) });
    let b_then_a = json!({"model": "b", "models": ["a"], "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]});
    // Nothing is left for A: a request that may fall back to it does not pass.
    let gateway = start("[[limits]]\nscope = \"model\"\nid = \"a\"\nrequests_per_minute = 0\n");
    let refused = post(&gateway, "/v1/chat/completions", &b_then_a, &[]).await;
    assert!(refused.status == 429 && refused.text().contains("model `a`"), "{}", refused.text());
    assert_eq!(post(&gateway, "/v1/chat/completions", &body("b", 10), &[]).await.status, 200);
    // A provider that answers with A what was asked of B, unasked: A's budget is charged, B's is not.
    let gateway = start("[[limits]]\nscope = \"model\"\nbudget_usd = 0.0001\nwindow = \"day\"\n");
    let answered_by_a = ["x-mock-model: a", "x-mock-input-tokens: 20", "x-mock-output-tokens: 80"];
    let ask_b = body("b", 10);
    assert_eq!(post(&gateway, "/v1/chat/completions", &ask_b, &answered_by_a).await.status, 200);
    assert_eq!(post(&gateway, "/v1/chat/completions", &ask_b, &[]).await.status, 200, "B spent nothing");
    let mut refused = 0;
    for _ in 0..50 {
        // Charged after the answer: a moment may pass.
        refused =
            post(&gateway, "/v1/chat/completions", &body("a", 10), &["x-mock-status: 500"]).await.status;
        if refused == 402 {
            break;
        }
    }
    assert_eq!(refused, 402, "A spent all of its 100 micro-USD");
}

/// Twenty agents with long prompts and `max_tokens: 32000` against 25 USD: worst-case holds fill the
/// budget while nothing is spent, and the refusal says so; the default reservation lets them pass.
#[tokio::test]
async fn c23_worst_case_holds_are_named_and_the_reservation_cap_avoids_them() {
    let prices = "models:\n  opus:\n    input: 5\n    output: 25\n";
    let limits = "[[limits]]\nscope = \"team\"\nbudget_usd = 25\nwindow = \"day\"\n";
    let prompt = "word ".repeat(120_000);
    let ask =
        json!({"model": "opus", "max_tokens": 32_000, "messages": [{"role": "user", "content": prompt}]});
    let start = |reservation: &str| {
        Gateway::start(GatewayOptions {
            prices: Some(prices.to_owned()),
            reservation: reservation.to_owned(),
            ..options(limits)
        })
    };
    let hold: &[&str] = &["x-mock-start: hang"];
    for (reservation, expected) in [("output_tokens = \"max\"", false), ("", true)] {
        let gateway = Arc::new(start(reservation));
        let mut open = Vec::new();
        for _ in 0..19 {
            let mut connection = Client::new(gateway.address()).connect().await;
            connection.write(&json_request("/v1/messages", "key_of_t", &ask, hold)).await;
            open.push(connection);
        }
        eventually("19 are decided", || {
            let decided = gateway.events().len() + gateway.store.open_reservations();
            decided == 19
        })
        .await;
        let last = post(&gateway, "/v1/messages", &ask, &[]).await;
        if expected {
            assert_eq!(last.status, 200, "{}", last.text());
        } else {
            assert_eq!((last.status, last.header("x-tollgate-reason")), (402, "budget_held"));
            assert!(last.text().contains("spent 0.000000 USD, held by open requests 2"), "{}", last.text());
        }
    }
}

#[tokio::test]
async fn c117_a_provider_s_budget_counts_every_path_to_it() {
    let limits = "[[limits]]\nscope = \"provider\"\nbudget_usd = 50\nwindow = \"day\"\n";
    let gateway = with(limits);
    let dear = ["x-mock-input-tokens: 0", "x-mock-output-tokens: 51000000"];
    assert_eq!(call(&gateway, &dear).await.status, 200, "51 USD that nobody could foresee");
    for path in ["/v1/messages", "/provider/anthropic/v1/messages"] {
        let refused = post(&gateway, path, &body("unit", 10), &[]).await;
        assert_eq!((refused.status, refused.header("x-tollgate-reason")), (402, "budget_exceeded"), "{path}");
    }
    assert_eq!(post(&gateway, "/v1/chat/completions", &body("unit", 10), &dear).await.status, 200);
    assert_eq!(post(&gateway, "/v1/chat/completions", &body("unit", 10), &[]).await.status, 402);
}

#[tokio::test]
async fn a_hard_budget_blocks_unpriced_models_only_for_the_calls_it_is_about() {
    let limits = "[[limits]]\nscope = \"session\"\nbudget_usd = 1\nwindow = \"session\"\n\
                  [sessions]\nderive = false\n";
    let gateway = with(limits);
    let ask = |model: &str| body(model, 10);
    assert_eq!(post(&gateway, "/v1/messages", &ask("nobody"), &[]).await.status, 200);
    let refused = post(&gateway, "/v1/messages", &ask("nobody"), &["x-tollgate-session: s"]).await;
    assert_eq!((refused.status, refused.header("x-tollgate-reason")), (402, "model_unpriced"));
}

#[tokio::test]
async fn a_request_that_names_too_many_models_is_told_so() {
    let limits = "[[limits]]\nscope = \"model\"\nrequests_per_minute = 9\nrequests_per_hour = 9\nrequests_per_day = 9\n\
                  tokens_per_day = 10_000\n";
    let gateway = with(limits);
    let mut ask = body("unit", 10);
    let with_models = |ask: &mut Value, count: usize| {
        ask["models"] = (0..count).map(|index| format!("m{index}")).collect();
    };
    with_models(&mut ask, 15);
    assert_eq!(post(&gateway, "/v1/chat/completions", &ask, &[]).await.status, 200, "16 models, 64 limits");
    with_models(&mut ask, 16);
    let refused = post(&gateway, "/v1/chat/completions", &ask, &[]).await;
    assert!(refused.status == 400 && refused.text().contains("too many models"), "{}", refused.text());
}

/// A caller that names a new session with each call makes counters, but they go again.
#[tokio::test]
async fn counters_that_callers_choose_are_dropped_when_they_no_longer_count() {
    let gateway = with("[[limits]]\nscope = \"session\"\nbudget_usd = 1\nwindow = \"session\"\n");
    let mut kept = Vec::new();
    for day in 0..4 {
        for who in 0..300 {
            let session = format!("x-tollgate-session: s{day}-{who}");
            assert_eq!(call(&gateway, &[&session]).await.status, 200);
        }
        kept.push(gateway.store.counters());
        gateway.manual_clock().advance(tollgate_limiter::DurationMs::new(25 * 3_600_000));
    }
    assert_eq!(kept[0], 300);
    assert!(kept.iter().all(|kept| *kept <= 600), "{kept:?} of 1,200");
}

#[tokio::test]
async fn budgets_of_every_scope_come_back_after_a_restart() {
    let scopes = ["global", "tenant", "team", "key", "user", "model", "provider", "session"];
    let limits: String = scopes
        .iter()
        .map(|scope| {
            let window = if *scope == "session" { "session" } else { "month" };
            format!("[[limits]]\nscope = \"{scope}\"\nbudget_usd = 1\nwindow = \"{window}\"\n")
        })
        .collect();
    let first = with(&limits);
    let headers = [
        "x-tollgate-session: run",
        "x-tollgate-user: ann",
        "x-mock-input-tokens: 0",
        "x-mock-output-tokens: 999995",
    ];
    assert_eq!(call(&first, &headers).await.status, 200);
    first.stop();
    for scope in scopes {
        // One limit at a time: each has to refuse by itself.
        let only: String = limits
            .split("[[limits]]")
            .filter(|table| table.contains(&format!("\"{scope}\"\n")) && !table.is_empty())
            .map(|table| format!("[[limits]]{table}"))
            .collect();
        let again =
            Gateway::start(GatewayOptions { directory: Some(first.directory.clone()), ..options(&only) });
        let refused = call(&again, &headers[..2]).await;
        assert_eq!(refused.status, 402, "{scope}: {}", refused.text());
        assert!(refused.text().contains("spent 0.999995 USD"), "{}", refused.text());
        again.stop();
    }
}
