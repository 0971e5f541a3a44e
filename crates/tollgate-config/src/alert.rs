//! Whom to tell when a budget is used up to some part.

use std::sync::Arc;

use crate::{Scope, Secret};

/// The parts of a budget that are told of where nothing else is said, in percent.
pub const THRESHOLDS_PERCENT: [u64; 4] = [50, 80, 95, 100];

/// A receiver of alerts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Alert {
    /// Where alerts are posted to, `https://` or `http://`, from `url` or `url_env`. Such URLs often hold a
    /// credential.
    pub url: Secret,
    /// What bodies are signed with (`secret_env`).
    pub secret: Option<Secret>,
    /// At which parts of a budget, in percent, ascending (`thresholds`).
    pub thresholds_percent: Arc<[u64]>,
    /// Whose budgets alone (`scope`); `None`: all.
    pub scope: Option<Scope>,
    /// Of which value of the scope alone (`id`); `None`: all.
    pub id: Option<Arc<str>>,
}
