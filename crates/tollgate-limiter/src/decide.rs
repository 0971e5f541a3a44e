//! The decision over a plan: all of it fits, or who refuses and for how long.

use alloc::vec::Vec;

use crate::{
    Admission, Amount, Counter, DurationMs, Enforcement, EntryRefusal, EntrySet, Limit, Outcome, Refusal,
    Standing, TimestampMs, Verdict, counter::Tally,
};

/// One entry as the decision sees it: its limit, what is asked, and its counter.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) index: usize,
    pub(crate) limit: &'a Limit,
    pub(crate) charge: Amount,
    pub(crate) counter: Counter,
}

/// Decides over all entries at once. Changes nothing, and allocates only to refuse.
///
/// Soft entries never refuse. The entry that binds is one that can never fit, else the one with the
/// longest wait; the first of equals.
pub(crate) fn decide<'a>(now: TimestampMs, asks: impl Iterator<Item = Ask<'a>> + Clone) -> Verdict {
    let mut over_soft = EntrySet::default();
    let mut tightest = Tightest::default();
    for ask in asks.clone() {
        match (ask.outcome(now), ask.limit.enforcement) {
            (Outcome::Admit, _) => {}
            (_, Enforcement::Soft) => over_soft.insert(ask.index),
            (outcome, Enforcement::Hard) => return refuse(now, asks, ask.refusal(outcome, now)),
        }
        tightest.consider(&ask, ask.charge, now);
    }
    Verdict::Admitted(Admission { at: now, over_soft, tightest: tightest.standing })
}

/// Collects what a refusal tells, given the first entry that refuses.
#[cold]
fn refuse<'a>(now: TimestampMs, asks: impl Iterator<Item = Ask<'a>>, first: EntryRefusal) -> Verdict {
    let mut refusing = Vec::new();
    let mut tightest = Tightest::default();
    let mut binding = first;
    for ask in asks {
        tightest.consider(&ask, Amount::ZERO, now);
        let outcome = ask.outcome(now);
        if outcome == Outcome::Admit || ask.limit.enforcement == Enforcement::Soft {
            continue;
        }
        let refusal = ask.refusal(outcome, now);
        if severity(outcome) > severity(binding.outcome) {
            binding = refusal;
        }
        refusing.push(refusal);
    }
    Verdict::Refused(Refusal { binding, refusing, tightest: tightest.standing })
}

impl Ask<'_> {
    fn outcome(&self, now: TimestampMs) -> Outcome {
        self.counter.outcome(self.limit.amount, self.charge, now)
    }

    fn refusal(&self, outcome: Outcome, now: TimestampMs) -> EntryRefusal {
        let Tally { spent, held, resets_at, .. } = self.counter.tally(self.limit.amount, now);
        EntryRefusal {
            index: self.index,
            outcome,
            limit: self.limit.amount,
            spent: spent.rounded_up(),
            held,
            needed: self.charge,
            resets_at,
        }
    }
}

/// How hard an outcome refuses.
fn severity(outcome: Outcome) -> (bool, DurationMs) {
    match outcome {
        Outcome::Admit => (false, DurationMs::ZERO),
        Outcome::Wait(wait) => (false, wait),
        Outcome::Never => (true, DurationMs::ZERO),
    }
}

/// Finds the rate limit with the smallest part left.
#[derive(Default)]
struct Tightest {
    standing: Option<Standing>,
}

impl Tightest {
    /// Considers an entry as it stands after `charge`.
    fn consider(&mut self, ask: &Ask<'_>, charge: Amount, now: TimestampMs) {
        if !ask.limit.rule.is_rate() {
            return;
        }
        let limit = ask.limit.amount;
        // What is left shrinks by exactly the charge: all terms but the previous window's are whole.
        let remaining = ask.counter.remaining(limit, now).saturating_sub(charge);
        if self.standing.is_none_or(|least| is_smaller_part(remaining, limit, least)) {
            let resets_in = ask.counter.resets_at(now).map_or(DurationMs::ZERO, |at| at.since(now));
            self.standing = Some(Standing { index: ask.index, limit, remaining, resets_in });
        }
    }
}

/// Whether `remaining / limit < least.remaining / least.limit`, where nothing of nothing is 0.
fn is_smaller_part(remaining: Amount, limit: Amount, least: Standing) -> bool {
    let wide = |amount: Amount| u128::from(amount.get());
    let whole = |limit: Amount| wide(limit).max(1);
    let this = wide(remaining).saturating_mul(whole(least.limit));
    this < wide(least.remaining).saturating_mul(whole(limit))
}
