//! A start from checkpoints, against one from all events.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use proptest::{prelude::*, sample::select};
use tollgate_limiter::{CounterView, DurationMs, ExactAmount, Limit, MicroUsd, TimestampMs, Tokens};
use tollgate_store::{ManualClock, Store};
use tollgate_usage::{Event, Outcome, Session, TokenCounts, UsageEvent, Writer, WriterOptions};

use super::*;
use crate::policy::tests::compile;

/// 2026-11-23, a Monday, a week before the month ends, in the middle of the day.
const BEGIN_MS: u64 = 1_795_435_200_000;
const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

const PRICES: &str = "models:\n  unit:\n    input: 1\n    output: 1\n    aliases: [one]\n  dear:\n    input: 5\n    output: 5\n";
const BASE: &str = "[[providers]]\nid = \"p\"\nprotocol = \"anthropic\"\nbase_url = \"https://p.example\"\n\
    [[tenants]]\nid = \"a\"\n[[tenants.keys]]\nid = \"k\"\nkey_env = \"key_0\"\nattributes = { team = \"ml\" }\n\
    caller_attributes = [\"user\"]\n\
    [[tenants]]\nid = \"b\"\n[[tenants.keys]]\nid = \"l\"\nkey_env = \"key_1\"\ncaller_attributes = [\"user\"]\n";
const WINDOWS: [&str; 7] = ["minute", "hour", "day", "week", "month", "total", "session"];
const SCOPES: [&str; 8] = ["global", "tenant", "key", "team", "user", "model", "provider", "session"];
const RUNS: &str = "[[runs]]\nmax_steps = 5\nmax_tokens = 1000\nbudget_usd = 3\nmax_seconds = 600\n";

/// What a call was, and how long after the one before.
#[derive(Clone, Debug)]
struct Call {
    after_ms: u64,
    late_ms: u64,
    tenant: &'static str,
    user: Option<&'static str>,
    session: Option<&'static str>,
    models: (&'static str, Option<&'static str>),
    cost: u64,
    estimated: bool,
}

fn call() -> impl Strategy<Value = Call> {
    // No sum of few of them is near a day, where a late line tells a session that lasted from another.
    let gaps = prop_oneof![
        4 => 0_u64..MINUTE_MS,
        3 => MINUTE_MS..10 * MINUTE_MS,
        2 => (1_u64..4).prop_map(|times| times * 7 * HOUR_MS),
        1 => (1_u64..10).prop_map(|times| times * 35 * HOUR_MS),
    ];
    let whose = (
        select(&["a", "b"][..]),
        prop::option::of(select(&["u", "v"][..])),
        prop::option::of(select(&["s", "t"][..])),
        select(&[("unit", None), ("one", None), ("dear", Some("unit")), ("other", Some("one"))][..]),
    );
    (gaps, 0_u64..30_000, whose, 1_u64..5_000_000, any::<bool>()).prop_map(
        |(after_ms, late_ms, (tenant, user, session, models), cost, estimated)| Call {
            after_ms,
            late_ms,
            tenant,
            user,
            session,
            models,
            cost,
            estimated,
        },
    )
}

fn event(id: usize, ts: TimestampMs, call: &Call) -> UsageEvent {
    let team = (call.tenant == "a").then(|| ("team".into(), "ml".into()));
    let user = call.user.map(|user| ("user".into(), user.into()));
    UsageEvent {
        ts,
        request_id: format!("{id:032x}").into(),
        tenant: call.tenant.into(),
        key: if call.tenant == "a" { "k" } else { "l" }.into(),
        attributes: Arc::new(team.into_iter().chain(user).collect()),
        caller_attributes: call.user.map(|_| "user").into_iter().collect(),
        session: call.session.map(|id| Session { id: id.into(), derived: false }),
        provider: "p".into(),
        model: call.models.0.into(),
        requested_model: call.models.1.map(Into::into),
        path: if id.is_multiple_of(7) { "/v1/messages/count_tokens" } else { "/v1/messages" }.into(),
        stream: false,
        status: 200,
        outcome: Outcome::Complete,
        tokens: TokenCounts { input: 1_000, output: call.cost % 100, ..TokenCounts::default() },
        usage_estimated: call.estimated,
        service_tier: None,
        reserved: MicroUsd::new(0),
        reserved_output: Tokens::new(50),
        first_reserved: None,
        cost: ExactAmount::from_millionths(u128::from(call.cost) * 1_234_567),
        estimated_input: Tokens::new(900),
        uncorrected_input: Some(Tokens::new(800)),
        duration: DurationMs::new(5),
        ttfb: None,
        flags: Vec::new(),
        others: Vec::new(),
    }
}

/// Some budgets, each of a scope and a window, for all models or some, and perhaps a run.
fn config() -> impl Strategy<Value = String> {
    let filter = prop::option::of(select(&["[\"unit\"]", "[\"dear\"]", "[\"o*\"]"][..]));
    let limit = (select(&SCOPES[..]), select(&WINDOWS[..]), filter).prop_map(|(scope, window, filter)| {
        // What a session has spent in a month is forgotten with the session.
        (scope, if scope == "session" { "session" } else { window }, filter)
    });
    (prop::collection::btree_map(limit, Just(()), 1..10), any::<bool>()).prop_map(|(limits, run)| {
        let limit = |(scope, window, filter): &(&str, &str, Option<&str>)| {
            let filter = filter.map_or_else(String::new, |globs| format!("models = {globs}\n"));
            format!("[[limits]]\nscope = \"{scope}\"\n{filter}budget_usd = 1\nwindow = \"{window}\"\n")
        };
        let limits: String = limits.keys().map(limit).collect();
        format!("{BASE}{limits}{}", if run { RUNS } else { "" })
    })
}

/// Every counter that has something after a start at `now`, and what estimates come to.
fn restored(
    path: &Path,
    policy: &Policy,
    limits: &[Arc<Limit>],
    now: TimestampMs,
) -> (Vec<CounterView>, u64) {
    let store = MemoryStore::new(Arc::new(ManualClock::new(now)));
    let estimates = Estimates::default();
    let mut journal = Journal::open(path).unwrap();
    restore(&mut journal, policy, &estimates, &store, |_, _| ()).unwrap();
    let views =
        store.inspect(limits).now_or_later().unwrap_or_else(|_| panic!("a memory store answers at once"));
    let tokens = Tokens::new(1_000);
    let of = (tollgate_providers::Protocol::Anthropic, "a");
    (views.unwrap(), estimates.corrected(of, Some("unit"), "unit", tokens, None).0.get())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever the history, wherever checkpoints were made in it, whenever the start is and whatever is
    /// configured then: each counter has what it has when all events are read.
    #[test]
    fn a_start_from_checkpoints_restores_what_all_events_restore(
        lives in prop::collection::vec(prop::collection::vec(call(), 1..20), 1..5),
        configs in prop::collection::vec(config(), 1..4),
        later_ms in prop_oneof![Just(0), 0..HOUR_MS, 0..60 * HOUR_MS, 0..400 * HOUR_MS],
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("usage.jsonl");
        let (mut at, mut id) = (BEGIN_MS, 0);
        for life in &lives {
            let writer = Writer::open(&path, WriterOptions { rotate_daily: true, checkpoint_bytes: 1, ..WriterOptions::default() }).unwrap();
            for call in life {
                at += call.after_ms;
                let ts = TimestampMs::new(at - call.late_ms);
                writer.record(&Event::Usage(event(id, ts, call)));
                id += 1;
            }
            // Where this is longer than the checkpoint it is made part of it.
            writer.close().unwrap();
        }
        let now = TimestampMs::new(at + later_ms);
        let all = folder.path().join("all");
        fs::create_dir(&all).unwrap();
        for entry in fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
            if entry.file_name().to_str().unwrap().ends_with(".jsonl") {
                fs::copy(entry.path(), all.join(entry.file_name())).unwrap();
            }
        }
        prop_assert!(folder.path().join("usage.jsonl.checkpoint").exists());
        let all = all.join("usage.jsonl");
        for text in configs {
            let policy = compile(&text, PRICES);
            let mut limits = BTreeMap::new();
            Journal::open(&all).unwrap().restore(now, |_, _| (), |event| {
                policy.spent_of(event, |limit, _| {
                    limits.insert(format!("{:?}", limit.key), Arc::new(limit.clone()));
                });
            }).unwrap();
            let limits: Vec<_> = limits.into_values().collect();
            prop_assert_eq!(
                restored(&path, &policy, &limits, now),
                restored(&all, &policy, &limits, now),
                "{}", text
            );
        }
    }
}
