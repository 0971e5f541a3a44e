//! The ledger: decides over plans, keeps one record per reservation.

use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};

use crate::{
    Amount, Attempt, Counter, CounterKey, CounterView, Counters, ExactAmount, Held, LedgerError, Limit, Plan,
    ReservationId, Reservations, Settled, Sweep, TimestampMs, Verdict,
};

/// Counters and reservations of one process, as plain values: same calls, same answers.
///
/// Every call is one step. Time is the caller's; when it steps back, counters stay where they are.
/// Counters that no longer count are dropped, and of the reservations that ended only the last
/// [`FINISHED_MAX`](Self::FINISHED_MAX) are remembered; open ones are kept until they are settled.
#[derive(Debug)]
pub struct Ledger {
    counters: CounterMap,
    reservations: Reservations,
}

impl Ledger {
    /// How many ended reservations are remembered.
    pub const FINISHED_MAX: usize = 8_192;

    /// An empty ledger.
    pub fn new() -> Self {
        Self { counters: CounterMap::default(), reservations: Reservations::new(Self::FINISHED_MAX) }
    }

    /// Charges the whole plan under `id`, or nothing.
    ///
    /// Repeating it with the same id and an equal plan gives the same verdict and charges once,
    /// unless it was refused as a first attempt: that is forgotten at once.
    ///
    /// # Errors
    ///
    /// [`LedgerError`] if the id has another plan, or was released before.
    pub fn reserve(
        &mut self,
        now: TimestampMs,
        id: ReservationId,
        plan: Arc<Plan>,
        attempt: Attempt,
    ) -> Result<Verdict, LedgerError> {
        self.counters.sweep(now);
        self.reservations.reserve(&mut self.counters, now, id, plan, attempt)
    }

    /// Asks for more under an admitted reservation: `charges[i]` on top of entry `i` of its plan.
    /// All of it, or nothing.
    ///
    /// Windows are charged where they are now, calendar periods where the admission was; one that
    /// has ended is neither checked nor charged. `step` counts the extensions of a reservation from
    /// 1 and only grows; repeating an admitted step charges once.
    ///
    /// # Errors
    ///
    /// [`LedgerError`] if the reservation is not open or the call does not fit it.
    pub fn extend(
        &mut self,
        now: TimestampMs,
        held: &Held,
        step: u32,
        charges: &[Amount],
    ) -> Result<Verdict, LedgerError> {
        self.reservations.extend(&mut self.counters, now, held, step, charges)
    }

    /// Replaces what the reservation holds by what was really used: `actuals[i]` for entry `i`.
    ///
    /// No limit can refuse it. What was not used goes back to the window or period it was booked
    /// in, the latest booking first, if that still counts. What was used beyond the reservation is
    /// charged to the current window, or to the calendar period of the admission. A settle of zeros
    /// releases.
    ///
    /// # Errors
    ///
    /// [`LedgerError`] if the id has another plan, or the number of amounts is not the plan's.
    pub fn settle(
        &mut self,
        now: TimestampMs,
        held: &Held,
        actuals: &[ExactAmount],
    ) -> Result<Settled, LedgerError> {
        self.reservations.settle(&mut self.counters, now, held, actuals)
    }

    /// How the counters of `limits` stand, in the same order.
    pub fn inspect(&self, now: TimestampMs, limits: &[Arc<Limit>]) -> Vec<CounterView> {
        limits.iter().map(|limit| self.counters.get(limit, now).view(limit, now)).collect()
    }

    /// How many reservations are open.
    pub fn open_reservations(&self) -> usize {
        self.reservations.open()
    }

    /// How many counters are kept.
    pub fn counters(&self) -> usize {
        self.counters.by_key.len()
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug, Default)]
struct CounterMap {
    by_key: BTreeMap<CounterKey, Counter>,
    sweep: Sweep,
}

impl CounterMap {
    fn sweep(&mut self, now: TimestampMs) {
        self.sweep.call(now, self.by_key.len(), || {
            self.by_key.retain(|_, counter| !counter.is_idle(now));
            self.by_key.len()
        });
    }
}

impl Counters for CounterMap {
    fn get(&self, limit: &Limit, now: TimestampMs) -> Counter {
        match self.by_key.get(&limit.key) {
            Some(counter) if counter.rule() == limit.rule => *counter,
            _ => self.sweep.new_counter(limit.rule, now),
        }
    }

    fn change<T>(&mut self, limit: &Limit, now: TimestampMs, change: impl FnOnce(&mut Counter) -> T) -> T {
        if let Some(counter) = self.by_key.get_mut(&limit.key)
            && counter.rule() == limit.rule
        {
            return change(counter);
        }
        let mut counter = self.sweep.new_counter(limit.rule, now);
        let changed = change(&mut counter);
        self.by_key.insert(limit.key.clone(), counter);
        changed
    }
}
