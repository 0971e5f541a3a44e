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

/// Sends the same calls, one after the other; some of them fail, some break off. Returns the statuses.
async fn send_all(gateway: &Gateway) -> Vec<u16> {
    let client = Client::new(gateway.address());
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
    assert_eq!(first.usage_events().len(), 40);
    let same = simulated(&first, &roomy);
    assert_eq!((same.calls.count, same.refused.count), (40, 0));

    for (budget, tokens, requests) in
        [(6_000, 1_000_000, 1_000), (900_000, 1_500, 1_000), (900_000, 1_000_000, 2), (6_000, 2_000, 3)]
    {
        let second = Gateway::start(options(budget, tokens, requests));
        let statuses = send_all(&second).await;
        let other = options(budget, tokens, requests);
        let found = simulated(&first, &other);
        assert!(found.refused.count > 0);
        assert_eq!(found.refused.count, refused(&statuses), "{budget} {tokens} {requests}: {found:?}");
        assert_eq!(second.events().len(), 40);
        // And nothing of what that one has admitted.
        let again = simulated(&second, &other);
        assert_eq!((again.refused.count, again.past_refusals), (0, found.refused.count));
    }
}
