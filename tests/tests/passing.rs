//! What passes through, and what must not: bytes, headers, credentials, connections.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tollgate_tests::{Answer, Client, Gateway, GatewayOptions, PROVIDER_KEY, json_request};

const KEY: &str = "key_of_t_sentinel";
const TENANT: &str = "[[tenants]]\nid = \"t\"\nrequests_per_minute = 1000\n\
                      [[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = 100\n\
                      [[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t_sentinel\"\n";

fn chat(stream_options: Option<Value>) -> Value {
    let mut body = json!({
        "model": "gpt-6-astra",
        "stream": true,
        "max_completion_tokens": 50,
        "messages": [{"role": "user", "content": "Hello"}],
    });
    if let Some(options) = stream_options {
        body["stream_options"] = options;
    }
    body
}

fn messages() -> Value {
    json!({"model": "claude-sonnet-5-5", "max_tokens": 50, "messages": [{"role": "user", "content": "Hello"}]})
}

async fn post(gateway: &Gateway, path: &str, body: &Value, headers: &[&str]) -> Answer {
    Client::new(gateway.address()).post(path, KEY, body, headers).await
}

/// The mock numbers its answers; all else of two alike is equal.
fn without_id(answer: &Answer) -> String {
    without_digits(&answer.text())
}

fn without_digits(text: &str) -> String {
    let mut parts = text.split("chatcmpl-mock-");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + "ID" + part.trim_start_matches(|digit: char| digit.is_ascii_digit()))
}

#[tokio::test]
async fn c98_a_client_that_did_not_ask_for_usage_sees_none_and_all_other_bytes() {
    let gateway = Gateway::new(TENANT);
    let asked =
        post(&gateway, "/v1/chat/completions", &chat(Some(json!({"include_usage": true}))), &[]).await;
    let usage_event = asked
        .text()
        .split_inclusive("\n\n")
        .find(|event| event.contains("\"prompt_tokens\""))
        .map(str::to_owned);
    let usage_event = usage_event.expect("the client asked for it");
    for options in [None, Some(json!({"include_usage": false})), Some(json!({}))] {
        let answer = post(&gateway, "/v1/chat/completions", &chat(options.clone()), &[]).await;
        assert_eq!(
            without_id(&answer),
            without_id(&asked).replace(&without_digits(&usage_event), ""),
            "{options:?}"
        );
        assert_eq!(answer.header("content-length"), "", "c108: no stale length");
        let forwarded: Value =
            serde_json::from_slice(&gateway.mock.requests().last().expect("one").body).expect("JSON");
        assert_eq!(forwarded["stream_options"]["include_usage"], true);
    }
    assert!(gateway.usage_events().iter().all(|event| event["usage_estimated"] == false));
}

#[tokio::test]
async fn c108_a_rewritten_request_has_one_length_and_it_is_right() {
    let gateway = Gateway::new(TENANT);
    let body = chat(None).to_string();
    let sent_in_chunks = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {KEY}\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    let client = Client::new(gateway.address());
    assert_eq!(client.send(sent_in_chunks.as_bytes()).await.status, 200);
    assert_eq!(post(&gateway, "/v1/chat/completions", &chat(None), &[]).await.status, 200);
    for seen in gateway.mock.requests() {
        assert!(seen.body.len() > body.len(), "usage was asked for");
        assert_eq!(seen.headers["content-length"], seen.body.len().to_string());
        assert!(!seen.headers.contains_key("transfer-encoding"));
    }
}

#[tokio::test]
async fn c100_a_provider_that_does_not_know_stream_options_is_asked_again_without() {
    let gateway = Gateway::new(TENANT);
    let answer =
        post(&gateway, "/v1/chat/completions", &chat(None), &["x-mock-rejects-stream-options: yes"]).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let requests = gateway.mock.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[1].body, chat(None).to_string().into_bytes(), "the second is the client's own");
    let events = gateway.usage_events();
    assert_eq!((events.len(), &events[0]["usage_estimated"]), (1, &json!(true)));
    let never = Gateway::start(GatewayOptions {
        config: TENANT.replace("[[tenants]]", "[[providers]]\nid = \"plain\"\nprotocol = \"openai\"\nbase_url = \"BASE\"\nusage_in_stream = false\napi_key_env = \"sk_provider_sentinel\"\n[[tenants]]").replace("BASE", &gateway.mock.base_url()),
        ..GatewayOptions::default()
    });
    let before = gateway.mock.requests().len();
    let answer = post(
        &never,
        "/provider/plain/v1/chat/completions",
        &chat(None),
        &["x-mock-rejects-stream-options: yes"],
    )
    .await;
    assert_eq!(
        (answer.status, gateway.mock.requests().len()),
        (200, before + 1),
        "never sent where it is switched off"
    );
    let own = post(
        &gateway,
        "/v1/chat/completions",
        &chat(Some(json!({"include_usage": true}))),
        &["x-mock-rejects-stream-options: yes"],
    )
    .await;
    assert_eq!(own.status, 400, "what the client asked for itself is answered by the provider");
}

#[tokio::test]
async fn headers_pass_except_what_belongs_to_the_connection_or_to_us() {
    let gateway = Gateway::new(TENANT);
    let sent = [
        "anthropic-beta: context-1m-2025-08-07",
        "anthropic-version: 2023-06-01",
        "x-stainless-retry-count: 1",
        "user-agent: sdk/1",
        "connection: keep-alive, x-hop",
        "x-hop: secret-of-the-hop",
        "keep-alive: timeout=5",
        "te: trailers",
        "proxy-authorization: Basic abc",
        "x-tollgate-session: s-1",
    ];
    let answer = post(&gateway, "/v1/messages?beta=true", &messages(), &sent).await;
    assert_eq!(answer.status, 200);
    let seen = gateway.mock.requests().remove(0);
    for line in &sent[..4] {
        let (name, value) = line.split_once(": ").expect("a header");
        assert_eq!(seen.headers[name], value);
    }
    for name in ["x-hop", "keep-alive", "te", "proxy-authorization", "x-tollgate-session", "authorization"] {
        assert!(!seen.headers.contains_key(name), "{name}");
    }
    assert_eq!(
        (&seen.headers["x-api-key"], seen.uri.to_string()),
        (&http::HeaderValue::from_static(PROVIDER_KEY), "/v1/messages?beta=true".to_owned())
    );
    assert_eq!(seen.body, messages().to_string().into_bytes());
    assert_eq!(answer.header("x-tollgate-request-id").len(), 32);
    assert!(!answer.header("request-id").is_empty(), "the provider's own headers pass");
    let event = &gateway.usage_events()[0];
    assert_eq!((&event["session"], &event["session_derived"]), (&json!("s-1"), &json!(false)));
    assert_eq!(event["request_id"], answer.header("x-tollgate-request-id"));
    assert_eq!(event["path"], "/v1/messages");
}

#[tokio::test]
async fn c113_what_the_provider_says_of_usage_reaches_the_client_as_it_is() {
    let gateway = Gateway::new(TENANT);
    let mut body = messages();
    body["stream"] = json!(true);
    let headers = ["x-mock-input-tokens: 27", "x-mock-cache-read-tokens: 11", "x-mock-output-tokens: 47"];
    let answer = post(&gateway, "/v1/messages", &body, &headers).await.text();
    let start = answer
        .lines()
        .find(|line| line.contains("message_start") && line.starts_with("data"))
        .expect("a start");
    assert!(
        start.contains("\"input_tokens\":27") && start.contains("\"cache_read_input_tokens\":11"),
        "{start}"
    );
}

#[tokio::test]
async fn hop_by_hop_headers_of_an_answer_stay_behind() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let _ = stream.read(&mut [0; 4096]).await;
        let head = "HTTP/1.1 418 Teapot\r\nconnection: x-hop, keep-alive\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\n\
                    proxy-authenticate: Basic\r\nx-tollgate-reason: forged\r\nx-kept: yes\r\ncontent-length: 2\r\n\r\n{}";
        stream.write_all(head.as_bytes()).await.expect("written");
    });
    let gateway = Gateway::new(&format!(
        "[[providers]]\nid = \"teapot\"\nprotocol = \"anthropic\"\nbase_url = \"http://{address}\"\napi_key_env = \"{PROVIDER_KEY}\"\n{TENANT}"
    ));
    let answer = post(&gateway, "/provider/teapot/v1/messages", &messages(), &[]).await;
    assert_eq!((answer.status, answer.text(), answer.header("x-kept")), (418, "{}".to_owned(), "yes"));
    for name in ["x-hop", "keep-alive", "proxy-authenticate", "x-tollgate-reason"] {
        assert_eq!(answer.header(name), "", "{name}");
    }
}

#[tokio::test]
async fn c36_a_refusal_of_ours_says_nothing_about_the_provider() {
    let gateway = Gateway::new(&TENANT.replace("limit_usd = 100", "limit_usd = 0"));
    for _ in 0..50 {
        let answer = post(&gateway, "/v1/messages", &messages(), &[]).await;
        assert_eq!((answer.status, answer.header("x-tollgate-reason")), (402, "budget_exceeded"));
    }
    let metrics = Client::new(gateway.admin_address()).get("/metrics", &[]).await.text();
    assert!(metrics.contains("tollgate_refusals_total{reason=\"budget_exceeded\"} 50"), "{metrics}");
    assert!(!metrics.contains("outcome=\"upstream_error\""), "no provider failure is counted: {metrics}");
}

#[tokio::test]
async fn c106_compressed_answers_are_metered_and_pass_as_they_are() {
    for encoding in ["gzip", "br"] {
        for stream in [false, true] {
            let gateway = Gateway::new(TENANT);
            let mut body = messages();
            body["stream"] = json!(stream);
            let mock = format!("x-mock-encoding: {encoding}");
            let headers =
                [&*mock, "accept-encoding: gzip, br", "x-mock-output-tokens: 47", "x-mock-input-tokens: 27"];
            let answer = post(&gateway, "/v1/messages", &body, &headers).await;
            assert_eq!(answer.header("content-encoding"), encoding);
            assert!(serde_json::from_slice::<Value>(&answer.body).is_err(), "still compressed");
            let event = &gateway.usage_events()[0];
            assert_eq!(
                (&event["input_tokens"], &event["output_tokens"]),
                (&json!(27), &json!(47)),
                "{encoding} {stream}"
            );
            assert_eq!(event["usage_estimated"], false);
        }
    }
}

#[tokio::test]
async fn c106_an_encoding_nobody_can_read_is_not_asked_for() {
    let gateway = Gateway::new(TENANT);
    post(&gateway, "/v1/messages", &messages(), &["accept-encoding: dcz, gzip"]).await;
    assert_eq!(gateway.mock.requests()[0].headers["accept-encoding"], "gzip");
}

#[tokio::test]
async fn c128_no_key_is_written_or_sent_anywhere_but_to_its_provider() {
    let gateway = Gateway::new(TENANT);
    let client = Client::new(gateway.address());
    let key_in_query = format!("/v1/messages?key={KEY}&beta=true");
    let body = messages().to_string();
    let request =
        format!("POST {key_in_query} HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let answers = [
        client.send(request.as_bytes()).await,
        post(&gateway, "/v1/messages", &messages(), &[]).await,
        post(&gateway, "/v1/messages", &json!({"model": KEY}), &["x-mock-status: 401"]).await,
        post(&gateway, &format!("/v1/{KEY}"), &messages(), &[]).await,
    ];
    assert_eq!((answers[0].status, answers[1].status), (200, 200), "{}", answers[0].text());
    let seen = gateway.mock.requests();
    assert_eq!(seen[0].uri.to_string(), "/v1/messages?beta=true");
    assert!(seen.iter().all(|request| !format!("{:?} {}", request.headers, request.uri).contains(KEY)));
    let metrics = Client::new(gateway.admin_address()).get("/metrics", &[]).await.text();
    let file = gateway.events().iter().map(Value::to_string).collect::<String>();
    let bodies = answers.iter().map(Answer::text);
    for text in [metrics, file].into_iter().chain(bodies) {
        assert!(!text.contains(KEY) && !text.contains(PROVIDER_KEY), "{text}");
    }
    for answer in &answers {
        assert!(!format!("{:?}", answer.headers).contains(PROVIDER_KEY));
    }
}

#[tokio::test]
async fn a_clients_own_credential_passes_only_beside_a_tollgate_key() {
    let gateway = Gateway::new(TENANT);
    let passing = Gateway::start(GatewayOptions {
        config: format!(
            "[[providers]]\nid = \"own\"\nprotocol = \"anthropic\"\nbase_url = \"{}\"\n{TENANT}",
            gateway.mock.base_url()
        ),
        ..GatewayOptions::default()
    });
    let path = "/provider/own/v1/messages";
    let own = format!("x-api-key: {PROVIDER_KEY}");
    let tollgate = format!("x-tollgate-key: {KEY}");
    let body = messages().to_string();
    let send = |lines: String| {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: t\r\n{lines}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let client = Client::new(passing.address());
        async move { client.send(request.as_bytes()).await }
    };
    let answer = send(format!("{own}\r\n{tollgate}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(!gateway.mock.requests()[0].headers.contains_key("x-tollgate-key"));
    let refused = send(format!("x-api-key: {KEY}")).await;
    assert_eq!(refused.status, 401);
    assert!(refused.text().contains("x-tollgate-key"), "{}", refused.text());
    assert_eq!(gateway.mock.requests().len(), 1, "a virtual key never leaves");
}

#[tokio::test]
async fn http_2_clients_are_served_on_the_same_port() {
    let gateway = Gateway::new(TENANT);
    let stream = tokio::net::TcpStream::connect(gateway.address()).await.expect("a connection");
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .expect("HTTP/2");
    tokio::spawn(connection);
    let calls = (0..20).map(|index| {
        let mut body = messages();
        body["stream"] = json!(index % 2 == 0);
        let request = http::Request::post(format!("http://{}/v1/messages", gateway.address()))
            .header("x-api-key", KEY)
            .body(Full::new(bytes::Bytes::from(body.to_string())))
            .expect("a request");
        sender.send_request(request)
    });
    for call in calls.collect::<Vec<_>>() {
        let response = call.await.expect("an answer");
        assert_eq!(response.status(), 200);
        let body = response.into_body().collect().await.expect("a whole body").to_bytes();
        assert!(!body.is_empty());
    }
    assert_eq!(gateway.usage_events().len(), 20);
}

#[tokio::test]
async fn one_connection_serves_many_requests_and_upstream_connections_are_reused() {
    let gateway = Gateway::new(TENANT);
    let mut connection = Client::new(gateway.address()).connect().await;
    let request = json_request("/v1/messages", KEY, &messages(), &[]);
    for _ in 0..20 {
        connection.write(&request).await;
        assert_eq!(connection.answer().await.expect("an answer").status, 200);
    }
    assert_eq!(gateway.mock.counts().connections, 1);
}

#[tokio::test]
async fn providers_are_reached_over_tls_with_a_ca_of_ones_own() {
    let upstream = Gateway::new(TENANT);
    let authority = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let address = tls_in_front_of(upstream.mock.addr, &authority).await;
    let directory = tempfile::tempdir().expect("a directory");
    let ca_file = directory.path().join("ca.pem");
    std::fs::write(&ca_file, authority.cert.pem()).expect("written");
    let provider = |id: &str, ca: &str| {
        format!(
            "[[providers]]\nid = \"{id}\"\nprotocol = \"anthropic\"\nbase_url = \"https://localhost:{}\"\n\
             api_key_env = \"{PROVIDER_KEY}\"\n{ca}\n",
            address.port()
        )
    };
    let trusting = provider("trusting", &format!("ca_file = \"{}\"", ca_file.display()));
    let config = format!("{trusting}{}{TENANT}", provider("wary", ""));
    let gateway = Gateway::start(GatewayOptions { config, ..GatewayOptions::default() });
    let answer = post(&gateway, "/provider/trusting/v1/messages", &messages(), &[]).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(upstream.mock.requests()[0].headers["x-api-key"], PROVIDER_KEY);
    let refused = post(&gateway, "/provider/wary/v1/messages", &messages(), &[]).await;
    assert_eq!(refused.status, 502, "a certificate nobody vouches for");
    assert_eq!(upstream.mock.requests().len(), 1);
}

/// A TLS listener that passes the plain bytes on.
async fn tls_in_front_of(
    target: std::net::SocketAddr,
    authority: &rcgen::CertifiedKey<rcgen::KeyPair>,
) -> std::net::SocketAddr {
    let key =
        rustls::pki_types::PrivateKeyDer::try_from(authority.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![authority.cert.der().clone()], key)
        .expect("a configuration");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut tls) = acceptor.accept(stream).await else { return };
                let Ok(mut plain) = tokio::net::TcpStream::connect(target).await else { return };
                let _ = tokio::io::copy_bidirectional(&mut tls, &mut plain).await;
            });
        }
    });
    address
}
