//! Reading files back, whole and broken.

use std::fs;
use std::io;
use std::path::Path;

use crate::common::{line, read, refusal, usage};
use proptest::prelude::*;
use tollgate_limiter::{ExactAmount, MicroUsd, TimestampMs, Tokens};
use tollgate_usage::{
    Digest, Event, FirstReserved, Past, ReplaySummary, Session, TokenCounts, UsageError, UsageEvent, Writer,
    WriterOptions, digest_all, replay,
};

fn text_of(events: &[Event]) -> String {
    events.iter().map(line).collect()
}

fn three() -> Vec<Event> {
    let usage = |id: &str| Event::Usage(usage(id));
    vec![usage("one"), Event::Refusal(refusal("no")), usage("two")]
}

/// Writes `content` to a file of its own and reads it: the summary and the ids. Read on several threads the
/// file has the same events in the same order.
fn read_bytes(content: &[u8]) -> io::Result<(ReplaySummary, Vec<String>)> {
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), content)?;
    let (summary, events) = read(file.path()).map_err(io::Error::other)?;
    let ids = events.into_iter().map(|(id, _)| id).collect();
    let mut digested = Vec::new();
    let take = |_, (is_usage, id, _): Told| digested.extend(is_usage.then_some(id));
    let (other, _) = digest_all(&[file.path()], |_, _| (), || Telling, take).map_err(io::Error::other)?;
    assert_eq!(digested, ids);
    assert_eq!((other.events, other.torn_tail), (summary.events, summary.torn_tail));
    Ok((summary, ids))
}

/// Whether it is a usage event, its id, and how it ended.
type Told = (bool, String, String);

/// Tells of what is read on several threads.
struct Telling;

impl Digest for Telling {
    type Record = Told;

    fn digest(&mut self, past: Past<'_>) -> Told {
        match past {
            Past::Usage(event) => (true, event.request_id.to_owned(), event.outcome.to_owned()),
            Past::Refusal(refused) => {
                let whose = (refused.tenant, refused.key, refused.session, refused.attributes().count());
                let what = (refused.provider, refused.model, refused.path, refused.status);
                (false, refused.request_id.to_owned(), format!("{} {whose:?} {what:?}", refused.reason))
            }
        }
    }
}

#[test]
fn every_field_comes_back() {
    let mut event = usage("r-\"1\"");
    event.tokens = TokenCounts {
        input: 1,
        cache_read: 2,
        cache_write_5m: 3,
        cache_write_1h: 4,
        cache_write: 5,
        output: 6,
        reasoning: 7,
        audio_input: 8,
        cached_audio_input: 9,
        image_input: 10,
        audio_output: 11,
        image_output: 12,
        web_searches: 13,
        web_fetches: 14,
    };
    event.cost = ExactAmount::from_millionths(5_000_007);
    event.usage_estimated = true;
    event.first_reserved =
        Some(Box::new(FirstReserved { cost: MicroUsd::new(2_050), output: Tokens::new(1_024) }));
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), line(&Event::Usage(event.clone()))).unwrap();
    let mut seen = 0;
    let check = |back: &tollgate_usage::Replayed<'_>| {
        assert_eq!((back.ts, back.request_id), (event.ts, &*event.request_id));
        assert_eq!((back.tenant, back.key, back.session), ("acme", "ci", Some("s-1")));
        assert_eq!((back.provider, back.model), ("anthropic", "claude-sonnet-5-5"));
        assert_eq!((back.tokens, back.cost, back.usage_estimated), (event.tokens, event.cost, true));
        assert_eq!(back.attributes().collect::<Vec<_>>(), [("team", "ml")]);
        assert_eq!((back.path, back.stream, back.status), ("/v1/messages", true, 200));
        assert_eq!((back.outcome, back.service_tier), ("complete", Some("standard")));
        assert_eq!((back.reserved, back.reserved_output), (event.reserved, Some(event.reserved_output)));
        assert_eq!(back.first_reserved, event.first_reserved.as_deref().copied());
        assert_eq!((back.estimated_input, back.duration), (event.estimated_input, event.duration));
        seen += 1;
    };
    replay(file.path(), |_, _| (), check).unwrap();
    assert_eq!(seen, 1);
}

#[test]
fn an_estimated_call_has_spent_at_least_what_it_reserved_of_input_and_of_output() {
    for (is_estimated, input, output, spent) in
        [(true, 12, 3_033, 14 + 3_033), (true, 20, 5, 20 + 100), (true, 1, 1, 114), (false, 12, 3_033, 3_045)]
    {
        let mut event = usage("r");
        event.tokens = TokenCounts { input, output, ..TokenCounts::default() };
        event.usage_estimated = is_estimated;
        (event.estimated_input, event.reserved_output) = (Tokens::new(14), Tokens::new(100));
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), line(&Event::Usage(event))).unwrap();
        let mut seen = Vec::new();
        replay(file.path(), |_, _| (), |back| seen.push(back.tokens_spent())).unwrap();
        assert_eq!(seen, [spent]);
    }
}

#[test]
fn several_files_are_read_as_one_and_refusals_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let [first, second] = ["one.jsonl", "two.jsonl"].map(|name| directory.path().join(name));
    let usage = |id: &str| Event::Usage(usage(id));
    fs::write(&first, text_of(&[usage("a"), Event::Refusal(refusal("x"))])).unwrap();
    // A call may have the id of a refused one; a line may be in both files.
    fs::write(&second, text_of(&[usage("a"), usage("x"), Event::Refusal(refusal("x"))])).unwrap();
    let (mut seen, mut steps) = (Vec::new(), Vec::new());
    let take = |_, (_, id, end): Told| seen.push(format!("{id} {end}"));
    let progress = |done, total| steps.push((done, total));
    let (summary, _) = digest_all(&[&first, &second], progress, || Telling, take).unwrap();
    let refused = r#"x budget_exceeded ("acme", "ci", None, 0) (Some("anthropic"), "claude-sonnet-5-5", "/v1/messages", 402)"#;
    assert_eq!(seen, ["a complete", refused, "x complete"]);
    assert_eq!(summary, ReplaySummary { events: 2, refusals: 1, duplicates: 2, ..ReplaySummary::default() });
    let total = first.metadata().unwrap().len() + second.metadata().unwrap().len();
    assert!(steps.is_sorted() && steps.iter().all(|(_, all)| *all == total), "{steps:?}");
    assert_eq!(steps.last(), Some(&(total, total)));
    let none = directory.path().join("none");
    let missing = digest_all(&[&first, &none], |_, _| (), || Telling, |_, _| ()).map(drop);
    assert!(missing.unwrap_err().is_missing());
}

#[test]
fn a_missing_file_is_told_from_an_unreadable_one() {
    let directory = tempfile::tempdir().unwrap();
    let missing = read(&directory.path().join("none")).unwrap_err();
    assert!(missing.is_missing() && !missing.is_transient());
    let unreadable = read(directory.path()).unwrap_err();
    assert!(!unreadable.is_missing(), "{unreadable}");
    assert!(
        unreadable.to_string().starts_with(&format!("usage file {}: read: ", directory.path().display()))
    );
}

#[test]
fn an_empty_file_holds_nothing() {
    assert_eq!(read_bytes(b"").unwrap(), (ReplaySummary::default(), vec![]));
    assert_eq!(read_bytes(b"\n\n \r\n").unwrap(), (ReplaySummary::default(), vec![]));
}

#[test]
fn duplicates_count_once() {
    let hex = "00112233445566778899aabbccddeeff";
    let ids = ["x", hex, "x", hex, &hex.to_uppercase(), "", ""];
    let events: Vec<_> = ids.iter().map(|id| Event::Usage(usage(id))).collect();
    let (summary, seen) = read_bytes(text_of(&events).as_bytes()).unwrap();
    assert_eq!(seen, ["x", hex, &hex.to_uppercase(), "", ""]);
    assert_eq!(summary, ReplaySummary { events: 5, duplicates: 2, ..ReplaySummary::default() });
}

#[test]
fn a_last_line_torn_at_any_byte_is_skipped_and_the_rest_counts() {
    let whole = text_of(&three());
    let last_start = whole.trim_end().rfind('\n').unwrap() + 1;
    for end in last_start..=whole.len() {
        let (summary, seen) = read_bytes(&whole.as_bytes()[..end]).unwrap();
        // Only the line break is missing: the event is complete.
        let complete = end >= whole.len() - 1;
        assert_eq!(seen.len(), if complete { 2 } else { 1 }, "{end}");
        assert_eq!(summary.torn_tail, !complete && end > last_start, "{end}");
        assert_eq!((summary.refusals, summary.skipped_lines), (1, 0), "{end}");
    }
}

#[test]
fn a_refusal_torn_at_any_byte_is_a_torn_tail() {
    let whole = line(&Event::Refusal(refusal("no")));
    for end in 1..whole.len() - 1 {
        let (summary, _) = read_bytes(&whole.as_bytes()[..end]).unwrap();
        assert_eq!(summary, ReplaySummary { torn_tail: true, ..ReplaySummary::default() }, "{end}");
    }
}

#[test]
fn broken_lines_in_the_middle_are_skipped_and_counted() {
    let good = line(&Event::Usage(usage("good")));
    let broken: [&[u8]; 14] = [
        b"{",
        b"null",
        b"[]",
        b"\"usage\"",
        b"\xff\xfe",
        b"{\"v\":1,\"type\":\"usage\"}",
        b"\0\0\0",
        good.trim_end().as_bytes().split_last().unwrap().1,
        &good.replace("\"usage\"", "\"audit\"").into_bytes(),
        &good.replace("\"v\":1", "\"v\":2").into_bytes(),
        &good.replace("2026-", "x026-").into_bytes(),
        &good.replace("364", "-1").into_bytes(),
        &good.replace("364", "3.64").into_bytes(),
        &good.replace("\"cost_micro_usd\":364,", "").into_bytes(),
    ];
    for broken in broken {
        let content = [good.as_bytes(), broken, b"\n", line(&Event::Usage(usage("two"))).as_bytes()].concat();
        let (summary, seen) = read_bytes(&content).unwrap();
        assert_eq!(seen, ["good", "two"], "{}", broken.escape_ascii());
        assert_eq!(summary.skipped_lines, 1, "{}", broken.escape_ascii());
        assert!(!summary.torn_tail);
    }
}

#[test]
fn zeros_before_an_event_do_not_hide_it() {
    let content = [&[0; 5_000], line(&Event::Usage(usage("one"))).as_bytes()].concat();
    assert_eq!(
        read_bytes(&content).unwrap(),
        (ReplaySummary { events: 1, ..ReplaySummary::default() }, vec!["one".to_owned()])
    );
}

#[test]
fn refusals_and_events_written_in_another_order_are_understood() {
    let content = concat!(
        r#"{"type": "refusal", "v": 1, "ts": "2026-11-29T10:04:00Z", "request_id": "a", "tenant": "t", "cost_micro_usd": 0}"#,
        "\n",
        r#" {"cost_micro_usd": 7, "tenant": "t", "unknown": {"deep": [1]}, "request_id": "b", "ts": "2026-11-29T11:04:00+01:00", "type": "usage", "v": 1} "#,
        "\r\n",
    );
    let (summary, seen) = read_bytes(content.as_bytes()).unwrap();
    assert_eq!(seen, ["b"]);
    assert_eq!(summary, ReplaySummary { events: 1, refusals: 1, ..ReplaySummary::default() });
}

#[test]
fn overlong_lines_are_skipped_wherever_they_are() {
    let good = |id: &str| line(&Event::Usage(usage(id)));
    let padded = |bytes: usize| good("long").replace("acme", &"x".repeat(bytes));
    // Below the bound, just above it, longer than the read buffer.
    let content =
        [good("one"), padded(1_000_000), padded(1 << 20), good("two"), padded(9 << 20), good("three")]
            .concat();
    let (summary, seen) = read_bytes(content.as_bytes()).unwrap();
    assert_eq!(seen, ["one", "long", "two", "three"]);
    assert_eq!(summary, ReplaySummary { events: 4, skipped_lines: 2, ..ReplaySummary::default() });
    let unended = padded(9 << 20);
    let (summary, _) = read_bytes(unended.trim_end().as_bytes()).unwrap();
    assert_eq!(summary, ReplaySummary { torn_tail: true, ..ReplaySummary::default() });
}

#[test]
fn lines_of_many_blocks_come_in_order_and_each_id_once() {
    // Lines of uneven lengths, so that blocks end at any place in them: some 20 MiB.
    let id = |n: usize| format!("{n}-{}", "x".repeat(n * 37 % 3_001));
    let lines = |ids: &mut dyn Iterator<Item = usize>| -> String {
        ids.map(|n| line(&Event::Usage(usage(&id(n))))).collect()
    };
    let content = lines(&mut (0..9_000)) + "broken\n" + &lines(&mut (0..9_000).step_by(100));
    let (summary, seen) = read_bytes(content.as_bytes()).unwrap();
    assert!(seen.iter().eq((0..9_000).map(id).collect::<Vec<_>>().iter()));
    let expected =
        ReplaySummary { events: 9_000, duplicates: 90, skipped_lines: 1, ..ReplaySummary::default() };
    assert_eq!(summary, expected);
    // The last byte of a block is the last of a line, the first of the next, or any other.
    let before = 4 << 20;
    for more in 0..3 {
        let first = line(&Event::Usage(usage("first")));
        let text = format!("{first}{}\n{}", " ".repeat(before - first.len() - 2 + more), lines(&mut (0..2)));
        let (summary, seen) = read_bytes(text.as_bytes()).unwrap();
        assert_eq!((seen, summary.skipped_lines), (vec!["first".to_owned(), id(0), id(1)], 1), "{more}");
    }
}

#[test]
fn progress_reaches_the_total() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let events: String = (0..30_000).map(|n| line(&Event::Usage(usage(&format!("{n:032x}"))))).collect();
    fs::write(file.path(), &events).unwrap();
    let mut steps = Vec::new();
    let summary = replay(file.path(), |done, total| steps.push((done, total)), |_| ()).unwrap();
    assert_eq!(summary.events, 30_000);
    let total = u64::try_from(events.len()).unwrap();
    assert!(steps.len() > 2 && steps.is_sorted() && steps.iter().all(|(_, all)| *all == total), "{steps:?}");
    assert_eq!(steps.last(), Some(&(total, total)));
}

fn any_usage() -> impl Strategy<Value = UsageEvent> {
    let text = || any::<String>();
    let maybe = || proptest::option::of(text());
    let texts = (text(), text(), text(), text(), text(), maybe(), maybe());
    let name = prop_oneof![text(), Just("user".to_owned()), Just("team".to_owned())];
    let attributes = proptest::collection::btree_map(name, text(), 0..3);
    let from_caller = proptest::sample::subsequence(vec!["user", "team"], 0..=2);
    let counts = proptest::array::uniform4(any::<u64>());
    let ts_ms = 0..253_402_300_799_999_u64;
    // The micro-USD of the largest cost still fit into 64 bits.
    let cost_pico = 0..=u128::from(u64::MAX) * 1_000_000;
    (texts, attributes, from_caller, counts, ts_ms, cost_pico).prop_map(
        |(texts, attributes, caller_attributes, counts, ts_ms, cost_pico)| {
            let (id, tenant, key, model, path, session, requested_model) = texts;
            UsageEvent {
                ts: TimestampMs::new(ts_ms),
                tenant: tenant.into(),
                key: key.into(),
                caller_attributes,
                model: model.into(),
                requested_model: requested_model.map(Into::into),
                path: path.into(),
                session: session.map(|id| Session { id: id.into(), derived: false }),
                attributes: std::sync::Arc::new(
                    attributes.into_iter().map(|(a, b)| (a.into(), b.into())).collect(),
                ),
                tokens: TokenCounts {
                    input: counts[0],
                    output: counts[1],
                    cache_write: counts[2],
                    web_fetches: counts[3],
                    ..TokenCounts::default()
                },
                cost: ExactAmount::from_millionths(cost_pico),
                ..usage(&id)
            }
        },
    )
}

/// Records `events` with a writer that is opened and closed for it.
fn append(path: &Path, events: &[UsageEvent]) -> Result<(), UsageError> {
    let writer = Writer::open(path, WriterOptions::default())?;
    for event in events {
        writer.record(&Event::Usage(event.clone()));
    }
    writer.close()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_written_is_read_back(first in proptest::collection::vec(any_usage(), 0..6), second in proptest::collection::vec(any_usage(), 0..6)) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("usage.jsonl");
        append(&path, &first).unwrap();
        append(&path, &second).unwrap();
        let mut seen = std::collections::HashSet::new();
        let mut expected = first.iter().chain(&second).filter(|event| event.request_id.is_empty() || seen.insert(&event.request_id));
        let check = |back: &tollgate_usage::Replayed<'_>| {
            let event = expected.next().unwrap();
            assert_eq!((back.ts, back.request_id, back.tenant, back.key), (event.ts, &*event.request_id, &*event.tenant, &*event.key));
            assert_eq!((back.model, back.tokens, back.cost), (&*event.model, event.tokens, event.cost));
            assert!(event.attributes.keys().all(|name| back.is_from_caller(name) == event.caller_attributes.contains(&&**name)));
            assert_eq!(back.requested_model, event.requested_model.as_deref());
            assert_eq!(back.session, event.session.as_ref().map(|session| &*session.id));
            let attributes: Vec<_> = event.attributes.iter().map(|(name, value)| (&**name, &**value)).collect();
            assert_eq!(back.attributes().collect::<Vec<_>>(), attributes);
        };
        let summary = replay(&path, |_, _| (), check).unwrap();
        prop_assert!(expected.next().is_none());
        prop_assert_eq!(summary.events + summary.duplicates, u64::try_from(first.len() + second.len()).unwrap());
        prop_assert_eq!((summary.skipped_lines, summary.torn_tail), (0, false));
    }

    #[test]
    fn no_bytes_panic(content in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        read_bytes(&content).unwrap();
    }

    #[test]
    fn no_change_of_a_line_panics_or_reaches_its_neighbours(at in 0_usize..560, byte: u8) {
        let mut changed = line(&Event::Usage(usage("changed"))).into_bytes();
        let at = at % (changed.len() - 1);
        changed[at] = byte;
        let content = [line(&Event::Usage(usage("one"))).as_bytes(), &changed, line(&Event::Usage(usage("two"))).as_bytes()].concat();
        let (_, seen) = read_bytes(&content).unwrap();
        prop_assert_eq!(seen.first().map(String::as_str), Some("one"));
        prop_assert_eq!(seen.last().map(String::as_str), Some("two"));
    }
}
