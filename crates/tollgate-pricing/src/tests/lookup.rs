use tollgate_limiter::TimestampMs;

use super::{TODAY, builtin, cost, usd};
use crate::{PriceError, PriceTable, Usage};

const TABLE: &str = r#"
models:
  m:
    provider: acme
    aliases: [m-latest]
    input: 1
    changes:
      - {from: 2026-09-01, input: 2}
      - {from: 2027-01-01, input: 3}
  m-20260101: {input: 9}
  "new": {from: 2026-12-01, input: 5}
  wide: {input: 1, patterns: ["x-*"]}
  narrow: {input: 1, patterns: ["x-y-*"]}
"#;

fn found(model: &str, at: TimestampMs) -> Option<(String, String)> {
    let table = PriceTable::from_yaml(TABLE).unwrap();
    let price = table.lookup(model, at)?;
    Some((
        price.id().to_owned(),
        price.cost(&Usage { input: 1_000_000, ..Usage::default() }, None).pico_usd.to_string(),
    ))
}

fn day(text: &str) -> TimestampMs {
    let date: jiff::civil::Date = text.parse().unwrap();
    let midnight = jiff::tz::Offset::UTC.to_timestamp(date.at(0, 0, 0, 0)).unwrap();
    TimestampMs::new(u64::try_from(midnight.as_millisecond()).unwrap())
}

#[test]
fn ids_aliases_and_dates_lead_to_a_row() {
    let is = |id: &str, price: &str| Some((id.to_owned(), price.to_owned()));
    for (model, right) in [
        ("m", is("m", "2")),
        ("m-latest", is("m", "2")),
        ("m-20260102", is("m", "2")),
        ("m-2026-01-02", is("m", "2")),
        ("m@20260102", is("m", "2")),
        ("m-latest-20260102", is("m", "2")),
        ("acme/m", is("m", "2")),
        ("acme/m-20260102", is("m", "2")),
        // The exact id goes before the date's removal.
        ("m-20260101", is("m-20260101", "9")),
        ("x-1", is("wide", "1")),
        ("x-y-1", is("narrow", "1")),
        ("m-20261301", None),
        ("m-2026-01-32", None),
        ("m-12345678", None),
        ("m-2026-0102", None),
        ("m@2026-01-02", None),
        ("-20260102", None),
        ("other/m", None),
        ("M", None),
        ("", None),
        ("é-20260102", None),
    ] {
        assert_eq!(found(model, TODAY), right, "{model}");
    }
    let endless = format!("x-{}", "y".repeat(300));
    assert_eq!(found(&endless, TODAY), None);
}

#[test]
fn a_price_holds_from_its_day_on() {
    let price = |model: &str, at: TimestampMs| found(model, at).map(|(_, price)| price);
    let before = |moment: TimestampMs| TimestampMs::new(moment.get() - 1);
    assert_eq!(price("m", TimestampMs::EPOCH).as_deref(), Some("1"));
    assert_eq!(price("m", before(day("2026-09-01"))).as_deref(), Some("1"));
    assert_eq!(price("m", day("2026-09-01")).as_deref(), Some("2"));
    assert_eq!(price("m", day("2030-01-01")).as_deref(), Some("3"));
    assert_eq!(price("new", before(day("2026-12-01"))), None, "not sold yet");
    assert_eq!(price("new", day("2026-12-01")).as_deref(), Some("5"));
}

#[test]
fn one_name_for_two_rows_is_refused() {
    for text in [
        "models:\n  a: {input: 1, aliases: [b]}\n  b: {input: 2}",
        "models:\n  a: {input: 1, aliases: [c]}\n  b: {input: 2, aliases: [c]}",
        "models:\n  a: {input: 1, patterns: ['c*']}\n  b: {input: 2, patterns: ['c*']}",
    ] {
        assert!(matches!(PriceTable::from_yaml(text), Err(PriceError::Ambiguous { .. })), "{text}");
    }
}

#[test]
fn the_built_in_table_is_there_and_finds_what_providers_answer_with() {
    let table = builtin();
    assert!(table.models().count() > 200);
    for model in [
        "claude-haiku-4-5-20251001",
        "claude-sonnet-4-20250514",
        "claude-opus-4-1-20250805",
        "claude-3-opus-20240229",
        "claude-instant-1.2",
        "gpt-4o-2024-08-06",
        "gpt-4o-audio-preview",
        "gpt-3.5-turbo-0125",
        "ft:gpt-4o-mini-2024-07-18:acme::abc123",
        "gpt-5-nano-2025-08-07",
        "text-embedding-3-small",
        "gemini-flash-latest",
        "vertex_ai/gemini-2.5-pro",
    ] {
        assert!(table.lookup(model, TODAY).is_some(), "{model}");
    }
    let sonnet = table.lookup("claude-sonnet-5-5", TODAY).unwrap();
    assert_eq!((sonnet.max_input_tokens(), sonnet.max_output_tokens()), (Some(1_000_000), Some(128_000)));
    assert_eq!((sonnet.provider(), sonnet.cache_auto()), (Some("anthropic"), false));
    assert!(table.lookup("gpt-6-astra", TODAY).unwrap().cache_auto());
}

#[test]
fn regions_and_speeds_multiply_the_tier_they_are_joined_to() {
    let usage = Usage { input: 1_000_000, output: 100_000, ..Usage::default() };
    assert_eq!(cost("claude-opus-4-8", Some("us"), usage).pico_usd, usd("8.25"));
    assert_eq!(cost("claude-opus-4-8", Some("fast"), usage).pico_usd, usd("15"));
    assert_eq!(cost("claude-opus-4-8", Some("standard+fast+us"), usage).pico_usd, usd("16.5"));
    assert_eq!(cost("claude-opus-4-8", Some("batch+us"), usage).pico_usd, usd("4.125"));
}
