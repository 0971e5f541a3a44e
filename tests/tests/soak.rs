//! A mixed load with everything that goes wrong in the field. Afterwards nothing is open, counters
//! equal the sum of the events, and memory is flat.
//!
//! `TOLLGATE_SOAK_SECONDS` sets its length (default: 10).
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use tollgate_tests::{Client, Gateway, GatewayOptions, eventually, json_request};

const CONNECTIONS: u64 = 200;
const KEY: &str = "key_of_t";
const TENANT: &str = "[[tenants]]\nid = \"t\"\nrequests_per_second = 100000\ntokens_per_minute = 9000000000\n\
                      [[tenants.budgets]]\nwindow = \"total\"\nlimit_usd = 1000000\n\
                      [[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n";

/// What a memory that does not leak may still grow by while pools and buffers settle.
const GROWTH_KIB_MAX: u64 = 16 * 1024;

/// What a client does, by turns: path, whether it streams, how the provider behaves, and the text
/// after which the client leaves (none: it reads to the end).
const SCENES: [(&str, bool, &[&str], Option<&str>); 14] = [
    ("/v1/messages", false, &[], None),
    ("/v1/chat/completions", false, &[], None),
    ("/v1/messages", true, &[], None),
    ("/v1/chat/completions", true, &[], None),
    ("/v1/messages", true, &["x-mock-events: 10", "x-mock-interval-ms: 5"], None),
    ("/v1/chat/completions", true, &["x-mock-events: 10", "x-mock-interval-ms: 5"], Some("delta")),
    ("/v1/messages", true, &["x-mock-hang-after: 3"], Some("message_start")),
    ("/v1/messages", false, &["x-mock-status: 529"], None),
    ("/v1/chat/completions", false, &["x-mock-start: reset"], None),
    ("/v1/messages", true, &["x-mock-reset-after: 3"], None),
    ("/v1/chat/completions", true, &["x-mock-cut-after: 3"], None),
    ("/v1/messages", true, &["x-mock-error-after: 2"], None),
    ("/v1/messages", false, &["x-mock-usage: missing"], None),
    ("/v1/messages", true, &["x-mock-encoding: gzip"], None),
];

#[tokio::test]
async fn a_mixed_load_leaves_nothing_open_and_counters_equal_to_the_events() {
    let seconds =
        std::env::var("TOLLGATE_SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    let gateway = Arc::new(Gateway::start(GatewayOptions {
        config: TENANT.to_owned(),
        workers: 2,
        system_clock: true,
        ..GatewayOptions::default()
    }));
    // A third of the time fills pools, buffers and the mock's records.
    let warm = load(&gateway, Duration::from_secs(seconds).div_f64(3.0)).await;
    let before_kib = resident_kib();
    let hot = load(&gateway, Duration::from_secs(seconds).mul_f64(2.0 / 3.0)).await;
    eventually("nothing is open", || gateway.store.open_reservations() == 0).await;
    let after_kib = resident_kib();
    let requests = warm + hot;
    println!("{requests} requests in {seconds} s; resident {before_kib} KiB, then {after_kib} KiB");
    assert!(after_kib < before_kib + GROWTH_KIB_MAX, "memory grows: {before_kib} KiB, then {after_kib} KiB");

    let events = gateway.usage_events();
    assert_eq!(events.len() as u64, requests, "one event a request");
    let spent = gateway.counter("t", "micro_usd", "total", 1_000_000_000_000).await;
    assert_eq!((spent.spent.as_millionths(), spent.held.get()), (gateway.cost_pico_usd("t"), 0));
    let metrics = Client::new(gateway.admin_address()).get("/metrics", &[]).await.text();
    assert!(
        metrics.contains("tollgate_open_reservations 0")
            && metrics.contains("tollgate_settle_failures_total 0")
    );
    let outcomes: std::collections::BTreeSet<_> =
        events.iter().filter_map(|event| event["outcome"].as_str()).collect();
    assert_eq!(outcomes.len(), 4, "every outcome but a cut-off was met: {outcomes:?}");
    assert_eq!(gateway.stop().connections_cut, 0);
}

/// Runs all connections for `span` and returns how many requests were sent.
async fn load(gateway: &Arc<Gateway>, span: Duration) -> u64 {
    let sent = Arc::new(AtomicU64::new(0));
    let stop = tokio_util::sync::CancellationToken::new();
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|turn| tokio::spawn(act(Client::new(gateway.address()), turn, sent.clone(), stop.clone())))
        .collect();
    tokio::time::sleep(span).await;
    stop.cancel();
    for client in clients {
        client.await.expect("no panic");
    }
    sent.load(Ordering::Relaxed)
}

async fn act(client: Client, mut turn: u64, sent: Arc<AtomicU64>, stop: tokio_util::sync::CancellationToken) {
    let mut connection = client.connect().await;
    while !stop.is_cancelled() {
        let (path, stream, headers, leave_after) =
            SCENES[usize::try_from(turn).expect("small") % SCENES.len()];
        // A step that shares no factor with the number of scenes: every client plays every scene.
        turn += 5;
        let model = if path == "/v1/messages" { "claude-sonnet-5-5" } else { "gpt-6-astra" };
        let body = json!({"model": model, "max_tokens": 100, "stream": stream, "messages": [{"role": "user", "content": "Hello"}]});
        connection.write(&json_request(path, KEY, &body, headers)).await;
        sent.fetch_add(1, Ordering::Relaxed);
        let goes_on = match leave_after {
            None => connection.answer().await.expect("an answer").complete,
            Some(text) => {
                connection.read_until(text).await.expect("the beginning of an answer");
                false
            }
        };
        if !goes_on {
            connection = client.connect().await;
        }
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the process's status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its resident size");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}
