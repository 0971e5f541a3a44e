//! A client may leave at any event, and before the first: one settlement each, never for free.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use serde_json::{Value, json};
use tollgate_tests::{
    Client, Connection, Gateway, GatewayOptions, PATIENCE, UNIT_PRICES, json_request, settled,
};

const PATHS: [&str; 2] = ["/v1/messages", "/v1/chat/completions"];

fn gateway(reservation: &str) -> Gateway {
    Gateway::start(GatewayOptions {
        config: "[[tenants]]\nid = \"t\"\n[[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = 1\n\
                 [[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n"
            .to_owned(),
        prices: Some(UNIT_PRICES.to_owned()),
        reservation: reservation.to_owned(),
        ..GatewayOptions::default()
    })
}

fn body(stream: bool) -> Value {
    json!({"model": "unit", "max_tokens": 500, "stream": stream, "messages": [{"role": "user", "content": "Hello"}]})
}

async fn open(gateway: &Gateway, path: &str, stream: bool, headers: &[&str]) -> Connection {
    let mut connection = Client::new(gateway.address()).connect().await;
    connection.write(&json_request(path, "key_of_t", &body(stream), headers)).await;
    connection
}

/// Reads the head and so many events.
async fn read_events(connection: &mut Connection, count: usize) {
    connection.read_until("\r\n\r\n").await.expect("a head");
    while connection.read_so_far().matches("\n\n").count() < count {
        let read = connection.read_so_far().len();
        connection.read_at_least(read + 1).await.expect("more events");
    }
}

#[tokio::test]
async fn c28_c93_c115_a_client_that_leaves_at_any_event_is_settled_once() {
    // With the whole output reserved at first, and with a reservation that has grown by then.
    for (path, reservation) in
        [(PATHS[0], ""), (PATHS[1], ""), (PATHS[0], "output_tokens = 1\nextend_tokens = 1")]
    {
        let usage = ["x-mock-input-tokens: 27", "x-mock-output-tokens: 47", "x-mock-events: 4"];
        let whole = gateway("");
        let text = Client::new(whole.address()).post(path, "key_of_t", &body(true), &usage).await.text();
        let count = text.matches("\n\n").count();
        for left_at in 0..=count {
            let gateway = gateway(reservation);
            let hang = format!("x-mock-hang-after: {left_at}");
            let headers: Vec<&str> = usage.into_iter().chain([&*hang]).collect();
            let mut connection = open(&gateway, path, true, &headers).await;
            // OpenAI's usage event was not asked for and does not reach the client.
            read_events(&mut connection, left_at.min(count.saturating_sub(2))).await;
            drop(connection);
            let event = settled(&gateway).await;
            let cost = event["cost_micro_usd"].as_u64().unwrap();
            if event["usage_estimated"] == true {
                assert_eq!(event["outcome"], "client_gone", "{path} at {left_at}");
                assert!(cost > 0 && cost >= event["reserved_micro_usd"].as_u64().unwrap(), "{path} {event}");
            } else {
                assert!(left_at + 3 >= count, "the usage comes last: {path} at {left_at} of {count}");
                assert_eq!(cost, 74);
            }
        }
    }
}

#[tokio::test]
async fn c94_a_client_that_leaves_before_the_headers_pays_the_reservation() {
    for path in PATHS {
        for stream in [false, true] {
            let gateway = gateway("");
            let connection = open(&gateway, path, stream, &["x-mock-start: hang"]).await;
            gateway.mock.wait_for_requests(1, PATIENCE).await.expect("it was forwarded");
            drop(connection);
            let event = settled(&gateway).await;
            assert_eq!((&event["outcome"], &event["usage_estimated"]), (&json!("client_gone"), &json!(true)));
            assert_eq!(event["cost_micro_usd"], event["reserved_micro_usd"], "{path} {stream}");
            let gone = gateway.mock.wait_for(PATIENCE, |counts| counts.client_disconnects == 1).await;
            assert!(gone.is_ok(), "c97: the provider is cancelled at once");
        }
    }
}

#[tokio::test]
async fn c95_what_is_read_on_in_the_drain_decides_the_cost() {
    for path in PATHS {
        let gateway = gateway("drain_ms = 10000");
        let usage = ["x-mock-input-tokens: 27", "x-mock-output-tokens: 47", "x-mock-interval-ms: 5"];
        let mut connection = open(&gateway, path, true, &usage).await;
        read_events(&mut connection, 1).await;
        drop(connection);
        let event = settled(&gateway).await;
        assert_eq!(
            (&event["usage_estimated"], &event["cost_micro_usd"]),
            (&json!(false), &json!(74)),
            "{path}"
        );
    }
}

#[tokio::test]
async fn c78_an_explicit_zero_is_zero_in_every_form_unless_content_came() {
    let nothing =
        ["x-mock-usage: zero", "x-mock-events: 0", "x-mock-text-bytes: 0", "x-mock-output-tokens: 0"];
    for path in PATHS {
        for stream in [false, true] {
            for (headers, is_zero) in [(&nothing[..], true), (&["x-mock-usage: zero"], false)] {
                let gateway = gateway("");
                let client = Client::new(gateway.address());
                assert_eq!(client.post(path, "key_of_t", &body(stream), headers).await.status, 200);
                let event = settled(&gateway).await;
                let expected = if is_zero { json!(0) } else { event["reserved_micro_usd"].clone() };
                assert_eq!(event["cost_micro_usd"], expected, "{path} {stream} {headers:?}");
                assert_eq!(event["usage_estimated"], !is_zero, "{path} {stream}");
            }
        }
    }
}
