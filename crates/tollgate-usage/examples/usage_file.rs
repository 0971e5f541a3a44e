//! A usage file to measure reports and simulations with: calls of 12 tenants, 48 keys and 5 models in sessions of some
//! twenty calls, over a month.
//!
//!     cargo run -p tollgate-usage --example usage_file -- 1000000 > usage.jsonl
#![allow(clippy::unwrap_used, reason = "in an example, a broken assumption ends it")]

use std::{
    io::{BufWriter, Write},
    sync::Arc,
};

use tollgate_limiter::{DurationMs, ExactAmount, MicroUsd, TimestampMs, Tokens};
use tollgate_usage::{Event, Outcome, Session, TokenCounts, UsageEvent};

/// 2026-11-01T00:00:00Z.
const START: TimestampMs = TimestampMs::new(1_793_491_200_000);
const MONTH_MS: u64 = 2_592_000_000;
const MODELS: [&str; 5] =
    ["claude-sonnet-5-5", "claude-haiku-5-5", "claude-opus-5-5", "gpt-6-astra", "gpt-6-mini"];

fn main() {
    let calls: u64 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut line = Vec::new();
    for call in 0..calls {
        line.clear();
        Event::Usage(event(call, MONTH_MS / calls.max(1) * call)).write_json(&mut line);
        line.push(b'\n');
        out.write_all(&line).unwrap();
    }
    out.flush().unwrap();
}

/// Numbers that look drawn at random, and are the same each time: the finalizer of `SplitMix64`.
const fn mixed(seed: u64) -> u64 {
    let seed = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let seed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let seed = (seed ^ (seed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    seed ^ (seed >> 31)
}

fn event(call: u64, since_start_ms: u64) -> UsageEvent {
    let drawn = |what: u64, below: u64| mixed(call * 16 + what) % below;
    let tenant = drawn(0, 12);
    let model = MODELS[usize::try_from(drawn(1, 5)).unwrap()];
    let (input, cached, output) = (50 + drawn(2, 4_000), drawn(3, 20_000), 10 + drawn(4, 1_500));
    let cost = ExactAmount::from_millionths(
        u128::from(input * 3 + output * 15) * 1_000_000 + u128::from(cached) * 300_001,
    );
    let attributes = [("team", drawn(5, 3)), ("user", drawn(6, 200))];
    UsageEvent {
        ts: START.saturating_add(DurationMs::new(since_start_ms)),
        request_id: format!("{:016x}{:016x}", mixed(call), mixed(!call)).into(),
        tenant: format!("tenant-{tenant}").into(),
        key: format!("tenant-{tenant}-{}", drawn(7, 4)).into(),
        attributes: Arc::new(
            attributes.map(|(name, value)| (name.into(), format!("{name}-{value}").into())).into(),
        ),
        caller_attributes: Vec::new(),
        session: Some(Session { id: format!("s-{}", call / 20 + drawn(8, 20)).into(), derived: false }),
        provider: if model.starts_with("gpt") { "openai" } else { "anthropic" }.into(),
        model: model.into(),
        requested_model: None,
        path: if model.starts_with("gpt") { "/v1/chat/completions" } else { "/v1/messages" }.into(),
        stream: true,
        status: 200,
        outcome: Outcome::Complete,
        tokens: TokenCounts { input, cache_read: cached, output, ..TokenCounts::default() },
        usage_estimated: drawn(9, 50) == 0,
        service_tier: None,
        reserved: MicroUsd::new(cost.rounded_up().get() + 4_096 * 15),
        reserved_output: Tokens::new(4_096),
        first_reserved: None,
        cost,
        estimated_input: Tokens::new(input + cached),
        uncorrected_input: Some(Tokens::new(input + cached)),
        duration: DurationMs::new(500 + drawn(10, 20_000)),
        ttfb: Some(DurationMs::new(200 + drawn(11, 700))),
        flags: Vec::new(),
        others: Vec::new(),
    }
}
