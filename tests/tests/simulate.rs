//! What a simulation says of a proxy's past is what a proxy does.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use serde_json::json;
use tollgate_limiter::DurationMs;
use tollgate_proxy::Simulation;
use tollgate_store::Clock;
use tollgate_tests::{Client, Gateway, GatewayOptions, UNIT_PRICES, setup};

fn options(budget_micro_usd: u64, tokens: u64, requests: u64) -> GatewayOptions {
    GatewayOptions {
        config: format!(
            "[[tenants]]\nid = \"t\"\ntokens_per_minute = {tokens}\n\
             [[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = \"0.{budget_micro_usd:06}\"\n\
             [[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n\
             [[limits]]\nscope = \"session\"\nrequests_per_minute = {requests}\n"
        ),
        prices: Some(UNIT_PRICES.to_owned()),
        ..GatewayOptions::default()
    }
}

const HOUR_MS: u64 = 3_600_000;

/// Sends the same calls, one after the other, the first of them at a full hour: where a minute ends decides
/// what a rate refuses. Some of them fail. Returns the statuses.
async fn send_all(gateway: &Gateway) -> Vec<u16> {
    let client = Client::new(gateway.address());
    let clock = gateway.manual_clock();
    clock.advance(DurationMs::new(HOUR_MS - clock.now().get() % HOUR_MS));
    let mut statuses = Vec::new();
    for n in 0..40_u64 {
        let body = json!({"model": "unit", "max_tokens": 200 + 10 * n, "messages": [{"role": "user", "content": "Hello"}]});
        let session = format!("x-tollgate-session: s{}", n % 3);
        let output = format!("x-mock-output-tokens: {}", 50 + 13 * n);
        let fault = if n % 7 == 3 { "x-mock-status: 500" } else { "x-mock-input-tokens: 20" };
        let headers = [session.as_str(), output.as_str(), fault];
        statuses.push(client.post("/v1/messages", "key_of_t", &body, &headers).await.status);
        gateway.manual_clock().advance(DurationMs::new(5_000));
    }
    statuses
}

fn simulated(gateway: &Gateway, options: &GatewayOptions) -> Simulation {
    // All of them are in the file from here on.
    assert_eq!(gateway.events().len(), 40);
    let setup = setup(options, "http://127.0.0.1:1", gateway.directory.path());
    setup.simulate(&[gateway.usage_file()], None, |_| {}).unwrap()
}

fn refused(statuses: &[u16]) -> u64 {
    statuses.iter().filter(|status| [402, 429].contains(*status)).count().try_into().unwrap()
}

#[tokio::test]
async fn a_simulation_refuses_nothing_that_was_admitted_and_what_a_proxy_would_have_refused() {
    let roomy = options(900_000, 1_000_000, 1_000);
    let first = Gateway::start(options(900_000, 1_000_000, 1_000));
    assert_eq!(refused(&send_all(&first).await), 0);
    let same = simulated(&first, &roomy);
    assert_eq!((same.calls.count, same.refused.count), (40, 0));

    for (budget, tokens, requests) in
        [(6_000, 1_000_000, 1_000), (900_000, 1_500, 1_000), (900_000, 1_000_000, 2), (6_000, 2_000, 3)]
    {
        agree(&first, || options(budget, tokens, requests)).await;
    }
}

#[tokio::test]
async fn a_simulation_ends_the_runs_and_sessions_that_a_proxy_would_have_ended() {
    let with = |limits: &str| GatewayOptions {
        config: format!(
            "[[tenants]]\nid = \"t\"\n[[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n{limits}"
        ),
        prices: Some(UNIT_PRICES.to_owned()),
        ..GatewayOptions::default()
    };
    let first = Gateway::start(with(""));
    assert_eq!(refused(&send_all(&first).await), 0);
    for limits in [
        "[[runs]]\nmax_steps = 5\n",
        "[[runs]]\nmax_tokens = 2_000\n",
        "[[runs]]\nbudget_usd = \"0.002\"\n",
        "[[runs]]\nmax_seconds = 100\n",
        "[[runs]]\nmax_steps = 9\nmax_tokens = 1_500\nbudget_usd = \"0.0018\"\nmax_seconds = 60\n",
        "[[limits]]\nscope = \"session\"\nbudget_usd = \"0.002\"\nwindow = \"session\"\n",
    ] {
        agree(&first, || with(limits)).await;
    }
}

/// Past calls, put to `options`, are refused as often as a proxy with them refuses the same calls; and what
/// that one has admitted passes under them again.
async fn agree(first: &Gateway, options: impl Fn() -> GatewayOptions) {
    let (second, other) = (Gateway::start(options()), options());
    let statuses = send_all(&second).await;
    let found = simulated(first, &other);
    assert!(found.refused.count > 0);
    assert_eq!(found.refused.count, refused(&statuses), "{}: {found:?}", other.config);
    let again = simulated(&second, &other);
    assert_eq!((again.refused.count, again.past_refusals), (0, found.refused.count));
}
