//! Streams against a store in memory: what is passed on is reserved, and what that bounds.

use std::{sync::Arc, time::Duration};

use proptest::prelude::*;
use tollgate_config::KeyHash;
use tollgate_limiter::{Amount, ReservationId, TimestampMs, Verdict};
use tollgate_providers::{Endpoint, Meter, RequestFacts, StreamEnd, inspect, route};
use tollgate_store::{Attempt, Clock, Held, MemoryStore, Store, StoreFuture};

use super::{Growth, Rolling, STEPS_PER_DOUBLING, Terms};
use crate::{
    estimates::Estimates,
    fit,
    policy::{Policy, tests::compile},
    quote::{Asked, Judged},
    settle::{End, bill},
};

const NOW: TimestampMs = TimestampMs::new(1_795_996_800_000);

/// Output at 10 micro-USD a token.
const PRICES: &str = "models:\n  unit:\n    input: 2\n    output: 10\n";
const INPUT_PRICE: u64 = 2;
const OUTPUT_PRICE: u64 = 10;

struct Still;

impl Clock for Still {
    fn now(&self) -> TimestampMs {
        NOW
    }

    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
}

fn policy(limits: &str, reservation: &str) -> Policy {
    let text = format!(
        "[reservation]\n{reservation}\n[[providers]]\nid = \"a\"\nprotocol = \"anthropic\"\n\
         base_url = \"https://a.example\"\n[[tenants]]\nid = \"t\"\n[[tenants.keys]]\nid = \"k\"\n\
         key_env = \"key_0\"\n{limits}"
    );
    compile(&text, PRICES)
}

fn endpoint() -> Endpoint {
    route("POST", "/v1/messages", None).unwrap()
}

fn facts(max_tokens: u64) -> RequestFacts {
    let body = format!(
        r#"{{"model":"unit","stream":true,"max_tokens":{max_tokens},"messages":[{{"role":"user","content":"Hello"}}]}}"#
    );
    inspect(endpoint(), body.as_bytes()).unwrap()
}

fn judged(policy: &Policy, facts: &RequestFacts) -> Judged {
    let asked = Asked {
        request_id: ReservationId::new(1),
        key: policy.key(&KeyHash::of("key_0")).unwrap(),
        caller: &[],
        session: None,
        provider: "a",
        endpoint: endpoint(),
        facts: Some(facts),
        estimates: &Estimates::default(),
    };
    Judged::new(policy, &asked, NOW).unwrap()
}

fn now<T>(future: StoreFuture<'_, T>) -> T {
    future.now_or_later().map_err(|_later| ()).unwrap().unwrap()
}

/// One stream, from its reservation to its settlement.
struct Stream<'p> {
    policy: &'p Policy,
    judged: Judged,
    held: Held,
    meter: Meter,
    rolling: Option<Rolling>,
    is_cut: bool,
}

impl<'p> Stream<'p> {
    /// Reserves, fitted where the policy says so; `None` if it is refused.
    fn open(policy: &'p Policy, store: &MemoryStore, id: u128, facts: &RequestFacts) -> Option<Self> {
        let mut judged = judged(policy, facts);
        for _ in 0..=fit::FITS_MAX {
            let plan = Arc::new(judged.plan().unwrap());
            let id = ReservationId::new(id);
            match now(store.reserve(id, plan.clone(), Attempt::First)) {
                Verdict::Refused(refusal) => judged = fit::fit(policy, facts, &judged, &refusal, NOW)?,
                Verdict::Admitted(_) => {
                    let meter = Meter::new(endpoint(), facts, true);
                    let held = Held { id, plan, at: NOW };
                    let mut stream = Self { policy, judged, held, meter, rolling: None, is_cut: false };
                    let slice = policy.extend_tokens.get();
                    stream.rolling = Rolling::new(&stream.terms(), slice, &stream.meter);
                    return Some(stream);
                }
            }
        }
        None
    }

    fn terms(&self) -> Terms<'_> {
        let Judged { quote, limits } = &self.judged;
        Terms { quote, limits, prices: &self.policy.prices, at: NOW }
    }

    /// What is to be asked for, once `event` has passed the meter.
    fn pass(&mut self, event: &str) -> Option<Growth> {
        self.meter.feed(event.as_bytes());
        let mut rolling = self.rolling.take()?;
        let growth = rolling.due(&self.terms(), &self.meter);
        self.rolling = Some(rolling);
        growth
    }

    /// The same, and asks for it. Tells whether the event may be passed on.
    fn pass_covered(&mut self, store: &MemoryStore, event: &str) -> bool {
        let Some(growth) = self.pass(event) else { return true };
        match now(store.extend(&self.held, growth.step, &growth.charges)) {
            Verdict::Admitted(_) => {
                self.rolling.as_mut().unwrap().granted(&growth);
                self.judged.quote = growth.quote;
                true
            }
            Verdict::Refused(_) => false,
        }
    }

    fn settle(&mut self, store: &MemoryStore) {
        let metered = self.meter.finish();
        let end =
            if metered.end == StreamEnd::Complete { End::Whole(&metered) } else { End::Broken(&metered) };
        let bill = bill(&end, &self.judged.quote, &self.policy.prices, NOW);
        let actuals = bill.actuals(&self.judged.limits, &self.judged.quote, self.policy, NOW);
        now(store.settle(&self.held, &actuals));
    }
}

fn start(input_tokens: u64) -> String {
    format!(
        "data: {{\"type\":\"message_start\",\"message\":{{\"model\":\"unit\",\"usage\":{{\"input_tokens\":{input_tokens},\"output_tokens\":1}}}}}}\n\n"
    )
}

fn text(bytes: usize) -> String {
    format!(
        "data: {{\"type\":\"content_block_delta\",\"delta\":{{\"type\":\"text_delta\",\"text\":\"{}\"}}}}\n\n",
        "x ".repeat(bytes / 2)
    )
}

fn end(output_tokens: u64) -> String {
    format!(
        "data: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"end_turn\"}},\"usage\":{{\"output_tokens\":{output_tokens}}}}}\n\n\
         data: {{\"type\":\"message_stop\"}}\n\n"
    )
}

fn budget(limit_usd: &str) -> String {
    format!("[[limits]]\nscope = \"tenant\"\nbudget_usd = {limit_usd}\nwindow = \"day\"\n")
}

/// Numbers that look random and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Runs streams in rounds of 50 that are open together, each round on a new budget of 3,000 tokens' worth.
/// Gives the overspend of each round, what its input errors cost, and how many were cut off and were open.
fn rounds(reservation: &str, count: u64) -> Vec<[u64; 4]> {
    let limit = 30_000;
    let policy = policy(&budget("0.03"), reservation);
    let mut numbers = Numbers(count);
    let round = |_| {
        let store = MemoryStore::new(Arc::new(Still));
        let mut input_error = 0;
        let mut open: Vec<(Stream<'_>, u64)> = Vec::new();
        for id in 0..50 {
            let facts = facts(100 + numbers.below(900));
            let Some(mut stream) = Stream::open(&policy, &store, id, &facts) else { continue };
            let estimated = stream.judged.quote.estimated_input.get();
            let real = numbers.below(2 * estimated);
            input_error += real.saturating_sub(estimated) * INPUT_PRICE;
            stream.is_cut = !stream.pass_covered(&store, &start(real));
            open.push((stream, 0));
        }
        let streams = open.len();
        let mut cut = 0;
        while !open.is_empty() {
            let at = usize::try_from(numbers.below(open.len() as u64)).unwrap();
            let (stream, passed) = &mut open[at];
            let bytes = numbers.below(200);
            let limit = stream.judged.quote.output_limit.unwrap();
            stream.is_cut =
                stream.is_cut || !stream.pass_covered(&store, &text(usize::try_from(bytes).unwrap()));
            *passed = stream.meter.output_seen().get();
            if stream.is_cut || *passed >= limit || numbers.below(60) == 0 {
                if !stream.is_cut {
                    // No provider gives more than the limit, however high the estimate is.
                    stream.pass_covered(&store, &end((*passed).min(limit)));
                }
                cut += u64::from(stream.is_cut);
                stream.settle(&store);
                open.swap_remove(at);
            }
        }
        let plan = judged(&policy, &facts(1)).limits[0].limit.clone();
        let view = now(store.inspect(&[plan])).remove(0);
        assert_eq!(view.held, Amount::ZERO);
        [view.spent.rounded_up().get().saturating_sub(limit), input_error, cut, streams as u64]
    };
    (0..count / 50).map(round).collect()
}

#[test]
fn ten_thousand_streams_overspend_by_at_most_a_slice_each_and_their_input_errors() {
    let slice = 32;
    let rounds = rounds(&format!("output_tokens = 16\nextend_tokens = {slice}"), 10_000);
    let cut: u64 = rounds.iter().map(|[_, _, cut, _]| cut).sum();
    assert!(cut > 1_000 && rounds.iter().any(|[over, ..]| *over > 0), "the bound is put to the test: {cut}");
    for [over, input_error, cut, streams] in rounds {
        assert!(
            over <= cut * slice * OUTPUT_PRICE + input_error,
            "{over} of {streams} streams, {cut} cut off"
        );
    }
}

#[test]
fn with_max_or_fit_streams_overspend_by_their_input_errors_alone() {
    for reservation in ["output_tokens = \"max\"\nextend_tokens = 1", "fit = true\nextend_tokens = 1"] {
        let rounds = rounds(reservation, 2_000);
        assert!(rounds.iter().all(|[_, _, cut, streams]| *cut == 0 && *streams > 0), "{rounds:?}");
        for [over, input_error, ..] in rounds {
            assert!(over <= input_error, "{reservation}: {over} above {input_error}");
        }
    }
}

#[test]
fn a_limit_that_is_no_hard_budget_is_charged_nothing_by_a_step() {
    let limits = format!(
        "{}requests_per_minute = 1\ntokens_per_minute = 100\nmax_concurrent = 1\nmax_request_tokens = 500\n\
         [[limits]]\nscope = \"key\"\nbudget_usd = 0.000001\nwindow = \"day\"\nmode = \"soft\"\n",
        budget("1")
    );
    let policy = policy(&limits, "output_tokens = 10\nextend_tokens = 20");
    let store = MemoryStore::new(Arc::new(Still));
    let mut stream = Stream::open(&policy, &store, 1, &facts(400)).unwrap();
    let growth = (0..100).find_map(|_| stream.pass(&text(40))).unwrap();
    let charged: Vec<_> = std::iter::zip(stream.judged.limits.iter(), &growth.charges)
        .filter(|(_, charge)| **charge != Amount::ZERO)
        .map(|(limit, _)| (limit.rule.measure.name(), limit.rule.scope.name()))
        .collect();
    assert_eq!(charged, [("micro_usd", "tenant")]);
    assert!(matches!(now(store.extend(&stream.held, 1, &growth.charges)), Verdict::Admitted(_)));
}

#[test]
fn a_step_that_is_not_known_to_have_been_made_is_charged_once() {
    let policy = policy(&budget("1"), "output_tokens = 10\nextend_tokens = 20");
    let store = MemoryStore::new(Arc::new(Still));
    let mut stream = Stream::open(&policy, &store, 1, &facts(400)).unwrap();
    let growth = (0..100).find_map(|_| stream.pass(&text(40))).unwrap();
    for _ in 0..3 {
        now(store.extend(&stream.held, growth.step, &growth.charges));
    }
    let limit = stream.judged.limits[0].limit.clone();
    let held = now(store.inspect(&[limit])).remove(0).held;
    assert_eq!(held.get(), growth.quote.reserved.cost.rounded_up().get());
}

#[test]
fn a_reported_input_above_the_estimate_uses_the_reservation_up_before_any_output() {
    let policy = policy(&budget("1"), "output_tokens = 100\nextend_tokens = 10");
    let store = MemoryStore::new(Arc::new(Still));
    let mut stream = Stream::open(&policy, &store, 1, &facts(400)).unwrap();
    let growth = stream.pass(&start(1_000)).unwrap();
    // All of the input, the one token of output that is reported, and a slice.
    assert_eq!(growth.quote.reserved.cost.rounded_up().get(), 1_000 * INPUT_PRICE + 11 * OUTPUT_PRICE);
    assert!(stream.pass(&end(50)).is_none(), "what is finished is not extended");
}

/// Passes text until no more is reserved; the output seen then.
fn seen_when_cut(stream: &mut Stream<'_>, store: &MemoryStore) -> Option<u64> {
    (0..1_000).find(|_| !stream.pass_covered(store, &text(400))).map(|_| stream.meter.output_seen().get())
}

#[test]
fn an_answer_that_passes_its_own_limit_is_held_to_its_reservation_again() {
    for reservation in ["output_tokens = \"max\"", "fit = true", "output_tokens = 10"] {
        let policy = policy(&budget("0.05"), &format!("{reservation}\nextend_tokens = 100"));
        let store = MemoryStore::new(Arc::new(Still));
        let mut stream = Stream::open(&policy, &store, 1, &facts(10)).unwrap();
        let seen = seen_when_cut(&mut stream, &store);
        assert!(seen.is_some_and(|seen| (4_500..5_500).contains(&seen)), "{reservation}: {seen:?} of 5,000");
    }
}

#[test]
fn an_answer_that_goes_on_after_its_end_is_held_to_its_reservation_again() {
    let policy = policy(&budget("0.05"), "output_tokens = 100\nextend_tokens = 100");
    let store = MemoryStore::new(Arc::new(Still));
    let mut stream = Stream::open(&policy, &store, 1, &facts(100_000)).unwrap();
    let stop = "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":1}}\n\n";
    assert!(stream.pass_covered(&store, &start(10)) && stream.pass_covered(&store, stop));
    let seen = seen_when_cut(&mut stream, &store);
    assert!(seen.is_some_and(|seen| (4_500..5_500).contains(&seen)), "{seen:?} of 5,000");
}

#[test]
fn c94_input_that_is_not_reported_yet_counts_as_estimated() {
    let policy = policy(&budget("1"), "output_tokens = 10\nextend_tokens = 20");
    let store = MemoryStore::new(Arc::new(Still));
    let mut stream = Stream::open(&policy, &store, 1, &facts(400)).unwrap();
    assert!(stream.pass_covered(&store, &start(0)));
    let growth = (0..100).find_map(|_| stream.pass(&text(40))).unwrap();
    let input = stream.judged.quote.estimated_input.get();
    let expected = input * INPUT_PRICE + growth.covers * OUTPUT_PRICE;
    assert_eq!(growth.quote.reserved.cost.rounded_up().get(), expected);
    let metered = stream.meter.finish();
    let bill = bill(&End::Broken(&metered), &stream.judged.quote, &policy.prices, NOW);
    assert_eq!(bill.tokens.input, input);
}

#[test]
fn slices_double_long_before_a_store_remembers_no_more_steps() {
    let policy = policy(&budget("100000"), "output_tokens = 1\nextend_tokens = 1");
    let store = MemoryStore::new(Arc::new(Still));
    let mut stream = Stream::open(&policy, &store, 1, &facts(100_000_000)).unwrap();
    assert!(stream.pass_covered(&store, &start(1_000)));
    for _ in 0..tollgate_limiter::EXTENSIONS_MAX {
        let covered = stream.judged.quote.reserved.output_tokens;
        if covered > 10_000_000 {
            break;
        }
        // An answer whose usage is reported as it grows: each report stands at the end of what is covered.
        let usage = format!("{{\"output_tokens\":{covered}}}");
        let report = format!("data: {{\"type\":\"message_delta\",\"delta\":{{}},\"usage\":{usage}}}\n\n");
        assert!(stream.pass_covered(&store, &report));
    }
    assert!(stream.judged.quote.reserved.output_tokens > 10_000_000);
    let steps = stream.rolling.unwrap().steps;
    let max = u32::try_from(tollgate_limiter::EXTENSIONS_MAX).unwrap();
    assert!(steps > STEPS_PER_DOUBLING && steps < max, "{steps} steps");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// After every event that may be passed on, what was used is reserved.
    #[test]
    fn what_is_passed_on_is_reserved(
        cap in 1_u64..200,
        slice in 1_u64..200,
        input in 0_u64..500,
        pieces in proptest::collection::vec(0_usize..600, 1..40),
    ) {
        let policy = policy(&budget("0.01"), &format!("output_tokens = {cap}\nextend_tokens = {slice}"));
        let store = MemoryStore::new(Arc::new(Still));
        let Some(mut stream) = Stream::open(&policy, &store, 1, &facts(5_000)) else { return Ok(()) };
        let events = std::iter::once(start(input)).chain(pieces.into_iter().map(text));
        for event in events {
            if !stream.pass_covered(&store, &event) {
                break;
            }
            let used = stream.meter.running().usage.map_or(0, |usage| usage.input * INPUT_PRICE + usage.output * OUTPUT_PRICE);
            let limit = stream.judged.limits[0].limit.clone();
            let held = now(store.inspect(&[limit])).remove(0).held.get();
            prop_assert!(used <= held, "{used} of {held}");
        }
    }
}
