//! Goes through the calls in the order of time: what ends before a call is admitted is settled first.

use std::{collections::BTreeMap, sync::Arc};

use tollgate_limiter::{
    Amount, CounterView, ENTRIES_MAX, Entry, Limit, Plan, ReservationId, TimestampMs, Verdict,
};
use tollgate_store::{Attempt, Held, MemoryStore, Store};

use crate::policy::{AppliedLimit, Policy};

use super::{
    SimulateProgress,
    calls::{Calls, PastCall},
    clock::CallClock,
    judge::{JudgedCall, JudgedKind},
    tally::{Cause, Tally},
};

/// After so many calls progress is told.
const CALLS_A_STEP: usize = 10_000;

/// A simulation under way.
pub(super) struct Run<'a> {
    policy: &'a Policy,
    store: &'a MemoryStore,
    clock: &'a CallClock,
    kinds: Vec<JudgedKind>,
    /// Calls that are open, by their ends; those of one millisecond in the order of their admission.
    open: BTreeMap<(TimestampMs, ReservationId), Open>,
    ids: u128,
    tally: Tally,
}

struct Open {
    call: PastCall,
    held: Held,
    limits: Arc<[AppliedLimit]>,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        policy: &'a Policy,
        store: &'a MemoryStore,
        clock: &'a CallClock,
        calls: &Calls,
    ) -> Self {
        let kinds = calls.kinds().iter().map(|kind| JudgedKind::new(policy, kind)).collect();
        Self { policy, store, clock, kinds, open: BTreeMap::new(), ids: 0, tally: Tally::default() }
    }

    /// Decides all `calls`.
    pub(super) fn through(mut self, calls: &Calls, progress: &mut impl FnMut(SimulateProgress)) -> Tally {
        let total = u64::try_from(calls.len()).unwrap_or(u64::MAX);
        let mut done = 0;
        for some in calls.in_order().chunks(CALLS_A_STEP) {
            for call in some {
                self.settle_until(calls, call.at);
                self.decide(calls, call);
            }
            done += u64::try_from(some.len()).unwrap_or(0);
            progress(SimulateProgress::Deciding(done, total));
        }
        self.settle_until(calls, TimestampMs::new(u64::MAX));
        self.tally
    }

    fn decide(&mut self, calls: &Calls, call: &PastCall) {
        self.clock.set(call.at);
        self.tally.call(call.cost);
        let Some((kind, judged)) =
            calls.kinds().get(call.kind as usize).zip(self.kinds.get(call.kind as usize))
        else {
            return;
        };
        let JudgedCall { limits, plan } = match judged.judge(self.policy, call, calls.session(call)) {
            Ok(judged) => judged,
            Err(reason) => return self.tally.refused(Cause::Reason(reason), kind, call),
        };
        if plan.is_empty() {
            return;
        }
        self.ids += 1;
        let id = ReservationId::new(self.ids);
        let Ok(Ok(verdict)) = self.store.reserve(id, plan.clone(), Attempt::First).now_or_later() else {
            return;
        };
        let places = self.tally.met(&limits, call.at);
        match verdict {
            Verdict::Refused(refusal) => {
                let place = |index: usize| places.get(index).copied();
                for refusing in &refusal.refusing {
                    place(refusing.index)
                        .into_iter()
                        .for_each(|place| self.tally.limit_refused(place, call.cost));
                }
                let cause = place(refusal.binding.index).map_or(Cause::Reason("limit"), Cause::Limit);
                self.tally.refused(cause, kind, call);
            }
            Verdict::Admitted(admission) => {
                for index in admission.over_soft.iter() {
                    places.get(index).into_iter().for_each(|place| self.tally.over_soft(*place, call.cost));
                }
                self.note_peaks(&limits, call.at);
                let held = Held { id, plan, at: admission.at };
                self.open.insert((call.ends, id), Open { call: *call, held, limits });
            }
        }
    }

    /// Settles what has ended by `now`.
    fn settle_until(&mut self, calls: &Calls, now: TimestampMs) {
        while let Some(first) = self.open.first_entry().filter(|first| first.key().0 <= now) {
            let ((ends, _), open) = first.remove_entry();
            self.clock.set(ends);
            self.settle(calls, &open);
        }
    }

    fn settle(&mut self, calls: &Calls, open: &Open) {
        let Open { call, held, limits } = open;
        let Some(judged) = self.kinds.get(call.kind as usize) else { return };
        let actuals = judged.actuals(self.policy, call, limits);
        let unplanned = judged.unplanned(self.policy, call, calls.session(call), limits);
        let is_more = held.plan.charges().zip(&actuals).any(|(charge, actual)| actual.rounded_up() > charge);
        let settled = self.store.settle(held, &actuals).now_or_later();
        debug_assert!(matches!(settled, Ok(Ok(_))), "a store in memory settles what it holds");
        if is_more {
            self.note_peaks(limits, call.ends);
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
        self.tally.met(limits, call.at);
        self.note_peaks(limits, call.ends);
    }

    fn note_peaks(&mut self, limits: &[AppliedLimit], at: TimestampMs) {
        let counters: Vec<Arc<Limit>> = limits.iter().map(|limit| limit.limit.clone()).collect();
        let Ok(Ok(views)) = self.store.inspect(&counters).now_or_later() else { return };
        for (limit, view) in limits.iter().zip(&views) {
            self.tally.peak(limit, in_use(view), at);
        }
    }
}

fn in_use(view: &CounterView) -> Amount {
    view.spent.rounded_up().saturating_add(view.held)
}
