//! What a simulation has found.

use std::{collections::HashMap, sync::Arc};

use foldhash::quality::RandomState;
use tollgate_limiter::{Amount, ExactAmount, TimestampMs};

use crate::policy::{AppliedLimit, KeyLimit, LimitRule};

use super::{
    SimulatedCalls, SimulatedLimit, SimulatedRefusals,
    calls::{Kind, PastCall},
};

/// Why a call is refused.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Cause {
    /// The place of the limit that binds.
    Limit(usize),
    /// Something else, in the word of `x-tollgate-reason`.
    Reason(&'static str),
}

/// Sums under construction. There are as many limits as the configuration has values for, and at most as many
/// rows of refusals as keys times those.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) calls: SimulatedCalls,
    pub(super) refused: SimulatedCalls,
    limits: Vec<LimitTally>,
    /// By the rule's address and the value of its scope.
    places: HashMap<usize, HashMap<Arc<str>, usize, RandomState>, RandomState>,
    refusals: HashMap<Whose, Refusals, RandomState>,
}

/// Why, and of which tenant and key.
type Whose = (Cause, Arc<str>, Arc<str>);

/// The places of the limits of a plan, in its order.
pub(super) type Places = Vec<usize>;

#[derive(Clone, Copy, Debug)]
struct Refusals {
    calls: SimulatedCalls,
    first: TimestampMs,
    last: TimestampMs,
}

#[derive(Debug)]
struct LimitTally {
    rule: Arc<LimitRule>,
    id: Arc<str>,
    calls: u64,
    refused: SimulatedCalls,
    over_soft: SimulatedCalls,
    peak: Amount,
    peak_at: TimestampMs,
}

impl Tally {
    /// A call was decided.
    pub(super) fn call(&mut self, cost: ExactAmount) {
        self.calls.add(cost);
    }

    /// The places of the limits that a call of the moment `at` meets: it counts with them.
    pub(super) fn places(&mut self, limits: &[AppliedLimit], at: TimestampMs) -> Places {
        let places: Places = limits.iter().map(|limit| self.place(limit, at)).collect();
        for place in &places {
            self.limits.get_mut(*place).into_iter().for_each(|tally| tally.calls += 1);
        }
        places
    }

    /// A limit refuses a call, be it alone or with others.
    pub(super) fn limit_refused(&mut self, place: usize, cost: ExactAmount) {
        self.limits.get_mut(place).into_iter().for_each(|tally| tally.refused.add(cost));
    }

    /// A limit lets a call pass beyond its amount.
    pub(super) fn over_soft(&mut self, place: usize, cost: ExactAmount) {
        self.limits.get_mut(place).into_iter().for_each(|tally| tally.over_soft.add(cost));
    }

    /// So much is in use of a limit.
    pub(super) fn peak(&mut self, place: usize, in_use: Amount, at: TimestampMs) {
        if let Some(tally) = self.limits.get_mut(place).filter(|tally| in_use > tally.peak) {
            (tally.peak, tally.peak_at) = (in_use, at);
        }
    }

    /// A call is refused.
    pub(super) fn refused(&mut self, cause: Cause, kind: &Kind, call: &PastCall) {
        self.refused.add(call.cost);
        let whose = (cause, kind.tenant.clone(), kind.key.clone());
        let new = Refusals { calls: SimulatedCalls::default(), first: call.at, last: call.at };
        let refusals = self.refusals.entry(whose).or_insert(new);
        refusals.calls.add(call.cost);
        refusals.last = call.at;
    }

    /// Rows of refusals: the largest saving first.
    pub(super) fn refusals(&self) -> Vec<SimulatedRefusals> {
        let row = |((cause, tenant, key), refusals): (&Whose, &Refusals)| {
            let (reason, limit) = match cause {
                Cause::Limit(place) => ("limit", self.limits.get(*place).map(LimitTally::limit)),
                Cause::Reason(reason) => (*reason, None),
            };
            let (tenant, key, span) = (tenant.clone(), key.clone(), (refusals.first, refusals.last));
            SimulatedRefusals { reason, limit, tenant, key, calls: refusals.calls, span }
        };
        let mut rows: Vec<_> = self.refusals.iter().map(row).collect();
        rows.sort_by(|a, b| {
            let size = |row: &SimulatedRefusals| (row.calls.cost, row.calls.count);
            let name = |row: &SimulatedRefusals| (row.tenant.clone(), row.key.clone(), row.span.0);
            size(b).cmp(&size(a)).then_with(|| name(a).cmp(&name(b)))
        });
        rows
    }

    /// The limits that were met: those that refuse first, then by the part that was used.
    pub(super) fn limits(&self) -> Vec<SimulatedLimit> {
        let mut limits: Vec<_> = self.limits.iter().collect();
        let used = |tally: &LimitTally| {
            let amount = u128::from(tally.rule.amount.get().max(1));
            u128::from(tally.peak.get()).saturating_mul(1_000_000) / amount
        };
        limits.sort_by(|a, b| {
            let size = |tally: &LimitTally| (tally.refused.count, tally.over_soft.count, used(tally));
            size(b).cmp(&size(a))
        });
        limits.into_iter().map(LimitTally::simulated).collect()
    }

    fn place(&mut self, limit: &AppliedLimit, at: TimestampMs) -> usize {
        let of_rule = self.places.entry(Arc::as_ptr(&limit.rule).addr()).or_default();
        let id = limit.bounded_id();
        if let Some(place) = of_rule.get(id) {
            return *place;
        }
        let (id, place): (Arc<str>, _) = (id.into(), self.limits.len());
        of_rule.insert(id.clone(), place);
        self.limits.push(LimitTally {
            rule: limit.rule.clone(),
            id,
            calls: 0,
            refused: SimulatedCalls::default(),
            over_soft: SimulatedCalls::default(),
            peak: Amount::ZERO,
            peak_at: at,
        });
        place
    }
}

impl LimitTally {
    fn limit(&self) -> KeyLimit {
        KeyLimit::new(&self.rule, Some(&self.id))
    }

    fn simulated(&self) -> SimulatedLimit {
        let Self { calls, refused, over_soft, peak, peak_at, .. } = *self;
        SimulatedLimit { limit: self.limit(), calls, refused, over_soft, peak, peak_at }
    }
}
