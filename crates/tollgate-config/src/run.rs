//! Runs: what one agent loop may use.

use std::sync::Arc;

use tollgate_limiter::{Amount, DurationMs, MicroUsd};

/// One `[[runs]]` table: what each session may use, from its first call until it is forgotten.
#[derive(Clone, Debug)]
pub struct Run {
    /// Whose sessions it is for.
    pub owner: RunOwner,
    /// The most calls (`max_steps`).
    pub steps: Option<Amount>,
    /// The most tokens, input and output (`max_tokens`).
    pub tokens: Option<Amount>,
    /// The largest spend (`budget_usd`).
    pub budget: Option<MicroUsd>,
    /// How long after its first call the last one may be made (`max_seconds`).
    pub time: Option<DurationMs>,
}

/// Whose sessions a run limit is for.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum RunOwner {
    /// Everybody's.
    All,
    /// Those of one tenant.
    Tenant(Arc<str>),
    /// Those of one key.
    Key(Arc<str>),
}
