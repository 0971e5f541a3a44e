//! Goes through the calls in the order of time: what ends before a call is admitted is settled first.
//!
//! Calls are judged on a thread of their own, which is ahead by a few of them.

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc::sync_channel},
    thread,
};

use tollgate_limiter::{ENTRIES_MAX, Entry, ExactAmount, Plan, Refusal, ReservationId, TimestampMs, Verdict};
use tollgate_store::{Attempt, Held, MemoryStore, Store};

use crate::policy::{AppliedLimit, Policy};

use super::{
    SimulateProgress,
    calls::{Calls, PastCall},
    clock::CallClock,
    judge::{Judge, JudgedCall},
    tally::{Cause, Places, Tally},
};

/// Calls that are judged together: so many that they are seldom handed over, and so few that a processor has
/// them at hand.
const CALLS_A_BATCH: usize = 256;

/// Batches that are judged ahead.
const BATCHES_AHEAD: usize = 2;

/// After so many batches progress is told.
const BATCHES_A_STEP: usize = 40;

/// A simulation under way.
pub(super) struct Run<'a> {
    store: &'a MemoryStore,
    clock: &'a CallClock,
    calls: &'a Calls<'a>,
    /// Calls that are open, by their ends; those of one millisecond in the order of their admission.
    open: BTreeMap<(TimestampMs, ReservationId), Open<'a>>,
    ids: u128,
    tally: Tally,
}

struct Open<'a> {
    call: &'a PastCall,
    held: Held,
    actuals: Vec<ExactAmount>,
    unplanned: Vec<AppliedLimit>,
    places: Places,
}

impl<'a> Run<'a> {
    pub(super) fn new(store: &'a MemoryStore, clock: &'a CallClock, calls: &'a Calls<'a>) -> Self {
        Self { store, clock, calls, open: BTreeMap::new(), ids: 0, tally: Tally::default() }
    }

    /// Decides all calls under `policy`.
    pub(super) fn through(mut self, policy: &Policy, progress: &mut impl FnMut(SimulateProgress)) -> Tally {
        let calls = self.calls;
        let (count, batches) = (calls.in_order().len(), || calls.in_order().chunks(CALLS_A_BATCH));
        let done = |batches: usize| count_of((batches * CALLS_A_BATCH).min(count));
        thread::scope(|scope| {
            let (judged, from) = sync_channel(BATCHES_AHEAD);
            scope.spawn(move || {
                let judge = Judge::new(policy, calls);
                let mut batches = batches().map(|batch| batch.iter().map(|call| judge.judge(call)).collect());
                let _ = batches.try_for_each(|batch: Vec<_>| judged.send(batch));
            });
            for (index, (batch, judged)) in batches().zip(from).enumerate() {
                batch.iter().zip(judged).for_each(|(call, judged)| self.next(call, judged));
                if index.is_multiple_of(BATCHES_A_STEP) {
                    progress(SimulateProgress::Deciding(done(index), count_of(count)));
                }
            }
        });
        progress(SimulateProgress::Deciding(count_of(count), count_of(count)));
        self.settle_until(TimestampMs::new(u64::MAX));
        self.tally
    }

    /// Decides a call.
    fn next(&mut self, call: &'a PastCall, judged: Result<JudgedCall, &'static str>) {
        self.settle_until(call.at);
        self.clock.set(call.at);
        self.tally.call(call.cost);
        match judged {
            Err(reason) => self.refused(Cause::Reason(reason), call),
            Ok(judged) if judged.plan.is_empty() => {}
            Ok(judged) => self.reserve(call, judged),
        }
    }

    fn reserve(&mut self, call: &'a PastCall, judged: JudgedCall) {
        let JudgedCall { limits, plan, actuals, unplanned } = judged;
        self.ids += 1;
        let id = ReservationId::new(self.ids);
        let Ok(Ok(verdict)) = self.store.reserve(id, plan.clone(), Attempt::First).now_or_later() else {
            return;
        };
        let places = self.tally.places(&limits, call.at);
        match verdict {
            Verdict::Refused(refusal) => self.refuse(call, &refusal, &places),
            Verdict::Admitted(admission) => {
                for index in admission.over_soft.iter() {
                    places.get(index).into_iter().for_each(|place| self.tally.over_soft(*place, call.cost));
                }
                self.note_peaks(&plan, &places, call.at);
                let held = Held { id, plan, at: admission.at };
                self.open.insert((call.ends, id), Open { call, held, actuals, unplanned, places });
            }
        }
    }

    fn refuse(&mut self, call: &PastCall, refusal: &Refusal, places: &Places) {
        let place = |index: usize| places.get(index).copied();
        for place in refusal.refusing.iter().filter_map(|refusing| place(refusing.index)) {
            self.tally.limit_refused(place, call.cost);
        }
        let cause = place(refusal.binding.index).map_or(Cause::Reason("limit"), Cause::Limit);
        self.refused(cause, call);
    }

    fn refused(&mut self, cause: Cause, call: &PastCall) {
        self.calls.kind(call).into_iter().for_each(|kind| self.tally.refused(cause, kind, call));
    }

    /// Settles what has ended by `now`.
    fn settle_until(&mut self, now: TimestampMs) {
        while let Some(first) = self.open.first_entry().filter(|first| first.key().0 <= now) {
            let ((ends, _), open) = first.remove_entry();
            self.clock.set(ends);
            self.settle(&open);
        }
    }

    fn settle(&mut self, open: &Open<'_>) {
        let Open { call, held, actuals, unplanned, places } = open;
        let is_more = held.plan.charges().zip(actuals).any(|(charge, actual)| actual.rounded_up() > charge);
        let settled = self.store.settle(held, actuals).now_or_later();
        debug_assert!(matches!(settled, Ok(Ok(_))), "a store in memory settles what it holds");
        if is_more {
            self.note_peaks(&held.plan, places, call.ends);
        }
        for some in unplanned.chunks(ENTRIES_MAX) {
            self.charge(call, some);
        }
    }

    /// Charges limits as they are, without a reservation.
    fn charge(&mut self, call: &PastCall, limits: &[AppliedLimit]) {
        let used = call.used();
        let actuals: Vec<_> = limits.iter().map(|limit| limit.rule.measure.exact(&used)).collect();
        let entries = limits.iter().zip(&actuals);
        let entries =
            entries.map(|(limit, actual)| Entry { limit: limit.limit.clone(), charge: actual.rounded_up() });
        let Ok(plan) = Plan::new(entries.collect()) else { return };
        self.ids += 1;
        let held = Held { id: ReservationId::new(self.ids), plan: Arc::new(plan), at: call.at };
        let settled = self.store.settle(&held, &actuals).now_or_later();
        debug_assert!(matches!(settled, Ok(Ok(_))), "a store in memory charges what it is told");
        let places = self.tally.places(limits, call.at);
        self.note_peaks(&held.plan, &places, call.ends);
    }

    fn note_peaks(&mut self, plan: &Plan, places: &Places, at: TimestampMs) {
        let mut places = places.iter();
        self.store.in_use(plan, |in_use| {
            places.next().into_iter().for_each(|place| self.tally.peak(*place, in_use, at));
        });
    }
}

fn count_of(calls: usize) -> u64 {
    u64::try_from(calls).unwrap_or(u64::MAX)
}
