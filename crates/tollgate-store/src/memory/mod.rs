//! The store of one process.
//!
//! Counters live in shards by partition, reservations in shards by id. A call locks the shard of
//! its reservation first, then the shards of its counters in ascending order: no two calls can wait
//! for each other. It owns no arithmetic: what a call does is [`tollgate_limiter`]'s business.

mod by_id;
mod shards;

use std::{array, fmt, hash::BuildHasher, ops::RangeInclusive, sync::Arc};

use foldhash::quality::RandomState;
use tollgate_limiter::{
    Amount, Attempt, CounterView, Counters, ExactAmount, Held, LedgerError, Limit, Plan, ReservationId,
    Reservations, Rule, Settled, TimestampMs, Verdict, charge,
};

use crate::{
    Clock, Store, StoreFuture,
    sync::{Mutex, lock},
};
use by_id::ById;
use shards::{CounterShards, SHARDS};

/// How many ended reservations a shard remembers. Repeated calls come from this very process, at
/// once or never; remembering more only keeps memory from being used again.
const FINISHED_MAX: usize = 4;

/// Counters in this process's memory. Gone when it ends.
///
/// Clone the `Arc` around it to share it. Its answers are there at once: the futures it returns are
/// [ready](StoreFuture::now_or_later).
///
/// Counters that no longer count are dropped bit by bit as calls come in, and of the reservations
/// that ended the last four of each of its 64 shards are remembered. Open reservations are kept until
/// they are settled.
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    hasher: RandomState,
    counters: CounterShards,
    reservations: [Mutex<Reservations<ById>>; SHARDS],
}

impl MemoryStore {
    /// An empty store that tells the time by `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            hasher: RandomState::default(),
            counters: CounterShards::new(),
            reservations: array::from_fn(|_| Mutex::new(Reservations::new(ById::default(), FINISHED_MAX))),
        }
    }

    /// Charges what was spent at `at`, before this process began, where it still counts: to the
    /// calendar period of `at` if that is the current one, to a session or run if it is not forgotten.
    /// Counters of other rules begin anew: nothing happens to them.
    ///
    /// What was spent at several moments may come as one, with the first and the last of them: they are in one
    /// calendar period, and a session is not forgotten in between.
    ///
    /// The uses of a session come in the order of time, by their first moments, old ones too: whether it lasted
    /// shows only then.
    pub fn restore(&self, limit: &Limit, at: RangeInclusive<TimestampMs>, spent: ExactAmount) {
        let now = self.clock.now();
        let (first, last) = at.into_inner();
        let (first, last) = match limit.rule {
            Rule::Calendar(period) if period.index(first) == period.index(now) => (first, first),
            Rule::Idle { .. } | Rule::Elapsed { .. } => (first.min(now), last.min(now)),
            _ => return,
        };
        self.counters.lock([limit].into_iter(), |counters| {
            counters.sweep(first);
            counters.change(limit, first, |counter| counter.record(limit.amount, first, spent));
            if last > first {
                counters.change(limit, last, |counter| counter.record(limit.amount, last, ExactAmount::ZERO));
            }
        });
    }

    /// The time by its clock.
    pub fn now(&self) -> TimestampMs {
        self.clock.now()
    }

    /// Charges the whole plan for good, or nothing: for what is known beforehand. There is nothing to
    /// settle, and nothing that keeps a repetition from charging again.
    pub fn charge(&self, plan: &Plan) -> Verdict {
        let now = self.clock.now();
        self.counters.lock(limits(plan), |counters| {
            counters.sweep(now);
            charge(counters, now, plan)
        })
    }

    /// Tells `each`, in the order of the plan, how much of each of its limits is in use now: what is spent,
    /// rounded up, and what is held.
    pub fn in_use(&self, plan: &Plan, mut each: impl FnMut(Amount)) {
        let now = self.clock.now();
        self.counters.lock(limits(plan), |counters| {
            for limit in limits(plan) {
                each(counters.read(limit, now, |counter| counter.in_use(limit, now)));
            }
        });
    }

    /// How many reservations are open.
    pub fn open_reservations(&self) -> usize {
        self.reservations.iter().map(|shard| lock(shard).open()).sum()
    }

    /// How many counters are kept.
    pub fn counters(&self) -> usize {
        self.counters.len()
    }

    fn reservations(&self, id: ReservationId) -> &Mutex<Reservations<ById>> {
        &self.reservations[shards::shard_of(self.hasher.hash_one(id))]
    }

    fn run<T>(
        &self,
        id: ReservationId,
        plan: &Plan,
        call: impl FnOnce(&mut Reservations<ById>, &mut shards::Locked<'_>, TimestampMs) -> Result<T, LedgerError>,
    ) -> StoreFuture<'static, T> {
        let now = self.clock.now();
        let mut reservations = lock(self.reservations(id));
        let answer = self.counters.lock(limits(plan), |counters| {
            counters.sweep(now);
            call(&mut reservations, counters, now)
        });
        StoreFuture::ready(answer.map_err(Into::into))
    }
}

fn limits(plan: &Plan) -> impl Iterator<Item = &Limit> {
    plan.entries().iter().map(|entry| &*entry.limit)
}

impl Store for MemoryStore {
    fn reserve(&self, id: ReservationId, plan: Arc<Plan>, attempt: Attempt) -> StoreFuture<'_, Verdict> {
        let entries = Arc::clone(&plan);
        self.run(id, &entries, |reservations, counters, now| {
            reservations.reserve(counters, now, id, plan, attempt)
        })
    }

    fn extend(&self, held: &Held, step: u32, charges: &[Amount]) -> StoreFuture<'_, Verdict> {
        self.run(held.id, &held.plan, |reservations, counters, now| {
            reservations.extend(counters, now, held, step, charges)
        })
    }

    fn settle(&self, held: &Held, actuals: &[ExactAmount]) -> StoreFuture<'static, Settled> {
        self.run(held.id, &held.plan, |reservations, counters, now| {
            reservations.settle(counters, now, held, actuals)
        })
    }

    fn settle_held(&self, held: &Held, actuals: &[ExactAmount]) -> StoreFuture<'static, Settled> {
        self.run(held.id, &held.plan, |reservations, counters, now| {
            reservations.settle_held(counters, now, held, actuals)
        })
    }

    fn inspect(&self, limits: &[Arc<Limit>]) -> StoreFuture<'_, Vec<CounterView>> {
        let now = self.clock.now();
        let views = self.counters.lock(limits.iter().map(|limit| &**limit), |counters| {
            let view = |limit: &Arc<Limit>| counters.read(limit, now, |counter| counter.view(limit, now));
            limits.iter().map(view).collect()
        });
        StoreFuture::ready(Ok(views))
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}
