//! Laws that hold for every usage and every table.

use proptest::prelude::*;

use super::{model_of, table_of};
use crate::{CacheWrite, PicoUsd, PriceTable, ReserveRequest, Usage};

/// Prices from nothing to dear, in the table's own notation; `None` leaves the field out.
fn price() -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        2 => Just(None),
        1 => Just(Some("0".to_owned())),
        7 => (1_000_u64..20_000_000).prop_map(|pico| Some(format!("{}.{:06}", pico / 1_000_000, pico % 1_000_000))),
    ]
}

const PRICED: [&str; 11] = [
    "input",
    "output",
    "cache_read",
    "cache_write",
    "cache_write_1h",
    "reasoning",
    "audio_input",
    "cached_audio_input",
    "audio_output",
    "image_input",
    "image_output",
];

fn prices() -> impl Strategy<Value = String> {
    prop::collection::vec(price(), PRICED.len()).prop_map(|prices| {
        let listed =
            PRICED.iter().zip(prices).filter_map(|(name, price)| Some(format!("{name}: {}", price?)));
        listed.chain(["per_web_search: 0.01".to_owned()]).collect::<Vec<_>>().join(", ")
    })
}

/// A model with a context step and a tier that has one too, every price its own.
fn table() -> impl Strategy<Value = PriceTable> {
    (prices(), prices(), prices(), prices(), any::<bool>()).prop_map(|(base, step, flex, flex_step, cache_auto)| {
        table_of(&format!(
            "{}\ncache_auto: {cache_auto}\ncontext: [{{above: 5000, {step}}}]\ntiers: {{flex: {{{flex}, context: [{{above: 9000, {flex_step}}}]}}}}\nmultipliers: {{us: 1.1, off: 0.5}}",
            base.replace(", ", "\n")
        ))
    })
}

fn tier() -> impl Strategy<Value = Option<&'static str>> {
    prop::sample::select(vec![
        None,
        Some("default"),
        Some("flex"),
        Some("us"),
        Some("flex+us"),
        Some("off"),
        Some("new"),
    ])
}

fn usage() -> impl Strategy<Value = Usage> {
    let count = || 0_u64..6_000;
    ((count(), count(), count(), count(), count(), count()), prop::array::uniform6(count()), 0_u64..5)
        .prop_map(
            |(
                (input, cache_read, cache_write_5m, cache_write_1h, cache_write, output),
                parts,
                web_searches,
            )| Usage {
                input,
                cache_read,
                cache_write_5m,
                cache_write_1h,
                cache_write,
                output,
                reasoning: parts[0],
                audio_input: parts[1],
                cached_audio_input: parts[2],
                image_input: parts[3],
                audio_output: parts[4],
                image_output: parts[5],
                web_searches,
                ..Usage::default()
            },
        )
}

fn plus(a: &Usage, b: &Usage) -> Usage {
    Usage {
        input: a.input + b.input,
        cache_read: a.cache_read + b.cache_read,
        cache_write_5m: a.cache_write_5m + b.cache_write_5m,
        cache_write_1h: a.cache_write_1h + b.cache_write_1h,
        cache_write: a.cache_write + b.cache_write,
        output: a.output + b.output,
        web_searches: a.web_searches + b.web_searches,
        ..Usage::default()
    }
}

fn whole(usage: Usage) -> Usage {
    plus(&usage, &Usage::default())
}

/// What a request that led to `usage` can have reserved.
fn request<'a>(usage: &Usage, tier: Option<&'a str>) -> ReserveRequest<'a> {
    let cache_write = match (usage.cache_write_1h, usage.cache_write_5m.saturating_add(usage.cache_write)) {
        (0, 0) => CacheWrite::None,
        (0, _) => CacheWrite::FiveMinutes,
        _ => CacheWrite::OneHour,
    };
    ReserveRequest {
        input_tokens: usage.input_total(),
        output_tokens: usage.output,
        cache_write,
        tier,
        web_searches: usage.web_searches,
        audio: true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn a_cost_is_the_sum_of_its_bill(table in table(), usage in usage(), tier in tier()) {
        let (cost, bill) = (model_of(&table).cost(&usage, tier), model_of(&table).bill(&usage, tier));
        let sum = bill.lines.iter().fold(PicoUsd::ZERO, |sum, line| sum.saturating_add(line.cost));
        prop_assert_eq!(cost.pico_usd, sum);
        prop_assert_eq!((cost.pico_usd, cost.flags), (bill.total, bill.flags));
        let tokens: u64 = bill.lines.iter().filter(|line| line.class.name() != "per_web_search").map(|line| line.quantity).sum();
        prop_assert_eq!(tokens, usage.total());
    }

    #[test]
    fn within_one_set_of_prices_costs_add_up(base in prices(), a in usage(), b in usage()) {
        let (a, b) = (whole(a), whole(b));
        let table = table_of(&base.replace(", ", "\n"));
        let cost = |usage: &Usage| model_of(&table).cost(usage, None).pico_usd;
        prop_assert_eq!(cost(&plus(&a, &b)), cost(&a).saturating_add(cost(&b)));
    }

    #[test]
    fn more_usage_never_costs_less(base in prices(), a in usage(), b in usage()) {
        let table = table_of(&base.replace(", ", "\n"));
        let cost = |usage: &Usage| model_of(&table).cost(usage, None).pico_usd;
        prop_assert!(cost(&plus(&whole(a), &whole(b))) >= cost(&whole(a)));
    }

    #[test]
    fn a_reservation_covers_every_usage_within_it(table in table(), usage in usage(), tier in tier(), served in tier()) {
        let reserved = model_of(&table).reserve(&request(&usage, tier));
        prop_assert!(reserved >= model_of(&table).cost(&usage, tier).pico_usd);
        // Whatever was asked for, the provider may have served it in the standard tier.
        prop_assert!(reserved >= model_of(&table).cost(&usage, None).pico_usd);
        if tier == Some("new") {
            prop_assert!(reserved >= model_of(&table).cost(&usage, served).pico_usd);
        }
    }

    #[test]
    fn a_reservation_covers_a_request_that_its_estimate_left_just_below_a_step(table in table(), over in 0_u64..=500) {
        let estimate = 4_500;
        let hold = model_of(&table).reserve(&ReserveRequest { input_tokens: estimate, ..Default::default() });
        let above = Usage { input: 5_001, ..Usage::default() };
        // The rate of the step is held for, though not the tokens beyond the estimate.
        let rate = model_of(&table).cost(&above, None).pico_usd.get() / 5_001;
        prop_assert!(hold.get() >= rate * u128::from(estimate - over));
    }

    #[test]
    fn a_counter_that_carries_remainders_equals_the_exact_sum(costs in prop::collection::vec(0_u128..5_000_000, 1..200)) {
        let (whole, remainder) = costs.iter().fold((0_u64, 0_u64), |(whole, remainder), cost| {
            let exact = PicoUsd::new(*cost).to_exact();
            let carried = remainder + u64::from(exact.remainder());
            (whole + exact.units() + carried / 1_000_000, carried % 1_000_000)
        });
        prop_assert_eq!(u128::from(whole) * 1_000_000 + u128::from(remainder), costs.iter().sum::<u128>());
    }

    #[test]
    fn no_count_however_large_overflows(counts in prop::array::uniform6(any::<u64>()), tier in tier()) {
        let table = table_of("input: 10000\noutput: 10000\ncache_read: 10000\nper_minute_audio: 10\ncontext: [{above: 9, input: 10000}]\nmultipliers: {us: 100, off: 0.5}");
        let usage = Usage {
            input: counts[0], cache_read: counts[1], cache_write_1h: counts[2], output: counts[3],
            audio_input: counts[4], audio_ms: counts[5], reasoning: counts[4], ..Usage::default()
        };
        let cost = model_of(&table).cost(&usage, tier);
        prop_assert_eq!(cost.pico_usd, model_of(&table).bill(&usage, tier).total);
        prop_assert!(model_of(&table).reserve(&request(&usage, tier)).get() > 0 || usage.total() == 0);
    }
}
