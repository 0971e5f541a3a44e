//! Simulations against a computation by hand.

use std::{collections::BTreeMap, fs, sync::Arc};

use proptest::prelude::*;
use tollgate_limiter::{DurationMs, ExactAmount, MicroUsd, TimestampMs, Tokens};
use tollgate_usage::{Event, FirstReserved, Outcome, RefusalEvent, Session, TokenCounts, UsageEvent};

use super::{Simulation, simulate};
use crate::policy::tests::compile;

const PRICES: &str = "models:\n  unit:\n    input: 1\n    output: 1\n  other:\n    input: 1\n    output: 1\n";

/// 2026-11-30T00:00:00Z.
const MIDNIGHT_MS: u64 = 1_795_996_800_000;

/// A call as the test knows it: its numbers are what the provider would report.
#[derive(Clone, Debug)]
struct Call {
    at_ms: u64,
    duration_ms: u64,
    reserved: u64,
    cost: u64,
}

impl Call {
    fn event(&self, id: usize) -> UsageEvent {
        UsageEvent {
            ts: TimestampMs::new(MIDNIGHT_MS + self.at_ms),
            request_id: format!("{id:032x}").into(),
            tenant: "t".into(),
            key: "k".into(),
            attributes: Arc::default(),
            caller_attributes: Vec::new(),
            session: None,
            provider: "a".into(),
            model: "unit".into(),
            requested_model: None,
            path: "/v1/messages".into(),
            stream: false,
            status: 200,
            outcome: Outcome::Complete,
            tokens: TokenCounts { input: self.cost, ..TokenCounts::default() },
            usage_estimated: false,
            service_tier: None,
            reserved: MicroUsd::new(self.reserved),
            reserved_output: Tokens::ZERO,
            first_reserved: None,
            cost: ExactAmount::whole(self.cost),
            estimated_input: Tokens::new(self.reserved),
            uncorrected_input: None,
            duration: DurationMs::new(self.duration_ms),
            ttfb: None,
            flags: Vec::new(),
            others: Vec::new(),
        }
    }
}

fn config(limits: &str) -> String {
    format!(
        "[[providers]]\nid = \"a\"\nprotocol = \"anthropic\"\nbase_url = \"https://a.example\"\n\
         [[tenants]]\nid = \"t\"\n[[tenants.keys]]\nid = \"k\"\nkey_env = \"key_0\"\nmodels = [\"unit\", \"ot*\", \"new\"]\n{limits}"
    )
}

fn run_since(limits: &str, events: &[Event], since: Option<TimestampMs>) -> Simulation {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut text = Vec::new();
    for event in events {
        event.write_json(&mut text);
        text.push(b'\n');
    }
    fs::write(file.path(), text).unwrap();
    simulate(&compile(&config(limits), PRICES), &[file.path()], since, |_| {}).unwrap()
}

fn run(limits: &str, calls: &[Call]) -> Simulation {
    // A file has calls in the order of their ends.
    let mut calls: Vec<_> = calls.iter().enumerate().collect();
    calls.sort_by_key(|(_, call)| call.at_ms + call.duration_ms);
    let events: Vec<_> = calls.iter().map(|(id, call)| Event::Usage(call.event(*id))).collect();
    run_since(limits, &events, None)
}

/// What a limit of each kind says, by adding up all that was before.
#[derive(Clone, Copy, Debug)]
struct Amounts {
    day_micro_usd: u64,
    requests_per_minute: u64,
    open: u64,
}

impl Amounts {
    fn limits(self) -> String {
        format!(
            "[[limits]]\nscope = \"global\"\nbudget_usd = \"0.{:06}\"\nwindow = \"day\"\n\
             requests_per_minute = {}\nmax_concurrent = {}\n",
            self.day_micro_usd, self.requests_per_minute, self.open
        )
    }

    /// Which calls pass. Those of one millisecond are decided one after the other, after what has ended.
    fn admitted(self, calls: &[Call]) -> Vec<bool> {
        let mut admitted: Vec<(&Call, bool)> = Vec::new();
        for call in calls {
            let passed = || admitted.iter().filter(|(_, passed)| *passed).map(|(call, _)| *call);
            let is_open = |earlier: &&Call| earlier.at_ms + earlier.duration_ms > call.at_ms;
            let used: u64 = passed().map(|each| if is_open(&each) { each.reserved } else { each.cost }).sum();
            let open = u64::try_from(passed().filter(is_open).count()).unwrap();
            let (minute, elapsed) = (call.at_ms / 60_000, call.at_ms % 60_000);
            let of = |wanted: u64| passed().filter(|each| each.at_ms / 60_000 == wanted).count() as u64;
            let before = if minute == 0 { 0 } else { of(minute - 1) };
            let weighted = before * (60_000 - elapsed) + (of(minute) + 1) * 60_000;
            let passes = used + call.reserved <= self.day_micro_usd
                && open < self.open
                && weighted <= self.requests_per_minute * 60_000;
            admitted.push((call, passes));
        }
        admitted.into_iter().map(|(_, passed)| passed).collect()
    }
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let call = (0..240_000_u64, 0..20_000_u64, 1..3_000_u64, 0..4_000_u64)
        .prop_map(|(at_ms, duration_ms, reserved, cost)| Call { at_ms, duration_ms, reserved, cost });
    proptest::collection::vec(call, 0..60).prop_map(|mut calls| {
        calls.sort_by_key(|call| call.at_ms);
        // Which of two calls of one millisecond was first nobody can know from a file.
        calls.dedup_by_key(|call| call.at_ms);
        calls
    })
}

fn amounts() -> impl Strategy<Value = Amounts> {
    (5_000..120_000_u64, 1..30_u64, 1..6_u64).prop_map(|(day_micro_usd, requests_per_minute, open)| Amounts {
        day_micro_usd,
        requests_per_minute,
        open,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Under other limits those are refused that adding up refuses; and what remains, put to the same limits
    /// again, passes whole: nothing that a configuration has admitted is refused under it.
    #[test]
    fn a_simulation_refuses_what_adding_up_refuses_and_nothing_that_was_admitted(calls in calls(), amounts in amounts()) {
        let admitted = amounts.admitted(&calls);
        let found = run(&amounts.limits(), &calls);
        let refused = admitted.iter().filter(|passed| !**passed).count() as u64;
        let saved: u64 = calls.iter().zip(&admitted).filter(|(_, passed)| !**passed).map(|(call, _)| call.cost).sum();
        prop_assert_eq!((found.calls.count, found.refused.count), (calls.len() as u64, refused));
        prop_assert_eq!(found.refused.cost, ExactAmount::whole(saved));
        prop_assert_eq!(found.refusals.iter().map(|row| row.calls.count).sum::<u64>(), refused);

        let passed: Vec<_> = calls.iter().zip(&admitted).filter(|(_, passed)| **passed).map(|(call, _)| call.clone()).collect();
        let again = run(&amounts.limits(), &passed);
        prop_assert_eq!((again.calls.count, again.refused.count), (passed.len() as u64, 0));
    }
}

#[test]
fn a_halved_budget_refuses_the_second_half_and_says_whose_and_when() {
    let calls: Vec<_> = (0..10)
        .map(|n| Call { at_ms: n * 10_000, duration_ms: 1_000, reserved: 1_500, cost: 1_000 })
        .collect();
    let budget = |usd: &str| {
        format!("[[limits]]\nscope = \"tenant\"\nid = \"t\"\nbudget_usd = \"{usd}\"\nwindow = \"day\"\n")
    };
    // Nine are spent when the tenth reserves 1,500.
    assert_eq!(run(&budget("0.0105"), &calls).refused.count, 0);
    let halved = run(&budget("0.00525"), &calls);
    // 4,000 spent and 1,500 more do not fit.
    assert_eq!((halved.refused.count, halved.refused.cost), (6, ExactAmount::whole(6_000)));
    let [row] = &halved.refusals[..] else { panic!("{:?}", halved.refusals) };
    assert_eq!((&*row.tenant, &*row.key, row.reason), ("t", "k", "limit"));
    assert_eq!(row.limit.as_ref().map(|limit| (limit.unit, limit.window)), Some(("micro_usd", "day")));
    assert_eq!(row.span, (TimestampMs::new(MIDNIGHT_MS + 40_000), TimestampMs::new(MIDNIGHT_MS + 90_000)));
    let [limit] = &halved.limits[..] else { panic!("{:?}", halved.limits) };
    assert_eq!((limit.calls, limit.refused.count), (10, 6));
    assert_eq!((limit.peak.get(), limit.peak_at.get()), (3_000 + 1_500, MIDNIGHT_MS + 30_000));
}

#[test]
fn what_was_before_counts_in_budgets_and_is_not_refused() {
    let calls: Vec<_> =
        (0..10).map(|n| Call { at_ms: n * 10_000, duration_ms: 0, reserved: 1_000, cost: 1_000 }).collect();
    let events: Vec<_> = calls.iter().enumerate().map(|(id, call)| Event::Usage(call.event(id))).collect();
    let budget = "[[limits]]\nscope = \"global\"\nbudget_usd = \"0.007\"\nwindow = \"day\"\n";
    let since = TimestampMs::new(MIDNIGHT_MS + 50_000);
    let found = run_since(budget, &events, Some(since));
    assert_eq!((found.spent_before.count, found.calls.count, found.refused.count), (5, 5, 3));
    // Spend of the day before does not.
    let events: Vec<_> = events
        .into_iter()
        .map(|event| match event {
            Event::Usage(event) if event.ts < since => {
                Event::Usage(UsageEvent { ts: TimestampMs::new(event.ts.get() - 86_400_000), ..event })
            }
            event => event,
        })
        .collect();
    assert_eq!(run_since(budget, &events, Some(since)).refused.count, 0);
}

#[test]
fn what_a_configuration_refuses_by_itself_is_told_by_its_reason() {
    let call = Call { at_ms: 0, duration_ms: 0, reserved: 10, cost: 10 };
    let with = |change: &dyn Fn(&mut UsageEvent)| {
        let mut event = call.event(0);
        change(&mut event);
        Event::Usage(event)
    };
    let hard = "[[limits]]\nscope = \"global\"\nbudget_usd = 5\nwindow = \"day\"\n";
    let reasons: BTreeMap<&str, Event> = [
        ("unauthenticated", with(&|event| event.key = "revoked".into())),
        ("model_not_allowed", with(&|event| event.model = "dear".into())),
        ("model_unpriced", with(&|event| event.model = "new".into())),
        (
            "attribute_not_allowed",
            with(&|event| {
                event.attributes = Arc::new([(Arc::from("user"), Arc::from("u"))].into());
                event.caller_attributes = vec!["user"];
            }),
        ),
    ]
    .into();
    for (reason, event) in reasons {
        let found = run_since(hard, &[event], None);
        let [row] = &found.refusals[..] else { panic!("{reason}: {:?}", found.refusals) };
        assert_eq!((row.reason, row.calls.count, row.limit.is_none()), (reason, 1, true));
    }
    // What the key has been allowed to say passes.
    assert_eq!(run_since(hard, &[with(&|_| ())], None).refused.count, 0);
}

#[test]
fn a_soft_budget_lets_pass_and_says_what_went_beyond() {
    let calls: Vec<_> =
        (0..10).map(|n| Call { at_ms: n * 10_000, duration_ms: 0, reserved: 1_000, cost: 1_000 }).collect();
    let soft = "[[limits]]\nscope = \"key\"\nbudget_usd = \"0.007\"\nwindow = \"day\"\nmode = \"soft\"\n";
    let found = run(soft, &calls);
    assert_eq!(found.refused.count, 0);
    assert_eq!((found.limits[0].over_soft.count, found.limits[0].peak.get()), (3, 10_000));
}

#[test]
fn sessions_and_the_model_that_answered_have_counters_of_their_own() {
    let call = |n: u64| Call { at_ms: n * 10_000, duration_ms: 0, reserved: 1_000, cost: 1_000 };
    let session = |n: u64| Some(Session { id: format!("s{}", n % 2).into(), derived: false });
    let events: Vec<_> = (0..10)
        .map(|n| {
            Event::Usage(UsageEvent { session: session(n), ..call(n).event(usize::try_from(n).unwrap()) })
        })
        .collect();
    let per_session = "[[limits]]\nscope = \"session\"\nbudget_usd = \"0.003\"\nwindow = \"session\"\n";
    let found = run_since(per_session, &events, None);
    // Three of five in each of the two.
    assert_eq!((found.refused.count, found.limits.len()), (4, 1));
    assert_eq!(found.limits[0].limit.id.as_deref(), Some("*"));

    let answered = |n: u64| UsageEvent {
        model: "other".into(),
        requested_model: Some("unit".into()),
        ..call(n).event(usize::try_from(n).unwrap())
    };
    let events: Vec<_> = (0..5).map(|n| Event::Usage(answered(n))).collect();
    let of_model = |id: &str| {
        format!("[[limits]]\nscope = \"model\"\nid = \"{id}\"\nbudget_usd = \"0.003\"\nwindow = \"day\"\n")
    };
    let found = run_since(&format!("{}{}", of_model("unit"), of_model("other")), &events, None);
    let used: BTreeMap<_, _> =
        found.limits.iter().map(|limit| (limit.limit.id.clone().unwrap(), limit.peak.get())).collect();
    // What was asked for is given back; what answered is charged, and refuses nobody who asks for another.
    assert_eq!(used, BTreeMap::from([("other".to_owned(), 5_000), ("unit".to_owned(), 1_000)]));
    assert_eq!(found.refused.count, 0);
}

#[test]
fn a_stream_that_grew_is_admitted_at_what_it_had_reserved_by_then() {
    let call = |at_ms, reserved| Call { at_ms, duration_ms: 60_000, reserved, cost: 900 };
    let grown = |id: usize| {
        let first = FirstReserved { cost: MicroUsd::new(200), output: Tokens::new(150) };
        let event = call(id as u64 * 10, 900).event(id);
        let output = Tokens::new(850);
        Event::Usage(UsageEvent { reserved_output: output, first_reserved: Some(Box::new(first)), ..event })
    };
    let budget = "[[limits]]\nscope = \"global\"\nbudget_usd = \"0.002\"\nwindow = \"day\"\n";
    let found = run_since(budget, &(0..3).map(grown).collect::<Vec<_>>(), None);
    assert_eq!((found.refused.count, found.limits[0].peak.get()), (0, 2_700));
    // One more comes after they have ended, and finds what they came to.
    let late = Event::Usage(call(70_000, 1).event(4));
    let events: Vec<_> = (0..4).map(grown).chain([late]).collect();
    let found = run_since(&budget.replace("0.002", "0.0036"), &events, None);
    assert_eq!((found.refused.count, found.limits[0].peak.get()), (1, 3_600));
}

#[test]
fn refusals_of_the_past_are_counted_apart() {
    let refusal = RefusalEvent {
        ts: TimestampMs::new(MIDNIGHT_MS),
        request_id: "r".into(),
        tenant: "t".into(),
        key: "k".into(),
        attributes: Arc::default(),
        provider: None,
        model: "unit".into(),
        path: "/v1/messages".into(),
        status: 402,
        reason: "budget_exceeded",
        limit: None,
        charge: 1,
        retry_after: None,
    };
    let found = run_since("", &[Event::Refusal(refusal)], None);
    assert_eq!((found.calls.count, found.past_refusals, found.span), (0, 1, None));
}
