//! Lowers a request's output limit to what its budgets still afford (`reservation.fit`).

use tollgate_limiter::{Amount, Refusal, TimestampMs};
use tollgate_providers::RequestFacts;

use crate::{
    policy::{AppliedLimit, Policy},
    quote::Judged,
};

/// How often a request is fitted anew: between a refusal and the next decision, others may take what was
/// left.
pub(crate) const FITS_MAX: u32 = 4;

/// The refused request with the largest output limit that every budget which refused it affords. `None`
/// where something else refused it too, or where no limit would do that the provider accepts.
pub(crate) fn fit(
    policy: &Policy,
    facts: &RequestFacts,
    judged: &Judged,
    refusal: &Refusal,
    at: TimestampMs,
) -> Option<Judged> {
    if !policy.fit || !judged.quote.billed {
        return None;
    }
    let rooms = refusal.refusing.iter().map(|entry| {
        let limit = judged.limits.get(entry.index).filter(|limit| limit.grows_with_output())?;
        Some((limit, entry.limit.saturating_sub(entry.spent).saturating_sub(entry.held)))
    });
    let rooms: Vec<(&AppliedLimit, Amount)> = rooms.collect::<Option<_>>()?;
    let with = |limit_each| judged.quote.fitted(policy, facts, limit_each, at);
    let fits = |limit_each| {
        let quote = with(limit_each);
        rooms.iter().all(|(limit, room)| quote.charge(limit) <= *room)
    };
    let refused = judged.quote.limit_to_send.or(facts.output_limit)?;
    let limit_each = largest(facts.output_limit_min(), refused, fits)?;
    Some(Judged { quote: with(limit_each), limits: judged.limits.clone() })
}

/// The largest number from `from` on and below `end` that fits, where each below one that fits does too.
fn largest(from: u64, end: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    if from >= end || !fits(from) {
        return None;
    }
    let (mut fitting, mut refused) = (from, end);
    // Halves each time: at most 64 times.
    while refused - fitting > 1 {
        let middle = fitting.midpoint(refused);
        if fits(middle) { fitting = middle } else { refused = middle }
    }
    Some(fitting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_that_fits_is_found_wherever_it_lies() {
        for end in 1..40 {
            for from in 1..40 {
                for last in 0..45 {
                    let expected = (from..end).filter(|n| *n <= last).max();
                    assert_eq!(largest(from, end, |n| n <= last), expected, "{from}..{end}, up to {last}");
                }
            }
        }
        assert_eq!(largest(1, u64::MAX, |n| n <= 123_456_789), Some(123_456_789));
    }
}
