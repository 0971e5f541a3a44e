//! The ledger: decides over plans, keeps one record per reservation.

use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};

use crate::{
    Amount, Attempt, Counter, CounterKey, CounterRow, CounterView, Counters, ExactAmount, Held, LedgerError,
    Limit, Plan, ReservationId, Reservations, Settled, TimestampMs, Verdict, charge,
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
        Self {
            counters: CounterMap::default(),
            reservations: Reservations::new(BTreeMap::new(), Self::FINISHED_MAX),
        }
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
    /// Windows are charged where they are now, calendar periods and sessions where the admission
    /// was; one that has ended is neither checked nor charged. The largest request is compared with
    /// all that the reservation charges. `step` counts the extensions of a reservation from 1 and
    /// only grows; repeating an admitted step charges once.
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
    /// charged to the current window, or to the calendar period or session of the admission. A settle
    /// of zeros releases.
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

    /// Charges the whole plan for good, or nothing: for what is known beforehand, such as requests a
    /// minute. There is nothing to settle, and nothing that keeps a repetition from charging again.
    pub fn charge(&mut self, now: TimestampMs, plan: &Plan) -> Verdict {
        self.counters.sweep(now);
        charge(&mut self.counters, now, plan)
    }

    /// How the counters of `limits` stand, in the same order.
    pub fn inspect(&self, now: TimestampMs, limits: &[Arc<Limit>]) -> Vec<CounterView> {
        let view = |limit: &Arc<Limit>| self.counters.read(limit, now, |counter| counter.view(limit, now));
        limits.iter().map(view).collect()
    }

    /// How many reservations are open.
    pub fn open_reservations(&self) -> usize {
        self.reservations.open()
    }

    /// How many counters are kept.
    pub fn counters(&self) -> usize {
        self.counters.kept.len()
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug, Default)]
struct CounterMap {
    places: BTreeMap<CounterKey, usize>,
    kept: CounterRow,
}

impl CounterMap {
    fn sweep(&mut self, now: TimestampMs) {
        self.kept.sweep(now, |keep| self.places.retain(|_, place| keep(place)));
    }
}

impl Counters for CounterMap {
    type Place = usize;

    fn find(&self, limit: &Limit) -> Option<usize> {
        self.places.get(&limit.key).copied()
    }

    fn at(&self, place: usize) -> &Counter {
        &self.kept[place]
    }

    fn at_mut(&mut self, place: usize) -> &mut Counter {
        &mut self.kept[place]
    }

    fn new_counter(&self, limit: &Limit, now: TimestampMs) -> Counter {
        self.kept.new_counter(limit.rule, now)
    }

    fn keep(&mut self, limit: &Limit, counter: Counter) {
        self.places.insert(limit.key.clone(), self.kept.push(counter));
    }
}
