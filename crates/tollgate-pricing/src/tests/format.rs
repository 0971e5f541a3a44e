//! What a table may say, and what it is told when it says something else.

use super::{TODAY, model_of, table_of, usd};
use crate::{Class, CostFlags, CurrencyRates, PriceError, PriceTable, Usage, UsageFields};

fn problem(fields: &str) -> String {
    let indented: String = fields.lines().map(|line| format!("    {line}\n")).collect();
    PriceTable::from_yaml(&format!("models:\n  m:\n{indented}")).unwrap_err().to_string()
}

#[test]
fn mistakes_are_named() {
    for (fields, names) in [
        ("input: 1\nouput: 2", ["`ouput`", "output"]),
        ("input: 1\ntiers: {batch: {inptu: 1}}", ["`inptu`", "input"]),
        ("input: cheap", ["`m`", "`input: cheap`"]),
        ("input: -1", ["`input: -1`", "negative"]),
        ("input: 1.0000001", ["`input: 1.0000001`", "digits"]),
        ("input: 0x10", ["`input: 0x10`", "decimal"]),
        ("input: 1_000", ["`input: 1_000`", "decimal"]),
        ("input: .inf", ["`input: .inf`", "decimal"]),
        ("input: 1\ncontext: [{input: 2}]", ["`context[0].above`", "missing"]),
        ("input: 1\ncontext: [{above: 5, input: 2}, {above: 5, input: 3}]", ["`context[1].above`", "larger"]),
        ("input: 1\ncontext: [{above: many, input: 2}]", ["`context[0].above`", "whole"]),
        ("input: 1\ncontext: [{above: 5}]", ["`context[0]`", "no price"]),
        ("input: 1\nabove: 5", ["`above`", "context"]),
        ("input: 1\ntiers: {batch: {input: 1, tiers: {x: {input: 1}}}}", ["`tiers.batch`", "only"]),
        ("input: 1\ntiers: {standard: {input: 1}}", ["`tiers.standard`", "standard"]),
        ("input: 1\ntiers: {a: {input: 1}}\nmultipliers: {a: 2}", ["`multipliers.a`", "tier"]),
        ("input: 1\nmultipliers: {us: 0}", ["`multipliers.us`", "0.01"]),
        ("input: 1\nfrom: 2026-02-30", ["`from`", "2026-02-30"]),
        ("input: 1\nfrom: soon", ["`from`", "soon"]),
        ("input: 1\nchanges: [{input: 2}]", ["`changes[0].from`", "missing"]),
        (
            "input: 1\nfrom: 2026-02-01\nchanges: [{from: 2026-01-01, input: 2}]",
            ["`changes[0].from`", "later"],
        ),
        ("input: 1\nmax_output_tokens: lots", ["`max_output_tokens`", "whole"]),
        ("input: 1\npatterns: ['[']", ["`patterns`", "bad pattern"]),
        ("provider: acme", ["`m`", "no price"]),
    ] {
        let told = problem(fields);
        assert!(names.iter().all(|name| told.contains(name)), "{fields}\n{told}");
    }
    for text in [
        "",
        "models: 5",
        "models: {}\nmodel: {}",
        "models:\n  a: {input: 1}\n  a: {input: 2}",
        ": :",
        "models: {m: {input: 1, input: 2}}",
    ] {
        assert!(matches!(PriceTable::from_yaml(text), Err(PriceError::Syntax(_))), "{text}");
    }
}

#[test]
fn a_missing_price_falls_back_and_says_so() {
    let only_text = table_of("input: 2\noutput: 8");
    let million = 1_000_000;
    for (usage, right, flags) in [
        (Usage { cache_read: million, ..Usage::default() }, "2", CostFlags::RATE_FALLBACK),
        (Usage { cache_write_5m: million, ..Usage::default() }, "2", CostFlags::RATE_FALLBACK),
        (Usage { cache_write: million, ..Usage::default() }, "2", CostFlags::RATE_FALLBACK),
        (Usage { cache_write_1h: million, ..Usage::default() }, "2", CostFlags::RATE_FALLBACK),
        (Usage { input: million, audio_input: million, ..Usage::default() }, "2", CostFlags::RATE_FALLBACK),
        (Usage { output: million, audio_output: million, ..Usage::default() }, "8", CostFlags::RATE_FALLBACK),
        (Usage { output: million, reasoning: million, ..Usage::default() }, "8", CostFlags::NONE),
        (Usage { input: million, image_input: million, ..Usage::default() }, "2", CostFlags::NONE),
        (Usage { web_searches: 1, ..Usage::default() }, "0", CostFlags::UNRATED_USAGE),
        (Usage { images: 1, ..Usage::default() }, "0", CostFlags::UNRATED_USAGE),
        (Usage { input: 1, reasoning: 1, ..Usage::default() }, "0.000002", CostFlags::CLAMPED),
    ] {
        let cost = model_of(&only_text).cost(&usage, None);
        assert_eq!((cost.pico_usd, cost.flags), (usd(right), flags), "{usage:?}");
    }
    let with_writes = table_of("input: 2\ncache_write: 3\ncache_read: 1");
    let hour = model_of(&with_writes).cost(&Usage { cache_write_1h: million, ..Usage::default() }, None);
    assert_eq!((hour.pico_usd, hour.flags), (usd("3"), CostFlags::RATE_FALLBACK));
    let audio = Usage { cache_read: million, cached_audio_input: million, ..Usage::default() };
    assert_eq!(model_of(&with_writes).cost(&audio, None).pico_usd, usd("1"));
}

#[test]
fn parts_with_a_price_of_their_own_leave_the_rest_at_the_whole_s_price() {
    let table = table_of(
        "input: 1\noutput: 4\nreasoning: 2\naudio_input: 10\naudio_output: 20\nimage_output: 30\nimage_input: 5",
    );
    let usage = Usage {
        input: 100,
        audio_input: 30,
        image_input: 20,
        output: 100,
        reasoning: 40,
        audio_output: 10,
        image_output: 5,
        ..Usage::default()
    };
    let bill = model_of(&table).bill(&usage, None);
    assert_eq!(bill.total, usd("0.00106"));
    let line = |class| bill.lines.iter().find(|line| line.class == class).map(|line| line.quantity);
    assert_eq!(
        (line(Class::Input), line(Class::Output), line(Class::Reasoning)),
        (Some(50), Some(45), Some(40))
    );
}

#[test]
fn a_bill_shows_the_price_in_the_table_s_unit() {
    let table = table_of("input: 2.5\nper_minute_audio: 0.006\nper_request: 0.01\nmultipliers: {us: 1.1}");
    let usage = Usage { input: 10, audio_ms: 30_000, ..Usage::default() };
    let bill = model_of(&table).bill(&usage, Some("us"));
    let prices: Vec<_> =
        bill.lines.iter().map(|line| (line.class, line.price.unwrap().to_string())).collect();
    assert_eq!(
        prices,
        [
            (Class::Input, "2.75".to_owned()),
            (Class::Audio, "0.0066".to_owned()),
            (Class::Request, "0.01".to_owned())
        ]
    );
    assert_eq!(bill.total, usd("0.0133275"));
}

#[test]
fn fees_hold_in_every_set_and_token_prices_only_in_their_own() {
    let table = table_of(
        "input: 2\ncache_read: 1\nper_web_search: 0.01\ncontext: [{above: 10, input: 4}]\ntiers: {flex: {input: 1, per_web_search: 0.02}}",
    );
    let usage = Usage { input: 1, cache_read: 10, web_searches: 1, ..Usage::default() };
    let above = model_of(&table).cost(&usage, None);
    assert_eq!((above.pico_usd, above.flags), (usd("0.010044"), CostFlags::RATE_FALLBACK));
    assert_eq!(model_of(&table).cost(&usage, Some("flex")).pico_usd, usd("0.020011"));
}

#[test]
fn another_currency_needs_a_rate() {
    let text = "models:\n  m: {currency: EUR, input: 2, output: 0.000001}";
    let refused = PriceTable::from_yaml("models:\n  m: {currency: EUR, input: 2}");
    assert!(matches!(refused, Err(PriceError::NoRate { ref currency, .. }) if currency == "EUR"));
    let mut rates = CurrencyRates::default();
    rates.set("EUR", "1.17").unwrap();
    assert!(matches!(PriceTable::from_yaml_with(text, &rates), Err(PriceError::Field { .. })));
    let table = PriceTable::from_yaml_with("models:\n  m: {currency: EUR, input: 2}", &rates).unwrap();
    let cost = table.lookup("m", TODAY).unwrap().cost(&Usage { input: 1_000_000, ..Usage::default() }, None);
    assert_eq!(cost.pico_usd, usd("2.34"));
    assert!(rates.set("JPY", "0").is_err() && rates.set("JPY", "x").is_err());
}

#[test]
fn usage_fields_are_those_of_a_usage_event_and_no_others() {
    let fields: UsageFields =
        serde_saphyr::from_str("{input_tokens: 1, cache_write_5m_tokens: 2, web_search_requests: 3}")
            .unwrap();
    let right = Usage { input: 1, cache_write_5m: 2, web_searches: 3, ..Usage::default() };
    assert_eq!(Usage::from(fields), right);
    assert!(serde_saphyr::from_str::<UsageFields>("{prompt_tokens: 1}").is_err());
    assert!(serde_saphyr::from_str::<UsageFields>("{input_tokens: -1}").is_err());
}
