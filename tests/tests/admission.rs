//! Who is admitted: limits and budgets as a client meets them.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use serde_json::{Value, json};
use tollgate_limiter::DurationMs;
use tollgate_tests::{Client, Gateway, GatewayOptions, UNIT_PRICES, count, parallel};

fn messages(max_tokens: u64) -> Value {
    asking("claude-sonnet-5-5", max_tokens)
}

fn asking(model: &str, max_tokens: u64) -> Value {
    json!({
        "model": model,
        "max_tokens": max_tokens,
        "messages": [{"role": "user", "content": "Hello"}],
    })
}

fn tenant(limits: &str) -> String {
    format!("[[tenants]]\nid = \"t\"\n{limits}\n[[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n")
}

fn budget(limit_usd: &str) -> String {
    tenant(&format!("[[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = {limit_usd}"))
}

fn unit_priced(config: String) -> Gateway {
    Gateway::start(GatewayOptions {
        config,
        prices: Some(UNIT_PRICES.to_owned()),
        ..GatewayOptions::default()
    })
}

async fn post(gateway: &Gateway, body: &Value, headers: &[&str]) -> tollgate_tests::Answer {
    Client::new(gateway.address()).post("/v1/messages", "key_of_t", body, headers).await
}

#[tokio::test]
async fn exactly_the_limit_of_180_parallel_requests_passes() {
    let config = tenant("requests_per_minute = 50");
    let gateway = Gateway::start(GatewayOptions { config, workers: 2, ..GatewayOptions::default() });
    let statuses = parallel(&[&gateway], 180, &messages(10), &[]).await;
    assert_eq!((count(&statuses, 200), count(&statuses, 429)), (50, 130));
    assert_eq!(gateway.mock.counts().requests, 50);
    assert_eq!(gateway.store.open_reservations(), 0);
}

#[tokio::test]
async fn c01_parallel_calls_cannot_all_see_room_below_a_token_limit() {
    let gateway = Gateway::new(&tenant("tokens_per_minute = 100"));
    // Each holds about 10 tokens of input and 80 of output: one fits, two do not.
    let statuses = parallel(&[&gateway], 5, &messages(80), &["x-mock-output-tokens: 58"]).await;
    assert_eq!((count(&statuses, 200), count(&statuses, 429)), (1, 4));
    let counter = gateway.counter("t", "tokens", "minute", 100).await;
    let event = &gateway.usage_events()[0];
    let used = event["input_tokens"].as_u64().unwrap() + event["output_tokens"].as_u64().unwrap();
    assert_eq!(counter.spent.units(), used);
    assert!(used <= 100, "{used}");
}

#[tokio::test]
async fn c04_one_request_worth_of_budget_admits_one_of_twenty() {
    let gateway = Gateway::new(&budget("0.001"));
    // 70 tokens out at 10 USD per million are 700 micro-USD: one fits into 1,000, two do not.
    let statuses = parallel(&[&gateway], 20, &messages(70), &["x-mock-output-tokens: 70"]).await;
    assert_eq!((count(&statuses, 200), count(&statuses, 402)), (1, 19));
    assert_eq!(gateway.mock.counts().requests, 1);
}

/// SPEC §4's reference case: 120 parallel requests that each reserve 223 micro-USD and really cost
/// 2,023 against 10,000, over three proxies on one store.
#[tokio::test]
async fn worst_case_overspend_is_44_admitted_89_012_spent_89_200_bound() {
    let config = budget("0.01");
    let first = unit_priced(config.clone());
    let shared = |directory| GatewayOptions {
        config: config.clone(),
        prices: Some(UNIT_PRICES.to_owned()),
        store: Some(first.store.clone()),
        directory,
        ..GatewayOptions::default()
    };
    let (second, third) = (Gateway::start(shared(None)), Gateway::start(shared(None)));
    let gateways = [&first, &second, &third];
    let input = estimated_input(&first).await;
    let spent_before = first.counter("t", "micro_usd", "day", 10_000).await.spent.units();
    assert_eq!(spent_before, 0, "asking for the estimate was free");
    let body = asking("unit", 223 - input);
    let statuses = parallel(
        &gateways,
        120,
        &body,
        // The answers wait until every request has been decided.
        &["x-mock-input-tokens: 23", "x-mock-output-tokens: 2000", "x-mock-first-byte-delay-ms: 3000"],
    )
    .await;
    assert_eq!((count(&statuses, 200), count(&statuses, 402)), (44, 76));
    let spent = first.counter("t", "micro_usd", "day", 10_000).await.spent.units();
    assert_eq!(spent, 89_012);
    assert!(spent <= 10_000 + 44 * (2_023 - 223), "the bound is 89,200");
    let sum: u128 = gateways.iter().map(|gateway| gateway.cost_pico_usd("t")).sum();
    assert_eq!(sum, 89_012_000_000);
    assert_eq!(first.store.open_reservations(), 0);
}

/// What the proxy estimates for the input of `asking("unit", …)`, read from a call that fails.
async fn estimated_input(gateway: &Gateway) -> u64 {
    let answer = post(gateway, &asking("unit", 100), &["x-mock-status: 500"]).await;
    assert_eq!(answer.status, 500);
    gateway.usage_events()[0]["estimated_input_tokens"].as_u64().unwrap()
}

#[tokio::test]
async fn c06_a_balance_that_is_not_zero_is_not_enough() {
    let gateway = Gateway::new(&budget("0.01"));
    // 4,000 tokens of output at 10 USD per million need 40,000 micro-USD.
    let answer = post(&gateway, &messages(4_000), &[]).await;
    assert_eq!((answer.status, answer.header("x-tollgate-reason")), (402, "budget_exceeded"));
    assert_eq!(gateway.mock.counts().requests, 0);
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    for part in
        ["tenant `t`", "limit 0.010000 USD", "spent 0.000000 USD", "held by open requests", "needs 0.04"]
    {
        assert!(message.contains(part), "{message}");
    }
}

#[tokio::test]
async fn c08_without_an_output_limit_the_configured_cap_is_held() {
    let config = budget("1000");
    let gateway = Gateway::start(GatewayOptions {
        config,
        prices: Some(UNIT_PRICES.to_owned()),
        reservation: "output_tokens = 4096".to_owned(),
        ..GatewayOptions::default()
    });
    let body = json!({"model": "unit", "messages": [{"role": "user", "content": "word ".repeat(120_000)}]});
    let answer = Client::new(gateway.address()).post("/v1/chat/completions", "key_of_t", &body, &[]).await;
    assert_eq!(answer.status, 200);
    let event = &gateway.usage_events()[0];
    let estimate = event["estimated_input_tokens"].as_u64().unwrap();
    assert!((100_000..250_000).contains(&estimate), "{estimate}");
    assert_eq!(event["reserved_micro_usd"], estimate + 4_096);
}

#[tokio::test]
async fn c15_c75_an_unpriced_model_does_not_escape_a_hard_budget() {
    let gateway = Gateway::new(&budget("10"));
    let answer = post(&gateway, &asking("nobody-knows-me", 10), &[]).await;
    assert_eq!((answer.status, answer.header("x-tollgate-reason")), (402, "model_unpriced"));
    assert_eq!(answer.header("x-should-retry"), "false");
    assert_eq!(gateway.mock.counts().requests, 0);
    let soft = "[[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = 10\nmode = \"soft\"";
    let gateway = Gateway::new(&tenant(soft));
    assert_eq!(post(&gateway, &asking("nobody-knows-me", 10), &[]).await.status, 200);
    let event = &gateway.usage_events()[0];
    assert_eq!((&event["cost_micro_usd"], &event["flags"]), (&json!(0), &json!(["model_unpriced"])));
}

#[tokio::test]
async fn c30_a_request_limit_asks_for_no_output_limit() {
    let gateway = Gateway::new(&tenant("requests_per_minute = 5"));
    let body = json!({"model": "gpt-6-astra", "messages": [{"role": "user", "content": "Hello"}]});
    let answer = Client::new(gateway.address()).post("/v1/chat/completions", "key_of_t", &body, &[]).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!((answer.header("ratelimit-limit"), answer.header("ratelimit-remaining")), ("5", "4"));
    assert!((1..=60).contains(&answer.header("ratelimit-reset").parse::<u64>().unwrap()));
}

#[tokio::test]
async fn c84_c85_zero_blocks_what_costs_and_lets_pass_what_is_free() {
    let prices = "models:\n  unit:\n    input: 1\n    output: 1\n  free:\n    input: 0\n    output: 0\n";
    let config = budget("0");
    let gateway = Gateway::start(GatewayOptions {
        config,
        prices: Some(prices.to_owned()),
        ..GatewayOptions::default()
    });
    assert_eq!(post(&gateway, &asking("unit", 1), &[]).await.status, 402);
    assert_eq!(post(&gateway, &asking("free", 100), &[]).await.status, 200);
}

#[tokio::test]
async fn c118_a_token_limit_counts_tokens_not_requests() {
    let gateway = Gateway::new(&tenant("tokens_per_hour = 30"));
    let statuses = parallel(&[&gateway], 30, &messages(150), &[]).await;
    assert_eq!(count(&statuses, 429), 30, "150 tokens never fit into 30");
    assert_eq!(gateway.mock.counts().requests, 0);
}

#[tokio::test]
async fn c120_counting_tokens_is_a_request_and_nothing_else() {
    let limits = "requests_per_minute = 3\ntokens_per_minute = 1\n[[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = 0";
    let gateway = Gateway::start(GatewayOptions {
        config: tenant(limits),
        server: "max_body_bytes = 100_000".to_owned(),
        ..GatewayOptions::default()
    });
    let client = Client::new(gateway.address());
    let path = "/v1/messages/count_tokens";
    let body = json!({"model": "claude-sonnet-5-5", "messages": [{"role": "user", "content": "Hello"}]});
    for _ in 0..3 {
        assert_eq!(client.post(path, "key_of_t", &body, &[]).await.status, 200);
    }
    assert_eq!(client.post(path, "key_of_t", &body, &[]).await.status, 429);
    let long =
        json!({"model": "claude-sonnet-5-5", "messages": [{"role": "user", "content": "x".repeat(200_000)}]});
    assert_eq!(client.post(path, "key_of_t", &long, &[]).await.status, 413);
    for event in gateway.usage_events() {
        assert_eq!(
            (&event["cost_micro_usd"], &event["input_tokens"], &event["output_tokens"]),
            (&json!(0), &json!(0), &json!(0))
        );
    }
}

#[tokio::test]
async fn c126_what_waiting_cures_is_429_and_what_it_does_not_is_not_retried() {
    let gateway = Gateway::new(&tenant("requests_per_minute = 2\ntokens_per_minute = 1000"));
    let never = post(&gateway, &messages(20_000), &[]).await;
    assert_eq!((never.status, never.header("x-tollgate-reason")), (429, "request_too_large"));
    assert_eq!((never.header("retry-after"), never.header("x-should-retry")), ("60", "false"));
    let message = never.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("1000") && message.contains("smaller"), "{message}");
    assert_eq!(post(&gateway, &messages(1), &[]).await.status, 200);
    assert_eq!(post(&gateway, &messages(1), &[]).await.status, 200);
    let wait = post(&gateway, &messages(1), &[]).await;
    assert_eq!((wait.status, wait.header("x-tollgate-reason")), (429, "rate_limited"));
    let seconds: u64 = wait.header("retry-after").parse().unwrap();
    gateway.manual_clock().advance(DurationMs::new(seconds * 1000));
    assert_eq!(post(&gateway, &messages(1), &[]).await.status, 200, "after the announced {seconds} s");
}

#[tokio::test]
async fn money_held_by_open_requests_is_told_apart_from_money_spent() {
    let gateway = Gateway::new(&budget("0.001"));
    let mut open = Client::new(gateway.address()).connect().await;
    let request =
        tollgate_tests::json_request("/v1/messages", "key_of_t", &messages(70), &["x-mock-start: hang"]);
    open.write(&request).await;
    gateway.mock.wait_for_requests(1, tollgate_tests::PATIENCE).await.unwrap();
    let held = post(&gateway, &messages(70), &[]).await;
    assert_eq!((held.status, held.header("x-tollgate-reason")), (402, "budget_held"));
    assert!(held.header("retry-after").parse::<u64>().unwrap() > 0);
    drop(open);
    tollgate_tests::eventually("the open call is settled", || gateway.store.open_reservations() == 0).await;
    let spent = post(&gateway, &messages(70), &[]).await;
    assert_eq!((spent.status, spent.header("x-tollgate-reason")), (402, "budget_exceeded"));
    assert_eq!((spent.header("retry-after"), spent.header("x-should-retry")), ("", "false"));
}

#[tokio::test]
async fn a_soft_budget_lets_pass_and_counts() {
    let soft = "[[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = 0.0001\nmode = \"soft\"";
    let gateway = Gateway::new(&tenant(soft));
    assert_eq!(post(&gateway, &messages(50), &[]).await.status, 200);
    let metrics = Client::new(gateway.admin_address()).get("/metrics", &[]).await.text();
    let line = "tollgate_soft_budget_exceeded_total{scope=\"tenant\",id=\"t\",models=\"\",unit=\"micro_usd\",window=\"day\"} 1";
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test]
async fn three_requests_a_second_at_limit_50_pass_50_49_49_49_a_minute() {
    let gateway = Gateway::new(&tenant("requests_per_minute = 50"));
    let clock = gateway.manual_clock();
    let minute = 60_000;
    let start = (tollgate_store::Clock::now(clock).get() / minute + 1) * minute;
    let mut admitted = Vec::new();
    let client = Client::new(gateway.address());
    let request = tollgate_tests::json_request("/v1/messages", "key_of_t", &messages(1), &[]);
    let mut connection = client.connect().await;
    for tick in 0..4 * 60 * 3_u64 {
        let now = start + tick * 1000 / 3;
        clock.set(tollgate_limiter::TimestampMs::new(now));
        connection.write(&request).await;
        if connection.answer().await.expect("an answer").status == 200 {
            admitted.push(now);
        }
    }
    let in_minute = |index: u64| admitted.iter().filter(|&&at| (at - start) / minute == index).count();
    assert_eq!([0, 1, 2, 3].map(in_minute), [50, 49, 49, 49]);
    let in_any_minute = |from: &u64| admitted.iter().filter(|&&at| at >= *from && at < from + minute).count();
    assert_eq!(admitted.iter().map(in_any_minute).max(), Some(50));
}

#[tokio::test]
async fn max_reserves_the_whole_output_limit_and_puts_one_into_a_request_without() {
    let prices = "models:\n  unit:\n    input: 1\n    output: 1\n    max_output_tokens: 9000\n";
    let gateway = Gateway::start(GatewayOptions {
        config: budget("1"),
        prices: Some(prices.to_owned()),
        reservation: "output_tokens = \"max\"".to_owned(),
        ..GatewayOptions::default()
    });
    assert_eq!(post(&gateway, &asking("unit", 6_000), &[]).await.status, 200);
    let chat =
        json!({"model": "unit", "n": 2, "stream": true, "messages": [{"role": "user", "content": "Hello"}]});
    let answer = Client::new(gateway.address()).post("/v1/chat/completions", "key_of_t", &chat, &[]).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let sent: Value = serde_json::from_slice(&gateway.mock.requests()[1].body).expect("JSON");
    assert_eq!(
        (&sent["max_completion_tokens"], &sent["stream_options"]["include_usage"]),
        (&json!(9_000), &json!(true))
    );
    let reserved: Vec<_> = gateway
        .usage_events()
        .iter()
        .map(|event| {
            event["reserved_micro_usd"].as_u64().unwrap() - event["estimated_input_tokens"].as_u64().unwrap()
        })
        .collect();
    assert_eq!(reserved, [6_000, 18_000]);
}

#[tokio::test]
async fn a_model_that_a_tool_names_is_checked_and_reserved_too() {
    let prices = "models:\n  unit:\n    input: 1\n    output: 1\n  dear:\n    input: 100\n    output: 100\n";
    let config = format!("{}models = [\"unit\"]\n", budget("10"));
    let with_tool = json!({"model": "unit", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}],
        "tools": [{"type": "advisor_20260301", "name": "advisor", "model": "dear"}]});
    let gateway = Gateway::start(GatewayOptions {
        config,
        prices: Some(prices.to_owned()),
        ..GatewayOptions::default()
    });
    let answer = post(&gateway, &with_tool, &[]).await;
    assert_eq!((answer.status, answer.header("x-tollgate-reason")), (403, "model_not_allowed"));
    let gateway = Gateway::start(GatewayOptions {
        config: budget("10"),
        prices: Some(prices.to_owned()),
        ..GatewayOptions::default()
    });
    assert_eq!(post(&gateway, &with_tool, &[]).await.status, 200);
    let event = &gateway.usage_events()[0];
    let input = event["estimated_input_tokens"].as_u64().unwrap();
    assert_eq!(event["reserved_micro_usd"], (input + 100) * 101);
}
