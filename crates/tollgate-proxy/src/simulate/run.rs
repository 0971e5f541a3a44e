//! Goes through the calls in the order of time: what ends before a call is admitted is settled first.

use std::{collections::BTreeMap, sync::Arc};

use tollgate_limiter::{ENTRIES_MAX, Entry, Plan, Refusal, ReservationId, TimestampMs, Verdict};
use tollgate_store::{Attempt, Held, MemoryStore, Store};

use crate::policy::{AppliedLimit, Policy};

use super::{
    SimulateProgress,
    calls::{Calls, Kind, PastCall},
    clock::CallClock,
    judge::{JudgedCall, JudgedKind},
    tally::{Cause, Places, Tally},
};

/// After so many calls progress is told.
const CALLS_A_STEP: usize = 10_000;

/// A simulation under way.
pub(super) struct Run<'a> {
    policy: &'a Policy,
    store: &'a MemoryStore,
    clock: &'a CallClock,
    calls: &'a Calls<'a>,
    /// Of each reader.
    kinds: Vec<Vec<JudgedKind<'a>>>,
    /// Calls that are open, by their ends; those of one millisecond in the order of their admission.
    open: BTreeMap<(TimestampMs, ReservationId), Open<'a>>,
    ids: u128,
    tally: Tally,
}

struct Open<'a> {
    call: &'a PastCall,
    held: Held,
    limits: Arc<[AppliedLimit]>,
    places: Places,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        policy: &'a Policy,
        store: &'a MemoryStore,
        clock: &'a CallClock,
        calls: &'a Calls<'a>,
    ) -> Self {
        let judged = |kinds: &'a [Kind]| kinds.iter().map(|kind| JudgedKind::new(policy, kind)).collect();
        let kinds = calls.kinds().map(judged).collect();
        Self { policy, store, clock, calls, kinds, open: BTreeMap::new(), ids: 0, tally: Tally::default() }
    }

    /// Decides all calls.
    pub(super) fn through(mut self, progress: &mut impl FnMut(SimulateProgress)) -> Tally {
        let calls = self.calls.in_order();
        let total = u64::try_from(calls.len()).unwrap_or(u64::MAX);
        let mut done = 0;
        for some in calls.chunks(CALLS_A_STEP) {
            for call in some {
                self.settle_until(call.at);
                self.decide(call);
            }
            done += u64::try_from(some.len()).unwrap_or(0);
            progress(SimulateProgress::Deciding(done, total));
        }
        self.settle_until(TimestampMs::new(u64::MAX));
        self.tally
    }

    fn decide(&mut self, call: &'a PastCall) {
        self.clock.set(call.at);
        self.tally.call(call.cost);
        let of_reader = self.kinds.get_mut(call.reader);
        let Some(judged) = of_reader.and_then(|kinds| kinds.get_mut(call.kind as usize)) else { return };
        let kind = judged.kind;
        let JudgedCall { limits, plan } = match judged.judge(self.policy, call, self.calls.session(call)) {
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
        let places = judged.places(&limits, |limit| self.tally.place(limit, call.at));
        self.tally.met(&places);
        match verdict {
            Verdict::Refused(refusal) => self.refuse(kind, call, &refusal, &places),
            Verdict::Admitted(admission) => {
                for index in admission.over_soft.iter() {
                    places.get(index).into_iter().for_each(|place| self.tally.over_soft(*place, call.cost));
                }
                self.note_peaks(&plan, &places, call.at);
                let held = Held { id, plan, at: admission.at };
                self.open.insert((call.ends, id), Open { call, held, limits, places });
            }
        }
    }

    fn refuse(&mut self, kind: &Kind, call: &PastCall, refusal: &Refusal, places: &Places) {
        let place = |index: usize| places.get(index).copied();
        for place in refusal.refusing.iter().filter_map(|refusing| place(refusing.index)) {
            self.tally.limit_refused(place, call.cost);
        }
        let cause = place(refusal.binding.index).map_or(Cause::Reason("limit"), Cause::Limit);
        self.tally.refused(cause, kind, call);
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
        let Open { call, held, limits, places } = open;
        let of_reader = self.kinds.get(call.reader);
        let Some(judged) = of_reader.and_then(|kinds| kinds.get(call.kind as usize)) else { return };
        let actuals = judged.actuals(call, limits);
        let unplanned = judged.unplanned(self.policy, call, self.calls.session(call), limits);
        let is_more = held.plan.charges().zip(&actuals).any(|(charge, actual)| actual.rounded_up() > charge);
        let settled = self.store.settle(held, &actuals).now_or_later();
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
        let places: Places = limits.iter().map(|limit| self.tally.place(limit, call.at)).collect();
        self.tally.met(&places);
        self.note_peaks(&held.plan, &places, call.ends);
    }

    fn note_peaks(&mut self, plan: &Plan, places: &Places, at: TimestampMs) {
        let mut places = places.iter();
        self.store.in_use(plan, |in_use| {
            places.next().into_iter().for_each(|place| self.tally.peak(*place, in_use, at));
        });
    }
}
