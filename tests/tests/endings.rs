//! How a request ends decides what it costs (SPEC §4): every row, once settled, exactly.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use serde_json::{Value, json};
use tollgate_tests::{
    Answer, Client, Gateway, GatewayOptions, PATIENCE, UNIT_PRICES, eventually, json_request, settled,
};

const TENANT: &str = "[[tenants]]\nid = \"t\"\nrequests_per_minute = 1000\ntokens_per_minute = 1000000\n\
                      [[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = 1\n\
                      [[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n";

const ANTHROPIC: &str = "/v1/messages";
const OPENAI: &str = "/v1/chat/completions";

fn gateway() -> Gateway {
    with(GatewayOptions::default())
}

fn with(options: GatewayOptions) -> Gateway {
    Gateway::start(GatewayOptions {
        config: TENANT.to_owned(),
        prices: Some(UNIT_PRICES.to_owned()),
        ..options
    })
}

fn body(stream: bool) -> Value {
    json!({"model": "unit", "max_tokens": 500, "stream": stream, "messages": [{"role": "user", "content": "Hello"}]})
}

async fn post(gateway: &Gateway, path: &str, stream: bool, headers: &[&str]) -> Answer {
    Client::new(gateway.address()).post(path, "key_of_t", &body(stream), headers).await
}

/// Opens a call, reads until `text`, leaves.
async fn leave_after(gateway: &Gateway, path: &str, stream: bool, headers: &[&str], text: &str) {
    let mut connection = Client::new(gateway.address()).connect().await;
    connection.write(&json_request(path, "key_of_t", &body(stream), headers)).await;
    connection.read_until(text).await.expect("the beginning of an answer");
}

#[tokio::test]
async fn c19_a_provider_that_fails_before_the_first_byte_costs_nothing() {
    for path in [ANTHROPIC, OPENAI] {
        for stream in [false, true] {
            for (header, status) in [
                ("x-mock-status: 401", 401),
                ("x-mock-status: 503", 503),
                ("x-mock-status: 529", 529),
                ("x-mock-start: reset", 502),
                ("x-mock-start: close", 502),
            ] {
                let gateway = gateway();
                let answer = post(&gateway, path, stream, &[header]).await;
                assert_eq!(answer.status, status, "{path} {header}: {}", answer.text());
                let event = settled(&gateway).await;
                assert_eq!(
                    (&event["cost_micro_usd"], &event["outcome"]),
                    (&json!(0), &json!("upstream_error"))
                );
                assert_eq!(event["status"], status);
                let tokens = gateway.counter("t", "tokens", "minute", 1_000_000).await;
                assert_eq!((tokens.spent.units(), tokens.held.get()), (0, 0), "{path} {header}");
            }
        }
    }
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_502_and_one_that_is_silent_504() {
    let gateway = with(GatewayOptions {
        provider: "response_timeout_seconds = 1".to_owned(),
        ..GatewayOptions::default()
    });
    let silent = post(&gateway, ANTHROPIC, false, &["x-mock-start: hang"]).await;
    assert_eq!((silent.status, silent.header("x-tollgate-reason")), (504, "upstream_timeout"));
    assert_eq!(silent.json()["error"]["type"], "timeout_error");
    assert_eq!(settled(&gateway).await["cost_micro_usd"], 0);
    let closed =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let gone = Gateway::new(&format!(
        "{TENANT}\n[[providers]]\nid = \"gone\"\nprotocol = \"anthropic\"\nbase_url = \"http://{closed}\"\napi_key_env = \"x\""
    ));
    let mut request = body(false);
    request["model"] = json!("claude-sonnet-5-5");
    let answer =
        Client::new(gone.address()).post("/provider/gone/v1/messages", "key_of_t", &request, &[]).await;
    assert_eq!((answer.status, answer.header("x-tollgate-reason")), (502, "upstream_unreachable"));
    assert_eq!(settled(&gone).await["cost_micro_usd"], 0);
}

#[tokio::test]
async fn success_costs_what_the_provider_reports() {
    for path in [ANTHROPIC, OPENAI] {
        for stream in [false, true] {
            let gateway = gateway();
            let headers = ["x-mock-input-tokens: 27", "x-mock-output-tokens: 47"];
            assert_eq!(post(&gateway, path, stream, &headers).await.status, 200);
            let event = settled(&gateway).await;
            assert_eq!((&event["input_tokens"], &event["output_tokens"]), (&json!(27), &json!(47)), "{path}");
            assert_eq!((&event["cost_micro_usd"], &event["outcome"]), (&json!(74), &json!("complete")));
            assert_eq!((&event["usage_estimated"], &event["stream"]), (&json!(false), &json!(stream)));
            let tokens = gateway.counter("t", "tokens", "minute", 1_000_000).await;
            assert_eq!(tokens.spent.units(), 74);
        }
    }
}

#[tokio::test]
async fn success_without_usage_costs_at_least_the_reservation() {
    for path in [ANTHROPIC, OPENAI] {
        for stream in [false, true] {
            let gateway = gateway();
            assert_eq!(post(&gateway, path, stream, &["x-mock-usage: missing"]).await.status, 200);
            let event = settled(&gateway).await;
            assert_eq!(event["usage_estimated"], true, "{path} {stream}");
            assert_eq!(event["cost_micro_usd"], event["reserved_micro_usd"], "{path} {stream}");
            assert!(event["cost_micro_usd"].as_u64().unwrap() >= 500);
        }
    }
}

#[tokio::test]
async fn c78_an_explicit_zero_is_zero_unless_content_came() {
    let gateway = gateway();
    let headers =
        ["x-mock-usage: zero", "x-mock-events: 0", "x-mock-text-bytes: 0", "x-mock-output-tokens: 0"];
    assert_eq!(post(&gateway, OPENAI, true, &headers).await.status, 200);
    assert_eq!(settled(&gateway).await["cost_micro_usd"], 0);
    let gateway = self::gateway();
    assert_eq!(post(&gateway, OPENAI, true, &["x-mock-usage: zero"]).await.status, 200);
    let event = settled(&gateway).await;
    assert_eq!(
        (&event["usage_estimated"], &event["cost_micro_usd"]),
        (&json!(true), &event["reserved_micro_usd"])
    );
}

#[tokio::test]
async fn c17_a_hundred_streams_left_after_the_head_hold_nothing() {
    let gateway = std::sync::Arc::new(gateway());
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let gateway = gateway.clone();
            tokio::spawn(async move {
                leave_after(&gateway, ANTHROPIC, true, &["x-mock-hang-after: 1"], "\r\n\r\n").await
            })
        })
        .collect();
    for call in calls {
        call.await.expect("no panic");
    }
    eventually("all are settled", || gateway.store.open_reservations() == 0).await;
    let events = gateway.usage_events();
    assert_eq!(events.len(), 100);
    let counter = gateway.counter("t", "micro_usd", "day", 1_000_000).await;
    assert_eq!((counter.spent.as_millionths(), counter.held.get()), (gateway.cost_pico_usd("t"), 0));
    gateway
        .mock
        .wait_for(PATIENCE, |counts| counts.client_disconnects == 100)
        .await
        .expect("upstreams are dropped");
}

#[tokio::test]
async fn c28_c93_c94_a_client_that_leaves_pays_at_least_the_reservation() {
    for (text, headers) in [
        ("event: message_start", ["x-mock-hang-after: 1", "x-mock-input-tokens: 40"]),
        ("content_block_delta", ["x-mock-hang-after: 4", "x-mock-input-tokens: 40"]),
    ] {
        let gateway = gateway();
        leave_after(&gateway, ANTHROPIC, true, &headers, text).await;
        let event = settled(&gateway).await;
        assert_eq!((&event["outcome"], &event["usage_estimated"]), (&json!("client_gone"), &json!(true)));
        assert_eq!(event["cost_micro_usd"], event["reserved_micro_usd"]);
        assert_eq!(event["input_tokens"], 40, "what the provider had reported");
        gateway
            .mock
            .wait_for(PATIENCE, |counts| counts.client_disconnects == 1)
            .await
            .expect("c97: cancelled at once");
    }
}

#[tokio::test]
async fn a_client_that_leaves_before_the_head_pays_the_reservation() {
    let gateway = gateway();
    let mut connection = Client::new(gateway.address()).connect().await;
    connection.write(&json_request(ANTHROPIC, "key_of_t", &body(false), &["x-mock-start: hang"])).await;
    gateway.mock.wait_for_requests(1, PATIENCE).await.expect("it was forwarded");
    drop(connection);
    let event = settled(&gateway).await;
    assert_eq!((&event["outcome"], &event["usage_estimated"]), (&json!("client_gone"), &json!(true)));
    assert_eq!(event["cost_micro_usd"], event["reserved_micro_usd"]);
}

#[tokio::test]
async fn c95_a_bounded_drain_still_reads_the_final_usage() {
    let gateway =
        with(GatewayOptions { reservation: "drain_ms = 10000".to_owned(), ..GatewayOptions::default() });
    let headers = [
        "x-mock-events: 20",
        "x-mock-interval-ms: 10",
        "x-mock-input-tokens: 27",
        "x-mock-output-tokens: 47",
    ];
    leave_after(&gateway, ANTHROPIC, true, &headers, "event: message_start").await;
    let event = settled(&gateway).await;
    assert_eq!((&event["usage_estimated"], &event["cost_micro_usd"]), (&json!(false), &json!(74)));
    let gateway =
        with(GatewayOptions { reservation: "drain_ms = 200".to_owned(), ..GatewayOptions::default() });
    leave_after(&gateway, ANTHROPIC, true, &["x-mock-hang-after: 3"], "event: message_start").await;
    let event = settled(&gateway).await;
    assert_eq!(
        (&event["usage_estimated"], &event["cost_micro_usd"]),
        (&json!(true), &event["reserved_micro_usd"])
    );
}

#[tokio::test]
async fn c110_a_stream_that_breaks_off_never_looks_whole() {
    for (path, error_mark) in [(ANTHROPIC, "event: error"), (OPENAI, "data: {\"error\"")] {
        for header in ["x-mock-reset-after: 3", "x-mock-close-after: 3"] {
            let gateway = gateway();
            let answer = post(&gateway, path, true, &[header]).await;
            let text = answer.text();
            assert!(text.contains(error_mark) || !answer.complete, "{path} {header}: {text}");
            assert!(!text.contains("[DONE]") && !text.contains("message_stop"), "{text}");
            let event = settled(&gateway).await;
            assert_eq!(event["outcome"], "upstream_broken", "{path} {header}");
            assert_eq!(event["cost_micro_usd"], event["reserved_micro_usd"]);
        }
    }
    let gateway = gateway();
    let answer = post(&gateway, ANTHROPIC, false, &["x-mock-pieces: 4", "x-mock-reset-after: 2"]).await;
    assert!(!answer.complete, "a plain answer that broke off: {}", answer.text());
    assert_eq!(settled(&gateway).await["outcome"], "upstream_broken");
}

#[tokio::test]
async fn a_stream_that_ends_early_or_with_an_error_event_is_not_cheap() {
    for path in [ANTHROPIC, OPENAI] {
        for header in ["x-mock-cut-after: 3", "x-mock-error-after: 3"] {
            let gateway = gateway();
            let answer = post(&gateway, path, true, &[header]).await;
            assert!(answer.text().contains("\"error\""), "c110: it does not look whole: {}", answer.text());
            let event = settled(&gateway).await;
            assert_eq!(
                (&event["outcome"], &event["usage_estimated"]),
                (&json!("upstream_broken"), &json!(true)),
                "{path} {header}"
            );
            assert_eq!(event["cost_micro_usd"], event["reserved_micro_usd"]);
        }
    }
}

#[tokio::test]
async fn a_silent_stream_ends_after_the_idle_time_out() {
    let gateway =
        with(GatewayOptions { provider: "idle_timeout_seconds = 1".to_owned(), ..GatewayOptions::default() });
    let answer = post(&gateway, ANTHROPIC, true, &["x-mock-hang-after: 2"]).await;
    assert!(answer.text().contains("upstream_timeout"), "{}", answer.text());
    assert_eq!(settled(&gateway).await["outcome"], "upstream_broken");
}

#[tokio::test]
async fn c31_c115_counters_equal_the_ledger_after_many_streams() {
    let gateway = gateway();
    for index in 0..30 {
        let output = format!("x-mock-output-tokens: {}", 10 + index);
        let every = ["x-mock-usage: every-chunk", &output];
        let path = if index % 2 == 0 { ANTHROPIC } else { OPENAI };
        let headers: &[&str] = if path == OPENAI { &every } else { &every[1..] };
        assert_eq!(post(&gateway, path, true, headers).await.status, 200);
    }
    let counter = gateway.counter("t", "micro_usd", "day", 1_000_000).await;
    assert_eq!(counter.spent.as_millionths(), gateway.cost_pico_usd("t"));
    let billed: u64 =
        gateway.mock.billed().values().map(|bill| bill.usage.input_tokens + bill.usage.output_tokens).sum();
    assert_eq!(counter.spent.units(), billed, "what the provider charged");
}

#[tokio::test]
async fn the_price_follows_the_model_and_tier_that_answered() {
    let prices = "models:\n  unit:\n    input: 1\n    output: 1\n    tiers:\n      priority:\n        input: 2\n        output: 2\n  other:\n    input: 10\n    output: 10\n";
    let gateway = Gateway::start(GatewayOptions {
        config: TENANT.to_owned(),
        prices: Some(prices.to_owned()),
        ..GatewayOptions::default()
    });
    let tokens = ["x-mock-input-tokens: 10", "x-mock-output-tokens: 10"];
    for (header, cost) in
        [("x-mock-model: other", 200), ("x-mock-service-tier: priority", 40), ("x-mock-model: nobody", 20)]
    {
        assert_eq!(post(&gateway, ANTHROPIC, false, &[header, tokens[0], tokens[1]]).await.status, 200);
        let events = gateway.usage_events();
        assert_eq!(events.last().expect("an event")["cost_micro_usd"], cost, "{header}");
    }
    assert_eq!(gateway.usage_events()[2]["flags"], json!(["price_of_requested_model"]));
}

#[tokio::test]
async fn c24_a_panic_after_the_hold_loses_nothing() {
    // A request looks at the clock when it arrives, around the decision, when it is sent, when it is
    // answered and when it is settled: a panic at each of them, so at every stage of the way.
    for look in 1..=6 {
        let gateway = with(GatewayOptions { panic_at_look: look, ..GatewayOptions::default() });
        let mut connection = Client::new(gateway.address()).connect().await;
        connection.write(&json_request(ANTHROPIC, "key_of_t", &body(false), &[])).await;
        let answered = connection.answer().await.is_ok_and(|answer| answer.status == 200);
        eventually("nothing is held", || gateway.store.open_reservations() == 0).await;
        let counter = gateway.counter("t", "micro_usd", "day", 1_000_000).await;
        assert_eq!(counter.held.get(), 0, "look {look}");
        let billed: u64 = gateway
            .mock
            .billed()
            .values()
            .map(|bill| bill.usage.input_tokens + bill.usage.output_tokens)
            .sum();
        assert!(
            counter.spent.units() >= billed,
            "look {look}: {} spent, {billed} billed",
            counter.spent.units()
        );
        let next = post(&gateway, ANTHROPIC, false, &[]).await;
        assert_eq!(next.status, 200, "look {look}: the worker goes on (the first was answered: {answered})");
    }
}

#[tokio::test]
async fn c97_a_call_nobody_waits_for_is_cancelled_at_the_provider_at_once() {
    for path in [ANTHROPIC, OPENAI] {
        let gateway = gateway();
        // Half a minute of events, if nobody stopped them.
        let headers = ["x-mock-events: 3000", "x-mock-interval-ms: 10"];
        leave_after(&gateway, path, true, &headers, "data: ").await;
        let gone = gateway.mock.wait_for(PATIENCE, |counts| counts.client_disconnects == 1).await;
        assert!(gone.expect("the provider sees it leave").events_sent < 2_000, "{path}");
        assert_eq!(settled(&gateway).await["outcome"], "client_gone");
    }
}
