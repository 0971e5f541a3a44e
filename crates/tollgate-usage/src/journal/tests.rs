//! The journal killed at every write.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use proptest::prelude::*;

use super::half::HEADER_BYTES;
use super::*;

/// What was done to the files, in order.
#[derive(Clone, Debug)]
enum Write {
    Slot { bytes: Vec<u8>, offset: u64 },
    Append(Vec<u8>),
}

impl Write {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Slot { bytes, .. } | Self::Append(bytes) => bytes,
        }
    }
}

/// A disk that notes what is written. Shared with the test that looks at it.
#[derive(Clone, Default)]
struct Noted(Arc<Mutex<Vec<Write>>>);

impl Noted {
    fn writes(&self) -> Vec<Write> {
        self.0.lock().unwrap().clone()
    }
}

impl Disk for Noted {
    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.lock().unwrap().push(Write::Slot { bytes: bytes.to_vec(), offset });
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

impl Journal {
    /// A journal that nobody reads.
    pub(crate) fn unread(usage_file: &Path) -> Self {
        Self::on(Box::new(Noted::default()), usage_file)
    }

    /// A journal on a disk of the test's own.
    pub(crate) fn on(disk: Box<dyn Disk>, usage_file: &Path) -> Self {
        Self::over(disk, usage_file, PathBuf::new())
    }
}

/// The lines of calls whose number ends in 3 are long.
fn line(id: usize, cost: u64) -> Vec<u8> {
    let model = "m".repeat(if id % 10 == 3 { 3_000 } else { 1 });
    format!(
        "{{\"v\":1,\"type\":\"usage\",\"ts\":\"2026-11-29T10:04:00.123Z\",\"request_id\":\"{id}\",\
         \"tenant\":\"t\",\"model\":\"{model}\",\"cost_micro_usd\":{cost}}}\n"
    )
    .into_bytes()
}

fn half_of(line: &[u8]) -> Vec<u8> {
    let mut half = vec![0; HEADER_BYTES];
    half.extend_from_slice(line);
    half
}

/// What happens to calls. Each names an open call by its place among those.
#[derive(Clone, Copy, Debug)]
enum Step {
    Admit,
    Extend(usize),
    Settle(usize),
    /// The writer's thread appends what is settled.
    Append,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Admit),
        1 => (0_usize..8).prop_map(Step::Extend),
        3 => (0_usize..8).prop_map(Step::Settle),
        2 => Just(Step::Append),
    ]
}

/// The costs that a call may come back with when so many writes have been done: before the first of its
/// writes none, then that of its last one.
type Costs = Vec<(usize, usize, u64)>;

/// Runs `steps`; the writes that they came to, and after which write which call has which cost.
fn run(steps: &[Step]) -> (Vec<Write>, Costs) {
    let disk = Noted::default();
    let journal = Journal::over(Box::new(disk.clone()), Path::new("usage"), PathBuf::new());
    let (mut open, mut settled, mut costs) = (Vec::new(), Vec::new(), Costs::new());
    let mut made = 0;
    for step in steps {
        match *step {
            Step::Admit => {
                open.push((made, journal.hold(&mut half_of(&line(made, 100))).unwrap()));
                costs.push((disk.writes().len(), made, 100));
                made += 1;
            }
            Step::Extend(at) => {
                let count = open.len().max(1);
                let Some((id, hold)) = open.get_mut(at % count) else { continue };
                journal.renew(hold, &mut half_of(&line(*id, 150))).unwrap();
                costs.push((disk.writes().len(), *id, 150));
            }
            Step::Settle(at) => {
                if open.is_empty() {
                    continue;
                }
                let (id, mut hold) = open.swap_remove(at % open.len());
                let cost = 10 + u64::try_from(id).unwrap();
                journal.renew(&mut hold, &mut half_of(&line(id, cost))).unwrap();
                costs.push((disk.writes().len(), id, cost));
                settled.push((line(id, cost), hold));
            }
            Step::Append => {
                for (line, hold) in settled.drain(..) {
                    disk.0.lock().unwrap().push(Write::Append(line));
                    journal.free(hold);
                }
            }
        }
    }
    (disk.writes(), costs)
}

/// What slots and usage file hold after `writes`.
fn contents(writes: &[Write]) -> (Vec<u8>, Vec<u8>) {
    let (mut slots, mut usage) = (Vec::new(), Vec::new());
    for write in writes {
        match write {
            Write::Slot { bytes, offset } => {
                let offset = usize::try_from(*offset).unwrap();
                slots.resize(slots.len().max(offset + bytes.len()), 0);
                slots[offset..offset + bytes.len()].copy_from_slice(bytes);
            }
            Write::Append(bytes) => usage.extend_from_slice(bytes),
        }
    }
    (slots, usage)
}

/// The files as they are after `writes`, in a new folder.
fn files(writes: &[Write]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("usage.jsonl");
    let (slots, usage) = contents(writes);
    fs::write(folder.path().join("usage.jsonl.open"), slots).unwrap();
    fs::write(&path, usage).unwrap();
    (folder, path)
}

/// The cost of each call that is restored, and how many of them come out of the journal.
fn restored(path: &Path) -> (BTreeMap<usize, u64>, u64) {
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

fn after(costs: &Costs, writes: usize) -> BTreeMap<usize, u64> {
    let done = costs.iter().filter(|(at, ..)| *at <= writes);
    done.map(|(_, id, cost)| (*id, *cost)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    /// Whichever write is torn and wherever: what was written before it comes back, once, and from then on
    /// the usage file has it.
    #[test]
    fn killed_at_any_write_every_call_comes_back_once(
        steps in proptest::collection::vec(step(), 1..24),
        cut in 0_usize..200,
    ) {
        let (writes, costs) = run(&steps);
        for kill in 0..writes.len() {
            let mut done = writes[..kill].to_vec();
            let mut torn = writes[kill].clone();
            let cut = cut.min(torn.bytes().len() - 1);
            match &mut torn {
                Write::Slot { bytes, .. } | Write::Append(bytes) => bytes.truncate(cut),
            }
            done.push(torn);
            // What is not written may be there already, from the call before.
            let is_whole = contents(&done) == contents(&writes[..=kill]);
            let (_folder, path) = files(&done);
            let expected = after(&costs, if is_whole { kill + 1 } else { kill });
            let (first, _) = restored(&path);
            prop_assert_eq!(&first, &expected, "killed at write {} of {:?}", kill, steps);
            prop_assert_eq!(restored(&path), (expected, 0));
        }
    }
}

/// The recovery's own writes: the lines it appends, torn at any byte, and the slots not cleared yet.
#[test]
fn a_recovery_that_is_killed_is_done_again_and_counts_nothing_twice() {
    let (writes, _) = run(&[Step::Admit, Step::Admit, Step::Settle(0), Step::Append, Step::Admit]);
    let (folder, path) = files(&writes);
    let slots = fs::read(folder.path().join("usage.jsonl.open")).unwrap();
    let before = fs::read(&path).unwrap();
    let (expected, recovered) = restored(&path);
    assert_eq!((expected.len(), recovered), (3, 2));
    let after = fs::read(&path).unwrap();
    assert!(after.starts_with(&before) && after.len() > before.len());
    assert_eq!(fs::read(folder.path().join("usage.jsonl.open")).unwrap(), b"", "the slots are cleared");
    for end in (before.len()..=after.len()).step_by(7).chain([after.len() - 1, after.len()]) {
        fs::write(&path, &after[..end]).unwrap();
        fs::write(folder.path().join("usage.jsonl.open"), &slots).unwrap();
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

#[test]
fn slots_are_used_again_and_an_earlier_call_does_not_come_back_with_them() {
    let steps = [Step::Admit, Step::Settle(0), Step::Append].repeat(40);
    let (writes, _) = run(&steps);
    let offsets = writes.iter().filter_map(|write| match write {
        Write::Slot { offset, .. } => Some(*offset),
        Write::Append(_) => None,
    });
    assert!(offsets.max() < Some(SLOT_BYTES_U64), "one call at a time needs one slot");
    let (_folder, path) = files(&writes);
    assert_eq!((restored(&path).0.len(), restored(&path).1), (40, 0));
}

#[test]
fn the_longest_line_that_a_call_can_have_fits_into_a_half() {
    // Six attributes of 128 characters of four bytes, or of 256 bytes that all need an escape; two models
    // of 256 such bytes, a session, a path, and all else there is to a line.
    let attributes = 6 * (512 + "\"business_unit\":\"\",".len());
    let names = 2 * 512 + 512 + 128 + 3 * 64 + 256;
    assert!(attributes + names + 1_200 < half::LINE_BYTES_MAX);
}
