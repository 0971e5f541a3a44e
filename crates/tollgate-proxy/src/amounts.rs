//! What one call adds to limits: estimated before, known after.

use tollgate_pricing::PicoUsd;

/// Requests, tokens and money of one call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Amounts {
    pub(crate) requests: u64,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) cost: PicoUsd,
}

impl Amounts {
    /// A call that was made and cost nothing.
    pub(crate) const FREE: Self =
        Self { requests: 1, input_tokens: 0, output_tokens: 0, cost: PicoUsd::ZERO };

    /// The sum.
    pub(crate) const fn plus(&self, other: &Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cost: self.cost.saturating_add(other.cost),
        }
    }

    /// The larger of the two, one by one.
    pub(crate) fn max(&self, other: &Self) -> Self {
        Self {
            requests: self.requests.max(other.requests),
            input_tokens: self.input_tokens.max(other.input_tokens),
            output_tokens: self.output_tokens.max(other.output_tokens),
            cost: self.cost.max(other.cost),
        }
    }
}
