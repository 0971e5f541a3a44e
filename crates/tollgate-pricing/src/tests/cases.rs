//! Bills that others got wrong, with the right amount.

use tollgate_limiter::{ExactAmount, MicroUsd};

use super::{TODAY, builtin, cost, model_of, plain_cost, table_of, usd};
use crate::{
    CacheWrite, CostFlags, PicoUsd, PriceError, PriceTable, ReserveRequest, Unpriced, Usage, price_usage,
};

#[test]
fn c50_cache_writes_are_billed_once() {
    let usage = Usage { input: 3, cache_write_5m: 12_304, output: 550, ..Usage::default() };
    assert_eq!(plain_cost("claude-3-7-sonnet-20250219", usage), usd("0.054399"));
}

#[test]
fn c51_cache_writes_of_a_stream_are_billed_once() {
    let usage = Usage { input: 6, cache_write_5m: 159_217, output: 2_745, ..Usage::default() };
    assert_eq!(plain_cost("claude-opus-4-7", usage), usd("1.06376125"));
}

#[test]
fn c53_cache_reads_cost_the_read_price() {
    let usage = Usage { input: 4, cache_read: 2_455, output: 23, ..Usage::default() };
    assert_eq!(plain_cost("claude-3-5-haiku", usage), usd("0.0002916"));
}

#[test]
fn c54_more_cached_than_uncached_is_never_negative() {
    let usage = Usage { input: 1, cache_write_5m: 225, cache_read: 965_602, output: 82, ..Usage::default() };
    assert_eq!(plain_cost("claude-opus-4-5", usage), usd("0.48626225"));
}

#[test]
fn c56_exclusive_counts_are_not_subtracted_from_each_other() {
    let table = table_of("input: 2.5\ncache_read: 0.25\noutput: 15");
    let usage = Usage { input: 212_117, cache_read: 1_833_984, output: 23_679, ..Usage::default() };
    assert_eq!(model_of(&table).cost(&usage, None).pico_usd, usd("1.3439735"));
}

#[test]
fn c58_the_input_price_pays_uncached_tokens_only() {
    let table = table_of("input: 10\ncache_write: 1\ncache_read: 0.1");
    let usage = Usage { input: 100, cache_write_5m: 700, cache_read: 200, ..Usage::default() };
    assert_eq!(model_of(&table).cost(&usage, None).pico_usd, usd("0.00172"));
}

#[test]
fn c59_one_hour_writes_have_their_own_price() {
    let split = Usage { cache_write_5m: 600_000, cache_write_1h: 400_000, ..Usage::default() };
    assert_eq!(plain_cost("claude-opus-4-8", split), usd("7.75"));
    let unsplit = Usage { cache_write: 1_000_000, ..Usage::default() };
    assert_eq!(plain_cost("claude-opus-4-8", unsplit), usd("6.25"));
}

#[test]
fn c61_two_million_one_hour_writes() {
    let usage = Usage { cache_write_1h: 2_000_000, ..Usage::default() };
    assert_eq!(plain_cost("claude-sonnet-4-6", usage), usd("12"));
}

#[test]
fn c64_a_web_search_has_a_fee_that_no_factor_touches() {
    let usage = Usage { web_searches: 1, web_fetches: 3, ..Usage::default() };
    assert_eq!(plain_cost("claude-sonnet-5-5", usage), usd("0.01"));
    assert_eq!(cost("claude-sonnet-5-5", Some("batch+us"), usage).pico_usd, usd("0.01"));
}

#[test]
fn c67_a_context_step_reprices_the_whole_request() {
    let usage = Usage { input: 250_000, ..Usage::default() };
    assert_eq!(plain_cost("gemini-3.1-pro-preview", usage), usd("1"));
    let at_the_step = Usage { input: 150_000, cache_read: 50_000, ..Usage::default() };
    assert_eq!(plain_cost("gemini-3.1-pro-preview", at_the_step), usd("0.31"));
    let above_by_one_cached = Usage { cache_read: 50_001, ..at_the_step };
    assert_eq!(plain_cost("gemini-3.1-pro-preview", above_by_one_cached), usd("0.6200004"));
}

#[test]
fn c68_models_without_a_step_have_none() {
    let usage = Usage { input: 900_000, ..Usage::default() };
    assert_eq!(plain_cost("claude-sonnet-4-6", usage), usd("2.7"));
    assert_eq!(plain_cost("claude-opus-4-6", usage), usd("4.5"));
}

#[test]
fn c69_the_tier_that_was_used_sets_the_price() {
    let usage = Usage { input: 1_000, cache_read: 1_000, output: 1_000, ..Usage::default() };
    let full = plain_cost("gpt-5-mini", usage);
    assert_eq!(full, usd("0.002275"));
    for standard in ["default", "auto", "standard", "Default", ""] {
        assert_eq!(cost("gpt-5-mini", Some(standard), usage).pico_usd, full);
    }
    let flex = cost("gpt-5-mini", Some("flex"), usage);
    assert_eq!((flex.pico_usd, flex.flags), (usd("0.0011375"), CostFlags::NONE));
    let unknown = cost("gpt-5-mini", Some("overnight"), usage);
    assert_eq!((unknown.pico_usd, unknown.flags), (full, CostFlags::UNKNOWN_TIER));
}

#[test]
fn c70_a_hold_is_made_at_the_tier_and_the_step_that_are_asked_for() {
    let table = builtin();
    let astra = table.lookup("gpt-6-astra", TODAY).unwrap();
    let hold = |tier, input_tokens| {
        astra.reserve(&ReserveRequest { input_tokens, output_tokens: 1_000, tier, ..Default::default() })
    };
    // This model writes its cache unasked: 12.50 instead of 10 for all of the input.
    assert_eq!(hold(None, 10_000), usd("0.175"));
    assert_eq!(hold(Some("priority"), 10_000), usd("0.35"));
    assert_eq!(hold(Some("priority"), 280_000), usd("14.15"));
    // The provider may serve a flex request in the standard tier, and anything may be behind a new name.
    assert_eq!(hold(Some("flex"), 10_000), usd("0.175"));
    assert!(hold(Some("warp"), 10_000) >= hold(Some("ultrafast"), 10_000));
    assert!(astra.has_tier("priority+us") && !astra.has_tier("warp"));
}

#[test]
fn c72_thoughts_are_output() {
    let usage = Usage { input: 20, output: 151 + 382, reasoning: 382, ..Usage::default() };
    assert_eq!(plain_cost("gemini-2.5-flash", usage), usd("0.0013385"));
}

#[test]
fn c74_audio_is_billed_by_the_second() {
    let usage = Usage { audio_ms: 11_000, ..Usage::default() };
    assert_eq!(plain_cost("whisper-1", usage), usd("0.0011"));
    let tokens_on_a_model_without_token_prices = Usage { input: 5, ..usage };
    let flagged = cost("whisper-1", None, tokens_on_a_model_without_token_prices);
    assert_eq!((flagged.pico_usd, flagged.flags), (usd("0.0011"), CostFlags::UNRATED_USAGE));
}

#[test]
fn c75_an_unknown_model_has_no_price_rather_than_the_price_zero() {
    assert!(builtin().lookup("gpt-99-turbo", TODAY).is_none());
    let refused = price_usage(&builtin(), "gpt-99-turbo", &Usage::default(), None, TODAY);
    assert_eq!(refused, Err(Unpriced { model: "gpt-99-turbo".to_owned() }));
}

#[test]
fn c77_the_vendor_before_a_model_is_its_own_vendor_or_none() {
    let table = builtin();
    let id = |model: &str| table.lookup(model, TODAY).map(|price| price.id().to_owned());
    assert_eq!(id("anthropic/claude-sonnet-5-5").as_deref(), Some("claude-sonnet-5-5"));
    assert_eq!(id("anthropic/claude-sonnet-5-5-20260901").as_deref(), Some("claude-sonnet-5-5"));
    assert_eq!(id("models/gemini-2.5-flash").as_deref(), Some("gemini-2.5-flash"));
    assert_eq!(id("openai/gpt-5-mini").as_deref(), Some("gpt-5-mini"));
    assert_eq!(id("somebody/claude-sonnet-5-5"), None);
    assert_eq!(id("models/gpt-5-mini"), None);
}

#[test]
fn c78_an_explicit_zero_usage_costs_zero() {
    assert_eq!(plain_cost("claude-sonnet-5-5", Usage::default()), PicoUsd::ZERO);
    assert_eq!(plain_cost("gpt-6-astra", Usage::default()), PicoUsd::ZERO);
}

#[test]
fn c79_cached_tokens_count_once() {
    let usage = Usage { input: 86, cache_read: 17_817, ..Usage::default() };
    assert_eq!(usage.input_total(), 17_903);
    assert_eq!(plain_cost("gpt-5-mini", usage), usd("0.000466925"));
}

#[test]
fn c82_a_ledger_of_small_costs_sums_exactly() {
    let table = table_of(
        "input: 1
per_request: 0.0001",
    );
    let each = model_of(&table).cost(&Usage::default(), None).pico_usd;
    let sum = (0..10_000).fold(PicoUsd::ZERO, |sum, _| sum.saturating_add(each));
    assert_eq!(sum.to_exact(), ExactAmount::whole(1_000_000));
    // 0.24 micro-USD ten thousand times: neither 0 nor 10,000.
    let small =
        model_of(&table_of("input: 0.24")).cost(&Usage { input: 1, ..Usage::default() }, None).pico_usd;
    assert_eq!(small.rounded_up(), MicroUsd::new(1));
    let sum = (0..10_000).fold(PicoUsd::ZERO, |sum, _| sum.saturating_add(small));
    assert_eq!(sum.to_exact(), ExactAmount::whole(2_400));
}

#[test]
fn c83_a_price_in_another_unit_is_refused_at_load() {
    for fields in [
        "input: 3000000",                    // USD per million, times a million once more
        "input: 0.000003",                   // USD per token
        "output: 0.0006",                    // the dearest output there is, per token
        "per_web_search: 10",                // USD per thousand searches
        "per_minute_audio: 15",              // USD per million characters
        "per_image: 0.00000004",             // USD per pixel
        "multipliers: {us: 1100}\ninput: 1", // per mille
    ] {
        let indented: String = fields.lines().map(|line| format!("    {line}\n")).collect();
        let refused = PriceTable::from_yaml(&format!("models:\n  m:\n{indented}"));
        assert!(matches!(refused, Err(PriceError::Field { ref model, .. }) if model == "m"), "{fields}");
    }
}

#[test]
fn c84_c85_a_model_whose_price_is_zero_is_priced_and_free() {
    let table = table_of("input: 0\noutput: 0");
    let usage = Usage { input: 1_000_000, cache_read: 5, output: 1_000, ..Usage::default() };
    assert_eq!(model_of(&table).cost(&usage, None).pico_usd, PicoUsd::ZERO);
    let request = ReserveRequest {
        input_tokens: 1_000,
        output_tokens: 1_000,
        cache_write: CacheWrite::OneHour,
        ..Default::default()
    };
    assert_eq!(model_of(&table).reserve(&request), PicoUsd::ZERO);
}

#[test]
fn the_reference_prices_hold() {
    let million = |part: fn(&mut Usage) -> &mut u64| {
        let mut usage = Usage::default();
        *part(&mut usage) = 1_000_000;
        usage
    };
    let sonnet = |usage| plain_cost("claude-sonnet-5-5", usage);
    assert_eq!(sonnet(million(|usage| &mut usage.input)), usd("2"));
    assert_eq!(sonnet(million(|usage| &mut usage.output)), usd("10"));
    assert_eq!(sonnet(million(|usage| &mut usage.cache_read)), usd("0.10"));
    assert_eq!(sonnet(million(|usage| &mut usage.cache_write_5m)), usd("2.50"));
    assert_eq!(sonnet(million(|usage| &mut usage.cache_write_1h)), usd("4"));

    for (model, step, below, above) in [
        ("claude-haiku-5-5", 100_000, ("0.10", "0.50"), ("0.50", "2.50")),
        ("gpt-6-astra", 272_000, ("10", "50"), ("20", "75")),
    ] {
        for (input, (input_price, output_price)) in [(step, below), (step + 1, above)] {
            let pico_per_token = |price| usd(price).get() / 1_000_000;
            let right =
                pico_per_token(input_price) * u128::from(input) + pico_per_token(output_price) * 1_000;
            let usage = Usage { input, output: 1_000, ..Usage::default() };
            assert_eq!(plain_cost(model, usage), PicoUsd::new(right), "{model} at {input}");
        }
    }
}
