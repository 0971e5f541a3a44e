//! Settlements that wait for the store to come back.

use std::{
    collections::VecDeque,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tollgate_limiter::{ExactAmount, Held, ReservationId, Settled, TimestampMs};

use super::{circuit::nanos, pace::Pace};
use crate::sync::{Mutex, lock};

/// The most that wait. Beyond them reservations stay charged as they are, which errs towards refusing.
const WAITING_MAX: usize = 65_536;

/// One settlement that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) held: Held,
    pub(super) actuals: Vec<ExactAmount>,
    /// Where the store may have had it: from when on it would not know that any more.
    forgotten: Option<Duration>,
    /// When its call ended.
    since: Duration,
    /// The store would know that it has had it, and is not told of it otherwise.
    pub(super) is_remembered: bool,
    /// An earlier process has left it, and may have told the store of its call.
    is_left: bool,
    /// The store has had it, and may have lost it.
    is_again: bool,
    /// The store is told of its call otherwise.
    is_told: bool,
}

/// Settlements in the order in which they came.
pub(super) struct Queue {
    waiting: Mutex<VecDeque<Waiting>>,
    /// For how long the store knows that it has had one.
    remembered: Duration,
    lost: AtomicU64,
    /// Of lines that one is given up.
    lines: Pace,
    repaired: AtomicU64,
    /// Until when the store was told what was spent when it had forgotten it, in nanoseconds.
    told_ns: AtomicU64,
    /// The same in milliseconds, by the clock.
    told_at_ms: AtomicU64,
    /// Where they are kept too.
    backlog: OnceLock<Arc<dyn Backlog>>,
}

/// Where settlements outlive the process until the store has answered to them. Called while calls wait.
pub trait Backlog: Send + Sync {
    /// Sees to it that a settlement is kept that waits, unless it is.
    fn keep(&self, held: &Held, actuals: &[ExactAmount]);

    /// The call `id` is settled, by the store or without it: should its settlement be kept, it need not be any more.
    fn settled(&self, id: ReservationId);

    /// The store has answered to a settlement of `id` that waited.
    fn written_through(&self, id: ReservationId);
}

/// A settlement that an earlier process has left.
#[derive(Clone, Debug)]
pub struct Left {
    /// The reservation.
    pub held: Held,
    /// What was used.
    pub actuals: Vec<ExactAmount>,
    /// When its call had ended.
    pub ended: TimestampMs,
}

impl Waiting {
    const fn new(held: Held, actuals: Vec<ExactAmount>, since: Duration) -> Self {
        Self {
            held,
            actuals,
            forgotten: None,
            since,
            is_remembered: true,
            is_left: false,
            is_again: false,
            is_told: false,
        }
    }
}

impl Queue {
    pub(super) fn new(remembered: Duration) -> Self {
        let [lost, repaired, told_ns, told_at_ms] = [(); 4].map(|()| AtomicU64::new(0));
        let (waiting, backlog) = (Mutex::new(VecDeque::new()), OnceLock::new());
        Self { waiting, remembered, lost, lines: Pace::default(), repaired, told_ns, told_at_ms, backlog }
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.waiting).len()
    }

    /// From now on they are kept in `backlog` too. `left` are those in it, which are taken up.
    pub(super) fn keep_in(
        &self,
        backlog: Arc<dyn Backlog>,
        left: Vec<Left>,
        told: Option<TimestampMs>,
        (at, now): (TimestampMs, Duration),
    ) {
        for Left { held, actuals, ended } in left {
            // The store may have had it since then.
            let age = Duration::from_millis(at.since(ended).get());
            let forgotten = Some(now.saturating_add(self.remembered.saturating_sub(age)));
            let is_left = told.is_none_or(|told| ended < told);
            let waiting = Waiting::new(held, actuals, Duration::ZERO);
            self.add(Waiting { forgotten, is_left, ..waiting });
        }
        // The first one stays.
        let _ = self.backlog.set(backlog);
    }

    /// A call is settled.
    pub(super) fn settled(&self, id: ReservationId) {
        self.backlog.get().into_iter().for_each(|backlog| backlog.settled(id));
    }

    /// How many were given up: their reservations stay charged.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::SeqCst)
    }

    /// How many the store had lost, and has got once more.
    pub(super) fn repaired(&self) -> u64 {
        self.repaired.load(Ordering::SeqCst)
    }

    /// Lets a settlement wait that the store has taken at `sent`, and may have lost.
    pub(super) fn push_again(&self, held: Held, actuals: Vec<ExactAmount>, sent: Duration) {
        let forgotten = Some(self.forgotten(sent));
        self.add(Waiting { forgotten, is_again: true, ..Waiting::new(held, actuals, sent) });
    }

    /// Lets a settlement wait. `was_sent` if the store may have had it.
    pub(super) fn push(&self, held: Held, actuals: Vec<ExactAmount>, was_sent: bool, now: Duration) {
        let forgotten = was_sent.then(|| self.forgotten(now));
        self.add(Waiting { forgotten, ..Waiting::new(held, actuals, now) });
    }

    /// Until when the store knows what it had at `sent`.
    const fn forgotten(&self, sent: Duration) -> Duration {
        sent.saturating_add(self.remembered)
    }

    fn add(&self, one: Waiting) {
        if let Some(backlog) = self.backlog.get().filter(|_| !one.is_again) {
            backlog.keep(&one.held, &one.actuals);
        }
        let mut waiting = lock(&self.waiting);
        // What is sent again has been taken once, and leaves room for what was not.
        if waiting.len() < if one.is_again { WAITING_MAX / 2 } else { WAITING_MAX } {
            waiting.push_back(one);
            return;
        }
        drop(waiting);
        if !one.is_again {
            self.lose(one.held.id, "too many settlements wait for the store", one.since);
        }
    }

    /// The store has forgotten what was spent, and is told all of it that was until now.
    pub(super) fn begin_telling(&self, (at, now): (TimestampMs, Duration)) {
        self.told_ns.store(nanos(now), Ordering::SeqCst);
        self.told_at_ms.store(at.get(), Ordering::SeqCst);
    }

    /// Whether a reservation that was admitted `at` is not among what the store has forgotten.
    pub(super) fn is_known(&self, at: TimestampMs) -> bool {
        at.get() >= self.told_at_ms.load(Ordering::SeqCst)
    }

    /// It is told of these of those that wait.
    pub(super) fn told(&self, is_told: impl Fn(ReservationId) -> bool) -> Vec<(Held, Vec<ExactAmount>)> {
        let mut waiting = lock(&self.waiting);
        let told = waiting.iter_mut().filter(|one| is_told(one.held.id));
        told.map(|one| {
            one.is_told = true;
            (one.held.clone(), one.actuals.clone())
        })
        .collect()
    }

    /// The first one, which stays.
    pub(super) fn next(&self, now: Duration) -> Option<Waiting> {
        let mut first = lock(&self.waiting).front().cloned()?;
        let is_recent = first.forgotten.is_none_or(|forgotten| now < forgotten);
        let is_told = first.is_told || nanos(first.since) < self.told_ns.load(Ordering::SeqCst);
        first.is_remembered = is_recent && !first.is_left && !is_told;
        Some(first)
    }

    /// The store has answered to it.
    pub(super) fn done(&self, waiting: &Waiting, settled: Option<&Settled>) {
        if waiting.is_again && matches!(settled, Some(Settled::Applied | Settled::WithoutReservation)) {
            self.repaired.fetch_add(1, Ordering::SeqCst);
        }
        self.pop(waiting);
        self.backlog.get().into_iter().for_each(|backlog| backlog.written_through(waiting.held.id));
    }

    /// It cannot be settled at the moment: the others have their turn first.
    pub(super) fn postpone(&self, waiting: &Waiting) {
        if let Some(first) = self.pop(waiting) {
            lock(&self.waiting).push_back(first);
        }
    }

    fn pop(&self, waiting: &Waiting) -> Option<Waiting> {
        lock(&self.waiting).pop_front_if(|first| first.held.id == waiting.held.id)
    }

    /// The store gave no answer. `was_sent` if it may have had it.
    pub(super) fn failed(&self, waiting: &Waiting, was_sent: bool, now: Duration) {
        let mut all = lock(&self.waiting);
        if let Some(first) = all.front_mut().filter(|first| first.held.id == waiting.held.id) {
            first.forgotten = first.forgotten.or(was_sent.then(|| self.forgotten(now)));
        }
    }

    /// One is given up, in whole or in what cannot be counted.
    pub(super) fn lose(&self, id: ReservationId, reason: &str, now: Duration) {
        self.lost.fetch_add(1, Ordering::SeqCst);
        if self.lines.is_due(now) {
            tracing::error!(request_id = %id, reason, "settlements are given up: their reservations stay charged");
        }
    }
}
