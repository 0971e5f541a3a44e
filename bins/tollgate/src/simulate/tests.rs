//! What is printed of a simulation.

use tollgate_config::Scope;
use tollgate_limiter::{Amount, ExactAmount};
use tollgate_usage::ReplaySummary;

use super::*;

fn simulation() -> Simulation {
    let limit = KeyLimit {
        scope: Scope::Tenant,
        id: Some("acme".to_owned()),
        models: None,
        unit: "micro_usd",
        window: "day",
        amount: Amount::new(5_000_000),
        counting: "calendar",
        enforcement: Enforcement::Hard,
    };
    let calls = |count, micro| SimulatedCalls { count, cost: ExactAmount::whole(micro) };
    let at = TimestampMs::new(1_795_946_640_123);
    Simulation {
        calls: calls(10, 8_000_000),
        spent_before: SimulatedCalls::default(),
        refused: calls(4, 3_000_000),
        span: Some((at, at)),
        refusals: vec![SimulatedRefusals {
            reason: "limit",
            limit: Some(limit.clone()),
            tenant: "acme".into(),
            key: "ci".into(),
            calls: calls(4, 3_000_000),
            span: (at, at),
        }],
        limits: vec![SimulatedLimit {
            limit,
            calls: 10,
            refused: calls(4, 3_000_000),
            over_soft: SimulatedCalls::default(),
            peak: Amount::new(4_999_999),
            peak_at: at,
        }],
        past_refusals: 2,
        without_reserved_output: 3,
        summary: ReplaySummary::default(),
    }
}

#[test]
fn a_simulation_says_who_when_what_and_what_it_does_not_know() {
    let expected = "\
calls     10, 8 USD from 2026-11-29T10:04:00.123Z to 2026-11-29T10:04:00.123Z
refused   4, 3 USD saved
besides   2 that were refused then: not simulated

tenant  key  refused  saved USD  first                     last                      by
acme    ci         4   3.000000  2026-11-29T10:04:00.123Z  2026-11-29T10:04:00.123Z  budget 5.000000 USD per day, hard: tenant acme

calls  refused  over soft      peak     part  at                        limit
   10        4          0  4.999999  100.0 %  2026-11-29T10:04:00.123Z  budget 5.000000 USD per day, hard: tenant acme

";
    let text = in_words(&simulation());
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("note: ")).count(), CAVEATS.len() + 1);
    assert!(text.contains("note: 3 calls do not say how much output was reserved"), "{text}");
}

#[test]
fn json_has_the_same_under_fixed_names() {
    let json = in_json(&simulation());
    assert_eq!(json["refused"], json!({"count": 4, "cost_usd": "3", "cost_micro_usd": 3_000_000}));
    assert_eq!(json["refusals"][0]["limit"]["window"], "day");
    assert_eq!(json["refusals"][0]["first"], "2026-11-29T10:04:00.123Z");
    assert_eq!((&json["limits"][0]["peak"], &json["past_refusals"]), (&json!(4_999_999), &json!(2)));
}
