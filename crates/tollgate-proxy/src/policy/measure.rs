//! What a limit counts.

use tollgate_config::Unit;
use tollgate_limiter::{Amount, ExactAmount};

use crate::amounts::Amounts;

/// What a limit counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Measure {
    /// Requests or tokens over a window.
    Unit(Unit),
    /// Money.
    MicroUsd,
    /// Calls of a run that cost tokens or money.
    Steps,
    /// Milliseconds since a run's first call.
    Elapsed,
    /// Requests that are open.
    Concurrent,
    /// The tokens of one request, against the most that one may need.
    RequestTokens,
}

impl Measure {
    /// The unit's name in events and metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Unit(unit) => unit.name(),
            Self::MicroUsd => "micro_usd",
            Self::Steps => "steps",
            Self::Elapsed => "milliseconds",
            Self::Concurrent => "concurrent_requests",
            Self::RequestTokens => "tokens",
        }
    }

    /// What a request would add, rounded up.
    pub(crate) fn charge(self, amounts: &Amounts) -> Amount {
        self.exact(amounts).rounded_up()
    }

    /// What a request really added.
    pub(crate) fn exact(self, amounts: &Amounts) -> ExactAmount {
        match self {
            // A call needs time: the least that is counted.
            Self::Unit(Unit::Requests) | Self::Steps | Self::Elapsed | Self::Concurrent => {
                ExactAmount::whole(amounts.requests)
            }
            Self::Unit(Unit::Tokens) | Self::RequestTokens => {
                ExactAmount::whole(amounts.input_tokens.saturating_add(amounts.output_tokens))
            }
            Self::Unit(Unit::InputTokens) => ExactAmount::whole(amounts.input_tokens),
            Self::Unit(Unit::OutputTokens) => ExactAmount::whole(amounts.output_tokens),
            Self::MicroUsd => amounts.cost.to_exact(),
        }
    }

    /// Whether a call that costs neither tokens nor money counts.
    pub(super) const fn counts_unbilled(self) -> bool {
        matches!(self, Self::Unit(Unit::Requests) | Self::Concurrent)
    }
}
