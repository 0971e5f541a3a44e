//! The writer against targets that fail, stall and take lines in pieces.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

use proptest::prelude::*;
use tollgate_limiter::TimestampMs;

use super::*;
use crate::RefusalEvent;

/// What a target does with the next call; when there is nothing left it takes everything.
#[derive(Clone, Copy, Debug)]
enum Step {
    Take(usize),
    Fail(io::ErrorKind),
}

/// A target in memory. Shared with the test that looks at it.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<(Vec<u8>, VecDeque<Step>)>>);

impl Memory {
    fn with(steps: impl IntoIterator<Item = Step>) -> Self {
        Self(Arc::new(Mutex::new((Vec::new(), steps.into_iter().collect()))))
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().0.clone()).unwrap()
    }

    fn recover(&self) {
        self.0.lock().unwrap().1.clear();
    }
}

impl Append for Memory {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = match state.1.pop_front() {
            Some(Step::Fail(kind)) => return Err(kind.into()),
            Some(Step::Take(count)) => count.min(bytes.len()),
            None => bytes.len(),
        };
        state.0.extend(bytes.iter().take(count));
        Ok(count)
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A target that says when it was called and then waits to be let go.
struct Stalled {
    called: Sender<()>,
    go: Receiver<()>,
    memory: Memory,
}

impl Append for Stalled {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.called.send(());
        let _ = self.go.recv();
        self.memory.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn event(id: &str) -> Event {
    Event::Refusal(RefusalEvent {
        ts: TimestampMs::EPOCH,
        request_id: id.into(),
        tenant: "t".into(),
        key: "k".into(),
        attributes: Arc::default(),
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

fn lines(ids: impl IntoIterator<Item = usize>) -> String {
    let line = |id: usize| {
        let mut line = Vec::new();
        event(&id.to_string()).write_json(&mut line);
        String::from_utf8(line).unwrap() + "\n"
    };
    ids.into_iter().map(line).collect()
}

fn record(writer: &Writer, ids: impl IntoIterator<Item = usize>) {
    ids.into_iter().for_each(|id| writer.record(&event(&id.to_string())));
}

/// Never writes and never retries by itself: only when it is asked to flush or is closed.
fn patient() -> WriterOptions {
    let never = Duration::from_secs(3_600);
    WriterOptions { batch_interval: never, retry_interval: never, ..WriterOptions::default() }
}

/// Writes at once, never retries by itself.
fn prompt() -> WriterOptions {
    WriterOptions { batch_interval: Duration::ZERO, ..patient() }
}

fn start(target: impl Append, options: WriterOptions) -> Writer {
    Writer::start(target, Arc::new(Journal::unread(Path::new("usage.jsonl"))), None, options).unwrap()
}

#[test]
fn a_failed_write_goes_on_where_it_stopped() {
    let full = Step::Fail(io::ErrorKind::StorageFull);
    let memory = Memory::with([Step::Take(5), full, Step::Take(200), full, Step::Take(0)]);
    let writer = start(memory.clone(), patient());
    record(&writer, 0..4);
    let error = writer.flush().unwrap_err();
    assert_eq!(error.to_string(), "usage file usage.jsonl: flush events: no storage space");
    assert!(!writer.healthy());
    record(&writer, 4..6);
    assert!(writer.flush().is_err() && writer.flush().is_err());
    writer.flush().unwrap();
    assert!(writer.healthy());
    assert_eq!((memory.text(), writer.dropped()), (lines(0..6), 0));
}

#[test]
fn too_many_waiting_events_are_dropped_and_counted() {
    let memory = Memory::with([Step::Fail(io::ErrorKind::StorageFull); 100]);
    let writer = start(memory.clone(), WriterOptions { waiting_max: 4, ..patient() });
    record(&writer, 0..10);
    assert!(writer.flush().is_err() && !writer.healthy());
    assert_eq!(writer.dropped(), 6);
    memory.recover();
    writer.flush().unwrap();
    assert!(writer.healthy());
    record(&writer, 10..12);
    writer.close().unwrap();
    assert_eq!((memory.text(), writer.dropped()), (lines((0..4).chain(10..12)), 6));
}

#[test]
fn recording_does_not_wait_for_the_disk() {
    let (called, calls) = channel();
    let (let_go, go) = channel();
    let memory = Memory::default();
    let writer = start(
        Stalled { called, go, memory: memory.clone() },
        WriterOptions { waiting_max: 1_000, ..prompt() },
    );
    record(&writer, 0..1);
    calls.recv().unwrap();
    // The thread is inside the write now, and stays there.
    record(&writer, 1..1_001);
    assert_eq!(writer.dropped(), 1);
    drop(let_go);
    writer.close().unwrap();
    assert_eq!(memory.text(), lines(0..1_000));
}

#[test]
fn waiting_for_the_disk_has_a_bound() {
    let (called, calls) = channel();
    let (let_go, go) = channel();
    let options = WriterOptions { flush_timeout: Duration::from_millis(1), ..prompt() };
    let writer = start(Stalled { called, go, memory: Memory::default() }, options);
    record(&writer, 0..1);
    calls.recv().unwrap();
    assert!(writer.flush().unwrap_err().is_transient());
    assert!(writer.close().unwrap_err().is_transient());
    drop(let_go);
}

#[test]
fn closing_counts_what_could_not_be_written() {
    let memory = Memory::with([Step::Fail(io::ErrorKind::StorageFull); 100]);
    let writer = start(memory.clone(), patient());
    record(&writer, 0..3);
    assert!(writer.flush().is_err());
    record(&writer, 3..5);
    let error = writer.close().unwrap_err();
    assert_eq!(error.to_string(), "usage file usage.jsonl: write the last events: no storage space");
    assert_eq!((memory.text(), writer.dropped()), (String::new(), 5));
    assert!(writer.close().is_err() && writer.flush().is_err());
}

#[test]
fn a_closed_writer_drops_and_counts() {
    let memory = Memory::default();
    let writer = start(memory.clone(), patient());
    record(&writer, 0..2);
    writer.close().unwrap();
    writer.close().unwrap();
    record(&writer, 2..3);
    writer.flush().unwrap();
    assert_eq!((memory.text(), writer.dropped()), (lines(0..2), 1));
}

#[test]
fn dropping_the_writer_writes_what_is_left() {
    let memory = Memory::default();
    let writer = start(memory.clone(), patient());
    record(&writer, 0..100);
    drop(writer);
    assert_eq!(memory.text(), lines(0..100));
}

#[test]
fn lines_of_many_threads_stay_whole_and_in_the_order_of_each() {
    let memory = Memory::default();
    let writer = start(memory.clone(), prompt());
    let (threads, each) = (8, 500);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let writer = &writer;
            scope.spawn(move || record(writer, thread * each..(thread + 1) * each));
        }
    });
    writer.close().unwrap();
    let text = memory.text();
    for thread in 0..threads {
        let ids = thread * each..(thread + 1) * each;
        let of_thread = |line: &&str| {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            ids.contains(&event["request_id"].as_str().unwrap().parse().unwrap())
        };
        let own: String = text.lines().filter(of_thread).map(|line| format!("{line}\n")).collect();
        assert_eq!(own, lines(thread * each..(thread + 1) * each));
    }
    assert_eq!(text.lines().count(), threads * each);
}

#[test]
fn a_long_queue_is_written_in_pieces() {
    let (called, calls) = channel();
    let (let_go, go) = channel();
    let memory = Memory::default();
    let writer = start(Stalled { called, go, memory: memory.clone() }, prompt());
    record(&writer, 0..1);
    calls.recv().unwrap();
    record(&writer, 1..5_000);
    drop(let_go);
    writer.close().unwrap();
    assert_eq!(memory.text(), lines(0..5_000));
    // The first event, then pieces of a quarter of a megabyte of the rest.
    assert_eq!(calls.try_iter().count(), lines(1..5_000).len().div_ceil(256 << 10));
}

fn step() -> impl Strategy<Value = Step> {
    let fail = |kind| Just(Step::Fail(kind));
    prop_oneof![
        (0_usize..400).prop_map(Step::Take),
        fail(io::ErrorKind::Interrupted),
        fail(io::ErrorKind::StorageFull),
        fail(io::ErrorKind::TimedOut),
    ]
}

proptest! {
    #[test]
    fn whatever_the_disk_does_lines_are_whole_and_in_order(steps in proptest::collection::vec(step(), 0..40), batches in proptest::collection::vec(0_usize..5, 1..8)) {
        let memory = Memory::with(steps.iter().copied());
        let writer = start(memory.clone(), patient());
        let mut recorded = 0;
        for batch in batches {
            record(&writer, recorded..recorded + batch);
            recorded += batch;
            let _ = writer.flush();
        }
        let attempts = (0..=steps.len()).position(|_| writer.flush().is_ok());
        prop_assert!(attempts.is_some());
        prop_assert_eq!(memory.text(), lines(0..recorded));
        prop_assert_eq!(writer.dropped(), 0);
    }
}
