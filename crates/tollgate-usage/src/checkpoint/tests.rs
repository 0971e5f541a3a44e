//! Checkpoints killed at every write, beside a journal that still has what they stand for.

use std::fs;
use std::io::Write;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::journal::frame::HEADER_BYTES;
use crate::reader::StandsFor;
use crate::{Hold, ReplaySummary};

/// 2026-11-29, in the middle of the day.
const NOON_MS: u64 = 1_795_953_600_000;
const NOW: TimestampMs = TimestampMs::new(NOON_MS + 3_600_000);

fn line(id: usize, cost: u64) -> Vec<u8> {
    let mut ts = Vec::new();
    let second = u64::try_from(id).unwrap() * 1_000;
    crate::timestamp::write(&mut ts, TimestampMs::new(NOON_MS + second));
    let ts = String::from_utf8(ts).unwrap();
    let text = format!(
        "{{\"v\":1,\"type\":\"usage\",\"ts\":{ts},\"request_id\":\"{id}\",\"tenant\":\"t\",\"session\":\"s{}\",\
         \"model\":\"m\",\"cost_micro_usd\":{cost}}}\n",
        id % 3
    );
    text.into_bytes()
}

/// A process with a usage file, its journal and its checkpoints.
struct Process {
    path: PathBuf,
    journal: Journal,
    tip: Tip,
    bytes: u64,
    made: usize,
    open: Vec<(usize, Hold)>,
    settled: Vec<(Vec<u8>, Hold)>,
}

impl Process {
    fn start(path: &Path, made: usize) -> Self {
        let mut journal = Journal::open(path).unwrap();
        journal.restore(NOW, |_, _| (), |_| ()).unwrap();
        let bytes = fs::metadata(path).map_or(0, |found| found.len());
        let tip = Tip::default();
        tip.is_at(bytes);
        Self { path: path.to_owned(), journal, tip, bytes, made, open: Vec::new(), settled: Vec::new() }
    }

    fn run(&mut self, step: Step) {
        let frame = |line: &[u8]| [&[0; HEADER_BYTES][..], line].concat();
        match step {
            Step::Admit => {
                let id = self.made.to_string().into();
                let (hold, ticket) = self.journal.hold(&id, &frame(&line(self.made, 1_000))).unwrap();
                self.journal.write_out(&ticket).unwrap();
                self.open.push((self.made, hold));
                self.made += 1;
            }
            Step::Settle(at) if !self.open.is_empty() => {
                let (id, hold) = self.open.swap_remove(at % self.open.len());
                let line = line(id, 10 + u64::try_from(id).unwrap());
                let ticket = self.journal.renew(&hold, &frame(&line)).unwrap();
                self.journal.write_out(&ticket).unwrap();
                self.settled.push((line, hold));
            }
            Step::Settle(_) => {}
            Step::Append { frees } => {
                let mut file = fs::OpenOptions::new().append(true).create(true).open(&self.path).unwrap();
                let mut holds = Vec::new();
                for (line, hold) in self.settled.drain(..) {
                    file.write_all(&line).unwrap();
                    holds.push((u64::try_from(line.len()).unwrap(), hold));
                }
                // Killed in between, the journal does not forget them.
                if frees {
                    for (bytes, hold) in holds {
                        self.bytes += bytes;
                        self.journal.free([hold]);
                    }
                    self.tip.is_at(self.bytes);
                }
            }
            Step::Checkpoint => {
                make(&self.journal, &self.tip, None).unwrap();
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Admit,
    Settle(usize),
    Append { frees: bool },
    Checkpoint,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Admit),
        4 => (0_usize..8).prop_map(Step::Settle),
        3 => Just(Step::Append { frees: true }),
        2 => Just(Step::Checkpoint),
    ]
}

/// What comes back: calls, their cost, and how many calls are out of the journal.
fn restored(path: &Path) -> (u64, u64, u64) {
    let (mut calls, mut cost) = (0, 0);
    let summary = restore(path, |event| {
        calls += event.calls();
        cost += event.cost.rounded_up().get();
    });
    (calls, cost, summary.recovered)
}

fn restore(path: &Path, each: impl FnMut(&reader::Replayed<'_>)) -> ReplaySummary {
    Journal::open(path).unwrap().restore(NOW, |_, _| (), each).unwrap()
}

/// The files of `from` in a folder of their own.
fn copy(from: &Path) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(from.parent().unwrap()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    let path = folder.path().join("usage.jsonl");
    (folder, path)
}

fn checkpoint_of(path: &Path) -> PathBuf {
    beside(path, ".checkpoint")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Slots are not cleared, so they have calls that are in the part of the file that no start reads.
    #[test]
    fn killed_anywhere_a_start_from_a_checkpoint_is_one_from_all_files(
        lives in proptest::collection::vec(proptest::collection::vec(step(), 1..24), 1..4),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("usage.jsonl");
        let mut made = 0;
        for life in lives {
            let mut process = Process::start(&path, made);
            for step in life {
                process.run(step);
                made = process.made;
                let (_with, with) = copy(&path);
                let (_without, without) = copy(&path);
                let _ = fs::remove_file(checkpoint_of(&without));
                prop_assert_eq!(restored(&with), restored(&without), "after {:?}", step);
                prop_assert_eq!(restored(&with), restored(&without), "restored once more");
            }
            // Appended, and killed before the journal forgets them.
            process.run(Step::Append { frees: false });
            process.run(Step::Checkpoint);
            let (_with, with) = copy(&path);
            let (_without, without) = copy(&path);
            let _ = fs::remove_file(checkpoint_of(&without));
            prop_assert_eq!(restored(&with), restored(&without));
        }
    }
}

/// A usage file with so many calls.
fn filled(calls: usize) -> (tempfile::TempDir, Process) {
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(&folder.path().join("usage.jsonl"), 0);
    more(&mut process, calls);
    (folder, process)
}

fn more(process: &mut Process, calls: usize) {
    for _ in 0..calls {
        for step in [Step::Admit, Step::Settle(0), Step::Append { frees: true }] {
            process.run(step);
        }
    }
}

#[test]
fn a_checkpoint_torn_at_any_byte_is_not_used_and_everything_is_read() {
    let (_folder, mut process) = filled(5);
    process.run(Step::Checkpoint);
    let expected = restored(&copy(&process.path).1);
    assert_eq!(restore(&copy(&process.path).1, |_| ()).events, 0, "only sums are read");
    let whole = fs::read(checkpoint_of(&process.path)).unwrap();
    for end in (0..whole.len()).step_by(11) {
        let (_copied, path) = copy(&process.path);
        fs::write(checkpoint_of(&path), &whole[..end]).unwrap();
        assert_eq!(restored(&path), expected, "torn at {end}");
        let mut wrong = whole.clone();
        wrong[end] ^= 1;
        fs::write(checkpoint_of(&path), wrong).unwrap();
        assert_eq!(restored(&path), expected, "wrong at {end}");
        assert_eq!(restore(&path, |_| ()).events, 5);
    }
}

#[test]
fn killed_while_the_next_one_is_written_the_one_before_is_good() {
    let (_folder, mut process) = filled(5);
    process.run(Step::Checkpoint);
    let before = fs::read(checkpoint_of(&process.path)).unwrap();
    more(&mut process, 4);
    process.run(Step::Checkpoint);
    let after = fs::read(checkpoint_of(&process.path)).unwrap();
    let expected = restored(&copy(&process.path).1);
    assert_eq!(expected.0, 9);
    for end in (0..=after.len()).step_by(13) {
        let (_copied, path) = copy(&process.path);
        fs::write(checkpoint_of(&path), &before).unwrap();
        fs::write(beside(&path, ".checkpoint.new"), &after[..end]).unwrap();
        assert_eq!(restored(&path), expected, "killed when {end} bytes were written");
        assert_eq!(restore(&path, |_| ()).events, 4);
    }
}

#[test]
fn a_checkpoint_of_other_files_or_of_a_later_time_is_not_used() {
    let (_folder, mut process) = filled(5);
    process.run(Step::Checkpoint);
    let change = |change: &dyn Fn(&Path)| {
        let (_copied, path) = copy(&process.path);
        change(&path);
        restore(&path, |_| ()).events
    };
    let text = fs::read_to_string(&process.path).unwrap();
    assert_eq!(change(&|_| ()), 0);
    assert_eq!(change(&|path| fs::write(path, text.replacen("\"0\"", "\"x\"", 1)).unwrap()), 5);
    assert_eq!(
        change(&|path| fs::write(path, text.replacen("1014", "1013", 1).replacen(":14}", ":15}", 1)).unwrap()),
        5
    );
    assert_eq!(change(&|path| fs::write(path, &text[..text.len() / 2]).unwrap()), 2);
    assert_eq!(change(&|path| fs::write(path, "").unwrap()), 0);
    let twice = |path: &Path| {
        fs::copy(path, path.with_file_name("usage.2026-11-29.1.jsonl")).unwrap();
    };
    assert_eq!(change(&twice), 5, "a copy counts once");

    let (_copied, path) = copy(&process.path);
    let mut journal = Journal::open(&path).unwrap();
    let summary = journal.restore(TimestampMs::new(NOON_MS - 3_600_000), |_, _| (), |_| ()).unwrap();
    assert_eq!(summary.events, 5, "the clock was set back");
}

#[test]
fn rotated_files_are_deleted_when_a_checkpoint_has_them_and_what_they_had_comes_back() {
    let (_folder, mut process) = filled(0);
    let rotate = |process: &mut Process, number: u32| {
        let name = format!("usage.2026-11-29.{number}.jsonl");
        fs::rename(&process.path, process.path.with_file_name(name)).unwrap();
        (process.bytes, ()) = (0, process.tip.is_at(0));
    };
    for number in 1..=3 {
        more(&mut process, 2);
        rotate(&mut process, number);
    }
    more(&mut process, 2);
    let expected = restored(&copy(&process.path).1);
    make(&process.journal, &process.tip, Some(1)).unwrap();
    let names = rotated_files(&process.path).unwrap();
    assert_eq!(names, [process.path.with_file_name("usage.2026-11-29.3.jsonl")]);
    assert_eq!(restored(&copy(&process.path).1), expected);
    // Renamed, written on and summed up again: what is gone stays summed up.
    rotate(&mut process, 4);
    more(&mut process, 1);
    assert_eq!(restored(&copy(&process.path).1).0, 9);
    make(&process.journal, &process.tip, Some(1)).unwrap();
    assert_eq!(restored(&copy(&process.path).1).0, 9);
    assert_eq!(rotated_files(&process.path).unwrap().len(), 1);
    // A file that is in no checkpoint is not deleted.
    delete(&process.path, &[], 0).unwrap();
    assert_eq!(rotated_files(&process.path).unwrap().len(), 1);
}

/// A million sessions a day would be a million sums; a day after, they are what their calls have in common.
#[test]
fn sessions_that_are_forgotten_are_not_kept_apart() {
    let mut aggregate = Aggregate::new();
    let mut add = |day: u64, count: usize| {
        let lines: Vec<u8> = (0..count)
            .flat_map(|id| {
                let mut ts = Vec::new();
                crate::timestamp::write(&mut ts, TimestampMs::new(NOON_MS + day * 86_400_000));
                let ts = String::from_utf8(ts).unwrap();
                format!(
                    "{{\"v\":1,\"type\":\"usage\",\"ts\":{ts},\"request_id\":\"\",\"tenant\":\"t\",\
                     \"session\":\"{day}-{id}\",\"cost_micro_usd\":1}}\n"
                )
                .into_bytes()
            })
            .collect();
        reader::replay_text(Path::new(""), &lines, |event| {
            assert_eq!(event.stands_for, StandsFor::Call);
            aggregate.add(event);
        });
        aggregate.compact();
        let mut lines = 0;
        let counted = aggregate.lines(|_| {
            lines += 1;
            Ok::<_, ()>(())
        });
        counted.unwrap();
        lines
    };
    assert_eq!(add(0, 500), 500);
    assert_eq!(add(2, 300), 301);
    assert_eq!(add(4, 1), 3);
    assert_eq!(add(40, 1), 3, "one for each of two months, and one for the session");
}

#[test]
fn checkpoints_are_made_as_lines_come_and_at_the_end() {
    use crate::{Event, Writer, WriterOptions};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("usage.jsonl");
    let events = |path: &Path| restore(&copy(path).1, |_| ());
    let options = WriterOptions { checkpoint_bytes: 1, ..WriterOptions::default() };
    let write = |options| {
        let writer = Writer::open(&path, options).unwrap();
        let raw = Arc::<str>::from("t");
        let event = crate::RefusalEvent {
            ts: TimestampMs::new(NOON_MS),
            request_id: raw.clone(),
            tenant: raw.clone(),
            key: raw.clone(),
            attributes: Arc::default(),
            provider: None,
            model: raw.clone(),
            path: raw,
            status: 402,
            reason: "budget_exceeded",
            limit: None,
            charge: 1,
            retry_after: None,
        };
        writer.record(&Event::Refusal(event));
        writer.close().unwrap();
    };
    write(options);
    assert_eq!(events(&path).refusals, 0, "all is in the checkpoint");
    write(options);
    assert_eq!(events(&path).refusals, 0);
}
