//! Reports against sums made by hand.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use crate::common::{line, refusal, usage};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use tollgate_limiter::{ExactAmount, TimestampMs};
use tollgate_usage::{
    Dimension, Event, Outcome, RefusalEvent, Report, ReportOptions, Session, TokenCounts, UsageEvent,
};

const ATTRIBUTES: [&str; 2] = ["team", "user"];
const NAMES: [&str; 17] = [
    "tenant",
    "key",
    "model",
    "requested_model",
    "provider",
    "session",
    "path",
    "service_tier",
    "stream",
    "status",
    "outcome",
    "reason",
    "hour",
    "day",
    "month",
    "team",
    "user",
];

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn dimension(name: &str) -> Dimension {
    Dimension::parse(name, &ATTRIBUTES).unwrap()
}

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn report(events: &[Event], options: &ReportOptions) -> Report {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), events.iter().map(line).collect::<String>()).unwrap();
    Report::read(&[file.path()], options, |_, _| ()).unwrap()
}

#[test]
fn an_unknown_dimension_is_answered_with_those_there_are() {
    let error = Dimension::parse("tenat", &ATTRIBUTES).unwrap_err().to_string();
    assert!(error.starts_with("`tenat` is nothing to group by"), "{error}");
    assert!(NAMES.iter().all(|name| error.contains(name)), "{error}");
}

#[test]
fn the_dearest_comes_first_and_costs_are_exact() {
    let call = |id: &str, tenant: &str, pico: u128| {
        let cost = ExactAmount::from_millionths(pico);
        Event::Usage(UsageEvent { tenant: tenant.into(), cost, ..usage(id) })
    };
    let mut events: Vec<_> = (0..10_000).map(|n| call(&format!("{n}"), "small", 240_000)).collect();
    events.push(call("once", "large", 2_400_000_001));
    events.push(Event::Refusal(RefusalEvent { tenant: "refused".into(), ..refusal("r") }));
    let by = vec![dimension("tenant")];
    let report = report(&events, &ReportOptions { by, ..ReportOptions::default() });
    let rows: Vec<_> = report
        .rows
        .iter()
        .map(|row| (row.values[0].as_deref().unwrap(), row.totals.requests, row.totals.cost.as_millionths()))
        .collect();
    assert_eq!(rows, [("large", 1, 2_400_000_001), ("small", 10_000, 10_000 * 240_000), ("refused", 0, 0)]);
    assert_eq!((report.total.requests, report.total.refusals), (10_001, 1));
    assert_eq!(report.total.cost.as_millionths(), 2_400_000_001 + 2_400_000_000);
}

#[test]
fn the_share_that_is_estimated_is_that_of_the_cost() {
    let call = |id: &str, estimated, micro| {
        let cost = ExactAmount::whole(micro);
        Event::Usage(UsageEvent { usage_estimated: estimated, cost, ..usage(id) })
    };
    let share = |events: &[Event]| report(events, &ReportOptions::default()).total.estimated_per_mille();
    assert_eq!(share(&[]), 0);
    assert_eq!(share(&[call("a", false, 900), call("b", true, 100)]), 100);
    // A trace of an estimate shows.
    assert_eq!(share(&[call("a", false, 1_000_000), call("b", true, 1)]), 1);
    assert_eq!(share(&[call("a", false, 0), call("b", true, 0)]), 500);
}

fn any_event() -> impl Strategy<Value = Event> {
    let name = || select(&["a", "b", ""][..]);
    let texts = (name(), name(), name(), proptest::option::of(name()), proptest::option::of(name()));
    let ts = 1_795_900_000_000..1_796_200_000_000_u64;
    let counts = (0..1_000_u64, 0..1_000_u64, 0..1_000_000_000_u128);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (texts, ts, counts, flags, any::<u128>()).prop_map(|(texts, ts, counts, flags, id)| {
        let (tenant, model, team, session, requested) = texts;
        let (input, output, pico) = counts;
        let (stream, estimated, is_refused) = flags;
        let ts = TimestampMs::new(ts);
        let attributes = Arc::new([(Arc::from("team"), Arc::from(team))].into());
        if is_refused {
            let (tenant, model) = (tenant.into(), model.into());
            return Event::Refusal(RefusalEvent {
                ts,
                tenant,
                model,
                attributes,
                ..refusal(&format!("{id:032x}"))
            });
        }
        Event::Usage(UsageEvent {
            ts,
            tenant: tenant.into(),
            model: model.into(),
            requested_model: requested.map(Into::into),
            session: session.map(|session| Session { id: session.into(), derived: true }),
            attributes,
            stream,
            usage_estimated: estimated,
            outcome: if stream { Outcome::Complete } else { Outcome::ClientGone },
            tokens: TokenCounts { input, output, ..TokenCounts::default() },
            cost: ExactAmount::from_millionths(pico),
            ..usage(&format!("{id:032x}"))
        })
    })
}

/// A call's value, from the event instead of its line.
#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn value(name: &str, event: &Event) -> Option<String> {
    let at = |ts: TimestampMs, length: usize| {
        let text = jiff::Timestamp::from_millisecond(i64::try_from(ts.get()).unwrap()).unwrap().to_string();
        let hour = format!("{}Z", &text[..16]).replace(&text[13..16], ":00");
        Some(hour[..length].to_owned())
    };
    let value = match event {
        Event::Usage(event) => match name {
            "tenant" => Some(event.tenant.to_string()),
            "key" => Some(event.key.to_string()),
            "model" => Some(event.model.to_string()),
            "requested_model" => {
                event.requested_model.clone().or(Some(event.model.clone())).map(|m| m.to_string())
            }
            "provider" => Some(event.provider.to_string()),
            "session" => event.session.as_ref().map(|session| session.id.to_string()),
            "path" => Some(event.path.to_string()),
            "service_tier" => event.service_tier.as_ref().map(ToString::to_string),
            "stream" => Some(event.stream.to_string()),
            "status" => Some(event.status.to_string()),
            "outcome" => Some(event.outcome.name().to_owned()),
            "hour" => at(event.ts, 17),
            "day" => at(event.ts, 10),
            "month" => at(event.ts, 7),
            name => event.attributes.get(name).map(ToString::to_string),
        },
        Event::Refusal(event) => match name {
            "tenant" => Some(event.tenant.to_string()),
            "key" => Some(event.key.to_string()),
            "model" | "requested_model" => Some(event.model.to_string()),
            "provider" => event.provider.as_ref().map(ToString::to_string),
            "path" => Some(event.path.to_string()),
            "status" => Some(event.status.to_string()),
            "outcome" => Some("refused".to_owned()),
            "reason" => Some(event.reason.to_owned()),
            "hour" => at(event.ts, 17),
            "day" => at(event.ts, 10),
            "month" => at(event.ts, 7),
            name => event.attributes.get(name).map(ToString::to_string),
        },
    };
    value.filter(|value| !value.is_empty())
}

/// Requests, refusals, input, output, pico-USD, estimated requests.
type Sums = (u64, u64, u64, u64, u128, u64);

fn add(sums: &mut Sums, event: &Event) {
    match event {
        Event::Usage(event) => {
            sums.0 += 1;
            sums.2 += event.tokens.input;
            sums.3 += event.tokens.output;
            sums.4 += event.cost.as_millionths();
            sums.5 += u64::from(event.usage_estimated);
        }
        Event::Refusal(_) => sums.1 += 1,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_report_is_what_adding_up_gives(
        events in proptest::collection::vec(any_event(), 0..40),
        by in subsequence(NAMES.to_vec(), 0..=4),
        range in proptest::option::of((1_795_900_000_000..1_796_000_000_000_u64, 1_796_000_000_000..1_796_200_000_000_u64)),
    ) {
        let mut expected: BTreeMap<Vec<Option<String>>, Sums> = BTreeMap::new();
        let mut total = Sums::default();
        for event in &events {
            let ts = match event { Event::Usage(event) => event.ts, Event::Refusal(event) => event.ts }.get();
            if range.is_none_or(|(since, until)| (since..until).contains(&ts)) {
                add(expected.entry(by.iter().map(|name| value(name, event)).collect()).or_default(), event);
                add(&mut total, event);
            }
        }
        let options = ReportOptions {
            by: by.iter().map(|name| dimension(name)).collect(),
            since: range.map(|range| TimestampMs::new(range.0)),
            until: range.map(|range| TimestampMs::new(range.1)),
        };
        let report = report(&events, &options);
        let sums = |totals: &tollgate_usage::Totals| (
            totals.requests, totals.refusals, totals.tokens.input, totals.tokens.output,
            totals.cost.as_millionths(), totals.estimated_requests,
        );
        let rows: BTreeMap<_, _> = report.rows.iter().map(|row| (row.values.clone(), sums(&row.totals))).collect();
        prop_assert_eq!(report.rows.len(), rows.len());
        prop_assert_eq!(rows, expected);
        prop_assert_eq!(sums(&report.total), total);
        prop_assert!(report.rows.is_sorted_by_key(|row| std::cmp::Reverse(row.totals.cost)));
    }
}
