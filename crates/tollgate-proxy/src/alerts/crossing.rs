//! Which parts of a budget are told of, and what is known when one is reached.

use std::sync::Arc;

use tollgate_config::{Alert, Scope, THRESHOLDS_PERCENT};
use tollgate_limiter::{Amount, TimestampMs};

use crate::policy::AppliedLimit;

/// A budget has been used up to some part.
#[derive(Clone, Debug)]
pub(crate) struct Crossing {
    pub(super) limit: AppliedLimit,
    /// The tenant whose call it was.
    pub(super) tenant: Arc<str>,
    pub(super) percent: u64,
    /// What was spent, in micro-USD, rounded up.
    pub(super) spent: Amount,
    /// The calendar period's beginning and end; `None`: it has none.
    pub(super) starts: Option<TimestampMs>,
    pub(super) ends: Option<TimestampMs>,
    /// When the call was admitted.
    pub(super) at: TimestampMs,
}

/// The parts that receivers want to hear of, in percent, ascending.
#[derive(Clone, Debug)]
pub(crate) struct Thresholds(Arc<[u64]>);

impl Thresholds {
    /// All that any of `alerts` asks for, and those that are logged where none does.
    pub(crate) fn of(alerts: &[Alert]) -> Self {
        let asked = alerts.iter().flat_map(|alert| alert.thresholds_percent.iter().copied());
        let mut all: Vec<u64> = asked.collect();
        if all.is_empty() {
            all.extend(THRESHOLDS_PERCENT);
        }
        all.sort_unstable();
        all.dedup();
        Self(all.into())
    }

    /// Those that `spent` has reached of `limit`. A budget of 0 blocks: there is no part of it.
    pub(super) fn reached(&self, limit: Amount, spent: Amount) -> usize {
        if limit == Amount::ZERO {
            return 0;
        }
        let is_reached =
            |percent: &&u64| u128::from(spent.get()) * 100 >= u128::from(limit.get()) * u128::from(**percent);
        self.0.iter().take_while(is_reached).count()
    }

    pub(super) fn percent(&self) -> &[u64] {
        &self.0
    }
}

/// Whether a receiver wants to hear of a budget at a part of it.
pub(super) fn wants(alert: &Alert, scope: Scope, id: &str, percent: u64) -> bool {
    alert.thresholds_percent.contains(&percent)
        && alert.scope.is_none_or(|wanted| wanted == scope)
        && alert.id.as_deref().is_none_or(|wanted| wanted == id)
}
