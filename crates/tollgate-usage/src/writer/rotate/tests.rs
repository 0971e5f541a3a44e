//! Rotation by size and by day, and what is read back.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tollgate_limiter::{DurationMs, TimestampMs};

use super::*;
use crate::{Event, Journal, RefusalEvent, Writer};

/// 2026-11-29, in the middle of the day.
const NOON: TimestampMs = TimestampMs::new(1_795_953_600_000);
const DAY_MS: u64 = 86_400_000;

fn event(id: usize, days: u64) -> Event {
    Event::Refusal(RefusalEvent {
        ts: NOON.saturating_add(DurationMs::new(days * DAY_MS)),
        request_id: id.to_string().into(),
        tenant: "t".into(),
        key: "k".into(),
        attributes: Default::default(),
        provider: None,
        model: "m".into(),
        path: "/".into(),
        status: 402,
        reason: "budget_exceeded",
        limit: None,
        charge: 1,
        retry_after: None,
    })
}

fn line(event: &Event) -> String {
    let mut line = Vec::new();
    event.write_json(&mut line);
    String::from_utf8(line).unwrap() + "\n"
}

/// Writes each batch at once, all by writers that go on where the one before stopped.
fn write(path: &Path, options: WriterOptions, batches: &[Vec<Event>]) {
    for some in batches.chunks(3) {
        let writer = Writer::open(path, options).unwrap();
        for batch in some {
            batch.iter().for_each(|event| writer.record(event));
            writer.flush().unwrap();
        }
        writer.close().unwrap();
    }
}

/// The refusals of all files.
fn refusals(path: &Path) -> u64 {
    let _ = fs::remove_file(path.with_file_name("usage.jsonl.checkpoint"));
    Journal::open(path).unwrap().restore(NOON, |_, _| (), |_| ()).unwrap().refusals
}

fn names(path: &Path) -> Vec<String> {
    let name = |file: PathBuf| file.file_name().unwrap().to_str().unwrap().to_owned();
    files(path).unwrap().into_iter().map(name).collect()
}

/// Waits for batches to be asked for, so that each is one.
fn patient() -> WriterOptions {
    WriterOptions { batch_interval: std::time::Duration::from_secs(3_600), ..WriterOptions::default() }
}

#[test]
fn a_file_is_replaced_when_its_day_is_over_or_it_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("usage.jsonl");
    let bytes = u64::try_from(line(&event(0, 0)).len()).unwrap();
    let options = WriterOptions { rotate_daily: true, rotate_bytes: Some(2 * bytes), ..patient() };
    let batches: Vec<_> = [0, 0, 0, 1, 1, 3].iter().zip(0..).map(|(day, id)| vec![event(id, *day)]).collect();
    write(&path, options, &batches);
    assert_eq!(
        names(&path),
        ["usage.2026-11-29.1.jsonl", "usage.2026-11-29.2.jsonl", "usage.2026-11-30.1.jsonl", "usage.jsonl"]
    );
    fs::write(folder.path().join("usage.2026-11-29.10.jsonl"), "").unwrap();
    fs::write(folder.path().join("usage.backup.jsonl"), "").unwrap();
    fs::write(folder.path().join("usage.2026-11-29.1.jsonl.gz"), "").unwrap();
    assert_eq!(names(&path)[2], "usage.2026-11-29.10.jsonl", "numbers are numbers");
    assert_eq!(names(&path).len(), 5, "others are no usage files");
}

#[test]
fn killed_between_the_renaming_and_the_next_file_nothing_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("usage.jsonl");
    write(&path, patient(), &[vec![event(0, 0), event(1, 0)]]);
    fs::rename(&path, folder.path().join("usage.2026-11-29.1.jsonl")).unwrap();
    let read = || refusals(&path);
    assert_eq!(read(), 2);
    write(&path, patient(), &[vec![event(2, 1)]]);
    assert_eq!(read(), 3);
}

#[test]
fn a_file_that_cannot_be_renamed_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("usage.jsonl");
    write(&path, patient(), &[vec![event(0, 0)]]);
    let options = WriterOptions { rotate_daily: true, ..patient() };
    let writer = Writer::open(&path, options).unwrap();
    // What is to be renamed is gone.
    fs::remove_file(&path).unwrap();
    writer.record(&event(1, 1));
    writer.flush().unwrap();
    assert!(writer.healthy());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn rotated_files_together_are_the_file_that_was_not_rotated(
        batches in proptest::collection::vec((0_u64..2, 0_usize..6), 1..16),
        rotate_bytes in proptest::option::of(100_u64..2_000),
        rotate_daily: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("usage.jsonl");
        let (mut day, mut id) = (0, 0);
        let mut events = |(days, count): (u64, usize)| -> Vec<Event> {
            day += days;
            id += count;
            (id - count..id).map(|id| event(id, day)).collect()
        };
        let batches: Vec<_> = batches.into_iter().map(&mut events).collect();
        write(&path, WriterOptions { rotate_bytes, rotate_daily, ..patient() }, &batches);
        let all = batches.concat();
        let files = files(&path).unwrap();
        let texts: Vec<_> = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        prop_assert_eq!(texts.concat(), all.iter().map(line).collect::<String>());
        prop_assert!(texts.iter().all(|text| text.is_empty() || text.ends_with('\n')));
        if rotate_daily {
            let days = |text: &String| {
                text.lines().map(|line| day_of_line(line.as_bytes())).collect::<BTreeSet<_>>().len()
            };
            prop_assert!(texts.iter().all(|text| days(text) <= 1));
        }
        prop_assert_eq!(refusals(&path), u64::try_from(all.len()).unwrap());
    }
}
