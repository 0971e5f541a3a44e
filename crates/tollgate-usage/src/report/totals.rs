//! The sums of one group.

use tollgate_limiter::ExactAmount;

use crate::event::TokenCounts;
use crate::reader::Past;

/// What the calls of a group used. Sums stay at their largest value instead of passing it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Totals {
    /// Calls that were forwarded.
    pub requests: u64,
    /// Calls that were refused.
    pub refusals: u64,
    /// What the models that answered used. What a call used of other models is in its cost alone.
    pub tokens: TokenCounts,
    /// What the calls cost, in micro-USD and millionths of one.
    pub cost: ExactAmount,
    /// Calls whose usage or cost rests on an estimate.
    pub estimated_requests: u64,
    /// What those cost.
    pub estimated_cost: ExactAmount,
}

impl Totals {
    /// Of a thousand parts of the cost, how many rest on an estimate, rounded up; of the requests where
    /// nothing cost anything.
    pub fn estimated_per_mille(&self) -> u64 {
        let (part, whole) = match self.cost {
            ExactAmount::ZERO => (u128::from(self.estimated_requests), u128::from(self.requests)),
            cost => (self.estimated_cost.as_millionths(), cost.as_millionths()),
        };
        let parts = part.saturating_mul(1_000).checked_add(whole.saturating_sub(1));
        let share = parts.and_then(|parts| parts.checked_div(whole)).unwrap_or(0);
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// Those of one call.
    pub(super) fn of(past: &Past<'_>) -> Self {
        match past {
            Past::Usage(event) => {
                let (estimated_requests, estimated_cost) = match event.usage_estimated {
                    true => (1, event.cost),
                    false => (0, ExactAmount::ZERO),
                };
                Self {
                    requests: 1,
                    refusals: 0,
                    tokens: event.tokens,
                    cost: event.cost,
                    estimated_requests,
                    estimated_cost,
                }
            }
            Past::Refusal(_) => Self { refusals: 1, ..Self::default() },
        }
    }

    /// Adds another group.
    pub(super) fn merge(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.refusals = self.refusals.saturating_add(other.refusals);
        self.tokens = self.tokens.saturating_add(&other.tokens);
        self.cost = self.cost.saturating_add(other.cost);
        self.estimated_requests = self.estimated_requests.saturating_add(other.estimated_requests);
        self.estimated_cost = self.estimated_cost.saturating_add(other.estimated_cost);
    }
}
