//! Settlements that the store has not answered to, and a journal killed at every write.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tollgate_limiter::{
    Amount, CounterKey, DurationMs, Enforcement, Entry, ExactAmount, Held, Limit, Period, Plan, Rule,
};

use super::tests::{Noted, files, frame_of, line};
use super::*;

/// With every rule, and names that need escapes.
fn settlement(id: u128) -> Settlement {
    let window = DurationMs::new(60_000);
    let rules = [
        Rule::SlidingWindow { window },
        Rule::BucketedWindow { window },
        Rule::TokenBucket { window },
        Rule::Calendar(Period::Month),
        Rule::Idle { after: window },
        Rule::Elapsed { after: window },
        Rule::Concurrent,
        Rule::PerRequest,
    ];
    let entry = |(number, rule)| {
        let key = CounterKey::new("ac\"me\n{ü}", format!("limit {number}"));
        let enforcement = if number % 2 == 0 { Enforcement::Hard } else { Enforcement::Soft };
        let limit = Arc::new(Limit { key, rule, amount: Amount::new(u64::MAX), enforcement });
        Entry { limit, charge: Amount::new(number) }
    };
    let entries: Vec<_> = (0..).zip(rules).map(entry).collect();
    let actuals = (0..8).map(|number| ExactAmount::from_millionths(number * 1_234_567)).collect();
    let plan = Arc::new(Plan::new(entries).unwrap());
    let held = Held { id: ReservationId::new(id), plan, at: TimestampMs::new(1_795_996_823_456) };
    let ended = TimestampMs::new(if id == 0 { 0 } else { 1_795_996_900_000 });
    Settlement { held, actuals, ended }
}

/// A restored journal that keeps settlements, and those that it has.
fn restored(path: &Path) -> (Journal, Vec<Settlement>) {
    let mut journal = Journal::open(path).unwrap();
    journal.keep_settlements();
    journal.restore(TimestampMs::new(u64::MAX), |_, _| (), |_| ()).unwrap();
    let unsettled = journal.take_unsettled();
    (journal, unsettled)
}

fn ids(settlements: &[Settlement]) -> BTreeSet<usize> {
    let ids: BTreeSet<_> = settlements.iter().map(|settlement| number(settlement.held.id)).collect();
    assert_eq!(ids.len(), settlements.len(), "each once");
    ids
}

fn number(id: ReservationId) -> usize {
    usize::from_str_radix(&id.to_string(), 16).unwrap()
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A call ends that has a settlement.
    Settle,
    /// A settlement begins to wait, of a call without a place or with one.
    Keep(usize),
    /// What is written down is written.
    Write,
    /// The writer's thread has appended the lines.
    Append,
    /// The store answers to one of those that were sent.
    Answer(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Settle),
        1 => (0_usize..20).prop_map(Step::Keep),
        3 => Just(Step::Write),
        2 => Just(Step::Append),
        3 => (0_usize..20).prop_map(Step::Answer),
    ]
}

/// A process that does steps. After which write of the disk each settlement was written, and answered.
struct Run {
    disk: Noted,
    journal: Journal,
    ended: Vec<Hold>,
    ticket: Option<Ticket>,
    waiting: Vec<usize>,
    written: Vec<(usize, usize)>,
    answered: Vec<(usize, usize)>,
    made: usize,
}

impl Run {
    fn new() -> Self {
        let disk = Noted::default();
        let mut journal = Journal::on(Box::new(disk.clone()), Path::new("usage"));
        journal.keep_settlements();
        let (ended, waiting, written, answered) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { disk, journal, ended, ticket: None, waiting, written, answered, made: 0 }
    }

    fn write(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let write = self.disk.writes().len();
        self.journal.write_out(&ticket).unwrap();
        self.written.extend(self.waiting.drain(..).map(|id| (write, id)));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Settle => {
                let id = self.made;
                self.made += 1;
                let settlement = settlement(id as u128);
                let frame = frame_of(&line(id, 100));
                let (hold, _) = self.journal.hold(&settlement.held.id.to_string().into(), &frame).unwrap();
                let ticket = self.journal.settle(&hold, &mut frame_of(&line(id, 10)), &[settlement]).unwrap();
                self.ticket = Some(ticket);
                self.waiting.push(id);
                self.ended.push(hold);
            }
            Step::Keep(id) => {
                if self.answered.iter().any(|(_, answered)| *answered == id) {
                    return;
                }
                self.write();
                let write = self.disk.writes().len();
                self.journal.keep(&settlement(id as u128));
                if self.disk.writes().len() > write {
                    self.written.push((write, id));
                }
                self.made = self.made.max(id + 1);
            }
            Step::Write => self.write(),
            Step::Append => self.journal.free(std::mem::take(&mut self.ended)),
            Step::Answer(id) if id < self.made => {
                self.journal.written_through(settlement(id as u128).held.id);
                self.answered.push((self.disk.writes().len(), id));
            }
            Step::Answer(_) => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// What is written down and not answered is there, at each start again, until it is answered: once. What was
    /// answered may be there too, as long as its frame is.
    #[test]
    fn killed_at_any_write_every_settlement_comes_back_that_the_store_has_not_answered_to(
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let mut run = Run::new();
        steps.iter().for_each(|step| run.step(*step));
        run.write();
        let writes = run.disk.writes();
        for kill in 0..=writes.len() {
            let by_then = |list: &[(usize, usize)], is: &dyn Fn(usize) -> bool| -> BTreeSet<usize> {
                list.iter().filter(|(write, _)| is(*write)).map(|(_, id)| *id).collect()
            };
            let written = by_then(&run.written, &|write| write < kill);
            let answered = by_then(&run.answered, &|write| write <= kill);
            let (_folder, path) = files(&writes[..kill]);
            let (first, unsettled) = restored(&path);
            let found = ids(&unsettled);
            prop_assert!(found.is_subset(&written), "{found:?} of {written:?}, killed at {kill} of {steps:?}");
            let missing: Vec<_> = written.difference(&found).filter(|id| !answered.contains(id)).collect();
            prop_assert!(missing.is_empty(), "{missing:?} is lost, killed at {kill} of {steps:?}");

            // Killed at once, and then after some were answered.
            drop(first);
            let (second, unsettled) = restored(&path);
            prop_assert_eq!(&ids(&unsettled), &found);
            let (some, others): (Vec<_>, Vec<_>) = unsettled.into_iter().partition(|settlement| number(settlement.held.id).is_multiple_of(2));
            some.iter().for_each(|settlement| second.written_through(settlement.held.id));
            second.log().leave(&*second.disk).unwrap();
            drop(second);
            let (third, unsettled) = restored(&path);
            prop_assert_eq!(ids(&unsettled), ids(&others));
            others.iter().for_each(|settlement| third.written_through(settlement.held.id));
            third.empty().unwrap();
            prop_assert_eq!(std::fs::metadata(path.with_extension("jsonl.open")).unwrap().len(), 0);
        }
    }
}

#[test]
fn a_settlement_comes_back_as_it_was_and_a_torn_one_not_at_all() {
    let texts = |settlements: &[Settlement]| -> BTreeSet<String> {
        settlements.iter().map(|settlement| format!("{settlement:?}")).collect()
    };
    let all = [1, u128::MAX, 0].map(settlement);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("usage.jsonl");
    let (journal, _) = restored(&path);
    all.iter().for_each(|settlement| journal.keep(settlement));
    journal.keep(&all[0]);
    drop(journal);
    let open = folder.path().join("usage.jsonl.open");
    let text = std::fs::read(&open).unwrap();
    std::fs::write(&open, &text[..text.len() - 40]).unwrap();
    let (journal, unsettled) = restored(&path);
    assert_eq!(texts(&unsettled), texts(&all[..2]));
    assert!(!path.exists(), "no line of theirs is in the usage file");
    drop(journal);

    // A process without a shared store has no use for them.
    let mut journal = Journal::open(&path).unwrap();
    journal.restore(TimestampMs::new(u64::MAX), |_, _| (), |_| ()).unwrap();
    assert_eq!(std::fs::read(&open).unwrap(), b"");
    journal.keep(&all[0]);
    assert_eq!(std::fs::read(&open).unwrap(), b"");
}

/// A reservation that may have been made is given back, and its call goes on without the store: neither stands in the
/// other's way.
#[test]
fn what_is_given_back_stays_when_its_call_is_settled_and_the_call_stays_with_it() {
    let run = Run::new();
    let Settlement { held, ended, .. } = settlement(7);
    let nothing = || Settlement { held: held.clone(), actuals: vec![ExactAmount::ZERO; 8], ended };
    run.journal.keep(&nothing());
    let (hold, ticket) = run.journal.hold(&held.id.to_string().into(), &frame_of(&line(7, 100))).unwrap();
    run.journal.write_out(&ticket).unwrap();
    let open = files(&run.disk.writes());
    assert_eq!(ids(&restored(&open.1).1), BTreeSet::from([7]));
    assert_eq!(super::tests::restored(&open.1).0[&7], 100);

    let ticket = run.journal.settle(&hold, &mut frame_of(&line(7, 10)), &[settlement(7)]).unwrap();
    run.journal.write_out(&ticket).unwrap();
    run.journal.settled(held.id);
    run.journal.free([hold]);
    run.journal.log().leave(&run.disk).unwrap();
    let left = restored(&files(&run.disk.writes()).1).1;
    assert_eq!(left.iter().map(|left| left.actuals.clone()).collect::<Vec<_>>(), [nothing().actuals]);
    run.journal.written_through(held.id);
    assert!(run.journal.log().is_idle());
}

/// As above, killed before the call is known to be settled, and once more: with a charge of its own.
#[test]
fn what_is_given_back_and_what_its_call_charged_beside_it_both_outlive_any_number_of_kills() {
    let run = Run::new();
    let Settlement { held, ended, .. } = settlement(7);
    let given_back = Settlement { held, actuals: vec![ExactAmount::ZERO; 8], ended };
    run.journal.keep(&given_back);
    let name = given_back.held.id.to_string().into();
    let (hold, _) = run.journal.hold(&name, &frame_of(&line(7, 100))).unwrap();
    let settlements = [settlement(7), settlement(8)];
    let ticket = run.journal.settle(&hold, &mut frame_of(&line(7, 10)), &settlements).unwrap();
    run.journal.write_out(&ticket).unwrap();
    // By which frame comes first nothing changes: maps have another order each time.
    for _ in 0..16 {
        let (_folder, path) = files(&run.disk.writes());
        for _ in 0..3 {
            let (_, unsettled) = restored(&path);
            assert_eq!(ids(&unsettled), BTreeSet::from([7, 8]));
            let seventh = unsettled.iter().find(|one| one.held.id == given_back.held.id).unwrap();
            assert_eq!(seventh.actuals, given_back.actuals);
        }
        let (journal, unsettled) = restored(&path);
        unsettled.iter().for_each(|one| journal.written_through(one.held.id));
        journal.empty().unwrap();
        assert_eq!(std::fs::metadata(path.with_extension("jsonl.open")).unwrap().len(), 0);
    }
}

#[test]
fn settlements_that_are_too_long_are_left_out_and_their_call_is_not() {
    let run = Run::new();
    let settlements: Vec<_> = (0..100).map(settlement).collect();
    let (hold, _) = run.journal.hold(&"7".into(), &frame_of(&line(7, 100))).unwrap();
    let ticket = run.journal.settle(&hold, &mut frame_of(&line(7, 10)), &settlements).unwrap();
    run.journal.write_out(&ticket).unwrap();
    let (_folder, path) = files(&run.disk.writes());
    assert!(restored(&path).1.is_empty());
    assert_eq!(super::tests::restored(&path).0[&7], 10);
}
