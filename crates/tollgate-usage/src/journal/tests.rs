//! The journal killed at every write.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use proptest::prelude::*;

use super::frame::{HEADER_BYTES, LINE_BYTES_MAX};
use super::log::AREAS;
use super::*;

/// What was done to the files, in order.
#[derive(Clone, Debug)]
pub(super) enum Write {
    Log { bytes: Vec<u8>, offset: u64 },
    Append(Vec<u8>),
}

impl Write {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Log { bytes, .. } | Self::Append(bytes) => bytes,
        }
    }

    /// The same, torn after `cut` bytes.
    fn torn(&self, cut: usize) -> Self {
        let mut torn = self.clone();
        match &mut torn {
            Self::Log { bytes, .. } | Self::Append(bytes) => bytes.truncate(cut),
        }
        torn
    }
}

/// A disk that notes what is written, and reports an error after it when it is told to. Shared with the test that looks at
/// it.
#[derive(Clone, Default)]
pub(super) struct Noted {
    writes: Arc<Mutex<Vec<Write>>>,
    refuses: Arc<AtomicBool>,
}

impl Noted {
    pub(super) fn writes(&self) -> Vec<Write> {
        self.writes.lock().unwrap().clone()
    }
}

impl Disk for Noted {
    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.writes.lock().unwrap().push(Write::Log { bytes: bytes.to_vec(), offset });
        let refuses = self.refuses.load(Ordering::Relaxed);
        if refuses { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let (log, _) = contents(&self.writes());
        let area = AREAS.iter().rposition(|begin| *begin <= offset).unwrap();
        let at = usize::try_from(offset - AREAS[area]).unwrap();
        bytes.copy_from_slice(&log[area][at..at + bytes.len()]);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn clear(&self) -> io::Result<()> {
        Ok(())
    }

    fn release(&self) -> io::Result<()> {
        Ok(())
    }
}

/// So short that areas are left all the time.
pub(super) const SHORT: u64 = 1_000;

impl Journal {
    /// A journal that nobody reads.
    pub(crate) fn unread(usage_file: &Path) -> Self {
        Self::on(Box::new(Noted::default()), usage_file)
    }

    /// A journal on a disk of the test's own.
    pub(crate) fn on(disk: Box<dyn Disk>, usage_file: &Path) -> Self {
        Self::over(disk, usage_file, PathBuf::new(), SHORT)
    }
}

/// The lines of calls whose number ends in 3 are long.
pub(super) fn line(id: usize, cost: u64) -> Vec<u8> {
    let model = "m".repeat(if id % 10 == 3 { 3_000 } else { 1 });
    format!(
        "{{\"v\":1,\"type\":\"usage\",\"ts\":\"2026-11-29T10:04:00.123Z\",\"request_id\":\"{id}\",\
         \"tenant\":\"t\",\"model\":\"{model}\",\"cost_micro_usd\":{cost}}}\n"
    )
    .into_bytes()
}

pub(crate) fn frame_of(line: &[u8]) -> Vec<u8> {
    [&[0; HEADER_BYTES][..], line].concat()
}

/// What happens to calls. Each names an open call by its place among those.
#[derive(Clone, Copy, Debug)]
enum Step {
    Admit,
    Extend(usize),
    Settle(usize),
    /// It is not sent after all.
    Cancel(usize),
    /// Who waits for what is written down writes it.
    Write,
    /// The writer's thread appends what is settled.
    Append,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Admit),
        1 => (0_usize..8).prop_map(Step::Extend),
        3 => (0_usize..8).prop_map(Step::Settle),
        1 => (0_usize..8).prop_map(Step::Cancel),
        3 => Just(Step::Write),
        2 => Just(Step::Append),
    ]
}

/// What a call comes back with once a write has been done up to a byte; `None`: it does not.
#[derive(Clone, Copy, Debug)]
struct Fact {
    write: usize,
    end: usize,
    id: usize,
    cost: Option<u64>,
}

/// A process that does steps.
struct Run {
    disk: Noted,
    journal: Journal,
    made: usize,
    open: Vec<(usize, Hold)>,
    settled: Vec<(Vec<u8>, usize, u64, Hold)>,
    /// What waits to be written: calls, what they come back with then, the bytes of their frames.
    waiting: Vec<(usize, Option<u64>, usize)>,
    ticket: Option<Ticket>,
    facts: Vec<Fact>,
}

impl Run {
    fn new() -> Self {
        let disk = Noted::default();
        let journal = Journal::on(Box::new(disk.clone()), Path::new("usage"));
        let (open, settled, waiting, facts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { disk, journal, made: 0, open, settled, waiting, ticket: None, facts }
    }

    fn waits(&mut self, id: usize, cost: Option<u64>, frame: &[u8], ticket: Ticket) {
        self.waiting.push((id, cost, frame.len()));
        self.ticket = Some(ticket);
    }

    fn write(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let write = self.disk.writes().len();
        self.journal.write_out(&ticket).unwrap();
        // The batch is the first write; another one may begin the other area.
        let bytes = self.disk.writes()[write].bytes().len();
        let frames: usize = self.waiting.iter().map(|(.., bytes)| bytes).sum();
        let mut end = bytes - frames;
        for (id, cost, bytes) in self.waiting.drain(..) {
            end += bytes;
            self.facts.push(Fact { write, end, id, cost });
        }
    }

    fn take(&mut self, at: usize) -> Option<(usize, Hold)> {
        let count = self.open.len();
        let taken = (count > 0).then(|| self.open.swap_remove(at % count))?;
        // What is not written down is not sent.
        if self.waiting.iter().any(|(id, cost, _)| *id == taken.0 && *cost == Some(100)) {
            self.write();
        }
        Some(taken)
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Admit => {
                let (id, frame) = (self.made, frame_of(&line(self.made, 100)));
                let (hold, ticket) = self.journal.hold(&id.to_string().into(), &frame).unwrap();
                self.waits(id, Some(100), &frame, ticket);
                self.open.push((id, hold));
                self.made += 1;
            }
            Step::Extend(at) => {
                let Some((id, hold)) = self.take(at) else { return };
                let frame = frame_of(&line(id, 150));
                let ticket = self.journal.renew(&hold, &frame).unwrap();
                self.waits(id, Some(150), &frame, ticket);
                self.open.push((id, hold));
            }
            Step::Settle(at) => {
                let Some((id, hold)) = self.take(at) else { return };
                let cost = 10 + u64::try_from(id).unwrap();
                let frame = frame_of(&line(id, cost));
                let ticket = self.journal.renew(&hold, &frame).unwrap();
                self.waits(id, Some(cost), &frame, ticket);
                self.settled.push((line(id, cost), id, cost, hold));
            }
            Step::Cancel(at) => {
                let Some((id, hold)) = self.take(at) else { return };
                let frame = frame::cancelled(&id.to_string());
                let ticket = self.journal.cancel(hold);
                self.waits(id, None, &frame, ticket);
            }
            Step::Write => self.write(),
            Step::Append => {
                for (line, id, cost, hold) in std::mem::take(&mut self.settled) {
                    let mut writes = self.disk.writes.lock().unwrap();
                    let fact = Fact { write: writes.len(), end: line.len(), id, cost: Some(cost) };
                    writes.push(Write::Append(line));
                    self.facts.push(fact);
                    drop(writes);
                    self.journal.free([hold]);
                }
            }
        }
    }
}

/// Runs `steps`; the writes that they came to, and what each of them makes true.
fn run(steps: &[Step]) -> (Vec<Write>, Vec<Fact>) {
    let mut run = Run::new();
    steps.iter().for_each(|step| run.step(*step));
    run.write();
    (run.disk.writes(), run.facts)
}

/// What the two areas and the usage file hold after `writes`.
fn contents(writes: &[Write]) -> ([Vec<u8>; 2], Vec<u8>) {
    let (mut areas, mut usage) = (<[Vec<u8>; 2]>::default(), Vec::new());
    for write in writes {
        match write {
            Write::Log { bytes, offset } => {
                let area = AREAS.iter().rposition(|begin| begin <= offset).unwrap();
                let (offset, area) = (usize::try_from(offset - AREAS[area]).unwrap(), &mut areas[area]);
                area.resize(area.len().max(offset + bytes.len()), 0);
                area[offset..offset + bytes.len()].copy_from_slice(bytes);
            }
            Write::Append(bytes) => usage.extend_from_slice(bytes),
        }
    }
    (areas, usage)
}

/// The files as they are after `writes`, in a new folder.
pub(super) fn files(writes: &[Write]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("usage.jsonl");
    let (areas, usage) = contents(writes);
    let log = fs::File::create(folder.path().join("usage.jsonl.open")).unwrap();
    for (begin, area) in AREAS.iter().zip(areas) {
        log.write(&area, *begin).unwrap();
    }
    fs::write(&path, usage).unwrap();
    (folder, path)
}

/// The cost of each call that is restored, and how many of them come out of the journal.
pub(super) fn restored(path: &Path) -> (BTreeMap<usize, u64>, u64) {
    let mut costs = BTreeMap::new();
    let summary = Journal::open(path)
        .unwrap()
        .restore(
            TimestampMs::new(u64::MAX),
            |_, _| (),
            |event| {
                let before = costs.insert(event.request_id.parse().unwrap(), event.cost.units());
                assert_eq!(before, None, "{} counts twice", event.request_id);
            },
        )
        .unwrap();
    (costs, summary.recovered)
}

/// What comes back when `kill` writes were done, and of the next one what is in the files.
fn expected(facts: &[Fact], writes: &[Write], kill: usize, torn: &Write) -> BTreeMap<usize, u64> {
    let mut done = writes[..kill].to_vec();
    done.push(torn.clone());
    let (torn, whole) = (contents(&done), contents(&writes[..=kill]));
    let mut costs = BTreeMap::new();
    // What the usage file has is the last word, whatever is written down after it.
    let (appended, logged): (Vec<&Fact>, Vec<&Fact>) =
        facts.iter().partition(|fact| matches!(writes[fact.write], Write::Append(_)));
    for fact in logged.into_iter().chain(appended) {
        let is_done =
            fact.write < kill || (fact.write == kill && is_there(&writes[kill], fact.end, &torn, &whole));
        match fact.cost {
            Some(cost) if is_done => drop(costs.insert(fact.id, cost)),
            None if is_done => drop(costs.remove(&fact.id)),
            _ => {}
        }
    }
    costs
}

/// Whether the first `end` bytes of `write` are in the files: what was not written may be there from before.
fn is_there(
    write: &Write,
    end: usize,
    torn: &([Vec<u8>; 2], Vec<u8>),
    whole: &([Vec<u8>; 2], Vec<u8>),
) -> bool {
    let Write::Log { offset, .. } = write else {
        // A line is one without its line break too.
        return torn.1.trim_ascii_end() == whole.1.trim_ascii_end();
    };
    let area = AREAS.iter().rposition(|begin| begin <= offset).unwrap();
    let end = usize::try_from(offset - AREAS[area]).unwrap() + end;
    torn.0[area].get(..end) == whole.0[area].get(..end)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whichever write is torn and wherever: what was written before it comes back, once, and from then on
    /// the usage file has it.
    #[test]
    fn killed_at_any_write_every_call_comes_back_once(
        steps in proptest::collection::vec(step(), 1..40),
        cut in 0_usize..2_000,
    ) {
        let (writes, facts) = run(&steps);
        for (kill, write) in writes.iter().enumerate() {
            let torn = write.torn(cut % write.bytes().len());
            let expected = expected(&facts, &writes, kill, &torn);
            let (_folder, path) = files(&[&writes[..kill], &[torn]].concat());
            let (first, _) = restored(&path);
            prop_assert_eq!(&first, &expected, "killed at write {} of {:?}", kill, steps);
            prop_assert_eq!(restored(&path), (expected, 0));
        }
    }
}

/// The recovery's own writes: the lines it appends, torn at any byte, and the log not cleared yet.
#[test]
fn a_recovery_that_is_killed_is_done_again_and_counts_nothing_twice() {
    let (writes, _) = run(&[Step::Admit, Step::Admit, Step::Settle(0), Step::Append, Step::Admit]);
    let (folder, path) = files(&writes);
    let log = fs::read(folder.path().join("usage.jsonl.open")).unwrap();
    let before = fs::read(&path).unwrap();
    let (expected, recovered) = restored(&path);
    assert_eq!((expected.len(), recovered), (3, 2));
    let after = fs::read(&path).unwrap();
    assert!(after.starts_with(&before) && after.len() > before.len());
    assert_eq!(fs::read(folder.path().join("usage.jsonl.open")).unwrap(), b"", "the log is cleared");
    for end in (before.len()..=after.len()).step_by(7).chain([after.len() - 1, after.len()]) {
        fs::write(&path, &after[..end]).unwrap();
        fs::write(folder.path().join("usage.jsonl.open"), &log).unwrap();
        assert_eq!(restored(&path).0, expected, "killed when {end} bytes were in the usage file");
        assert_eq!(restored(&path), (expected.clone(), 0));
    }
}

#[test]
fn a_usage_file_belongs_to_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("usage.jsonl");
    let link = folder.path().join("link.jsonl");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let first = Journal::open(&link).unwrap();
    for name in [&path, &link] {
        let error = Journal::open(name).unwrap_err();
        assert!(error.to_string().contains("another process uses it"), "{error}");
    }
    drop(first);
    Journal::open(&path).unwrap();
}

/// The log is as long as what is open, however many calls there were.
#[test]
fn the_log_stays_short_and_an_earlier_call_does_not_come_back_with_it() {
    let calls = [Step::Admit, Step::Settle(1), Step::Append].repeat(200);
    let (writes, _) = run(&[&[Step::Admit][..], &calls].concat());
    let (areas, _) = contents(&writes);
    assert!(areas.iter().all(|area| area.len() < 16_000), "one call at a time, the longest of 3 kB");
    let (_folder, path) = files(&writes);
    let (costs, recovered) = restored(&path);
    assert_eq!((costs.len(), recovered), (201, 1), "the one that was open all the time");
}

#[test]
fn a_call_whose_place_is_given_back_before_its_last_frame_is_written_is_not_taken_along() {
    let mut run = Run::new();
    let steps = [Step::Admit, Step::Write, Step::Settle(0), Step::Append, Step::Write];
    steps.iter().for_each(|step| run.step(*step));
    run.journal.log().leave(&run.disk).unwrap();
    assert_eq!(contents(&run.disk.writes()).0[1].len(), frame::whole().len());
}

#[test]
fn what_an_earlier_use_of_an_area_left_behind_its_end_is_not_read() {
    let extends = |count| [Step::Extend(0), Step::Write].repeat(count);
    let steps = [
        [Step::Admit, Step::Write].to_vec(),
        extends(4),
        // The second call is near the end of the first area, and cancelled in the other one.
        [Step::Admit, Step::Write].to_vec(),
        extends(1),
        [Step::Cancel(0), Step::Write].to_vec(),
        extends(7),
    ]
    .concat();
    let (writes, _) = run(&steps);
    let begun =
        writes.iter().filter(|write| matches!(write, Write::Log { offset, .. } if AREAS.contains(offset)));
    assert_eq!(begun.count(), 3, "the first area is used again");
    assert_eq!(restored(&files(&writes).1).0, BTreeMap::from([(0, 150)]));
}

#[test]
fn what_parallel_calls_write_down_is_written_once() {
    let mut run = Run::new();
    (0..50).for_each(|_| run.step(Step::Admit));
    run.step(Step::Write);
    let batches = |run: &Run| run.disk.writes().iter().filter(|write| write.bytes().len() > 3_000).count();
    assert_eq!(batches(&run), 2, "the batch, and what the other area begins with");
    run.step(Step::Write);
    assert_eq!(batches(&run), 2);
}

/// A batch that cannot be written is none: all who wait for it are told so, and what is written later is read.
#[test]
fn what_the_disk_refuses_is_told_to_all_and_loses_nothing_that_was_written() {
    let mut run = Run::new();
    let hold =
        |run: &Run, id: usize| run.journal.hold(&id.to_string().into(), &frame_of(&line(id, 100))).unwrap();
    let (_written, ticket) = hold(&run, 1);
    run.journal.write_out(&ticket).unwrap();
    run.disk.refuses.store(true, Ordering::Relaxed);
    let refused = [hold(&run, 2), hold(&run, 4)];
    for (_, ticket) in &refused {
        run.journal.write_out(ticket).unwrap_err();
    }
    assert_eq!((run.journal.failures(), run.journal.healthy()), (2, false));
    refused.into_iter().for_each(|(hold, _)| run.journal.forget(hold));
    run.disk.refuses.store(false, Ordering::Relaxed);
    let (_later, ticket) = hold(&run, 5);
    run.journal.write_out(&ticket).unwrap();
    assert!(run.journal.healthy());
    run.step(Step::Append);
    let (_folder, path) = files(&run.disk.writes());
    assert_eq!(restored(&path).0, BTreeMap::from([(1, 100), (5, 100)]));
}

/// Until the disk has confirmed an area, a power cut may fall back to the one before: it is not written over.
#[test]
fn an_area_is_not_left_before_the_disk_has_confirmed_how_it_began() {
    let mut run = Run::new();
    run.journal.will_sync();
    let calls = [Step::Admit, Step::Write, Step::Settle(0), Step::Write, Step::Append].repeat(30);
    let begun = |run: &Run| run.journal.log().begun();
    calls.iter().for_each(|step| run.step(*step));
    assert_eq!(begun(&run), 1);
    calls.iter().for_each(|step| run.step(*step));
    assert_eq!(begun(&run), 1);
    run.journal.sync().unwrap();
    calls.iter().for_each(|step| run.step(*step));
    assert_eq!(begun(&run), 2);
}

#[test]
fn the_longest_line_that_a_call_can_have_fits_into_a_frame() {
    // Six attributes of 128 characters of four bytes, or of 256 bytes that all need an escape; two models
    // of 256 such bytes, a session, a path, and all else there is to a line.
    let attributes = 6 * (512 + "\"business_unit\":\"\",".len());
    let names = 2 * 512 + 512 + 128 + 3 * 64 + 256;
    assert!(attributes + names + 1_200 < LINE_BYTES_MAX);
}

#[test]
fn a_journal_that_another_process_may_have_is_not_written_any_more() {
    let run = Run::new();
    run.journal.release().unwrap();
    let (_hold, ticket) = run.journal.hold(&"1".into(), &frame_of(&line(1, 100))).unwrap();
    run.journal.write_out(&ticket).unwrap_err();
    assert!(run.disk.writes().is_empty());
}
