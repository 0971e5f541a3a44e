//! How the mock answers: one structure, read once from the defaults and the request's `x-mock-*` headers.

mod headers;

use std::time::Duration;

/// How to answer a request. The default is a quick, complete success.
///
/// Every field can be set for one request by the header named with it.
#[derive(Clone, Debug, Default)]
pub struct Behaviour {
    /// The tokens that the answer reports.
    pub usage: UsageRule,
    /// How the usage is reported. `x-mock-usage: report | missing | zero | every-chunk | bare`
    pub report: UsageReport,
    /// An error status to answer with in place of a success: 400 to 599. `x-mock-status`
    pub status: Option<u16>,
    /// Seconds in the `retry-after` of an error answer; left out, a 429 says 7. `x-mock-retry-after`
    pub retry_after_s: Option<u64>,
    /// What happens before the first byte. `x-mock-start: answer | hang | reset | close`
    pub start: Start,
    /// How the body of a success ends. `x-mock-hang-after`, `x-mock-reset-after`, `x-mock-close-after`,
    /// `x-mock-cut-after`, `x-mock-error-after`, each with a number of events
    pub end: End,
    /// Sizes and times.
    pub pace: Pace,
    /// The model named in the answer, in place of the request's. `x-mock-model`
    pub model: Option<String>,
    /// The service tier named in the answer; left out, `standard` or `default`. `x-mock-service-tier`
    pub service_tier: Option<String>,
    /// The content encoding of a success. `x-mock-encoding: identity | gzip | br`
    pub encoding: Encoding,
    /// How stream events are framed. `x-mock-framing: lf | crlf | cr | no-space`
    pub framing: Framing,
    /// Bytes of text in the answer; left out, 4 for each output token. At most 256 MiB.
    /// `x-mock-text-bytes`
    pub text_bytes: Option<u32>,
    /// Answer with a call of the request's first tool. `x-mock-tool-use: yes | no`
    pub tool_use: bool,
    /// Answer 400 to a request with `stream_options`, as some compatible servers do.
    /// `x-mock-rejects-stream-options: yes | no`
    pub rejects_stream_options: bool,
    /// Keeps the bill of the calls with this label apart. `x-mock-label`
    pub label: Option<String>,
}

/// The tokens an answer reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct UsageRule {
    /// Uncached input; left out, a quarter of the request body's bytes, rounded up. `x-mock-input-tokens`
    pub input_tokens: Option<u64>,
    /// Output including reasoning; left out, the smaller of 40 and the request's limit, for each choice.
    /// `x-mock-output-tokens`
    pub output_tokens: Option<u64>,
    /// Input read from the cache. `x-mock-cache-read-tokens`
    pub cache_read_tokens: u64,
    /// Input written to the 5-minute cache. `x-mock-cache-write-5m-tokens`
    pub cache_write_5m_tokens: u64,
    /// Input written to the 1-hour cache. `x-mock-cache-write-1h-tokens`
    pub cache_write_1h_tokens: u64,
    /// The part of the output that is reasoning, at most all of it. `x-mock-reasoning-tokens`
    pub reasoning_tokens: u64,
    /// Web searches the server ran (Anthropic reports them). `x-mock-web-searches`
    pub web_searches: u64,
}

/// How the usage is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsageReport {
    /// As the provider does.
    #[default]
    Report,
    /// Not at all, though the call is billed.
    Missing,
    /// All zero.
    Zero,
    /// Cumulative, on every chunk of an OpenAI stream.
    EveryChunk,
    /// In a final frame of an OpenAI stream that has `usage` and nothing else.
    Bare,
}

/// What happens before the first byte of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// The answer begins.
    #[default]
    Answer,
    /// Nothing is ever sent; the connection stays open.
    Hang,
    /// The connection is reset (TCP RST).
    Reset,
    /// The connection is closed (TCP FIN).
    Close,
}

/// How the body of a success ends. The number counts stream events (or pieces of a plain body) that are
/// sent before; a body with fewer is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// With all that belongs to it.
    #[default]
    Complete,
    /// Never: the connection stays open and silent.
    Hang(u32),
    /// By a reset of the connection (TCP RST).
    Reset(u32),
    /// By closing the connection (TCP FIN) in the middle of the HTTP body.
    Close(u32),
    /// By a well-formed end of the HTTP body; the events that should follow are missing. A plain body is
    /// closed instead.
    Cut(u32),
    /// By the protocol's error event, after which nothing follows. A plain body is complete.
    ErrorEvent(u32),
}

/// Sizes and times of an answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Content events in a stream; left out, one for each text token, at most 32. At most 1,000,000.
    /// `x-mock-events`
    pub events: Option<u32>,
    /// Time between two events, or two pieces of a plain body. Zero: all at once, written to the socket
    /// together, as a kernel delivers what is ready. `x-mock-interval-ms`
    pub interval: Duration,
    /// Time before the first byte. `x-mock-first-byte-delay-ms`
    pub first_byte_delay: Duration,
    /// Pieces in which a plain body is sent, at least 1 and at most 1,000,000. `x-mock-pieces`
    pub pieces: Option<u32>,
    /// Sends every event in HTTP chunks of at most so many bytes, each written by itself.
    /// `x-mock-split-bytes`
    pub split_bytes: Option<u32>,
}

/// The content encoding of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// None.
    #[default]
    Identity,
    /// gzip; a stream is flushed after each event.
    Gzip,
    /// Brotli; a stream is flushed after each event.
    Brotli,
}

/// How stream events are framed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// `data: …` and line feeds.
    #[default]
    Lf,
    /// `data: …` and carriage return + line feed.
    CrLf,
    /// `data: …` and carriage returns.
    Cr,
    /// `data:…` without the space, and line feeds.
    NoSpace,
}

/// A `x-mock-*` header that cannot be understood. The mock answers 400 with this text.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("header {header}: {problem}")]
pub struct BehaviourError {
    header: String,
    problem: String,
}
