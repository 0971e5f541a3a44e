//! Waiting for a disk that is slow or fails.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Wake;
use std::thread::{self, Thread};

use super::*;
use crate::journal::disk::Disk;

/// A disk that says when it was asked and then waits for what to answer. Without an answer to come it
/// confirms.
struct Slow {
    asked: Sender<()>,
    answers: Mutex<Receiver<io::Result<()>>>,
}

impl Disk for Slow {
    fn write(&self, _: &[u8], _: u64) -> io::Result<()> {
        Ok(())
    }

    fn read(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let _ = self.asked.send(());
        self.answers.lock().unwrap().recv().unwrap_or(Ok(()))
    }

    fn clear(&self) -> io::Result<()> {
        Ok(())
    }

    fn release(&self) -> io::Result<()> {
        Ok(())
    }
}

fn slow() -> (Syncer, Receiver<()>, Sender<io::Result<()>>) {
    let (asked, asks) = channel();
    let (answer, answers) = channel();
    let disk = Slow { asked, answers: Mutex::new(answers) };
    let journal = Arc::new(Journal::on(Box::new(disk), Path::new("usage.jsonl")));
    (Syncer::start(Fsync::Always, journal).unwrap(), asks, answer)
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait(mut synced: Synced) -> io::Result<()> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match Pin::new(&mut synced).poll(&mut cx) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

fn is_pending(synced: &mut Synced) -> bool {
    Pin::new(synced).poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

#[test]
fn calls_that_wait_for_the_disk_share_its_work() {
    let (sync, asks, answer) = slow();
    let first = sync.synced();
    asks.recv().unwrap();
    // The disk is at work: whoever comes now waits for the next time.
    let mut others: Vec<_> = (0..50).map(|_| sync.synced()).collect();
    assert!(others.iter_mut().all(is_pending));
    answer.send(Ok(())).unwrap();
    wait(first).unwrap();
    asks.recv().unwrap();
    assert!(others.iter_mut().all(is_pending));
    answer.send(Ok(())).unwrap();
    others.into_iter().for_each(|other| wait(other).unwrap());
    assert!(asks.try_recv().is_err(), "once for the first and once for all others");
}

#[test]
fn who_waits_is_told_that_the_disk_did_not_confirm() {
    let (sync, asks, answer) = slow();
    let failed = sync.synced();
    asks.recv().unwrap();
    answer.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
    assert!(wait(failed).is_err());
    let later = sync.synced();
    asks.recv().unwrap();
    answer.send(Ok(())).unwrap();
    wait(later).unwrap();
}

#[test]
fn nobody_waits_for_ever_when_it_ends() {
    let (sync, asks, answer) = slow();
    let waits = sync.synced();
    asks.recv().unwrap();
    let late = sync.synced();
    drop(sync);
    drop(answer);
    wait(waits).unwrap();
    wait(late).unwrap();
}
