//! Answers, metered: the cases of both protocols, and laws that hold for any bytes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a fault here fails the test")]

mod anthropic;
mod framing;
mod hostile;
mod openai;
mod running;

use tollgate_pricing::Usage;
use tollgate_providers::{
    Call, Endpoint, Meter, Metered, Protocol, Reported, RequestFacts, StreamEnd, inspect,
};

const MESSAGES: Endpoint = Endpoint { protocol: Protocol::Anthropic, call: Call::Messages };
const CHAT: Endpoint = Endpoint { protocol: Protocol::OpenAi, call: Call::ChatCompletions };

fn facts(endpoint: Endpoint, request: &str) -> RequestFacts {
    inspect(endpoint, request.as_bytes()).unwrap()
}

fn meter(endpoint: Endpoint, facts: &RequestFacts, is_streamed: bool, body: &str) -> Metered {
    let mut meter = Meter::new(endpoint, facts, is_streamed);
    meter.feed(body.as_bytes());
    meter.finish()
}

/// The usage of an answer that must be complete.
fn complete(endpoint: Endpoint, is_streamed: bool, body: &str) -> Usage {
    let metered = meter(endpoint, &RequestFacts::default(), is_streamed, body);
    assert_eq!(metered.end, StreamEnd::Complete, "{metered:?}");
    assert!(metered.is_final && !metered.is_contradictory, "{metered:?}");
    reported(&metered)
}

fn reported(metered: &Metered) -> Usage {
    match metered.usage {
        Reported::Usage(usage) => usage,
        Reported::Missing => panic!("missing: {metered:?}"),
    }
}

/// Events as Anthropic writes them.
fn anthropic_stream(events: &[&str]) -> String {
    let line = |event: &&str| {
        let value: serde_json::Value = serde_json::from_str(event).unwrap();
        format!("event: {}\ndata: {event}   \n\n", value["type"].as_str().unwrap())
    };
    events.iter().map(line).collect()
}

/// Events as OpenAI writes them.
fn openai_stream(events: &[&str]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}
