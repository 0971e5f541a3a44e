//! What a power cut leaves of journal and usage file, and what comes back of it.
//!
//! What the disk has confirmed is there. Of all else the system has written out any pages, each as it stood at
//! some moment, in any order; a file that has grown has zeros where nothing was written out.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::Index;

use super::tests::{SHORT, frame_of, line, restored};
use super::*;

/// What is written out whole, or not.
const PAGE: usize = 4_096;

/// What was done to the files, in order.
#[derive(Clone, Debug)]
enum Did {
    Write(Vec<u8>, usize),
    Append(Vec<u8>),
    SyncJournal,
    SyncUsage,
}

/// A disk that notes what is done.
#[derive(Clone, Default)]
struct Noted(Arc<Mutex<Vec<Did>>>);

impl Noted {
    fn push(&self, did: Did) {
        self.0.lock().unwrap().push(did);
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl Disk for Noted {
    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.push(Did::Write(bytes.to_vec(), usize::try_from(offset).unwrap()));
        Ok(())
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let mut seen = Pages::default();
        for did in self.0.lock().unwrap().iter() {
            if let Did::Write(bytes, offset) = did {
                seen.write(bytes, *offset, &mut || false);
            }
        }
        for (byte, at) in bytes.iter_mut().zip(usize::try_from(offset).unwrap()..) {
            *byte = seen.seen[&(at / PAGE)][at % PAGE];
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.push(Did::SyncJournal);
        Ok(())
    }

    fn clear(&self) -> io::Result<()> {
        Ok(())
    }

    fn release(&self) -> io::Result<()> {
        Ok(())
    }
}

/// When the disk is asked, as `usage.fsync` has it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Policy {
    Never,
    /// At each [`Step::Second`].
    Second,
    /// A call is sent when the journal is confirmed, its place given back when the usage file is.
    Always,
}

/// What happens. Calls are named by their place among those that are open.
#[derive(Clone, Copy, Debug)]
enum Step {
    Admit,
    Extend(usize),
    Settle(usize),
    Append,
    Second,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Admit),
        2 => (0_usize..8).prop_map(Step::Extend),
        4 => (0_usize..8).prop_map(Step::Settle),
        3 => Just(Step::Append),
        2 => Just(Step::Second),
    ]
}

/// What became of a call, each with how much had been done by then.
#[derive(Clone, Debug, Default)]
struct Life {
    sent: usize,
    /// Its lines in the journal, with their costs.
    lines: Vec<(usize, u64)>,
    appended: Option<usize>,
}

/// A process under a policy.
struct Process {
    policy: Policy,
    disk: Noted,
    journal: Journal,
    lives: Vec<Life>,
    open: Vec<(usize, Hold)>,
    settled: Vec<(usize, Hold)>,
}

impl Process {
    fn new(policy: Policy) -> Self {
        let disk = Noted::default();
        let journal = Journal::over(Box::new(disk.clone()), Path::new("usage"), PathBuf::new(), SHORT);
        if policy != Policy::Never {
            journal.will_sync();
        }
        let (lives, open, settled) = (Vec::new(), Vec::new(), Vec::new());
        Self { policy, disk, journal, lives, open, settled }
    }

    /// Writes what waits: how much is done once it is written, and before another area is begun.
    fn write(&self, ticket: &Ticket) -> usize {
        let before = self.disk.count();
        self.journal.write_out(ticket).unwrap();
        before + 1
    }

    /// Writes another line of an open call.
    fn renew(&mut self, (id, hold): &(usize, Hold), cost: u64) {
        let ticket = self.journal.renew(hold, &frame_of(&line(*id, cost))).unwrap();
        let written = self.write(&ticket);
        self.lives[*id].lines.push((written, cost));
    }

    fn step(&mut self, step: Step) {
        let place = |at: usize, open: &[(usize, Hold)]| at.checked_rem(open.len());
        match step {
            Step::Admit => {
                let id = self.lives.len();
                let frame = frame_of(&line(id, RESERVED));
                let (hold, ticket) = self.journal.hold(&id.to_string().into(), &frame).unwrap();
                let lines = vec![(self.write(&ticket), RESERVED)];
                if self.policy == Policy::Always {
                    self.journal.sync().unwrap();
                }
                self.open.push((id, hold));
                self.lives.push(Life { sent: self.disk.count(), lines, appended: None });
            }
            Step::Extend(at) => {
                let Some(place) = place(at, &self.open) else { return };
                let call = self.open.swap_remove(place);
                self.renew(&call, EXTENDED);
                self.open.push(call);
            }
            Step::Settle(at) => {
                let Some(place) = place(at, &self.open) else { return };
                let call = self.open.swap_remove(place);
                self.renew(&call, SPENT);
                self.settled.push(call);
            }
            Step::Append => {
                for (id, _) in &self.settled {
                    self.disk.push(Did::Append(line(*id, SPENT)));
                    self.lives[*id].appended = Some(self.disk.count());
                }
                if self.policy == Policy::Always {
                    self.disk.push(Did::SyncUsage);
                }
                self.journal.free(self.settled.drain(..).map(|(_, hold)| hold));
            }
            Step::Second => {
                if self.policy == Policy::Second {
                    self.journal.sync().unwrap();
                    self.disk.push(Did::SyncUsage);
                }
            }
        }
    }
}

const RESERVED: u64 = 100;
const EXTENDED: u64 = 150;
const SPENT: u64 = 120;

/// A file, page by page: as the process sees it, and what the disk has of it.
#[derive(Default)]
struct Pages {
    seen: BTreeMap<usize, [u8; PAGE]>,
    disk: BTreeMap<usize, [u8; PAGE]>,
}

impl Pages {
    /// `luck` says of each page whether the system writes it out then.
    fn write(&mut self, bytes: &[u8], offset: usize, luck: &mut impl FnMut() -> bool) {
        for (byte, at) in bytes.iter().zip(offset..) {
            self.seen.entry(at / PAGE).or_insert([0; PAGE])[at % PAGE] = *byte;
        }
        for page in offset / PAGE..(offset + bytes.len()).div_ceil(PAGE) {
            if luck() {
                self.disk.insert(page, self.seen[&page]);
            }
        }
    }

    fn sync(&mut self) {
        self.disk.clone_from(&self.seen);
    }

    /// Puts what the disk has into a file, no longer than `bytes`.
    fn save(&self, path: &Path, bytes: u64) {
        let file = fs::File::create(path).unwrap();
        for (page, content) in &self.disk {
            file.write_all_at(content, u64::try_from(page * PAGE).unwrap()).unwrap();
        }
        let length = file.metadata().unwrap().len();
        file.set_len(length.min(bytes)).unwrap();
    }
}

/// Puts into `folder` what the disk has of journal and usage file when all of `did` was done.
fn leave(did: &[Did], folder: &Path, mut luck: impl FnMut() -> bool) -> PathBuf {
    let (mut log, mut usage, mut appended) = (Pages::default(), Pages::default(), 0);
    for did in did {
        match did {
            Did::Write(bytes, offset) => log.write(bytes, *offset, &mut luck),
            Did::Append(bytes) => {
                usage.write(bytes, appended, &mut luck);
                appended += bytes.len();
            }
            Did::SyncJournal => log.sync(),
            Did::SyncUsage => usage.sync(),
        }
    }
    log.save(&folder.join("usage.jsonl.open"), u64::MAX);
    let path = folder.join("usage.jsonl");
    usage.save(&path, u64::try_from(appended).unwrap());
    path
}

impl Life {
    /// What it may cost when so much was done as `did`, if it comes back; and whether it has to.
    fn comes_back(&self, did: &[Did], policy: Policy) -> (Vec<u64>, bool) {
        let last = |wanted: fn(&Did) -> bool| did.iter().rposition(wanted).unwrap_or(0);
        let journal = last(|did| matches!(did, Did::SyncJournal));
        let usage = last(|did| matches!(did, Did::SyncUsage));
        let written = self.lines.iter().filter(|(at, _)| *at <= did.len());
        let (confirmed, after): (Vec<_>, Vec<_>) = written.partition(|(at, _)| *at <= journal);
        let appended = self.appended.filter(|at| *at <= did.len());
        if appended.is_some_and(|at| at <= usage) {
            return (vec![SPENT], policy != Policy::Never);
        }
        // The journal knows it no longer, and the line in the usage file is not confirmed.
        let is_given_up = policy == Policy::Second && appended.is_some();
        let is_safe = !confirmed.is_empty() && self.sent <= did.len() && !is_given_up;
        let costs = confirmed.last().into_iter().chain(&after).map(|(_, cost)| *cost).collect();
        (costs, is_safe)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Whenever the power goes and whatever was written out by then: a start succeeds, what was confirmed comes
    /// back, nothing counts twice or costs what it never did.
    #[test]
    fn a_power_cut_leaves_what_the_disk_has_confirmed(
        steps in proptest::collection::vec(step(), 1..40),
        luck in proptest::collection::vec(any::<bool>(), 1..97),
        cut in any::<Index>(),
        policy in prop_oneof![Just(Policy::Never), Just(Policy::Second), Just(Policy::Always)],
    ) {
        let mut process = Process::new(policy);
        steps.iter().for_each(|step| process.step(*step));
        let did = process.disk.0.lock().unwrap().clone();
        let did = &did[..cut.index(did.len() + 1)];
        let mut luck = luck.iter().copied().cycle();
        let folder = tempfile::tempdir().unwrap();
        let path = leave(did, folder.path(), || luck.next().unwrap());
        let (back, _) = restored(&path);
        for (id, life) in process.lives.iter().enumerate() {
            let (costs, is_safe) = life.comes_back(did, policy);
            match back.get(&id) {
                Some(cost) => prop_assert!(costs.contains(cost), "{id} costs {cost} and not one of {costs:?}: {life:?}"),
                None => prop_assert!(!is_safe, "{id} is lost: {life:?} of {} under {policy:?}", did.len()),
            }
        }
        prop_assert!(back.keys().all(|id| *id < process.lives.len()));
        prop_assert_eq!(restored(&path), (back, 0));
    }

    /// A usage file whose end is anything at all is read, and a start appends to it.
    #[test]
    fn a_usage_file_that_ends_in_anything_keeps_what_was_before(
        lines in 1_usize..6,
        torn in any::<Index>(),
        garbage in proptest::collection::vec(prop_oneof![Just(0_u8), Just(b'\n'), Just(b'{'), any::<u8>()], 0..3_000),
    ) {
        let folder = tempfile::tempdir().unwrap();
        // A call is open.
        let mut process = Process::new(Policy::Always);
        process.step(Step::Admit);
        let did = process.disk.0.lock().unwrap().clone();
        let path = leave(&did, folder.path(), || true);
        let kept: Vec<u8> = (1..=lines).flat_map(|id| line(id, SPENT)).collect();
        let next = line(lines + 1, SPENT);
        let torn = &next[..torn.index(next.len() - 1)];
        fs::write(&path, [&kept, torn, &garbage].concat()).unwrap();
        let (back, recovered) = restored(&path);
        let mut expected: BTreeMap<_, _> = (1..=lines).map(|id| (id, SPENT)).chain([(0, RESERVED)]).collect();
        // By chance the rest of the torn line.
        expected.extend(back.get(&(lines + 1)).map(|_| (lines + 1, SPENT)));
        prop_assert_eq!((&back, recovered), (&expected, 1));
        prop_assert_eq!(restored(&path), (expected, 0));
    }
}
