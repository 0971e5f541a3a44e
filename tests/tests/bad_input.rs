//! Bad input gets the protocol's error, says what to change, and loses nothing.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use serde_json::{Value, json};
use tollgate_tests::{Answer, Client, Gateway, GatewayOptions, eventually};

const KEY: &str = "key_of_t";
const TENANT: &str = "[[tenants]]\nid = \"t\"\nrequests_per_minute = 1000\ntokens_per_minute = 1000000\n\
                      [[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = 100\n\
                      [[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n\
                      [[tenants.keys]]\nid = \"narrow\"\nkey_env = \"key_narrow\"\nmodels = [\"claude-haiku-*\"]\n";

fn raw(path: &str, body: &[u8], lines: &str) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {KEY}\r\ncontent-length: {}\r\n{lines}\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

async fn send(gateway: &Gateway, path: &str, body: &[u8]) -> Answer {
    Client::new(gateway.address()).send(&raw(path, body, "")).await
}

/// Nothing reached the provider and no counter moved.
async fn assert_untouched(gateway: &Gateway) {
    assert_eq!(gateway.mock.counts().requests, 0);
    assert_eq!(gateway.store.open_reservations(), 0);
    for (unit, window) in [("requests", "minute"), ("tokens", "minute"), ("micro_usd", "day")] {
        let counter = gateway.counter("t", unit, window, 1_000).await;
        assert_eq!((counter.spent.as_millionths(), counter.held.get()), (0, 0), "{unit}");
    }
    assert!(gateway.usage_events().is_empty());
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_400_in_the_clients_protocol() {
    let gateway = Gateway::new(TENANT);
    let anthropic: &[&[u8]] = &[
        b"",
        b"not json",
        b"[]",
        b"null",
        b"{\"model\":\"m\"}",
        b"{\"model\":1,\"max_tokens\":1,\"messages\":[]}",
        b"{\"model\":\"m\",\"max_tokens\":\"many\",\"messages\":[]}",
        b"{\"model\":\"m\",\"max_tokens\":-1,\"messages\":[]}",
        b"{\"model\":\"m\",\"max_tokens\":1.5,\"messages\":[]}",
        b"{\"model\":\"m\",\"max_tokens\":99999999999999999999,\"messages\":[]}",
        b"{\"model\":\"m\",\"max_tokens\":1,\"messages\":[]} trailing",
        b"{\"model\":\"m\",\"model\":\"n\",\"max_tokens\":1,\"messages\":[]}",
        b"{\"model\":\"m\",\"max_tokens\":1,\"max_tokens\":100000,\"messages\":[]}",
        b"{\"model\":\"m\",\"max_tokens\":1,\"mod\\u0065l\":\"n\",\"messages\":[]}",
        b"{\"model\":\"m\",\"max_tokens\":1,\"messages\":[],\"stream\":\"yes\"}",
        b"{\"model\":\"m\",\"max_tokens\":1,\"messages\":[",
        b"\xff\xfe{\x00",
    ];
    for body in anthropic {
        let answer = send(&gateway, "/v1/messages", body).await;
        let shown = String::from_utf8_lossy(body).into_owned();
        assert_eq!(answer.status, 400, "{shown}: {}", answer.text());
        let error = answer.json();
        assert_eq!(
            (&error["type"], &error["error"]["type"]),
            (&json!("error"), &json!("invalid_request_error")),
            "{shown}"
        );
        assert!(error["error"]["message"].as_str().is_some_and(|message| message.len() > 10), "{error}");
        assert_eq!(answer.header("x-tollgate-reason"), "bad_request");
    }
    let openai: &[&[u8]] = &[
        b"{\"model\":\"m\",\"messages\":[],\"n\":9223372036854775808}",
        b"{\"model\":\"m\",\"messages\":[],\"n\":0}",
        b"{\"model\":\"m\",\"messages\":[],\"n\":-3}",
        b"{\"model\":\"m\",\"messages\":[],\"n\":\"2\"}",
        b"{\"model\":\"m\",\"messages\":[],\"stream_options\":7,\"stream\":true}",
        b"{\"model\":\"m\",\"messages\":[],\"max_completion_tokens\":{}}",
        b"{\"messages\":[]}",
    ];
    for body in openai {
        let answer = send(&gateway, "/v1/chat/completions", body).await;
        let shown = String::from_utf8_lossy(body).into_owned();
        assert_eq!(answer.status, 400, "{shown}: {}", answer.text());
        assert_eq!(answer.json()["error"]["type"], "invalid_request_error", "{shown}");
        assert_eq!(answer.json()["error"]["param"], Value::Null);
    }
    let deep =
        [b"{\"model\":\"m\",\"max_tokens\":1,\"messages\":".as_slice(), &b"[".repeat(200_000)].concat();
    assert_eq!(send(&gateway, "/v1/messages", &deep).await.status, 400);
    assert_untouched(&gateway).await;
}

#[tokio::test]
async fn c116_paths_that_cannot_be_metered_are_404_and_methods_405() {
    let gateway = Gateway::new(TENANT);
    let client = Client::new(gateway.address());
    for path in [
        "/",
        "/v1",
        "/v1/responses",
        "/v1/embeddings",
        "/v1/messages/batches",
        "/v1/messages/",
        "//v1/messages",
        "/v1/messages/../messages/batches",
        "/v1/%6dessages",
        "/provider/nobody/v1/messages",
        "/provider/anthropic",
        "/provider/anthropic/v1/chat/completions",
        "/provider/openai/v1/messages",
        "/metrics",
        "/admin/v1/limits",
    ] {
        let answer = send(&gateway, path, b"{}").await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.text());
        assert_eq!(answer.header("x-tollgate-request-id").len(), 32);
    }
    let answer = client.get("/v1/messages", &["x-api-key: key_of_t"]).await;
    assert_eq!((answer.status, answer.header("x-tollgate-reason")), (405, "method_not_allowed"));
    assert_untouched(&gateway).await;
}

#[tokio::test]
async fn wrong_keys_are_401_and_models_out_of_bounds_403() {
    let gateway = Gateway::new(TENANT);
    let client = Client::new(gateway.address());
    let body = json!({"model": "claude-sonnet-5-5", "max_tokens": 1, "messages": []});
    let long = "x".repeat(5_000);
    for key in ["", "wrong", "key_of_", "key_of_t2", &long, "sk_provider_sentinel"] {
        let answer = client.post("/v1/messages", key, &body, &[]).await;
        assert_eq!((answer.status, answer.header("x-tollgate-reason")), (401, "unauthenticated"), "{key}");
        assert_eq!(answer.json()["error"]["type"], "authentication_error");
    }
    let answer = client.post("/v1/messages", "key_narrow", &body, &[]).await;
    assert_eq!((answer.status, answer.header("x-tollgate-reason")), (403, "model_not_allowed"));
    assert!(answer.text().contains("narrow") && answer.text().contains("claude-sonnet-5-5"));
    assert_untouched(&gateway).await;
}

#[tokio::test]
async fn bodies_have_a_bound_announced_or_not() {
    let server = "max_body_bytes = 50_000".to_owned();
    let gateway =
        Gateway::start(GatewayOptions { config: TENANT.to_owned(), server, ..GatewayOptions::default() });
    let client = Client::new(gateway.address());
    let answer = send(&gateway, "/v1/messages", &vec![b' '; 50_001]).await;
    assert_eq!((answer.status, answer.header("x-tollgate-reason")), (413, "body_too_large"));
    assert!(answer.text().contains("50000"));
    let head = format!("POST /v1/messages HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {KEY}\r\n");
    let chunk = format!("10000\r\n{}\r\n0\r\n\r\n", "x".repeat(0x10000));
    let answer = client.send(format!("{head}transfer-encoding: chunked\r\n\r\n{chunk}").as_bytes()).await;
    assert_eq!(answer.status, 413);
    let announced = format!("{head}content-length: 99999999999\r\n\r\n");
    assert_eq!(client.send(announced.as_bytes()).await.status, 413, "refused before the body is sent");
    assert_untouched(&gateway).await;
}

#[tokio::test]
async fn a_thirty_megabyte_image_is_small_in_tokens_and_passes() {
    let gateway = Gateway::new(TENANT);
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x04\0\0\0\x03\0\x08\x02\0\0\0".to_vec();
    png.resize(22_000_000, 0);
    let data = base64(&png);
    let body = json!({"model": "claude-sonnet-5-5", "max_tokens": 10, "messages": [{"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}]}]});
    let answer =
        Client::new(gateway.address()).post("/v1/messages", KEY, &body, &["x-mock-input-tokens: 1049"]).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let estimate = gateway.usage_events()[0]["estimated_input_tokens"].as_u64().expect("a number");
    assert!((900..6_000).contains(&estimate), "c34: {estimate}");
    assert_eq!(gateway.mock.requests()[0].body.len(), body.to_string().len());
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len() / 3 * 4 + 4);
    for three in bytes.chunks(3) {
        let word =
            three.iter().fold(0_u32, |word, &byte| word << 8 | u32::from(byte)) << (8 * (3 - three.len()));
        for place in (0..4).rev() {
            text.push(char::from(DIGITS[(word >> (6 * place) & 63) as usize]));
        }
    }
    text
}

/// What could be read in two ways is refused, or read in one and framed anew: the provider sees one
/// request with one length, whatever the client sent.
#[tokio::test]
async fn two_readings_of_one_request_never_reach_the_provider() {
    let gateway = Gateway::new(TENANT);
    let client = Client::new(gateway.address());
    let body = "{\"model\":\"claude-sonnet-5-5\",\"max_tokens\":1,\"messages\":[]}";
    let head = format!("POST /v1/messages HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {KEY}\r\n");
    for lines in [
        "content-length: 5\r\ncontent-length: 60\r\n",
        "transfer-encoding: xchunked\r\n",
        "content-length: +60\r\n",
        "content-length: 60 \r\n 5\r\n",
        "transfer-encoding: chunked, identity\r\n",
    ] {
        let mut connection = client.connect().await;
        connection.write(format!("{head}{lines}\r\n{body}").as_bytes()).await;
        match connection.answer().await {
            Ok(answer) => assert!((400..500).contains(&answer.status), "{lines}: {}", answer.status),
            Err(error) => assert_ne!(error.kind(), std::io::ErrorKind::TimedOut, "{lines}"),
        }
    }
    for line in [
        "content-encoding: gzip",
        "content-encoding: identity\r\ncontent-encoding: gzip",
        "x-tollgate-session: two words",
        "x-tollgate-session: a\r\nx-tollgate-session: b",
    ] {
        let answer = client.send(&raw("/v1/messages", body.as_bytes(), &format!("{line}\r\n"))).await;
        assert_eq!(answer.status, 400, "{line}: {}", answer.text());
    }
    assert_untouched(&gateway).await;
    let smuggled =
        format!("{:x}\r\n{body}\r\n0\r\n\r\nGET /v1/models HTTP/1.1\r\nhost: t\r\n\r\n", body.len());
    let both = format!("{head}transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n{smuggled}");
    client.send(both.as_bytes()).await;
    let seen = gateway.mock.requests();
    assert!(seen.len() <= 1 && seen.iter().all(|request| request.body == body.as_bytes()), "{seen:?}");
}

#[tokio::test]
async fn slow_heads_and_silent_connections_are_closed() {
    let server = "header_timeout_seconds = 1".to_owned();
    let gateway =
        Gateway::start(GatewayOptions { config: TENANT.to_owned(), server, ..GatewayOptions::default() });
    for beginning in ["", "POST /v1/mess", "POST /v1/messages HTTP/1.1\r\nhost: t\r\nx-slow: ", "PRI * HTT"] {
        let mut connection = Client::new(gateway.address()).connect().await;
        connection.write(beginning.as_bytes()).await;
        let read = connection.read_at_least(usize::MAX).await;
        assert!(
            read.is_ok() || read.is_err_and(|error| error.kind() != std::io::ErrorKind::TimedOut),
            "{beginning}"
        );
    }
    let many: String = (0..200).map(|index| format!("x-{index}: {}\r\n", "v".repeat(1000))).collect();
    let mut connection = Client::new(gateway.address()).connect().await;
    connection.write(format!("POST /v1/messages HTTP/1.1\r\n{many}\r\n").as_bytes()).await;
    let status = connection.answer().await.map(|answer| answer.status);
    assert!(status.is_err() || status.is_ok_and(|status| status == 431), "a head of 200 kB");
    assert_untouched(&gateway).await;
}

#[tokio::test]
async fn a_connection_that_is_used_now_and_then_stays_open() {
    let server = "header_timeout_seconds = 1".to_owned();
    let gateway = Gateway::start(GatewayOptions { server, ..GatewayOptions::default() });
    let mut connection = Client::new(gateway.address()).connect().await;
    // Twice as long as a silent one is given, with a short request now and then.
    for _ in 0..20 {
        connection.write(b"GET /v1/nothing HTTP/1.1\r\nhost: t\r\n\r\n").await;
        assert_eq!(connection.answer().await.expect("still open").status, 404);
        tokio::time::sleep(std::time::Duration::from_millis(130)).await;
    }
}

#[tokio::test]
async fn connections_have_a_bound_and_wait_their_turn() {
    let server = "max_connections = 2".to_owned();
    let gateway = Gateway::start(GatewayOptions {
        config: TENANT.to_owned(),
        server,
        workers: 2,
        ..GatewayOptions::default()
    });
    let client = Client::new(gateway.address());
    let (first, _second) = (client.connect().await, client.connect().await);
    let body = json!({"model": "claude-sonnet-5-5", "max_tokens": 1, "messages": []});
    let waiting = tokio::spawn(async move { client.post("/v1/messages", KEY, &body, &[]).await.status });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    drop(first);
    assert_eq!(waiting.await.expect("no panic"), 200);
}

#[tokio::test]
async fn a_client_that_dies_within_its_body_leaves_nothing() {
    let gateway = Gateway::new(TENANT);
    for cut in [0, 1, 20, 59] {
        let mut connection = Client::new(gateway.address()).connect().await;
        let request =
            raw("/v1/messages", b"{\"model\":\"claude-sonnet-5-5\",\"max_tokens\":1,\"messages\":[]}", "");
        connection.write(&request[..request.len() - 60 + cut]).await;
        drop(connection);
    }
    // A request that is answered afterwards shows that the others have been looked at.
    assert_eq!(Client::new(gateway.address()).get("/v1/unknown", &[]).await.status, 404);
    eventually("nothing is open", || gateway.store.open_reservations() == 0).await;
    assert_untouched(&gateway).await;
}

/// A body that announces `length`, or nothing, and of which only the first byte comes.
fn trickling(length: Option<usize>) -> Vec<u8> {
    let head =
        "POST /v1/messages HTTP/1.1\r\nhost: t\r\nx-api-key: key_of_t\r\ncontent-type: application/json\r\n";
    match length {
        Some(length) => format!("{head}content-length: {length}\r\n\r\n{{").into_bytes(),
        None => format!("{head}transfer-encoding: chunked\r\n\r\n1\r\n{{\r\n").into_bytes(),
    }
}

#[tokio::test]
async fn bodies_that_trickle_keep_no_other_waiting() {
    let gateway =
        Gateway::new("[[tenants]]\nid = \"t\"\n[[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n");
    let client = Client::new(gateway.address());
    for length in [None, Some(30 << 20)] {
        let mut connections = Vec::new();
        for _ in 0..60 {
            let mut connection = client.connect().await;
            connection.write(&trickling(length)).await;
            connections.push(connection);
        }
        // Small and large ones, with a length and without.
        for bytes in [10, 300_000, 5_000_000] {
            let content = "a".repeat(bytes);
            let body = json!({"model": "claude-sonnet-5-5", "max_tokens": 9, "messages": [{"role": "user", "content": content}]});
            let answer = client.post("/v1/messages", "key_of_t", &body, &[]).await;
            assert_eq!(answer.status, 200, "{bytes}: {}", answer.text());
            let body = body.to_string();
            let chunked = format!(
                "POST /v1/messages HTTP/1.1\r\nhost: t\r\nx-api-key: key_of_t\r\ncontent-type: application/json\r\n\
                 transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
                body.len()
            );
            let answer = client.send(chunked.as_bytes()).await;
            assert_eq!(answer.status, 200, "{bytes}: {}", answer.text());
        }
    }
}
