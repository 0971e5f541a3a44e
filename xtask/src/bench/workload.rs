//! What is sent, and what must come back.

use std::net::SocketAddr;

/// Size of the plain request's and the stream request's body.
pub(crate) const REQUEST_BYTES: usize = 925;
/// Size of the plain answer's body.
pub(crate) const ANSWER_BYTES: usize = 645;
/// Events of a stream.
pub(crate) const EVENTS: u32 = 101;
/// Time between two events of a spaced stream.
pub(crate) const INTERVAL_MS: u64 = 10;
/// The client's key; it opens nothing but the bench's own proxy.
pub(crate) const CLIENT_KEY: &str = "tollgate-bench-client";

/// One kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Plain calls on 64 connections.
    Plain,
    /// Streams on 64 connections, all events at once.
    Burst,
    /// Streams on 64 connections, an event every [`INTERVAL_MS`].
    Spaced,
    /// Plain calls on one connection, for their latency.
    Latency,
}

impl Workload {
    /// In the order in which they run.
    pub(crate) const ALL: [Self; 4] = [Self::Plain, Self::Burst, Self::Spaced, Self::Latency];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Burst => "burst",
            Self::Spaced => "spaced",
            Self::Latency => "latency",
        }
    }

    pub(crate) fn connections(self) -> u32 {
        match self {
            Self::Plain | Self::Burst | Self::Spaced => 64,
            Self::Latency => 1,
        }
    }

    pub(crate) fn is_stream(self) -> bool {
        matches!(self, Self::Burst | Self::Spaced)
    }

    /// What the costs of one finished request are divided by: its events, if they are spaced.
    pub(crate) fn units(self) -> u32 {
        if self == Self::Spaced { EVENTS } else { 1 }
    }

    /// The whole request for a target.
    pub(crate) fn request(self, target: SocketAddr) -> Vec<u8> {
        let body = body(self.is_stream());
        let interval = match self {
            Self::Spaced => format!("x-mock-interval-ms: {INTERVAL_MS}\r\n"),
            Self::Plain | Self::Burst | Self::Latency => String::new(),
        };
        format!(
            "POST /v1/messages HTTP/1.1\r\nhost: {target}\r\nx-api-key: {CLIENT_KEY}\r\n\
             anthropic-version: 2023-06-01\r\ncontent-type: application/json\r\naccept: application/json\r\n\
             user-agent: tollgate-bench\r\n{interval}content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }
}

fn body(stream: bool) -> String {
    let body = |text: &str| {
        format!(
            r#"{{"model":"claude-sonnet-5-5","max_tokens":256,"stream":{stream},"messages":[{{"role":"user","content":"{text}"}}]}}"#
        )
    };
    let mut text = "How many carts may pass the gate today? ".repeat(REQUEST_BYTES / 40);
    text.truncate(REQUEST_BYTES - body("").len());
    body(&text)
}
