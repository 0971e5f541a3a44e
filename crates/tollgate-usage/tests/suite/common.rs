//! Events to write, and what a file holds.

use std::path::Path;
use std::sync::Arc;

use tollgate_limiter::{DurationMs, ExactAmount, MicroUsd, TimestampMs, Tokens};
use tollgate_usage::{
    Event, Outcome, RefusalEvent, RefusingLimit, ReplaySummary, Session, TokenCounts, UsageError, UsageEvent,
    replay,
};

/// The event that SPEC §11 shows.
pub(crate) fn usage(request_id: &str) -> UsageEvent {
    UsageEvent {
        ts: TimestampMs::new(1_795_946_640_123),
        request_id: request_id.into(),
        tenant: "acme".into(),
        key: "ci".into(),
        attributes: Arc::new([(Arc::from("team"), Arc::from("ml"))].into()),
        caller_attributes: Vec::new(),
        session: Some(Session { id: "s-1".into(), derived: true }),
        provider: "anthropic".into(),
        model: "claude-sonnet-5-5".into(),
        requested_model: None,
        path: "/v1/messages".into(),
        stream: true,
        status: 200,
        outcome: Outcome::Complete,
        tokens: TokenCounts { input: 12, output: 34, ..TokenCounts::default() },
        usage_estimated: false,
        service_tier: Some("standard".into()),
        reserved: MicroUsd::new(41_000),
        reserved_output: Tokens::new(4_096),
        first_reserved: None,
        cost: ExactAmount::whole(364),
        estimated_input: Tokens::new(11),
        uncorrected_input: None,
        duration: DurationMs::new(1_840),
        ttfb: Some(DurationMs::new(320)),
        flags: Vec::new(),
        others: Vec::new(),
    }
}

/// A refusal by a budget.
pub(crate) fn refusal(request_id: &str) -> RefusalEvent {
    RefusalEvent {
        ts: TimestampMs::new(1_795_946_640_000),
        request_id: request_id.into(),
        tenant: "acme".into(),
        key: "ci".into(),
        attributes: Arc::default(),
        provider: Some("anthropic".into()),
        model: "claude-sonnet-5-5".into(),
        path: "/v1/messages".into(),
        status: 402,
        reason: "budget_exceeded",
        limit: Some(RefusingLimit {
            scope: "tenant",
            id: "acme".into(),
            unit: "micro_usd",
            window: "day",
            limit: 10_000,
            spent: 9_900,
            held: 50,
        }),
        charge: 223,
        retry_after: Some(DurationMs::new(1_000)),
    }
}

/// What [`replay`] says of a file, with the ids and the costs it reported.
pub(crate) type Seen = (ReplaySummary, Vec<(String, ExactAmount)>);

/// Reads the file at `path`.
pub(crate) fn read(path: &Path) -> Result<Seen, UsageError> {
    let mut events = Vec::new();
    let summary = replay(path, |_, _| (), |event| events.push((event.request_id.to_owned(), event.cost)))?;
    Ok((summary, events))
}

/// The line of an event, line break included.
pub(crate) fn line(event: &Event) -> String {
    let mut line = Vec::new();
    event.write_json(&mut line);
    line.push(b'\n');
    String::from_utf8(line).unwrap_or_default()
}
