//! An empty Redis: one that is new, was emptied, or was replaced by one without data. Budgets would begin anew.
//!
//! A mark in Redis says that enough copies have brought back what they had spent. Without it a reserve under a
//! hard budget is refused, by the script itself. Each copy looks every second whether it is known to have done
//! its part, and does it if not: once, whatever is repeated.

use std::{
    collections::HashMap,
    fmt,
    num::NonZeroU64,
    sync::{Arc, atomic::Ordering},
};

use tollgate_limiter::{CounterKey, ExactAmount, Limit, Rule, TimestampMs};
use tollgate_store::{Attempt, Clock, MemoryStore, Store as _, StoreError};

use crate::{RedisStore, request};

/// Hears of each budget, session or run that was spent from: the limit, when, how much.
pub type Spend<'a> = &'a mut dyn FnMut(&Limit, TimestampMs, ExactAmount);

/// Tells of everything that a copy had spent, in the order of time. A text where that is not possible now.
pub type Told = dyn Fn(Spend<'_>) -> Result<(), String> + Send + Sync;

/// How hard budgets are guarded against an empty Redis.
#[derive(Clone)]
pub struct Guard {
    /// Names this copy among all, the same after a restart.
    pub copy: Arc<str>,
    /// How many copies have to bring back what they had spent.
    pub copies: NonZeroU64,
    /// What this copy had spent. Called on a thread where it may block, and again where it fails.
    pub spent: Arc<Told>,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("copy", &self.copy)
            .field("copies", &self.copies)
            .finish_non_exhaustive()
    }
}

/// How far the copies are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Copies {
    has_this: bool,
    have: u64,
    is_enough: bool,
}

/// Counters that one call seeds.
const PART: usize = 256;

/// What one counter gets back.
struct Seed {
    limit: Arc<Limit>,
    at: TimestampMs,
    spent: ExactAmount,
}

impl RedisStore {
    /// Looks whether this copy is known to have brought back what it had spent, and does so if not.
    pub(crate) async fn keep_seeded(&self, guard: &Guard, clock: &Arc<dyn Clock>) -> Result<(), StoreError> {
        let mut copies = self.copies(guard, false).await?;
        self.note(guard, copies);
        if !copies.has_this {
            let (spent, clock) = (Arc::clone(&guard.spent), Arc::clone(clock));
            let collected = tokio::task::spawn_blocking(move || collect(&*spent, clock)).await;
            let parts = match collected {
                Ok(Ok(parts)) => parts,
                Ok(Err(reason)) => return Err(StoreError::Unavailable(reason)),
                Err(error) => return Err(StoreError::Unavailable(error.to_string())),
            };
            for (number, part) in parts.iter().enumerate() {
                self.seed(&format!("part:{}:{number}", guard.copy), part).await?;
            }
            copies = self.copies(guard, true).await?;
            tracing::info!(
                counters = parts.iter().map(Vec::len).sum::<usize>(),
                "brought back what was spent"
            );
            self.note(guard, copies);
        }
        Ok(())
    }

    async fn copies(&self, guard: &Guard, is_done: bool) -> Result<Copies, StoreError> {
        let store = &self.0;
        let done = if is_done { "done" } else { "" };
        let arguments = |_: Attempt| vec![guard.copy.to_string(), guard.copies.to_string(), done.to_owned()];
        let reply =
            store.run(&store.copies, vec![store.keys.copies(), store.keys.ready()], arguments).await?;
        let numbers: Option<Vec<u64>> = reply.split(' ').map(|number| number.parse().ok()).collect();
        match numbers.as_deref() {
            Some([this, have, enough]) => {
                Ok(Copies { has_this: *this == 1, have: *have, is_enough: *enough == 1 })
            }
            _ => Err(StoreError::Corrupt(reply)),
        }
    }

    async fn seed(&self, part: &str, seeds: &[Seed]) -> Result<(), StoreError> {
        let store = &self.0;
        let limits = || seeds.iter().map(|seed| &*seed.limit);
        let plan = request::limits(limits())?;
        let spent: Vec<_> = seeds.iter().map(|seed| seed.spent).collect();
        let moments: Vec<_> = seeds.iter().map(|seed| seed.at.get().to_string()).collect();
        let (spent, moments) = (request::actuals(&spent), moments.join(" "));
        let keys = std::iter::once(store.keys.copies()).chain(store.counters(limits())).collect();
        let arguments = |_: Attempt| {
            let own = [store.now(), part.to_owned(), spent.clone(), moments.clone()];
            own.into_iter().chain(plan.iter().cloned()).collect()
        };
        match &*store.run(&store.seed, keys, arguments).await? {
            "S applied" | "S already" => Ok(()),
            other => Err(StoreError::Corrupt(other.to_owned())),
        }
    }

    /// Notes whether hard budgets are decided, with a line when that changes.
    fn note(&self, guard: &Guard, copies: Copies) {
        let was_empty = self.0.is_empty.swap(!copies.is_enough, Ordering::SeqCst);
        let Copies { have, .. } = copies;
        match (was_empty, copies.is_enough) {
            (false, false) => tracing::error!(
                have,
                needed = guard.copies,
                "Redis does not know what was spent: hard budgets are refused until the copies have brought it back"
            ),
            (true, true) => tracing::warn!("Redis knows what was spent: hard budgets are decided again"),
            _ => {}
        }
    }
}

/// What was spent of each counter that still counts, in parts. A run has two moments: it is in two parts.
fn collect(spent: &Told, clock: Arc<dyn Clock>) -> Result<Vec<Vec<Seed>>, String> {
    let now = clock.now();
    let memory = MemoryStore::new(clock);
    let mut last: HashMap<CounterKey, (Arc<Limit>, TimestampMs)> = HashMap::new();
    spent(&mut |limit, at, amount| {
        memory.restore(limit, at, amount);
        let entry = last.entry(limit.key.clone()).or_insert_with(|| (Arc::new(limit.clone()), at));
        entry.1 = entry.1.max(at);
    })?;
    let (limits, moments): (Vec<_>, Vec<_>) = last.into_values().unzip();
    let Ok(Ok(views)) = memory.inspect(&limits).now_or_later() else { return Err("no answer".to_owned()) };
    let (mut seeds, mut ends) = (Vec::new(), Vec::new());
    for ((limit, at), view) in limits.into_iter().zip(moments).zip(views) {
        match limit.rule {
            Rule::Elapsed { .. } if view.resets_at.is_some() => {
                let first = TimestampMs::new(now.get().saturating_sub(view.spent.units()));
                let spent = ExactAmount::whole(1);
                ends.push(Seed { limit: Arc::clone(&limit), at, spent });
                seeds.push(Seed { limit, at: first, spent });
            }
            _ if view.spent == ExactAmount::ZERO => {}
            _ => seeds.push(Seed { limit, at, spent: view.spent }),
        }
    }
    Ok(parts(seeds).into_iter().chain(parts(ends)).collect())
}

/// Cut into parts of bounded size.
fn parts(seeds: Vec<Seed>) -> Vec<Vec<Seed>> {
    let mut parts = Vec::new();
    for seed in seeds {
        match parts.last_mut() {
            Some(part) if Vec::len(part) < PART => part.push(seed),
            _ => parts.push(vec![seed]),
        }
    }
    parts
}
