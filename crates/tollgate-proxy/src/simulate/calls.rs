//! Recorded calls, small: what millions of them have in common is kept once.

use std::sync::Arc;

use tollgate_config::Scope;
use tollgate_limiter::{ExactAmount, TimestampMs};
use tollgate_pricing::PicoUsd;

use crate::amounts::Amounts;

use super::shrink::Shrink;

/// One call.
#[derive(Clone, Copy, Debug)]
pub(super) struct PastCall {
    /// When it was admitted.
    pub(super) at: TimestampMs,
    /// When it was settled.
    pub(super) ends: TimestampMs,
    /// The place of its [`Kind`] with its reader.
    pub(super) kind: u32,
    /// The place of its session's id there; that of the empty text for none.
    pub(super) session: u32,
    /// The number of who has read it.
    pub(super) reader: usize,
    pub(super) estimated_input: u64,
    /// What it reserved at its admission.
    pub(super) reserved_output: u64,
    pub(super) reserved_micro_usd: u64,
    /// What it was settled to.
    pub(super) input: u64,
    pub(super) output: u64,
    /// What it cost.
    pub(super) cost: ExactAmount,
}

/// What the limits of calls depend on, sessions aside.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    pub(super) tenant: Arc<str>,
    pub(super) key: Arc<str>,
    pub(super) provider: Arc<str>,
    /// The model that was asked for.
    pub(super) asked: Arc<str>,
    /// The model that counts at the end.
    pub(super) charged: Arc<str>,
    /// What the callers have set.
    pub(super) caller: Vec<(Scope, Arc<str>)>,
    /// Whether the call cost tokens and money, as far as anything was reserved for it.
    pub(super) is_billed: bool,
}

impl PastCall {
    pub(super) fn reserved(&self) -> Amounts {
        Amounts {
            requests: 1,
            input_tokens: self.estimated_input,
            output_tokens: self.reserved_output,
            cost: PicoUsd::new(u128::from(self.reserved_micro_usd).saturating_mul(1_000_000)),
        }
    }

    /// What it was settled to.
    pub(super) fn used(&self) -> Amounts {
        Amounts {
            requests: 1,
            input_tokens: self.input,
            output_tokens: self.output,
            cost: PicoUsd::new(self.cost.as_millionths()),
        }
    }
}

/// All recorded calls.
pub(super) struct Calls<'p> {
    /// In the order of their admission; those of one millisecond in the file's order.
    calls: Vec<PastCall>,
    readers: Vec<Shrink<'p>>,
}

impl<'p> Calls<'p> {
    /// Those that `readers` have read.
    pub(super) fn new(mut calls: Vec<PastCall>, readers: Vec<Shrink<'p>>) -> Self {
        calls.sort_by_key(|call| call.at);
        Self { calls, readers }
    }

    pub(super) fn in_order(&self) -> &[PastCall] {
        &self.calls
    }

    /// The kinds of each reader.
    pub(super) fn kinds(&self) -> impl Iterator<Item = &[Kind]> {
        self.readers.iter().map(Shrink::kinds)
    }

    pub(super) fn kind(&self, call: &PastCall) -> Option<&Kind> {
        self.readers.get(call.reader)?.kinds().get(call.kind as usize)
    }

    pub(super) fn session(&self, call: &PastCall) -> Option<&str> {
        self.readers.get(call.reader)?.text(call.session).filter(|id| !id.is_empty())
    }

    /// The first and the last admission.
    pub(super) fn span(&self) -> Option<(TimestampMs, TimestampMs)> {
        self.calls.first().zip(self.calls.last()).map(|(first, last)| (first.at, last.at))
    }
}
