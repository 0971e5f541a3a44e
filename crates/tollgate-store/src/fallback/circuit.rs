//! Whether the shared store is asked: not for a time after each error, so that no call waits for what it
//! could have known.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Closed as long as the store answers. Times are of a clock that never steps back.
#[derive(Debug)]
pub(super) struct Circuit {
    retry: Duration,
    /// When the store is asked again, in nanoseconds. [`CLOSED`] while it answers.
    ask_again: AtomicU64,
    /// When the outage began.
    since: AtomicU64,
    outages: AtomicU64,
}

const CLOSED: u64 = u64::MAX;

/// What a call is to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Gate {
    /// Ask the store.
    Open,
    /// Do without it.
    Shut,
}

impl Circuit {
    pub(super) const fn new(retry: Duration) -> Self {
        Self {
            retry,
            ask_again: AtomicU64::new(CLOSED),
            since: AtomicU64::new(0),
            outages: AtomicU64::new(0),
        }
    }

    /// After an error one call finds out, each time the wait is over; all others do without the store.
    pub(super) fn gate(&self, now: Duration) -> Gate {
        let ask_again = self.ask_again.load(Ordering::SeqCst);
        if ask_again == CLOSED {
            return Gate::Open;
        }
        let next = self.after_wait(now);
        let is_first = nanos(now) >= ask_again
            && self.ask_again.compare_exchange(ask_again, next, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if is_first { Gate::Open } else { Gate::Shut }
    }

    /// The store gave no answer. Whether that begins an outage.
    pub(super) fn failed(&self, now: Duration) -> bool {
        let begins = self.ask_again.swap(self.after_wait(now), Ordering::SeqCst) == CLOSED;
        if begins {
            self.since.store(nanos(now), Ordering::SeqCst);
            self.outages.fetch_add(1, Ordering::SeqCst);
        }
        begins
    }

    /// The store gave an answer to a call that began at `begun`. How long it was away, if that ends an outage: the answer
    /// to a call from before it does not, as others of them may have none.
    pub(super) fn answered(&self, begun: Duration, now: Duration) -> Option<Duration> {
        let since = Duration::from_nanos(self.since.load(Ordering::SeqCst));
        let ends = !self.is_closed() && begun >= since;
        (ends && self.ask_again.swap(CLOSED, Ordering::SeqCst) != CLOSED).then(|| now.saturating_sub(since))
    }

    /// As [`answered`](Self::answered), to something else than a call: not before a call might ask.
    pub(super) fn seen(&self, begun: Duration, now: Duration) -> Option<Duration> {
        let is_due = nanos(begun) >= self.ask_again.load(Ordering::SeqCst);
        if is_due { self.answered(begun, now) } else { None }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.ask_again.load(Ordering::SeqCst) == CLOSED
    }

    pub(super) fn outages(&self) -> u64 {
        self.outages.load(Ordering::SeqCst)
    }

    fn after_wait(&self, now: Duration) -> u64 {
        nanos(now.saturating_add(self.retry)).min(CLOSED - 1)
    }
}

/// As a number that fits an atomic.
pub(super) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Circuit, Gate};

    #[test]
    fn after_an_error_one_call_in_each_wait_asks_until_one_is_answered() {
        let circuit = Circuit::new(Duration::from_secs(5));
        let at = Duration::from_secs;
        assert_eq!(circuit.gate(at(0)), Gate::Open);
        assert!(circuit.failed(at(1)), "the first error begins the outage");
        assert!(!circuit.failed(at(1)), "the others belong to it");
        assert_eq!([2, 5].map(|second| circuit.gate(at(second))), [Gate::Shut; 2]);
        assert_eq!([6, 6, 10].map(|second| circuit.gate(at(second))), [Gate::Open, Gate::Shut, Gate::Shut]);
        assert!(!circuit.failed(at(6)));
        assert_eq!(circuit.gate(at(11)), Gate::Open);
        assert_eq!(circuit.answered(at(0), at(11)), None, "from before the outage");
        assert_eq!(circuit.answered(at(11), at(12)), Some(at(11)));
        assert_eq!(circuit.answered(at(12), at(12)), None);
        assert_eq!([circuit.gate(at(12)), circuit.gate(at(12))], [Gate::Open; 2]);
        assert_eq!(circuit.outages(), 1);
    }

    #[test]
    fn what_is_seen_ends_an_outage_when_a_call_might_find_that_out() {
        let circuit = Circuit::new(Duration::from_secs(5));
        let at = Duration::from_secs;
        assert_eq!(circuit.seen(at(1), at(1)), None, "there is none");
        assert!(circuit.failed(at(1)));
        assert_eq!([1, 5].map(|second| circuit.seen(at(second), at(6))), [None; 2]);
        assert_eq!((circuit.seen(at(6), at(7)), circuit.is_closed()), (Some(at(6)), true));
    }
}
