//! A log of every admitted charge.

use alloc::vec::Vec;

use crate::{Amount, DurationMs, Rule, TimestampMs};

/// Every charge that one limit has admitted, with its moment. Nothing is ever settled.
#[derive(Clone, Debug)]
pub struct Log {
    rule: Rule,
    /// Milliseconds and units, ascending.
    events: Vec<(u64, u64)>,
}

impl Log {
    /// A log without charges.
    pub const fn new(rule: Rule) -> Self {
        Self { rule, events: Vec::new() }
    }

    /// Whether a charge fits a limit of `amount`, by the rule word for word.
    pub fn fits(&self, amount: Amount, charge: Amount, now: TimestampMs) -> bool {
        let now_ms = self.seen(now);
        let (limit, wanted) = (u128::from(amount.get()), u128::from(charge.get()));
        charge == Amount::ZERO
            || match self.rule {
                Rule::SlidingWindow { window } => {
                    self.fits_sliding(window.get().max(1), limit, wanted, now_ms)
                }
                Rule::BucketedWindow { window } => {
                    let bucket = |ms| part(ms, window, 60);
                    self.sum(|at| bucket(at) + 61 > bucket(now_ms)) + wanted <= limit
                }
                Rule::TokenBucket { window } => {
                    let window_ms = u128::from(window.get().max(1));
                    self.level(window_ms, limit, now_ms) + wanted * window_ms <= limit * window_ms
                }
                Rule::Calendar(period) => {
                    let index = |ms| period.index(TimestampMs::new(ms));
                    self.sum(|at| index(at) == index(now_ms)) + wanted <= limit
                }
                Rule::Idle { after } => {
                    let began_ms = self.session(after.get().max(1), now_ms);
                    self.sum(|at| began_ms.is_some_and(|began| at >= began)) + wanted <= limit
                }
                Rule::Elapsed { after } => {
                    let began_ms = self.session(after.get().max(1), now_ms).unwrap_or(now_ms);
                    u128::from(now_ms - began_ms) + wanted <= limit
                }
                Rule::Concurrent => self.sum(|_| true) + wanted <= limit,
                Rule::PerRequest => wanted <= limit,
            }
    }

    /// Notes a charge that was admitted.
    pub fn admit(&mut self, charge: Amount, now: TimestampMs) {
        self.events.push((self.seen(now), charge.get()));
    }

    /// The moments of all charges, ascending: of a window or period that was seen already, no
    /// earlier one than its start.
    pub fn moments(&self) -> impl Iterator<Item = TimestampMs> {
        self.events.iter().map(|(at, _)| TimestampMs::new(*at))
    }

    /// What was charged from `start` until before `end`.
    pub fn between(&self, start: TimestampMs, end: TimestampMs) -> u128 {
        self.sum(|at| (start.get()..end.get()).contains(&at))
    }

    /// The most that any period of this length holds. (It can be moved until it starts with a charge.)
    pub fn largest(&self, span: DurationMs) -> u128 {
        self.moments().map(|start| self.between(start, start.saturating_add(span))).max().unwrap_or(0)
    }

    /// The moment at which the limit stands: a clock that was set back finds it at the start of the
    /// latest window, period or session it has seen.
    fn seen(&self, now: TimestampMs) -> u64 {
        let Some((latest, _)) = self.events.last() else { return now.get() };
        now.get().max(match self.rule {
            Rule::SlidingWindow { window } => latest - latest % window.get().max(1),
            Rule::BucketedWindow { window } => start(part(*latest, window, 60), window, 60),
            Rule::TokenBucket { .. } => *latest,
            Rule::Calendar(period) => period.start(TimestampMs::new(*latest)).get(),
            Rule::Idle { after } | Rule::Elapsed { after } => {
                self.session(after.get().max(1), now.get()).unwrap_or(0)
            }
            Rule::Concurrent | Rule::PerRequest => 0,
        })
    }

    fn fits_sliding(&self, window_ms: u64, limit: u128, wanted: u128, now_ms: u64) -> bool {
        let start_ms = now_ms - now_ms % window_ms;
        let parts = u128::from(window_ms.min(60_000));
        let passed = u128::from(now_ms - start_ms) * parts / u128::from(window_ms);
        let previous = self.sum(|at| at < start_ms && at + window_ms >= start_ms);
        let current = self.sum(|at| at >= start_ms);
        previous * (parts - passed) + (current + wanted) * parts <= limit * parts
    }

    /// What is in a bucket that drains by `limit` each millisecond, in units · milliseconds.
    fn level(&self, window_ms: u128, limit: u128, now_ms: u64) -> u128 {
        let (mut level, mut then_ms) = (0_u128, 0);
        for (at, charge) in self.events.iter().chain(&[(now_ms, 0)]) {
            level = level.saturating_sub(limit * u128::from(at - then_ms)) + u128::from(*charge) * window_ms;
            then_ms = *at;
        }
        level
    }

    /// When the session of `now_ms` began, if there is one.
    fn session(&self, after_ms: u64, now_ms: u64) -> Option<u64> {
        let mut session: Option<(u64, u64)> = None;
        for (at, _) in &self.events {
            session = match session {
                Some((began, until)) if *at < until => Some((began, until.max(at + after_ms))),
                _ => Some((*at, at + after_ms)),
            };
        }
        session.filter(|(_, until)| now_ms < *until).map(|(began, _)| began)
    }

    fn sum(&self, counts: impl Fn(u64) -> bool) -> u128 {
        self.events.iter().filter(|(at, _)| counts(*at)).map(|(_, charge)| u128::from(*charge)).sum()
    }
}

/// The part of a window cut into `parts` that a moment falls into.
pub(super) fn part(ms: u64, window: DurationMs, parts: u128) -> u128 {
    u128::from(ms) * parts / u128::from(window.get().max(1))
}

/// The first millisecond of a part.
fn start(part: u128, window: DurationMs, parts: u128) -> u64 {
    u64::try_from((part * u128::from(window.get().max(1))).div_ceil(parts)).unwrap_or(u64::MAX)
}
