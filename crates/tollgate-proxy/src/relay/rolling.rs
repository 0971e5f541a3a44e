//! The reservation of a running stream, which grows with it (SPEC §4.1).
//!
//! A stream is held at a part of its output limit. When what it has used comes to what is held, more is
//! asked for: what is missing and one slice. Between two steps nothing is priced: a count of tokens is
//! compared with the one at which the reservation is used up.

#[cfg(test)]
mod tests;

use tollgate_limiter::{Amount, TimestampMs};
use tollgate_pricing::PriceTable;
use tollgate_providers::Meter;

use crate::{policy::AppliedLimit, quote::Quote, settle::SoFar};

/// After so many steps slices double, and again after as many: a stream that is extended by single tokens
/// comes to 16 million of them in 16 doublings, long before a store remembers no more steps
/// ([`tollgate_limiter::EXTENSIONS_MAX`]).
const STEPS_PER_DOUBLING: u32 = 256;

/// An estimate of the output comes to this many times the output at most: text in tiny pieces, signatures.
/// An answer that comes to more has not kept its limit.
const ESTIMATE_TIMES_MAX: u64 = 4;

/// So much more may a short answer seem to be.
const ESTIMATE_MORE_MAX: u64 = 1_024;

/// Where a stream stands with its reservation.
#[derive(Debug)]
pub(crate) struct Rolling {
    /// The output tokens of one slice at first.
    slice_tokens: u64,
    /// The output tokens at which more is asked for.
    ask_at: u64,
    /// How many usages the provider had reported when that was worked out.
    reports: u64,
    /// The last step that was asked for.
    steps: u32,
    /// Whether one was not.
    is_beyond: bool,
    /// The output tokens from which an answer has not ended that said it was finished.
    ends_by: Option<u64>,
}

/// What a stream is judged by: all that was known when it was admitted.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) quote: &'a Quote,
    /// The limits of the plan, in its order.
    pub(crate) limits: &'a [AppliedLimit],
    pub(crate) prices: &'a PriceTable,
    /// The moment of admission.
    pub(crate) at: TimestampMs,
}

/// One step that is asked for: under the same number until its answer is known.
#[derive(Debug)]
pub(crate) struct Growth {
    /// Its number, counted from 1.
    pub(crate) step: u32,
    /// What it adds to each entry of the plan: 0 where it is no hard budget.
    pub(crate) charges: Vec<Amount>,
    /// What is reserved once it is granted.
    pub(crate) quote: Quote,
    /// The output tokens that it covers.
    covers: u64,
}

impl Rolling {
    /// The state at the beginning of an answer; `None` where it never has to grow: no hard budget holds it.
    pub(crate) fn new(terms: &Terms<'_>, slice_tokens: u64, meter: &Meter) -> Option<Self> {
        let is_held = terms.limits.iter().any(AppliedLimit::grows_with_output);
        if !terms.quote.billed || !is_held {
            return None;
        }
        let so_far = SoFar::new(meter.running(), terms.quote, terms.prices, terms.at);
        let ask_at = used_up_at(terms, &so_far, slice_tokens);
        let reports = meter.reports();
        Some(Self { slice_tokens, ask_at, reports, steps: 0, is_beyond: false, ends_by: None })
    }

    /// What to ask for before anything more is passed on, if what has passed the meter has come to what is
    /// reserved.
    pub(crate) fn due(&mut self, terms: &Terms<'_>, meter: &Meter) -> Option<Growth> {
        let reports = meter.reports();
        if reports == self.reports && meter.output_seen().get() < self.ask_at {
            return None;
        }
        self.reports = reports;
        let slice_tokens = self.slice();
        // An answer that is finished costs what it costs: there is nothing left to cut off, unless it goes on.
        if meter.is_finished() {
            let seen = meter.output_seen().get();
            let ends_by = *self.ends_by.get_or_insert(seen.saturating_add(slice_tokens));
            if seen < ends_by {
                self.ask_at = ends_by;
                return None;
            }
        }
        let so_far = SoFar::new(meter.running(), terms.quote, terms.prices, terms.at);
        if terms.quote.is_covered() && !is_overrun(terms.quote, so_far.output_tokens()) {
            self.ask_at = overrun_from(terms.quote);
            return None;
        }
        self.ask_at = used_up_at(terms, &so_far, slice_tokens);
        let output_tokens = within_limit(terms.quote, so_far.output_tokens());
        if output_tokens < self.ask_at {
            return None;
        }
        let covers = within_limit(terms.quote, output_tokens.saturating_add(slice_tokens));
        let quote = terms.quote.grown(so_far.model(), &so_far.with_output(covers));
        let charges = terms.limits.iter().map(|limit| growth(limit, terms.quote, &quote)).collect();
        Some(Growth { step: self.steps.saturating_add(1), charges, quote, covers })
    }

    /// The step was granted.
    pub(crate) const fn granted(&mut self, growth: &Growth) {
        self.steps = growth.step;
        self.ask_at = growth.covers;
    }

    /// The step was not granted, and the stream goes on: it is asked for again one slice later. Tells
    /// whether it is the first.
    pub(crate) const fn postponed(&mut self, growth: &Growth) -> bool {
        // Its number is not used again: nobody may know whether it was made.
        self.steps = growth.step;
        self.ask_at = growth.covers;
        !std::mem::replace(&mut self.is_beyond, true)
    }

    fn slice(&self) -> u64 {
        let doublings = self.steps.div_euclid(STEPS_PER_DOUBLING);
        self.slice_tokens.saturating_mul(1_u64.checked_shl(doublings).unwrap_or(u64::MAX))
    }
}

/// The output tokens that count of so many that were seen: no answer is longer than its limit, whatever the
/// estimate says. One whose provider does not keep the limit, or does not know the field that names it, is.
fn within_limit(quote: &Quote, output_tokens: u64) -> u64 {
    if is_overrun(quote, output_tokens) {
        return output_tokens;
    }
    output_tokens.min(quote.output_limit.unwrap_or(u64::MAX))
}

fn is_overrun(quote: &Quote, output_tokens: u64) -> bool {
    output_tokens >= overrun_from(quote)
}

/// The output tokens seen from which an answer has passed its limit, and not only seems to.
fn overrun_from(quote: &Quote) -> u64 {
    let limit = quote.output_limit.unwrap_or(u64::MAX);
    limit.saturating_mul(ESTIMATE_TIMES_MAX).saturating_add(ESTIMATE_MORE_MAX)
}

/// What `limit` is charged when `before` grows to `after`. Rates, open requests and the size of requests are
/// about what was asked for: they are charged when it was admitted and when it is settled.
fn growth(limit: &AppliedLimit, before: &Quote, after: &Quote) -> Amount {
    if !limit.grows_with_output() {
        return Amount::ZERO;
    }
    after.charge(limit).saturating_sub(before.charge(limit))
}

/// The output tokens at which the first hard budget's part of the reservation is used up. What an answer
/// uses grows evenly with its output, by as much as the next slice adds.
fn used_up_at(terms: &Terms<'_>, so_far: &SoFar<'_>, slice_tokens: u64) -> u64 {
    let output_tokens = within_limit(terms.quote, so_far.output_tokens());
    let now = so_far.with_output(output_tokens);
    let next = so_far.with_output(output_tokens.saturating_add(slice_tokens));
    let held = terms.quote.share(so_far.model());
    let budgets = terms.limits.iter().filter(|limit| limit.grows_with_output());
    let used_up = budgets.map(|limit| {
        let exact = |amounts| limit.rule.measure.exact(amounts).as_millionths();
        let Some(left) = exact(&held).checked_sub(exact(&now)) else { return output_tokens };
        let per_slice = exact(&next).saturating_sub(exact(&now));
        // Nothing more is used by more output: it never comes to what is held.
        let tokens = left.saturating_mul(u128::from(slice_tokens)).checked_div(per_slice);
        let tokens = tokens.and_then(|tokens| u64::try_from(tokens).ok()).unwrap_or(u64::MAX);
        output_tokens.saturating_add(tokens)
    });
    used_up.min().unwrap_or(u64::MAX)
}
