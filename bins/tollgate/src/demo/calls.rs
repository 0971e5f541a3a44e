//! The calls the demo makes, as any client would.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Value, json};

use crate::{cli::Failure, out::print};

/// How much the mock says at a time.
const TOKENS_PER_EVENT: u32 = 50;

/// One call: what it shows, who makes it, and what it asks.
struct DemoCall {
    shows: &'static str,
    key: &'static str,
    path: &'static str,
    body: Value,
    /// For the mock: how much it answers.
    output_tokens: u32,
    expected: StatusCode,
}

/// Makes every call and prints what came back.
pub(crate) async fn run(address: SocketAddr) -> Result<(), Failure> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    print(&format!("{:<44} {:<7} answer\n", "call", "status"))?;
    for call in all() {
        make(&client, address, &call).await?;
    }
    Ok(())
}

fn all() -> Vec<DemoCall> {
    const MESSAGES: &str = "/v1/messages";
    const CHAT: &str = "/v1/chat/completions";
    let ok = StatusCode::OK;
    let call = |shows, key, path, body, output_tokens, expected| DemoCall {
        shows,
        key,
        path,
        body,
        output_tokens,
        expected,
    };
    vec![
        call("acme asks Claude", "demo-acme", MESSAGES, messages(500, false), 120, ok),
        call("acme asks GPT", "demo-acme", CHAT, chat(500), 90, ok),
        call("acme streams from Claude", "demo-acme", MESSAGES, messages(800, true), 300, ok),
        call("hasty: first of two a minute", "demo-hasty", MESSAGES, messages(200, false), 50, ok),
        call("hasty: second", "demo-hasty", MESSAGES, messages(200, false), 50, ok),
        call(
            "hasty: third, rate-limited",
            "demo-hasty",
            MESSAGES,
            messages(200, false),
            50,
            StatusCode::TOO_MANY_REQUESTS,
        ),
        call("frugal: fits into two cents", "demo-frugal", MESSAGES, messages(1500, false), 1400, ok),
        call(
            "frugal: the rest is too little",
            "demo-frugal",
            MESSAGES,
            messages(1500, false),
            1400,
            StatusCode::PAYMENT_REQUIRED,
        ),
        call(
            "chatty: streams until its budget ends",
            "demo-chatty",
            MESSAGES,
            messages(20_000, true),
            20_000,
            ok,
        ),
    ]
}

fn messages(max_tokens: u32, stream: bool) -> Value {
    json!({
        "model": "claude-sonnet-5-5",
        "max_tokens": max_tokens,
        "stream": stream,
        "messages": [{"role": "user", "content": "What does a tollgate do?"}],
    })
}

fn chat(max_tokens: u32) -> Value {
    json!({
        "model": "gpt-6-astra",
        "max_completion_tokens": max_tokens,
        "messages": [{"role": "user", "content": "What does a tollgate do?"}],
    })
}

async fn make(
    client: &Client<HttpConnector, Full<Bytes>>,
    address: SocketAddr,
    call: &DemoCall,
) -> Result<(), Failure> {
    let request = Request::post(format!("http://{address}{}", call.path))
        .header("authorization", format!("Bearer {}", call.key))
        .header("content-type", "application/json")
        .header("x-mock-output-tokens", call.output_tokens)
        .header("x-mock-events", call.output_tokens.div_ceil(TOKENS_PER_EVENT))
        .header("x-mock-interval-ms", 1)
        .body(Full::new(Bytes::from(call.body.to_string())))
        .map_err(Failure::refused)?;
    let response = client.request(request).await.map_err(Failure::refused)?;
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(Failure::refused)?.to_bytes();
    let (status, answer) = (head.status.as_u16(), describe(&head.headers, &body));
    print(&format!("{:<44} {status:<7} {answer}\n", call.shows))?;
    if head.status == call.expected {
        return Ok(());
    }
    let body = String::from_utf8_lossy(&body);
    Err(Failure::refused(format!("{}: expected {}, got {}: {body}", call.shows, call.expected, head.status)))
}

/// One line about a stream: how long it was and, if it was cut off, why.
fn describe_stream(body: &str) -> String {
    let events: Vec<Value> = body
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .filter_map(|data| serde_json::from_str(data).ok())
        .collect();
    match events.iter().find_map(|event| event["error"]["message"].as_str()) {
        Some(message) => format!("cut off after {} events: {message}", events.len().saturating_sub(1)),
        None => format!("{} events, untouched", events.len()),
    }
}

/// One line about an answer: its usage, its events, or its error.
fn describe(headers: &HeaderMap, body: &[u8]) -> String {
    let is_stream =
        headers.get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    if is_stream {
        return describe_stream(&String::from_utf8_lossy(body));
    }
    let Ok(answer) = serde_json::from_slice::<Value>(body) else { return format!("{} bytes", body.len()) };
    if let Some(message) = answer["error"]["message"].as_str() {
        return message.to_owned();
    }
    let usage = &answer["usage"];
    let (input, output) = match usage.get("prompt_tokens") {
        Some(prompt) => (prompt, &usage["completion_tokens"]),
        None => (&usage["input_tokens"], &usage["output_tokens"]),
    };
    format!("{input} tokens in, {output} out")
}
