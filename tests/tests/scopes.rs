//! `[[limits]]` of every scope, as a client meets them.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use serde_json::{Value, json};
use tollgate_limiter::DurationMs;
use tollgate_tests::{Answer, Client, Gateway, GatewayOptions, UNIT_PRICES, eventually, json_request};

/// Two tenants whose keys differ in everything, and a second key of the first one.
const KEYS: &str = r#"
[[tenants]]
id = "a"
[[tenants.keys]]
id = "ka"
key_env = "key_a"
attributes = { org = "oa", team = "ta", project = "pa", user = "ua", customer = "ca", business_unit = "ba" }
[[tenants.keys]]
id = "ka2"
key_env = "key_a2"
attributes = { org = "oa", team = "ta2", project = "pa2", user = "ua2", customer = "ca2", business_unit = "ba2" }
[[tenants]]
id = "b"
[[tenants.keys]]
id = "kb"
key_env = "key_b"
attributes = { org = "ob", team = "tb", project = "pb", user = "ub", customer = "cb", business_unit = "bb" }
"#;

fn with(limits: &str) -> Gateway {
    Gateway::start(GatewayOptions {
        config: format!("{KEYS}{limits}"),
        prices: Some(UNIT_PRICES.to_owned()),
        ..GatewayOptions::default()
    })
}

fn body(model: &str) -> Value {
    json!({"model": model, "max_tokens": 10, "messages": [{"role": "user", "content": "Hello"}]})
}

/// A call that uses 10 tokens of input and 10 of output.
async fn call(gateway: &Gateway, key: &str, model: &str, headers: &[&str]) -> Answer {
    let usage = ["x-mock-input-tokens: 10", "x-mock-output-tokens: 10"];
    let headers: Vec<&str> = headers.iter().chain(&usage).copied().collect();
    Client::new(gateway.address()).post("/v1/messages", key, &body(model), &headers).await
}

async fn chat(gateway: &Gateway, key: &str) -> Answer {
    Client::new(gateway.address()).post("/v1/chat/completions", key, &body("unit"), &[]).await
}

fn message(answer: &Answer) -> String {
    answer.json()["error"]["message"].as_str().unwrap_or_default().to_owned()
}

/// The limit that the last refusal event names.
fn refused_by(gateway: &Gateway) -> (String, String) {
    let events = gateway.events();
    let refusal = events.iter().rfind(|event| event["type"] == "refusal").expect("a refusal");
    let text = |field: &str| refusal["limit"][field].as_str().expect("text").to_owned();
    (text("scope"), text("id"))
}

#[tokio::test]
async fn every_scope_of_a_key_refuses_and_is_counted_apart() {
    for (scope, id) in [
        ("tenant", "a"),
        ("org", "oa"),
        ("team", "ta"),
        ("project", "pa"),
        ("key", "ka"),
        ("user", "ua"),
        ("customer", "ca"),
        ("business_unit", "ba"),
    ] {
        for named in [false, true] {
            let id_line = if named { format!("id = \"{id}\"\n") } else { String::new() };
            let gateway =
                with(&format!("[[limits]]\nscope = \"{scope}\"\n{id_line}requests_per_minute = 1\n"));
            assert_eq!(call(&gateway, "key_a", "unit", &[]).await.status, 200, "{scope}");
            let refused = call(&gateway, "key_a", "unit", &[]).await;
            assert_eq!(
                (refused.status, refused.header("x-tollgate-reason")),
                (429, "rate_limited"),
                "{scope}"
            );
            assert_eq!(refused_by(&gateway), (scope.to_owned(), id.to_owned()));
            let text = message(&refused);
            assert!(text.contains(&format!("Limit of 1 requests per minute of {scope} `{id}`")), "{text}");
            assert_eq!(call(&gateway, "key_b", "unit", &[]).await.status, 200, "{scope} of another");
            // The second key of the tenant shares tenant and org with the first.
            let shared = matches!(scope, "tenant" | "org");
            let status = call(&gateway, "key_a2", "unit", &[]).await.status;
            assert_eq!(status, if shared { 429 } else { 200 }, "{scope}");
            assert_eq!(gateway.mock.counts().requests, if shared { 2 } else { 3 });
        }
    }
}

#[tokio::test]
async fn the_global_scope_has_one_counter_for_all() {
    let gateway = with("[[limits]]\nscope = \"global\"\nrequests_per_minute = 1\n");
    assert_eq!(call(&gateway, "key_a", "unit", &[]).await.status, 200);
    let refused = call(&gateway, "key_b", "unit", &[]).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused_by(&gateway), ("global".to_owned(), "global".to_owned()));
    assert!(message(&refused).contains("scope `global`"), "{}", message(&refused));
}

#[tokio::test]
async fn a_provider_s_limit_is_that_of_the_provider_called_by_whomever() {
    let gateway = with("[[limits]]\nscope = \"provider\"\nrequests_per_minute = 1\n");
    assert_eq!(call(&gateway, "key_a", "unit", &[]).await.status, 200);
    assert_eq!(call(&gateway, "key_b", "unit", &[]).await.status, 429);
    assert_eq!(refused_by(&gateway), ("provider".to_owned(), "anthropic".to_owned()));
    assert_eq!(chat(&gateway, "key_b").await.status, 200, "the other provider");
    assert_eq!(chat(&gateway, "key_a").await.status, 429);
    assert_eq!(refused_by(&gateway), ("provider".to_owned(), "openai".to_owned()));
}

#[tokio::test]
async fn a_session_s_limit_is_that_of_one_session_of_one_tenant() {
    let underived = "[sessions]\nderive = false\n";
    let gateway = with(&format!("[[limits]]\nscope = \"session\"\nrequests_per_minute = 1\n{underived}"));
    let (one, two) = (["x-tollgate-session: s/1"], ["x-tollgate-session: s2"]);
    assert_eq!(call(&gateway, "key_a", "unit", &one).await.status, 200);
    assert_eq!(call(&gateway, "key_a2", "unit", &one).await.status, 429, "another key of the tenant");
    assert_eq!(refused_by(&gateway), ("session".to_owned(), "s/1".to_owned()));
    assert_eq!(call(&gateway, "key_a", "unit", &two).await.status, 200);
    assert_eq!(call(&gateway, "key_b", "unit", &one).await.status, 200, "sessions belong to their tenant");
    for _ in 0..2 {
        assert_eq!(call(&gateway, "key_a", "unit", &[]).await.status, 200, "no session, no limit of one");
    }
    let metrics = Client::new(gateway.admin_address()).get("/metrics", &[]).await.text();
    let line = "tollgate_limit_refusals_total{scope=\"session\",id=\"*\",models=\"\",unit=\"requests\",window=\"minute\"} 1";
    assert!(metrics.contains(line) && !metrics.contains("s/1"), "{metrics}");
}

#[tokio::test]
async fn an_org_that_two_tenants_share_has_one_counter() {
    let shared = KEYS.replace("org = \"ob\"", "org = \"oa\"");
    let limits = "[[limits]]\nscope = \"org\"\nrequests_per_minute = 2\n[[limits]]\nscope = \"tenant\"\nrequests_per_minute = 2\n";
    let gateway = Gateway::start(GatewayOptions {
        config: format!("{shared}{limits}"),
        prices: Some(UNIT_PRICES.to_owned()),
        ..GatewayOptions::default()
    });
    assert_eq!(call(&gateway, "key_a", "unit", &[]).await.status, 200);
    assert_eq!(call(&gateway, "key_b", "unit", &[]).await.status, 200);
    assert_eq!(call(&gateway, "key_b", "unit", &[]).await.status, 429);
    assert_eq!(refused_by(&gateway), ("org".to_owned(), "oa".to_owned()));
}

/// What one limit refuses is charged to none, however many partitions the counters lie in.
#[tokio::test]
async fn of_several_scopes_one_refuses_and_none_is_charged() {
    let limits = r#"
[[limits]]
scope = "tenant"
id = "a"
requests_per_minute = 3
[[limits]]
scope = "team"
tokens_per_minute = 45
[[limits]]
scope = "global"
requests_per_minute = 3
[[limits]]
scope = "user"
budget_usd = 0.01
window = "day"
"#;
    let gateway = with(limits);
    for _ in 0..2 {
        assert_eq!(call(&gateway, "key_a", "unit", &[]).await.status, 200);
    }
    for _ in 0..5 {
        assert_eq!(call(&gateway, "key_a", "unit", &[]).await.status, 429, "the team has 5 tokens left");
    }
    assert_eq!(gateway.counter("a", "requests", "minute", 3).await.spent.units(), 2);
    assert_eq!(gateway.mock.counts().requests, 2);
    // Tenant and deployment have room for the third request: one of another team.
    let third = call(&gateway, "key_a2", "unit", &[]).await;
    assert_eq!((third.status, third.header("ratelimit-remaining")), (200, "0"));
    assert_eq!(call(&gateway, "key_a2", "unit", &[]).await.status, 429);
}

#[tokio::test]
async fn headers_tell_of_the_limit_with_the_smallest_part_left_over_all_scopes() {
    let limits = "[[limits]]\nscope = \"global\"\nrequests_per_minute = 100\n\
                  [[limits]]\nscope = \"team\"\nrequests_per_hour = 4\n\
                  [[limits]]\nscope = \"provider\"\nrequests_per_minute = 50\nalgorithm = \"token-bucket\"\n";
    let gateway = with(limits);
    let answer = call(&gateway, "key_a", "unit", &[]).await;
    assert_eq!((answer.header("ratelimit-limit"), answer.header("ratelimit-remaining")), ("4", "3"));
}

#[tokio::test]
async fn a_model_filter_counts_the_calls_of_its_models_only() {
    let prices = "models:\n  unit:\n    input: 1\n    output: 1\n  dear:\n    input: 5\n    output: 5\n    aliases: [costly]\n";
    let limits = "[[limits]]\nscope = \"team\"\nmodels = [\"de*\"]\nrequests_per_minute = 1\n";
    let gateway = Gateway::start(GatewayOptions {
        config: format!("{KEYS}{limits}"),
        prices: Some(prices.to_owned()),
        ..GatewayOptions::default()
    });
    for _ in 0..3 {
        assert_eq!(call(&gateway, "key_a", "unit", &[]).await.status, 200);
    }
    assert_eq!(call(&gateway, "key_a", "dear", &[]).await.status, 200);
    // Neither an alias nor a dated name escapes the filter.
    for name in ["dear", "costly", "dear-20260901"] {
        let refused = call(&gateway, "key_a", name, &[]).await;
        assert_eq!(refused.status, 429, "{name}");
        assert!(message(&refused).contains("team `ta` for models de*"), "{}", message(&refused));
    }
    assert_eq!(call(&gateway, "key_a2", "dear", &[]).await.status, 200, "another team");
}

#[tokio::test]
async fn a_model_has_one_counter_whatever_it_is_called_by() {
    let prices = "models:\n  unit:\n    input: 1\n    output: 1\n    aliases: [one]\n  other:\n    input: 1\n    output: 1\n";
    for id in ["", "id = \"unit\"\n"] {
        let limits = format!("[[limits]]\nscope = \"model\"\n{id}requests_per_minute = 1\n");
        let gateway = Gateway::start(GatewayOptions {
            config: format!("{KEYS}{limits}"),
            prices: Some(prices.to_owned()),
            ..GatewayOptions::default()
        });
        assert_eq!(call(&gateway, "key_a", "one", &[]).await.status, 200);
        for name in ["unit", "unit-20260901", "one"] {
            assert_eq!(call(&gateway, "key_b", name, &[]).await.status, 429, "{name}");
            assert_eq!(refused_by(&gateway), ("model".to_owned(), "unit".to_owned()));
        }
        assert_eq!(call(&gateway, "key_b", "other", &[]).await.status, 200);
    }
}

#[tokio::test]
async fn concurrent_requests_are_limited_until_one_ends_however_it_ends() {
    let gateway = with("[[limits]]\nscope = \"team\"\nmax_concurrent = 1\n");
    let refused_while_open = async |start: &'static str| {
        let mut open = Client::new(gateway.address()).connect().await;
        open.write(&json_request("/v1/messages", "key_a", &body("unit"), &[start])).await;
        eventually("it is open", || gateway.store.open_reservations() == 1).await;
        let refused = call(&gateway, "key_a", "unit", &[]).await;
        assert_eq!((refused.status, refused.header("x-tollgate-reason")), (429, "rate_limited"));
        assert_eq!((refused.header("retry-after"), refused.header("x-should-retry")), ("1", "true"));
        let text = message(&refused);
        assert!(text.contains("1 concurrent requests of team `ta`") && text.contains("1 are open"), "{text}");
        assert_eq!(call(&gateway, "key_a2", "unit", &[]).await.status, 200, "another team");
        open
    };
    // The client leaves.
    drop(refused_while_open("x-mock-start: hang").await);
    eventually("the first is over", || gateway.store.open_reservations() == 0).await;
    assert_eq!(call(&gateway, "key_a", "unit", &[]).await.status, 200);
    // The answer comes to its end.
    let mut slow = refused_while_open("x-mock-first-byte-delay-ms: 1500").await;
    assert_eq!(slow.answer().await.expect("an answer").status, 200);
    eventually("the second is over", || gateway.store.open_reservations() == 0).await;
    assert_eq!(call(&gateway, "key_a", "unit", &[]).await.status, 200);
    // The provider fails, in three ways.
    for failure in ["x-mock-status: 500", "x-mock-start: reset", "x-mock-start: close"] {
        assert!(call(&gateway, "key_a", "unit", &[failure]).await.status >= 500, "{failure}");
        eventually("the failure is settled", || gateway.store.open_reservations() == 0).await;
    }
    assert_eq!(call(&gateway, "key_a", "unit", &[]).await.status, 200);
}

#[tokio::test]
async fn a_rate_that_needs_waiting_answers_before_a_place_that_is_taken() {
    let gateway = with("[[limits]]\nscope = \"team\"\nmax_concurrent = 1\nrequests_per_minute = 1\n");
    let mut open = Client::new(gateway.address()).connect().await;
    open.write(&json_request("/v1/messages", "key_a", &body("unit"), &["x-mock-start: hang"])).await;
    eventually("it is open", || gateway.store.open_reservations() == 1).await;
    let refused = call(&gateway, "key_a", "unit", &[]).await;
    let seconds: u64 = refused.header("retry-after").parse().unwrap();
    assert!(seconds > 1 && message(&refused).contains("requests per minute"), "{}", message(&refused));
}

#[tokio::test]
async fn a_request_above_the_maximum_per_request_never_passes() {
    let gateway = with("[[limits]]\nscope = \"project\"\nmax_request_tokens = 100\n");
    let mut large = body("unit");
    large["max_tokens"] = json!(500);
    let refused = Client::new(gateway.address()).post("/v1/messages", "key_a", &large, &[]).await;
    assert_eq!((refused.status, refused.header("x-tollgate-reason")), (429, "request_too_large"));
    assert_eq!((refused.header("retry-after"), refused.header("x-should-retry")), ("60", "false"));
    let text = message(&refused);
    assert!(text.contains("project `pa` may use 100 per request") && text.contains("needs 5"), "{text}");
    for _ in 0..20 {
        assert_eq!(call(&gateway, "key_a", "unit", &[]).await.status, 200, "nothing adds up");
    }
}

#[tokio::test]
async fn a_bucketed_window_holds_in_any_period_of_its_length() {
    let gateway =
        with("[[limits]]\nscope = \"team\"\nrequests_per_minute = 10\nalgorithm = \"bucketed-window\"\n");
    let clock = gateway.manual_clock();
    let mut admitted = Vec::new();
    for second in 0..180_u64 {
        if call(&gateway, "key_a", "unit", &[]).await.status == 200 {
            admitted.push(second);
        }
        clock.advance(DurationMs::new(1_000));
    }
    let within = |from: &u64| admitted.iter().filter(|&at| (*from..from + 60).contains(at)).count();
    assert_eq!(admitted.iter().map(within).max(), Some(10));
    assert_eq!(&admitted[..10], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert!(admitted.len() >= 20, "{admitted:?}");
}

#[tokio::test]
async fn a_token_bucket_takes_a_burst_and_then_its_rate() {
    let gateway =
        with("[[limits]]\nscope = \"team\"\nrequests_per_minute = 6\nalgorithm = \"token-bucket\"\n");
    for _ in 0..6 {
        assert_eq!(call(&gateway, "key_a", "unit", &[]).await.status, 200);
    }
    let refused = call(&gateway, "key_a", "unit", &[]).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, "10"));
    for _ in 0..3 {
        gateway.manual_clock().advance(DurationMs::new(9_999));
        assert_eq!(call(&gateway, "key_a", "unit", &[]).await.status, 429);
        gateway.manual_clock().advance(DurationMs::new(1));
        assert_eq!(call(&gateway, "key_a", "unit", &[]).await.status, 200);
    }
}
