//! What happens while a shared store is away.
//!
//! Calls under a hard budget are refused as unavailable; others pass under limits of this process alone, with
//! the shared amounts divided by the number of copies. What has to be settled meanwhile waits in a queue and is
//! written through afterwards. It knows nothing of where the shared counters are.

mod circuit;
mod local;
mod pace;
mod queue;
mod recent;

use std::{fmt, num::NonZeroU64, sync::Arc, time::Duration};

use tollgate_limiter::{
    Admission, Amount, Attempt, CounterView, Enforcement, EntrySet, ExactAmount, Held, Limit, Plan,
    ReservationId, Rule, Settled, TimestampMs, Verdict,
};

use crate::{Clock, MemoryStore, Store, StoreError, StoreFuture, StoreStatus};
use circuit::{Circuit, Gate};
use local::Local;
use pace::Pace;
use queue::Queue;
pub use queue::{Backlog, Left};
use recent::Recent;

/// So many settlements are tried in a row that cannot be taken at the moment, before the others wait too.
const POSTPONED_MAX: u32 = 256;

/// How a [`FallbackStore`] behaves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FailurePolicy {
    /// How long only local limits are used after an error before the shared store is asked again.
    pub retry: Duration,
    /// By how much limits are divided while each copy counts for itself: the number of copies.
    pub local_share: NonZeroU64,
    /// Whether nothing passes while the store is away, with or without a hard budget.
    pub closed: bool,
    /// For how long the shared store remembers a reservation that is over. A settlement that it may have had
    /// counts after that only where the reservation is still held.
    pub remembered: Duration,
}

/// A shared store, and what stands in for it while it is away.
#[derive(Clone)]
pub struct FallbackStore(Arc<Inner>);

struct Inner {
    shared: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    policy: FailurePolicy,
    circuit: Circuit,
    local: Local,
    queue: Queue,
    recent: Recent,
    /// Of lines that calls cannot be decided.
    undecided: Pace,
}

/// How many settlements are sent again.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SentAgain {
    /// All of them.
    pub settlements: usize,
    /// Of those the ones that the store may have lost for good, as it would not know them any more.
    pub too_old: usize,
}

impl FallbackStore {
    /// `shared` under `policy`. Local limits count from nothing, by `clock`.
    pub fn new(shared: Arc<dyn Store>, clock: Arc<dyn Clock>, policy: FailurePolicy) -> Self {
        let memory = MemoryStore::new(Arc::clone(&clock));
        Self(Arc::new(Inner {
            shared,
            policy,
            circuit: Circuit::new(policy.retry),
            local: Local::new(memory, policy.local_share),
            queue: Queue::new(policy.remembered),
            recent: Recent::default(),
            undecided: Pace::default(),
            clock,
        }))
    }

    /// How many settlements wait.
    pub fn waiting(&self) -> usize {
        self.0.queue.len()
    }

    /// Whether the shared store has given no answer lately, and is not asked.
    pub fn is_away(&self) -> bool {
        !self.0.circuit.is_closed()
    }

    /// The shared store has written what it was asked to at `begun`, by the time since the start of the clock, and not by a
    /// call: an outage ends where no call finds that out too.
    pub fn seen(&self, begun: Duration) {
        self.0.back(self.0.circuit.seen(begun, self.0.clock.elapsed()));
    }

    /// The shared store was seen to be the one that it was: settlements that it took more than a minute ago are not sent
    /// again any more.
    pub fn forget_old(&self) {
        self.0.recent.forget_old(self.0.clock.elapsed());
    }

    /// Has the settlements written through once more that the store took since a minute before it was last seen to be
    /// the one that it was, because it may have lost some: those that it has change nothing. Of what it took so long ago that
    /// it would not know it any more, what is still held is settled, and nothing else.
    pub fn send_again(&self) -> SentAgain {
        let Inner { clock, policy, recent, queue, .. } = &*self.0;
        let now = clock.elapsed();
        let mut sent = SentAgain::default();
        for (at, held, actuals) in recent.take() {
            sent.settlements += 1;
            sent.too_old += usize::from(now >= at.saturating_add(policy.remembered));
            queue.push_again(held, actuals, at);
        }
        sent
    }

    /// The shared store has forgotten what was spent, and is told all of it that was until now: settlements of calls that
    /// have ended, and wait, count only where their reservations are still held.
    pub fn begin_telling(&self) {
        self.0.queue.begin_telling((self.0.clock.now(), self.0.clock.elapsed()));
    }

    /// It is told of these calls too, some of which ended after that began: their settlements, if they wait, count only where
    /// their reservations are still held. Those, and the ones that the store has taken of what was sent from `since` on, by
    /// the time since a start of the clock: of the last minute.
    pub fn told(
        &self,
        is_told: impl Fn(ReservationId) -> bool,
        since: Duration,
    ) -> Vec<(Held, Vec<ExactAmount>)> {
        let mut told = self.0.queue.told(&is_told);
        told.extend(self.0.recent.since(since, is_told));
        told
    }

    /// From now on settlements that wait are kept in `backlog` too. `left` are those that an earlier process left there, and
    /// `told` is when the store had last forgotten what was spent, and was told what was spent until then.
    ///
    /// What ended after that counts, for as long as the store would know that it has had it; what ended before, or too long
    /// ago, or when nobody knows, counts where its reservation is still held.
    pub fn keep_waiting_in(&self, backlog: Arc<dyn Backlog>, left: Vec<Left>, told: Option<TimestampMs>) {
        let now = (self.0.clock.now(), self.0.clock.elapsed());
        self.0.queue.keep_in(backlog, left, told, now);
    }

    /// How many settlements the store had lost, and has got once more.
    pub fn repaired(&self) -> u64 {
        self.0.queue.repaired()
    }

    /// Writes settlements through that wait, as far as the store takes them. To be called again and again,
    /// every fraction of a second: nothing else does it.
    pub async fn write_through(&self) {
        self.0.write_through(false).await;
    }

    /// As [`write_through`](Self::write_through), also where the store is not to be asked yet: for an end, when there is
    /// no later.
    pub async fn write_through_now(&self) {
        self.0.write_through(true).await;
    }
}

impl Inner {
    async fn reserve(
        &self,
        id: ReservationId,
        plan: Arc<Plan>,
        attempt: Attempt,
    ) -> Result<Verdict, StoreError> {
        let (may_pass, now) = (self.may_pass(&plan), self.clock.elapsed());
        match self.circuit.gate(now) {
            Gate::Shut if may_pass => self.local.reserve(id, plan, attempt),
            Gate::Shut => Err(away()),
            Gate::Open => match self.shared.reserve(id, Arc::clone(&plan), attempt).await {
                Err(error) if error.is_transient() => {
                    self.failed(&error);
                    if !may_pass {
                        return Err(error);
                    }
                    if error.may_have_applied() {
                        self.release(id, &plan);
                    }
                    self.local.reserve(id, plan, attempt)
                }
                Err(error) if error.is_of_this_call() => {
                    self.undecided(&error, now);
                    if !may_pass {
                        return Err(error);
                    }
                    if error.may_have_applied() {
                        self.release(id, &plan);
                    }
                    self.local.reserve(id, plan, attempt)
                }
                answer => self.answered(answer, now),
            },
        }
    }

    async fn extend(&self, held: Held, step: u32, charges: Vec<Amount>) -> Result<Verdict, StoreError> {
        if let Some(answer) = self.local.extend(&held, step, &charges) {
            return answer;
        }
        let now = self.clock.elapsed();
        let answer = match self.circuit.gate(now) {
            Gate::Shut => Err(away()),
            Gate::Open => match self.shared.extend(&held, step, &charges).await {
                Err(error) if error.is_transient() => {
                    self.failed(&error);
                    Err(error)
                }
                Err(error) if error.is_of_this_call() => {
                    self.undecided(&error, now);
                    Err(error)
                }
                answer => return self.answered(answer, now),
            },
        };
        if self.may_pass(&held.plan) { Ok(Verdict::Admitted(unchecked(self.clock.now()))) } else { answer }
    }

    async fn settle(&self, held: Held, actuals: Vec<ExactAmount>) -> Result<Settled, StoreError> {
        if let Some(answer) = self.local.settle(&held, &actuals) {
            self.queue.settled(held.id);
            return answer;
        }
        let now = self.clock.elapsed();
        match self.circuit.gate(now) {
            Gate::Shut => self.queue.push(held, actuals, false, now),
            Gate::Open => match self.shared.settle(&held, &actuals).await {
                Err(error) if error.is_transient() => {
                    self.failed(&error);
                    self.queue.push(held, actuals, error.may_have_applied(), now)
                }
                // It has forgotten what was spent, and is told of this call too, or takes it later.
                Err(error @ (StoreError::Unavailable(_) | StoreError::Partly(_))) => {
                    self.queue.push(held, actuals, error.may_have_applied(), now)
                }
                answer => {
                    self.note(held.id, &actuals, &answer, now);
                    self.queue.settled(held.id);
                    self.took(held, actuals, answer.is_ok(), now);
                    return answer;
                }
            },
        }
        Err(StoreError::Deferred)
    }

    async fn inspect(&self, limits: Vec<Arc<Limit>>) -> Result<Vec<CounterView>, StoreError> {
        let now = self.clock.elapsed();
        match self.circuit.gate(now) {
            Gate::Shut => Err(away()),
            Gate::Open => match self.shared.inspect(&limits).await {
                Err(error) if error.is_transient() => {
                    self.failed(&error);
                    Err(error)
                }
                answer => self.answered(answer, now),
            },
        }
    }

    async fn write_through(&self, is_last: bool) {
        let mut postponed = 0;
        // As many as wait now: what comes meanwhile has its turn in the next call.
        for _ in 0..self.queue.len() {
            let now = self.clock.elapsed();
            let Some(waiting) = self.queue.next(now) else { return };
            if !is_last && self.circuit.gate(now) == Gate::Shut {
                return;
            }
            let (held, actuals) = (&waiting.held, &waiting.actuals);
            // What it may have had so long ago could count twice.
            let answer = match waiting.is_remembered {
                true => self.shared.settle(held, actuals).await,
                false => self.shared.settle_held(held, actuals).await,
            };
            match answer {
                Err(error) if error.is_transient() => {
                    self.failed(&error);
                    return self.queue.failed(&waiting, error.may_have_applied(), now);
                }
                Err(error @ (StoreError::Unavailable(_) | StoreError::Partly(_))) => {
                    self.queue.failed(&waiting, error.may_have_applied(), now);
                    self.queue.postpone(&waiting);
                    postponed += 1;
                    if postponed == POSTPONED_MAX {
                        return;
                    }
                }
                answer => {
                    self.note(held.id, actuals, &answer, now);
                    self.queue.done(&waiting, answer.as_ref().ok());
                    // One that was told otherwise is not to be sent again.
                    let is_taken = waiting.is_remembered || matches!(answer, Ok(Settled::Applied));
                    self.took(waiting.held, waiting.actuals, is_taken && answer.is_ok(), now);
                }
            }
        }
    }

    /// What the store has answered to the settlement of `id`, for good.
    fn note(
        &self,
        id: ReservationId,
        actuals: &[ExactAmount],
        answer: &Result<Settled, StoreError>,
        begun: Duration,
    ) {
        self.heard(begun);
        // What is given back had mostly not been reserved.
        let is_given_back = actuals.iter().all(|actual| *actual == ExactAmount::ZERO);
        if let Err(error) = answer
            && !is_given_back
        {
            self.queue.lose(id, &error.to_string(), begun);
        }
    }

    /// Remembers what the store has taken.
    fn took(&self, held: Held, actuals: Vec<ExactAmount>, is_taken: bool, now: Duration) {
        if is_taken {
            self.recent.push(held, actuals, now);
        }
    }

    /// Whether a call passes without the store.
    fn may_pass(&self, plan: &Plan) -> bool {
        !self.policy.closed && !plan.entries().iter().any(|entry| is_hard_budget(&entry.limit))
    }

    /// A call that the store may have had is given back, whether it has had it or not.
    fn release(&self, id: ReservationId, plan: &Arc<Plan>) {
        let nothing = vec![ExactAmount::ZERO; plan.entries().len()];
        let held = Held { id, plan: Arc::clone(plan), at: self.clock.now() };
        self.queue.push(held, nothing, true, self.clock.elapsed());
    }

    fn failed(&self, error: &StoreError) {
        if self.circuit.failed(self.clock.elapsed()) {
            tracing::error!(%error, closed = self.policy.closed, "the store is away: only local limits hold");
        }
    }

    /// The store answers, and cannot decide a call: what it holds of it cannot be read, or is on its way to another server.
    /// That is no outage: others it can.
    fn undecided(&self, error: &StoreError, begun: Duration) {
        self.heard(begun);
        if self.undecided.is_due(begun) {
            let closed = self.policy.closed;
            tracing::error!(
                %error,
                closed,
                "the store cannot decide some calls: hard budgets refuse them, others pass under local limits"
            );
        }
    }

    fn answered<T>(&self, answer: Result<T, StoreError>, begun: Duration) -> Result<T, StoreError> {
        self.heard(begun);
        answer
    }

    /// The store has answered to a call that began at `begun`.
    fn heard(&self, begun: Duration) {
        if self.circuit.is_closed() {
            return;
        }
        self.back(self.circuit.answered(begun, self.clock.elapsed()));
    }

    /// An outage has ended that was so long, if one has.
    fn back(&self, away: Option<Duration>) {
        if let Some(away) = away {
            let (away_ms, settlements_waiting) = (away.as_millis(), self.queue.len());
            tracing::warn!(away_ms, settlements_waiting, "the store is back");
        }
    }
}

impl Store for FallbackStore {
    fn reserve(&self, id: ReservationId, plan: Arc<Plan>, attempt: Attempt) -> StoreFuture<'_, Verdict> {
        StoreFuture::waiting(self.0.reserve(id, plan, attempt))
    }

    fn extend(&self, held: &Held, step: u32, charges: &[Amount]) -> StoreFuture<'_, Verdict> {
        StoreFuture::waiting(self.0.extend(held.clone(), step, charges.to_vec()))
    }

    fn settle(&self, held: &Held, actuals: &[ExactAmount]) -> StoreFuture<'static, Settled> {
        let (inner, held, actuals) = (Arc::clone(&self.0), held.clone(), actuals.to_vec());
        StoreFuture::waiting(async move { inner.settle(held, actuals).await })
    }

    fn settle_held(&self, held: &Held, actuals: &[ExactAmount]) -> StoreFuture<'static, Settled> {
        self.0.shared.settle_held(held, actuals)
    }

    fn may_hold(&self, held: &Held) -> bool {
        self.0.queue.is_known(held.at)
    }

    fn inspect(&self, limits: &[Arc<Limit>]) -> StoreFuture<'_, Vec<CounterView>> {
        StoreFuture::waiting(self.0.inspect(limits.to_vec()))
    }

    fn status(&self) -> StoreStatus {
        let Inner { circuit, queue, shared, .. } = &*self.0;
        let below = shared.status();
        StoreStatus {
            available: circuit.is_closed() && below.available,
            outages: circuit.outages(),
            settlements_waiting: queue.len(),
            settlements_lost: queue.lost(),
            ..below
        }
    }
}

impl fmt::Debug for FallbackStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FallbackStore").field("policy", &self.0.policy).finish_non_exhaustive()
    }
}

/// Whether a limit is a budget that must not be passed, over a calendar period, a session or a run: what a copy
/// cannot count by itself, and what an empty store would forget.
pub fn is_hard_budget(limit: &Limit) -> bool {
    limit.enforcement == Enforcement::Hard && is_budget(limit.rule)
}

/// Whether a rule sums up a whole period, session or run.
const fn is_budget(rule: Rule) -> bool {
    !rule.is_rate() && !matches!(rule, Rule::Concurrent | Rule::PerRequest)
}

fn away() -> StoreError {
    StoreError::Unavailable("the store is away, and was not asked".to_owned())
}

/// An admission that no limit was asked for.
fn unchecked(at: TimestampMs) -> Admission {
    Admission { at, over_soft: EntrySet::default(), tightest: None }
}
