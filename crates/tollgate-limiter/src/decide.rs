//! The decision over a plan: all of it fits, or who refuses and for how long.

use alloc::vec::Vec;

use crate::{
    Admission, Amount, Counters, DurationMs, Enforcement, EntryRefusal, EntrySet, Limit, Refusal, Standing,
    Verdict, counter::Tally, counters::Found,
};

/// One entry as the decision sees it: its limit and what is asked.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) index: usize,
    pub(crate) limit: &'a Limit,
    pub(crate) charge: Amount,
}

/// Decides over all entries at once. Changes nothing, and allocates only to refuse.
///
/// Soft entries never refuse. The entry that binds is the first of those that refuse the hardest
/// ([`EntryRefusal::severity`]).
pub(crate) fn decide<'a>(
    found: &Found<'_, impl Counters>,
    asks: impl Iterator<Item = Ask<'a>> + Clone,
) -> Verdict {
    let mut over_soft = EntrySet::default();
    let mut tightest = Tightest::default();
    for ask in asks.clone() {
        let remaining = ask.remaining(found);
        if !ask.fits(remaining) {
            match ask.limit.enforcement {
                Enforcement::Soft => over_soft.insert(ask.index),
                Enforcement::Hard => return refuse(found, asks, ask.refusal(found)),
            }
        }
        // What is left shrinks by exactly the charge: it is whole, whatever else is not.
        tightest.consider(ask, remaining.saturating_sub(ask.charge));
    }
    Verdict::Admitted(Admission { at: found.now, over_soft, tightest: tightest.standing(found) })
}

/// Collects what a refusal tells, given the first entry that refuses.
#[cold]
fn refuse<'a>(
    found: &Found<'_, impl Counters>,
    asks: impl Iterator<Item = Ask<'a>>,
    first: EntryRefusal,
) -> Verdict {
    let mut refusing = Vec::new();
    let mut tightest = Tightest::default();
    let (mut binding, mut severest) = (first, (0, DurationMs::ZERO));
    for ask in asks {
        let remaining = ask.remaining(found);
        tightest.consider(ask, remaining);
        if ask.fits(remaining) || ask.limit.enforcement == Enforcement::Soft {
            continue;
        }
        let refusal = ask.refusal(found);
        let severity = refusal.severity(ask.limit.rule);
        if severity > severest {
            (binding, severest) = (refusal, severity);
        }
        refusing.push(refusal);
    }
    Verdict::Refused(Refusal { binding, refusing, tightest: tightest.standing(found) })
}

impl Ask<'_> {
    fn remaining(&self, found: &Found<'_, impl Counters>) -> Amount {
        found.read(self.index, self.limit, |counter| counter.remaining(self.limit.amount, found.now))
    }

    fn fits(&self, remaining: Amount) -> bool {
        self.charge == Amount::ZERO || self.charge <= remaining
    }

    /// Why it does not fit.
    fn refusal(&self, found: &Found<'_, impl Counters>) -> EntryRefusal {
        let &Self { index, limit, charge: needed } = self;
        let (limit_amount, now) = (limit.amount, found.now);
        found.read(index, limit, |counter| {
            let outcome = counter.when(limit_amount, needed, now);
            let Tally { spent, held } = counter.tally(limit_amount, now);
            let resets_at = counter.resets_at(limit_amount, now);
            let spent = spent.rounded_up();
            EntryRefusal { index, outcome, limit: limit_amount, spent, held, needed, resets_at }
        })
    }
}

/// Finds the rate limit with the smallest part left.
#[derive(Default)]
struct Tightest<'a> {
    least: Option<(Ask<'a>, Amount)>,
}

impl<'a> Tightest<'a> {
    /// Considers an entry of which so much remains.
    fn consider(&mut self, ask: Ask<'a>, remaining: Amount) {
        let is_tighter = |(least, left): (Ask<'_>, Amount)| {
            is_smaller_part((remaining, ask.limit.amount), (left, least.limit.amount))
        };
        if ask.limit.rule.is_rate() && self.least.is_none_or(is_tighter) {
            self.least = Some((ask, remaining));
        }
    }

    fn standing(self, found: &Found<'_, impl Counters>) -> Option<Standing> {
        let (Ask { index, limit, .. }, remaining) = self.least?;
        let resets_at = found.read(index, limit, |counter| counter.resets_at(limit.amount, found.now));
        let resets_in = resets_at.map_or(DurationMs::ZERO, |at| at.since(found.now));
        Some(Standing { index, limit: limit.amount, remaining, resets_in })
    }
}

/// Whether one amount left of one limit is a smaller part than another of another, where nothing of
/// nothing is 0.
pub(crate) fn is_smaller_part(
    (left, limit): (Amount, Amount),
    (least, least_limit): (Amount, Amount),
) -> bool {
    let wide = |amount: Amount| u128::from(amount.get());
    let whole = |limit: Amount| wide(limit).max(1);
    wide(left).saturating_mul(whole(least_limit)) < wide(least).saturating_mul(whole(limit))
}
