//! What limits about models are settled to when a call made use of several.

use tollgate_config::KeyHash;
use tollgate_limiter::{ExactAmount, ReservationId, TimestampMs};
use tollgate_providers::{Endpoint, Meter, Metered, RequestFacts, inspect, route};

use super::{End, SoFar, bill};
use crate::{
    estimates::Estimates,
    policy::{Policy, tests::compile},
    quote::{Asked, Judged},
};

const NOW: TimestampMs = TimestampMs::new(1_795_996_800_000);

const PRICES: &str =
    "models:\n  unit:\n    input: 1\n    output: 1\n  dear:\n    input: 10\n    output: 10\n";

/// A limit for all models, one for each, one for those a filter names.
const LIMITS: &str = "[[providers]]\nid = \"a\"\nprotocol = \"anthropic\"\nbase_url = \"https://a.example\"\n\
    [[tenants]]\nid = \"t\"\n[[tenants.keys]]\nid = \"k\"\nkey_env = \"key_0\"\n\
    [[limits]]\nscope = \"global\"\nbudget_usd = 1\nwindow = \"day\"\n\
    [[limits]]\nscope = \"model\"\nbudget_usd = 1\nwindow = \"day\"\nrequests_per_minute = 9\n\
    [[limits]]\nscope = \"tenant\"\nmodels = [\"de*\"]\ntokens_per_minute = 10_000\n";

const REQUEST: &str = r#"{"model":"unit","max_tokens":100,"messages":[{"role":"user","content":"Hello"}],
    "tools":[{"type":"advisor_20260301","name":"advisor","model":"dear"}]}"#;

fn endpoint() -> Endpoint {
    route("POST", "/v1/messages", None).unwrap()
}

fn judged(policy: &Policy, endpoint: Endpoint, facts: &RequestFacts) -> Judged {
    let asked = Asked {
        request_id: ReservationId::new(1),
        key: policy.key(&KeyHash::of("key_0")).unwrap(),
        caller: &[],
        session: None,
        provider: "a",
        endpoint,
        facts: Some(facts),
        estimates: &Estimates::default(),
    };
    Judged::new(policy, &asked, NOW).unwrap()
}

/// The whole units that each limit is reserved and settled at, by scope and value.
fn settled(policy: &Policy, end: impl Fn(&Metered) -> End<'_>, answer: &str) -> Vec<(String, u64, u64)> {
    let facts = inspect(endpoint(), REQUEST.as_bytes()).unwrap();
    let Judged { quote, limits } = judged(policy, endpoint(), &facts);
    let mut meter = Meter::new(endpoint(), &facts, false);
    meter.feed(answer.as_bytes());
    let metered = meter.finish();
    let bill = bill(&end(&metered), &quote, &policy.prices, NOW);
    let actuals = bill.actuals(&limits, &quote, policy, NOW);
    let line = |(limit, actual): (&crate::policy::AppliedLimit, &ExactAmount)| {
        let name = format!("{} {} {}", limit.rule.scope, limit.id, limit.rule.measure.name());
        (name, limit.rule.measure.charge(&quote.reserved_for(limit)).get(), actual.units())
    };
    limits.iter().zip(&actuals).map(line).collect()
}

fn lines(settled: &[(String, u64, u64)]) -> Vec<(&str, u64)> {
    settled.iter().map(|(name, _, actual)| (&**name, *actual)).collect()
}

#[test]
fn c16_each_model_s_limits_are_settled_to_what_was_used_of_it() {
    let policy = compile(LIMITS, PRICES);
    let both = r#"{"type":"message","model":"unit","stop_reason":"end_turn","content":[],"usage":{"input_tokens":1,
        "output_tokens":1,"iterations":[{"type":"message","input_tokens":10,"output_tokens":5},
        {"type":"advisor_message","model":"dear","input_tokens":20,"output_tokens":30}]}}"#;
    let of_both = settled(&policy, |metered| End::Whole(metered), both);
    let expected = [
        ("global global micro_usd", 15 + 500),
        ("tenant t tokens", 50),
        ("model unit requests", 1),
        ("model unit micro_usd", 15),
        ("model dear requests", 1),
        ("model dear micro_usd", 500),
    ];
    assert_eq!(lines(&of_both), expected);
    // Under a name that nobody knows they are still the models that were asked for.
    let unknown = both.replace("\"unit\"", "\"their-unit\"").replace("\"dear\"", "\"their-dear\"");
    assert_eq!(lines(&settled(&policy, |metered| End::Whole(metered), &unknown)), expected);
    // A model that was not asked after all costs its limits nothing.
    let one = r#"{"type":"message","model":"unit","stop_reason":"end_turn","content":[],
        "usage":{"input_tokens":10,"output_tokens":5}}"#;
    let of_one = settled(&policy, |metered| End::Whole(metered), one);
    let expected = [
        ("global global micro_usd", 15),
        ("tenant t tokens", 0),
        ("model unit requests", 1),
        ("model unit micro_usd", 15),
        ("model dear requests", 0),
        ("model dear micro_usd", 0),
    ];
    assert_eq!(lines(&of_one), expected);
}

#[test]
fn a_call_that_broke_off_costs_each_model_s_limits_at_least_their_reservation() {
    let policy = compile(LIMITS, PRICES);
    for end in [(|_: &Metered| End::NoAnswer) as fn(&Metered) -> End<'_>, |metered| End::Broken(metered)] {
        let settled = settled(&policy, end, "");
        assert!(settled.iter().all(|(_, reserved, actual)| actual == reserved), "{settled:?}");
        assert!(settled.iter().all(|(_, reserved, _)| *reserved > 0), "{settled:?}");
    }
    let failed = settled(&policy, |_| End::Failed, "");
    let used: Vec<_> = lines(&failed).into_iter().filter(|(_, actual)| *actual > 0).collect();
    assert_eq!(used, [("model unit requests", 1)], "the request was made, and nothing else");
}

#[test]
fn audio_that_nobody_reports_costs_what_audio_costs() {
    let prices = "models:\n  unit:\n    input: 1\n    audio_input: 10\n    output: 2\n    audio_output: 20\n";
    let policy = compile(LIMITS, prices);
    let endpoint = route("POST", "/v1/chat/completions", None).unwrap();
    let cost = |modalities: &str| {
        let request = format!(
            r#"{{"model":"unit","max_completion_tokens":100{modalities},"stream":true,
                "messages":[{{"role":"user","content":"Say hello"}}]}}"#
        );
        let facts = inspect(endpoint, request.as_bytes()).unwrap();
        let Judged { quote, .. } = judged(&policy, endpoint, &facts);
        let meter = Meter::new(endpoint, &facts, true);
        let so_far = SoFar::new(meter.running(), &quote, &policy.prices, NOW).with_output(50).cost.get();
        let broken = bill(&End::NoAnswer, &quote, &policy.prices, NOW).amounts.cost.get();
        (quote.estimated_input.get() * 1_000_000, so_far, broken, quote.reserved.cost.get())
    };
    let (input, so_far, broken, reserved) = cost("");
    assert_eq!((so_far, broken), (u128::from(input) + 100_000_000, reserved));
    let (input, so_far, broken, reserved) =
        cost(r#","modalities":["text","audio"],"audio":{"voice":"ash","format":"wav"}"#);
    assert_eq!((so_far, broken), (10 * u128::from(input) + 1_000_000_000, reserved));
}
