//! Requests, inspected: facts of both protocols, what is refused, media, estimates.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a fault here fails the test")]

mod facts;
mod hostile;
mod media;
mod refused;
mod session;

use tollgate_providers::{Call, Endpoint, Protocol, RequestFacts, estimate_input, inspect};

const MESSAGES: Endpoint = Endpoint { protocol: Protocol::Anthropic, call: Call::Messages };
const COUNT_TOKENS: Endpoint = Endpoint { protocol: Protocol::Anthropic, call: Call::CountTokens };
const CHAT: Endpoint = Endpoint { protocol: Protocol::OpenAi, call: Call::ChatCompletions };

fn facts(endpoint: Endpoint, body: &str) -> RequestFacts {
    inspect(endpoint, body.as_bytes()).unwrap_or_else(|error| panic!("{error}: {body:.300}"))
}

fn tokens(endpoint: Endpoint, body: &str) -> u64 {
    estimate_input(&facts(endpoint, body)).get()
}

/// A Messages request with these content blocks in its one message.
fn messages(blocks: &str) -> String {
    format!(
        r#"{{"model":"claude-haiku-4-5","max_tokens":9,"messages":[{{"role":"user","content":[{blocks}]}}]}}"#
    )
}

/// A chat request with these content parts in its one message.
fn chat(parts: &str) -> String {
    format!(r#"{{"model":"gpt-4o","messages":[{{"role":"user","content":[{parts}]}}]}}"#)
}
