//! Files that the writer opens.

use std::fs::{self, OpenOptions};
use std::path::Path;

use tollgate_limiter::{ExactAmount, TimestampMs};
use tollgate_usage::{Event, Journal, ReplaySummary, UsageEvent, Writer, WriterOptions};

use crate::common::{line, read, usage};

#[test]
fn a_file_torn_at_any_byte_loses_one_line_at_most() {
    let first = line(&Event::Usage(usage("first")));
    let whole = format!("{first}{}", line(&Event::Usage(usage("second"))));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("usage.jsonl");
    for end in (first.len()..=whole.len()).step_by(3).chain([whole.len() - 1, whole.len()]) {
        fs::write(&path, &whole.as_bytes()[..end]).unwrap();
        let writer = Writer::open(&path, WriterOptions::default()).unwrap();
        writer.record(&Event::Usage(usage("third")));
        writer.close().unwrap();
        let (summary, events) = read(&path).unwrap();
        let ids: Vec<_> = events.iter().map(|(id, _)| &**id).collect();
        // The second event counts when only its line break was lost.
        let (expected, skipped): (&[_], _) = match end {
            _ if end >= whole.len() - 1 => (&["first", "second", "third"], 0),
            _ => (&["first", "third"], u64::from(end > first.len())),
        };
        assert_eq!(ids, expected, "{end}");
        assert_eq!((summary.skipped_lines, summary.torn_tail), (skipped, false), "{end}");
    }
}

#[test]
fn recorded_events_are_readable_after_a_flush_while_the_writer_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("usage.jsonl");
    let writer = Writer::open(&path, WriterOptions::default()).unwrap();
    for id in ["a", "b", "c"] {
        writer.record(&Event::Usage(usage(id)));
        writer.flush().unwrap();
        let (summary, events) = read(&path).unwrap();
        assert_eq!(events.last().map(|(last, _)| &**last), Some(id));
        assert_eq!(
            summary,
            ReplaySummary { events: u64::try_from(events.len()).unwrap(), ..ReplaySummary::default() }
        );
    }
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let error = Writer::open(directory.path(), WriterOptions::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with(&format!("usage file {}: open for appending: ", directory.path().display()))
    );
    let error = Writer::open(&directory.path().join("no/such"), WriterOptions::default()).unwrap_err();
    assert!(error.is_missing());
}

#[test]
fn after_a_file_that_was_moved_away_a_new_one_is_begun() {
    let directory = tempfile::tempdir().unwrap();
    let (path, moved) = (directory.path().join("usage.jsonl"), directory.path().join("moved"));
    let writer = Writer::open(&path, WriterOptions::default()).unwrap();
    let record = |id| {
        writer.record(&Event::Usage(usage(id)));
        writer.flush().unwrap();
    };
    let ids = |path: &Path| read(path).unwrap().1.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    record("before");
    fs::rename(&path, &moved).unwrap();
    record("after");
    assert_eq!((ids(&moved), ids(&path)), (vec!["before".to_owned()], vec!["after".to_owned()]));
    fs::remove_file(&path).unwrap();
    record("deleted");
    assert_eq!(ids(&path), ["deleted"]);
    fs::rename(&moved, &path).unwrap();
    record("back");
    assert_eq!(ids(&path), ["before", "back"], "one that another was put in the place of");
}

#[test]
fn what_others_append_is_kept() {
    use std::io::Write as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("usage.jsonl");
    let writer = Writer::open(&path, WriterOptions::default()).unwrap();
    writer.record(&Event::Usage(usage("one")));
    writer.flush().unwrap();
    let mut other = OpenOptions::new().append(true).open(&path).unwrap();
    other.write_all(line(&Event::Usage(usage("other"))).as_bytes()).unwrap();
    writer.record(&Event::Usage(usage("two")));
    writer.close().unwrap();
    let ids: Vec<_> = read(&path).unwrap().1.into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, ["one", "other", "two"]);
}

#[test]
fn what_the_full_disk_of_the_usage_file_did_not_take_comes_back_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("usage.jsonl");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let writer = Writer::open(&path, WriterOptions { waiting_max: 1, ..WriterOptions::default() }).unwrap();
    let ids = ["a", "b", "c"];
    let hold = |id| writer.hold(&UsageEvent { cost: ExactAmount::whole(900), ..usage(id) }).unwrap();
    for (id, (hold, written)) in ids.map(|id| (id, hold(id))) {
        written.now().unwrap();
        writer.settle(hold, &usage(id), &[]).now().unwrap();
    }
    writer.close().unwrap_err();
    assert_eq!(writer.dropped(), 3, "one that waited and two for which there was no room");
    drop(writer);
    fs::remove_file(&path).unwrap();

    let mut costs = Vec::new();
    let each = |event: &tollgate_usage::Replayed<'_>| costs.push((event.request_id.to_owned(), event.cost));
    let summary = Journal::open(&path).unwrap().restore(TimestampMs::new(u64::MAX), |_, _| (), each).unwrap();
    assert_eq!(summary.recovered, 3);
    costs.sort_unstable();
    assert_eq!(costs, ids.map(|id| (id.to_owned(), usage(id).cost)), "as they were settled");
    assert_eq!(read(&path).unwrap().0.events, 3);
}
