//! One counter that remembers everything.

use alloc::{collections::BTreeMap, vec::Vec};

use super::log::part;
use crate::{Limit, Rule, TimestampMs};

pub(super) const MILLION: i128 = 1_000_000;

/// All that ever happened to one counter, in millionths of a unit.
#[derive(Debug, Default)]
pub(super) struct NaiveCounter {
    /// The latest window, part, period or generation it has seen.
    pub(super) latest: u64,
    used: BTreeMap<u64, i128>,
    held: BTreeMap<u64, i128>,
    /// When the latest generation of a session or run is forgotten.
    until_ms: u64,
    /// Every use of a run: its generation and its moment.
    uses: Vec<(u64, u64)>,
    /// Everything that went into a token bucket and out of it again.
    flows: Vec<Flow>,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    at_ms: u64,
    /// Units in; negative: units given back.
    units: i128,
    /// Units below which giving back does not take the level.
    floor: i128,
}

/// A charge and where it went.
pub(super) type Booking = (u64, u64);

impl NaiveCounter {
    /// Where something goes that happens now.
    pub(super) fn slot(&self, rule: Rule, now_ms: u64) -> u64 {
        let by_clock = match rule {
            Rule::SlidingWindow { window } => now_ms / window.get().max(1),
            Rule::BucketedWindow { window } => u64::try_from(part(now_ms, window, 60)).unwrap_or(u64::MAX),
            Rule::TokenBucket { window } => u64::try_from(part(now_ms, window, 8)).unwrap_or(u64::MAX),
            Rule::Calendar(period) => period.index(TimestampMs::new(now_ms)),
            Rule::Idle { .. } | Rule::Elapsed { .. } => {
                return if now_ms < self.until_ms { self.latest } else { now_ms };
            }
            Rule::Concurrent | Rule::PerRequest => 0,
        };
        by_clock.max(self.latest)
    }

    /// (used, held) that count now, and the used part that counts only in part: its weight is
    /// `left / of`.
    fn in_sight(&self, rule: Rule, now_ms: u64) -> ((i128, i128), (i128, i128), i128, i128) {
        let slot = self.slot(rule, now_ms);
        let sum = |from: u64| (total(&self.used, from), total(&self.held, from));
        match rule {
            Rule::SlidingWindow { window } => {
                let window_ms = i128::from(window.get().max(1));
                let passed = (i128::from(now_ms) - i128::from(slot) * window_ms).max(0);
                let previous = slot.checked_sub(1);
                let at = |map: &BTreeMap<u64, i128>| {
                    previous.and_then(|slot| map.get(&slot).copied()).unwrap_or(0)
                };
                (sum(slot), (at(&self.used), at(&self.held)), window_ms - passed, window_ms)
            }
            Rule::BucketedWindow { .. } => (sum((slot + 1).saturating_sub(61)), (0, 0), 0, 1),
            Rule::TokenBucket { .. } => (sum((slot + 1).saturating_sub(9)), (0, 0), 0, 1),
            _ => (sum(slot), (0, 0), 0, 1),
        }
    }

    pub(super) fn fits(&self, limit: &Limit, charge: u64, now_ms: u64) -> bool {
        let (amount, wanted) = (i128::from(limit.amount.get()) * MILLION, i128::from(charge) * MILLION);
        charge == 0
            || match limit.rule {
                Rule::TokenBucket { window } => {
                    let window_ms = i128::from(window.get().max(1));
                    let room = i128::from(limit.amount.get()) - i128::from(charge);
                    self.level(limit, now_ms) <= room * window_ms
                }
                Rule::PerRequest => wanted <= amount,
                Rule::Elapsed { .. } => self.elapsed(now_ms) + wanted <= amount,
                rule => {
                    let ((used, _), (before, _), left, of) = self.in_sight(rule, now_ms);
                    before * left + (used + wanted) * of <= amount * of
                }
            }
    }

    /// (spent, held) as the rule counts them now, in millionths.
    pub(super) fn stands(&self, limit: &Limit, now_ms: u64) -> (i128, i128) {
        let ((used, held), (before, before_held), left, of) = self.in_sight(limit.rule, now_ms);
        match limit.rule {
            Rule::TokenBucket { window } => {
                let level = self.level(limit, now_ms);
                let used = ceil(level, i128::from(window.get().max(1))) * MILLION;
                let held = held.min(used);
                (used - held, held)
            }
            Rule::PerRequest => (0, 0),
            Rule::Elapsed { .. } => (self.elapsed(now_ms), 0),
            Rule::Concurrent => (0, held),
            _ => {
                let weighed = |count: i128| ceil(count / MILLION * left, of) * MILLION;
                let spent = used - held + weighed(before - before_held);
                (spent, used + weighed(before) - spent)
            }
        }
    }

    /// Whether a reservation that was booked in `slot` may still be extended.
    pub(super) fn can_extend(&self, rule: Rule, slot: u64, now_ms: u64) -> bool {
        match rule {
            Rule::Calendar(_) => self.slot(rule, now_ms) == slot,
            Rule::Idle { .. } | Rule::Elapsed { .. } => now_ms < self.until_ms && self.latest == slot,
            _ => true,
        }
    }

    pub(super) fn book(&mut self, limit: &Limit, charge: u64, now_ms: u64) -> Booking {
        let slot = self.slot(limit.rule, now_ms);
        self.latest = slot;
        if let Rule::Idle { after } | Rule::Elapsed { after } = limit.rule {
            self.until_ms = self.until_ms.max(now_ms.max(slot) + after.get().max(1));
            self.uses.push((slot, now_ms.max(slot)));
        }
        *self.used.entry(slot).or_default() += i128::from(charge) * MILLION;
        *self.held.entry(slot).or_default() += i128::from(charge) * MILLION;
        self.flow(now_ms, i128::from(charge), 0);
        (slot, charge)
    }

    pub(super) fn settle(&mut self, limit: &Limit, bookings: &[Booking], actual: i128, now_ms: u64) {
        let booked: i128 = bookings.iter().map(|(_, charge)| i128::from(*charge) * MILLION).sum();
        for (slot, charge) in bookings {
            *self.held.entry(*slot).or_default() -= i128::from(*charge) * MILLION;
        }
        let (first, _) = bookings[0];
        match limit.rule {
            Rule::PerRequest => return,
            Rule::Concurrent => return *self.used.entry(0).or_default() -= booked,
            Rule::Calendar(_) => {
                self.latest = self.latest.max(first);
                return *self.used.entry(first).or_default() += actual - booked;
            }
            Rule::Idle { after } | Rule::Elapsed { after } => {
                if self.latest == first && now_ms < self.until_ms {
                    self.until_ms = self.until_ms.max(now_ms + after.get().max(1));
                }
                return *self.used.entry(first).or_default() += actual - booked;
            }
            _ => {}
        }
        let actual = ceil(actual, MILLION) * MILLION;
        let mut unused = (booked - actual).max(0);
        if matches!(limit.rule, Rule::TokenBucket { .. }) {
            self.latest = self.slot(limit.rule, now_ms);
            // It drains up to now, also where nothing goes back.
            self.flow(now_ms, 0, 0);
        }
        for (slot, charge) in bookings.iter().rev() {
            let back = unused.min(i128::from(*charge) * MILLION);
            unused -= back;
            *self.used.entry(*slot).or_default() -= back;
            if *slot + 9 > self.latest {
                let rest = i128::from(*charge) * MILLION - back;
                self.flow(now_ms, -back / MILLION, (total(&self.used, *slot) - rest) / MILLION);
            }
        }
        if actual > booked {
            self.latest = self.slot(limit.rule, now_ms);
            *self.used.entry(self.latest).or_default() += actual - booked;
            self.flow(now_ms, (actual - booked) / MILLION, 0);
        }
    }

    /// Charges what nobody reserved.
    pub(super) fn record(&mut self, limit: &Limit, actual: i128, at_ms: u64) {
        let whole = ceil(actual, MILLION) * MILLION;
        match limit.rule {
            Rule::Concurrent | Rule::PerRequest => {}
            Rule::Idle { after } | Rule::Elapsed { after } => {
                let after_ms = after.get().max(1);
                if at_ms + after_ms <= self.latest {
                    return;
                }
                self.latest = self.slot(limit.rule, at_ms);
                self.until_ms = self.until_ms.max(at_ms + after_ms);
                self.uses.push((self.latest, at_ms));
                *self.used.entry(self.latest).or_default() += actual;
            }
            rule => {
                self.latest = self.slot(rule, at_ms);
                let slot = Self::default().slot(rule, at_ms);
                let exact = matches!(rule, Rule::Calendar(_));
                *self.used.entry(slot).or_default() += if exact { actual } else { whole };
                let counts = slot + 9 > self.latest;
                self.flow(at_ms, if counts { whole / MILLION } else { 0 }, 0);
            }
        }
    }

    /// How long ago the run began that goes on now, in millionths of a millisecond.
    fn elapsed(&self, now_ms: u64) -> i128 {
        let own = self.uses.iter().filter(|(run, _)| *run == self.latest && now_ms < self.until_ms);
        let first_ms = own.map(|(_, at_ms)| *at_ms).min().unwrap_or(now_ms);
        i128::from(now_ms.saturating_sub(first_ms)) * MILLION
    }

    fn flow(&mut self, now_ms: u64, units: i128, floor: i128) {
        let at_ms = self.flows.last().map_or(0, |flow| flow.at_ms).max(now_ms);
        self.flows.push(Flow { at_ms, units, floor });
    }

    /// What is in the bucket, in units · milliseconds.
    fn level(&self, limit: &Limit, now_ms: u64) -> i128 {
        let Rule::TokenBucket { window } = limit.rule else { return 0 };
        let window_ms = i128::from(window.get().max(1));
        let (mut level, mut then_ms) = (0_i128, 0);
        for flow in &self.flows {
            let drained = i128::from(limit.amount.get()) * i128::from(flow.at_ms - then_ms);
            level = (level - drained).max(0);
            let floor = if flow.units < 0 { level.min(flow.floor * window_ms) } else { 0 };
            level = (level + flow.units * window_ms).max(floor);
            then_ms = flow.at_ms;
        }
        (level - i128::from(limit.amount.get()) * i128::from(now_ms.saturating_sub(then_ms))).max(0)
    }
}

fn total(map: &BTreeMap<u64, i128>, from: u64) -> i128 {
    map.range(from..).map(|(_, amount)| *amount).sum()
}

fn ceil(count: i128, of: i128) -> i128 {
    (count + of - 1) / of
}
