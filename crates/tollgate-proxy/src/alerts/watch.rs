//! Adds up what is spent of each budget in each of its periods, and finds what crosses a threshold.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use foldhash::quality::RandomState;
use tokio::sync::mpsc;
use tollgate_limiter::{Amount, CounterKey, ExactAmount, Rule, TimestampMs};
use tollgate_store::Store;

use crate::policy::{AppliedLimit, Measure};

use super::{Thresholds, crossing::Crossing};

/// The most counters that are watched at a time: some 150 bytes each. Those that callers choose may be more.
const WATCHED_MAX: usize = 65_536;

/// How long a counter is kept after its period, or its session's last call: what is settled later is late.
const KEPT_MS: u64 = 25 * 3_600_000;

/// How long a full table waits until it looks again for what can go.
const SWEEP_MS: u64 = 60_000;

/// The most crossings that wait for the thread.
pub(super) const CROSSINGS_MAX: usize = 4_096;

/// Watches budgets.
pub(crate) struct Watch {
    thresholds: ArcSwap<Thresholds>,
    table: Mutex<Table>,
    crossings: mpsc::Sender<Crossing>,
}

#[derive(Default)]
struct Table {
    watched: HashMap<(CounterKey, u64), Watched, RandomState>,
    swept: TimestampMs,
}

struct Watched {
    spent: ExactAmount,
    /// How many thresholds of an amount have been told of.
    told: (Amount, usize),
    last: TimestampMs,
}

impl Watch {
    /// A watch and its crossings.
    pub(crate) fn new(thresholds: Thresholds) -> (Self, mpsc::Receiver<Crossing>) {
        let (crossings, receiver) = mpsc::channel(CROSSINGS_MAX);
        let thresholds = ArcSwap::from_pointee(thresholds);
        (Self { thresholds, table: Mutex::default(), crossings }, receiver)
    }

    /// Puts other thresholds in place. What was told of a counter is told again where it must be.
    pub(crate) fn set(&self, thresholds: Thresholds) {
        self.thresholds.store(Arc::new(thresholds));
        self.table.lock().unwrap_or_else(PoisonError::into_inner).watched.values_mut().for_each(|watched| {
            watched.told = (Amount::ZERO, 0);
        });
    }

    /// A call is about to be settled: `actuals[i]` for `limits[i]`.
    ///
    /// It must not be settled yet: what its counter holds when it is met first is what was spent before
    /// anything was added here.
    pub(crate) fn settling(
        &self,
        store: &dyn Store,
        tenant: &Arc<str>,
        limits: &[AppliedLimit],
        actuals: &[ExactAmount],
        at: TimestampMs,
    ) {
        for (limit, actual) in limits.iter().zip(actuals) {
            if limit.rule.measure == Measure::MicroUsd && *actual > ExactAmount::ZERO {
                self.spend(store, tenant, limit, *actual, at);
            }
        }
    }

    /// Looks at what is spent already: after a start, before the first call.
    pub(crate) fn look(&self, store: &dyn Store, limits: &[AppliedLimit], now: TimestampMs) {
        for limit in limits.iter().filter(|limit| limit.rule.measure == Measure::MicroUsd) {
            self.spend(store, &limit.id, limit, ExactAmount::ZERO, now);
        }
    }

    fn spend(
        &self,
        store: &dyn Store,
        tenant: &Arc<str>,
        limit: &AppliedLimit,
        actual: ExactAmount,
        at: TimestampMs,
    ) {
        let (index, starts, ends) = match limit.limit.rule {
            Rule::Calendar(period) => (period.index(at), Some(period.start(at)), period.end(at)),
            _ => (0, None, None),
        };
        let amount = limit.limit.amount;
        let thresholds = self.thresholds.load();
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (limit.limit.key.clone(), index);
        let table = &mut *table;
        let watched = match table.watched.entry(key) {
            Entry::Occupied(watched) => watched.into_mut(),
            Entry::Vacant(place) => {
                let key = place.into_key();
                if !table.make_room(at) {
                    return;
                }
                let spent = before(store, limit, ends);
                table.watched.entry(key).or_insert(Watched { spent, told: (amount, 0), last: at })
            }
        };
        watched.spent = watched.spent.saturating_add(actual);
        watched.last = watched.last.max(ends.unwrap_or(at));
        let spent = watched.spent.rounded_up();
        let reached = thresholds.reached(amount, spent);
        let told = if watched.told.0 == amount { watched.told.1 } else { 0 };
        for percent in thresholds.percent().iter().take(reached).skip(told) {
            let (limit, tenant) = (limit.clone(), tenant.clone());
            let crossing = Crossing { limit, tenant, percent: *percent, spent, starts, ends, at };
            if self.crossings.try_send(crossing).is_err() {
                // The next settlement tries again.
                return;
            }
        }
        watched.told = (amount, reached);
    }
}

impl Table {
    /// Whether there is room for one more, be it in place of what is long over.
    fn make_room(&mut self, now: TimestampMs) -> bool {
        if self.watched.len() < WATCHED_MAX {
            return true;
        }
        if now.get().saturating_sub(self.swept.get()) < SWEEP_MS {
            return false;
        }
        self.swept = now;
        self.watched.retain(|_, watched| watched.last.get().saturating_add(KEPT_MS) > now.get());
        if self.watched.len() >= WATCHED_MAX {
            tracing::warn!(budgets = WATCHED_MAX, "too many budgets to watch: further ones raise no alerts");
        }
        self.watched.len() < WATCHED_MAX
    }
}

/// What its counter holds, if it is in that very period.
fn before(store: &dyn Store, limit: &AppliedLimit, ends: Option<TimestampMs>) -> ExactAmount {
    match store.inspect(std::slice::from_ref(&limit.limit)).now_or_later() {
        Ok(Ok(views)) => views
            .first()
            .filter(|view| view.resets_at == ends || ends.is_none())
            .map_or(ExactAmount::ZERO, |view| view.spent),
        _ => ExactAmount::ZERO,
    }
}
