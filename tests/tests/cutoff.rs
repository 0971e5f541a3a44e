//! Streams under a hard budget: the reservation grows with them, and they are cut off where it may not
//! (SPEC §4.1, ADR 0029).
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use std::sync::Arc;

use serde_json::{Value, json};
use tollgate_tests::{
    Answer, Client, Gateway, GatewayOptions, PATIENCE, UNIT_PRICES, eventually, json_request, settled,
};

const ANTHROPIC: &str = "/v1/messages";
const OPENAI: &str = "/v1/chat/completions";

/// Slices of 100 tokens, from the first on.
const SMALL: &str = "output_tokens = 100\nextend_tokens = 100";

/// A long answer that comes event by event: 4,000 tokens in 200 events.
const LONG: [&str; 3] = ["x-mock-output-tokens: 4000", "x-mock-events: 200", "x-mock-interval-ms: 1"];

fn tenant(limit_usd: &str, more: &str) -> String {
    format!(
        "[[tenants]]\nid = \"t\"\n{more}\n[[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = {limit_usd}\n\
         [[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n"
    )
}

fn gateway(limit_usd: &str, reservation: &str) -> Gateway {
    Gateway::start(GatewayOptions {
        config: tenant(limit_usd, ""),
        prices: Some(UNIT_PRICES.to_owned()),
        reservation: reservation.to_owned(),
        ..GatewayOptions::default()
    })
}

fn asking(max_tokens: u64) -> Value {
    json!({"model": "unit", "max_tokens": max_tokens, "stream": true,
        "messages": [{"role": "user", "content": "Hello"}]})
}

async fn post(gateway: &Gateway, path: &str, max_tokens: u64, headers: &[&str]) -> Answer {
    Client::new(gateway.address()).post(path, "key_of_t", &asking(max_tokens), headers).await
}

async fn metrics(gateway: &Gateway) -> String {
    Client::new(gateway.admin_address()).get("/metrics", &[]).await.text()
}

/// The data of a stream's events, each of them whole.
fn events(text: &str) -> Vec<Value> {
    assert!(text.ends_with("\n\n"), "the last event is whole: {text}");
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    lines.map(|data| serde_json::from_str(data).expect("an event is whole JSON")).collect()
}

#[tokio::test]
async fn c7_a_long_stream_is_cut_off_near_the_cap_in_its_own_protocol() {
    for (path, more) in [(ANTHROPIC, ""), (OPENAI, ""), (ANTHROPIC, "x-mock-split-bytes: 50")] {
        let gateway = gateway("0.002", SMALL);
        let headers: Vec<&str> =
            LONG.into_iter().chain([more].into_iter().filter(|h| !h.is_empty())).collect();
        let answer = post(&gateway, path, 100_000, &headers).await;
        assert_eq!((answer.status, answer.complete), (200, true), "{path}");
        let text = answer.text();
        let events = events(&text);
        let (last, before) = events.split_last().expect("events");
        assert_eq!(last["error"]["type"], "budget_exceeded", "{path} {last}");
        let message = last["error"]["message"].as_str().expect("a message");
        for part in ["Day budget of tenant `t`", "limit 0.002000 USD", "spent 0.000000", "held", "needs"] {
            assert!(message.contains(part), "{message}");
        }
        assert!(before.iter().all(|event| event.get("error").is_none()) && !text.contains("[DONE]"));
        assert_eq!(text.contains("event: error\n"), path == ANTHROPIC);
        let event = settled(&gateway).await;
        assert_eq!((&event["outcome"], &event["usage_estimated"]), (&json!("cut_off"), &json!(true)));
        let (reserved, cost) = (&event["reserved_micro_usd"], event["cost_micro_usd"].as_u64().unwrap());
        assert!(reserved.as_u64().unwrap() > 1_800, "it was extended nearly to the cap: {event}");
        assert!((1_900..=2_100).contains(&cost), "at most a slice beyond the budget: {cost}");
        let cut = gateway.mock.wait_for(PATIENCE, |counts| counts.client_disconnects == 1).await;
        assert!(cut.expect("the provider is left at once").events_sent < 180, "{path}");
        let metrics = metrics(&gateway).await;
        assert!(metrics.contains("tollgate_cut_offs_total{reason=\"budget_exceeded\"} 1"), "{metrics}");
        assert!(metrics.contains("tollgate_stream_extensions_total{result=\"refused\"} 1"), "{metrics}");
    }
}

#[tokio::test]
async fn c7_with_the_default_reservation_a_balance_of_a_cent_refuses_the_stream() {
    let prices = "models:\n  unit:\n    input: 1\n    output: 10\n";
    let gateway = Gateway::start(GatewayOptions {
        config: tenant("0.01", ""),
        prices: Some(prices.to_owned()),
        ..GatewayOptions::default()
    });
    let answer = post(&gateway, ANTHROPIC, 100_000, &LONG).await;
    assert_eq!((answer.status, answer.header("x-tollgate-reason")), (402, "budget_exceeded"));
}

#[tokio::test]
async fn a_run_that_ends_a_stream_says_of_what_it_is_out() {
    let gateway = Gateway::start(GatewayOptions {
        config: format!("{}[[runs]]\nmax_tokens = 1_500\n", tenant("1", "")),
        prices: Some(UNIT_PRICES.to_owned()),
        reservation: SMALL.to_owned(),
        ..GatewayOptions::default()
    });
    let text = post(&gateway, ANTHROPIC, 100_000, &LONG).await.text();
    let last = events(&text).pop().expect("an event");
    assert_eq!(last["error"]["details"]["error_code"], "run_exhausted", "{last}");
    let message = last["error"]["message"].as_str().expect("a message");
    assert!(message.contains("out of tokens") && message.contains("limit 1500 tokens"), "{message}");
    assert_eq!(settled(&gateway).await["outcome"], "cut_off");
}

#[tokio::test]
async fn a_stream_within_its_budget_is_extended_and_settled_at_what_it_used() {
    for path in [ANTHROPIC, OPENAI] {
        let gateway = gateway("1", SMALL);
        let answer = post(&gateway, path, 100_000, &LONG).await;
        assert!(answer.complete && !answer.text().contains("\"error\""), "{path}");
        let event = settled(&gateway).await;
        assert_eq!((&event["outcome"], &event["usage_estimated"]), (&json!("complete"), &json!(false)));
        assert_eq!(event["output_tokens"], 4_000);
        assert!(event["reserved_micro_usd"].as_u64().unwrap() > 3_500, "{event}");
        let input = event["estimated_input_tokens"].as_u64().unwrap();
        assert_eq!(event["first_reserved_micro_usd"], input + 100, "what it was admitted at");
        assert_eq!(event["first_reserved_output_tokens"], 100);
        let granted = "tollgate_stream_extensions_total{result=\"granted\"}";
        assert!(metrics(&gateway).await.contains(granted));
    }
}

#[tokio::test]
async fn only_hard_budgets_are_extended_and_exhausted_rates_cut_nothing_off() {
    let rates = "requests_per_minute = 1\ntokens_per_minute = 150";
    let soft = "[[limits]]\nscope = \"key\"\nbudget_usd = 0.0002\nwindow = \"day\"\nmode = \"soft\"\n\
                max_concurrent = 1\nmax_request_tokens = 110_000\n";
    let gateway = Gateway::start(GatewayOptions {
        config: format!("{}{soft}", tenant("1", rates)),
        prices: Some(UNIT_PRICES.to_owned()),
        reservation: SMALL.to_owned(),
        ..GatewayOptions::default()
    });
    let answer = post(&gateway, ANTHROPIC, 100_000, &LONG).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(!answer.text().contains("\"error\""), "the rates were full from the first step on");
    assert_eq!(settled(&gateway).await["outcome"], "complete");
}

#[tokio::test]
async fn without_a_hard_budget_nothing_is_extended() {
    let soft = tenant("0.0002\nmode = \"soft\"", "");
    let gateway = Gateway::start(GatewayOptions {
        config: soft,
        prices: Some(UNIT_PRICES.to_owned()),
        reservation: SMALL.to_owned(),
        ..GatewayOptions::default()
    });
    assert!(post(&gateway, OPENAI, 100_000, &LONG).await.text().contains("[DONE]"));
    let event = settled(&gateway).await;
    assert_eq!(event["reserved_micro_usd"], event["estimated_input_tokens"].as_u64().unwrap() + 100);
    assert!(event.get("first_reserved_micro_usd").is_none(), "{event}");
}

#[tokio::test]
async fn with_cutoff_off_a_stream_goes_on_and_is_settled_in_full() {
    let gateway = gateway("0.002", &format!("{SMALL}\ncutoff = false"));
    let answer = post(&gateway, OPENAI, 100_000, &LONG).await;
    assert!(answer.complete && answer.text().contains("[DONE]"));
    let event = settled(&gateway).await;
    assert_eq!((&event["outcome"], &event["output_tokens"]), (&json!("complete"), &json!(4_000)));
    let counter = gateway.counter("t", "micro_usd", "day", 2_000).await;
    assert!(counter.spent.units() > 4_000, "what it used beyond the budget is known to later calls");
}

#[tokio::test]
async fn a_compressed_stream_that_is_cut_off_breaks_and_never_ends_well() {
    let gateway = gateway("0.002", SMALL);
    let headers: Vec<&str> = LONG.into_iter().chain(["x-mock-encoding: gzip"]).collect();
    let answer = post(&gateway, ANTHROPIC, 100_000, &headers).await;
    assert_eq!((answer.status, answer.complete), (200, false));
    assert_eq!(settled(&gateway).await["outcome"], "cut_off");
}

#[tokio::test]
async fn what_is_reserved_to_its_limit_is_never_extended_nor_cut_off() {
    // More text than 500 tokens have: the estimate of what passes is far above the limit.
    let headers = ["x-mock-output-tokens: 500", "x-mock-text-bytes: 8000", "x-mock-interval-ms: 1"];
    for (path, reservation) in [
        (ANTHROPIC, "output_tokens = \"max\"\nextend_tokens = 1"),
        (OPENAI, "output_tokens = \"max\"\nextend_tokens = 1"),
        (OPENAI, "fit = true\nextend_tokens = 1"),
        (ANTHROPIC, "output_tokens = 500\nextend_tokens = 1"),
    ] {
        let gateway = gateway("0.000600", reservation);
        let answer = post(&gateway, path, 500, &headers).await;
        assert!(answer.complete && !answer.text().contains("\"error\""), "{path} {}", answer.text());
        assert_eq!(settled(&gateway).await["outcome"], "complete");
        assert!(!metrics(&gateway).await.contains("stream_extensions_total{"), "{path} {reservation}");
    }
}

#[tokio::test]
async fn c20_calls_with_a_high_limit_and_little_use_pass_one_after_another() {
    let prices = "models:\n  unit:\n    input: 1\n    output: 10\n";
    let gateway = Gateway::start(GatewayOptions {
        config: tenant("0.3", ""),
        prices: Some(prices.to_owned()),
        ..GatewayOptions::default()
    });
    for _ in 0..5 {
        let body = json!({"model": "unit", "max_completion_tokens": 8000,
            "messages": [{"role": "user", "content": "Hello"}]});
        let headers = ["x-mock-input-tokens: 8", "x-mock-output-tokens: 10"];
        let answer = Client::new(gateway.address()).post(OPENAI, "key_of_t", &body, &headers).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(gateway.counter("t", "micro_usd", "day", 300_000).await.spent.units(), 540);
}

#[tokio::test]
async fn c23_agents_with_high_limits_run_as_far_as_their_real_spend_allows() {
    // 20 agents with 150,000 tokens of context and output limits of 32,000 on a budget of $25: what they may
    // use comes to $31, what they use to $18.
    let prices = "models:\n  unit:\n    input: 5\n    output: 25\n";
    let gateway = Arc::new(Gateway::start(GatewayOptions {
        config: tenant("25", ""),
        prices: Some(prices.to_owned()),
        reservation: "output_tokens = 256\nextend_tokens = 256".to_owned(),
        ..GatewayOptions::default()
    }));
    let context = "word ".repeat(120_000);
    let body = json!({"model": "unit", "max_tokens": 32_000, "stream": true,
        "messages": [{"role": "user", "content": context}]});
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let (gateway, body) = (gateway.clone(), body.clone());
            tokio::spawn(async move {
                let headers = [
                    "x-mock-input-tokens: 150000",
                    "x-mock-output-tokens: 6000",
                    "x-mock-events: 20",
                    "x-mock-interval-ms: 1",
                ];
                Client::new(gateway.address()).post(ANTHROPIC, "key_of_t", &body, &headers).await
            })
        })
        .collect();
    for call in calls {
        let answer = call.await.expect("no panic");
        assert!(answer.status == 200 && !answer.text().contains("\"error\""), "{}", answer.text());
    }
    eventually("all are settled", || gateway.store.open_reservations() == 0).await;
    let spent = gateway.counter("t", "micro_usd", "day", 25_000_000).await.spent.units();
    assert_eq!(spent, 20 * (150_000 * 5 + 6_000 * 25));
}

#[tokio::test]
async fn at_the_end_of_a_drain_a_stream_is_told_so_in_its_protocol() {
    for path in [ANTHROPIC, OPENAI] {
        let gateway = Arc::new(Gateway::start(GatewayOptions {
            config: tenant("1", ""),
            prices: Some(UNIT_PRICES.to_owned()),
            server: "drain_seconds = 1".to_owned(),
            ..GatewayOptions::default()
        }));
        let mut connection = Client::new(gateway.address()).connect().await;
        connection.write(&json_request(path, "key_of_t", &asking(500), &["x-mock-hang-after: 3"])).await;
        connection.read_until("data: ").await.expect("the beginning of an answer");
        let stopping = gateway.clone();
        let stopped = tokio::task::spawn_blocking(move || stopping.stop());
        let answer = connection.answer().await.expect("an answer");
        assert!(answer.complete && answer.text().contains("shutting_down"), "{path} {}", answer.text());
        let _ = events(&answer.text());
        assert_eq!(stopped.await.expect("no panic").connections_cut, 1);
        let event = gateway.usage_events().pop().expect("an event");
        assert_eq!(
            (&event["outcome"], &event["cost_micro_usd"]),
            (&json!("cut_off"), &event["reserved_micro_usd"])
        );
    }
}
