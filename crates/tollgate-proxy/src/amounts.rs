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
}
