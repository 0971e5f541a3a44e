//! An alert as receivers get it and as the file keeps it.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tollgate_config::Scope;
use tollgate_limiter::{Enforcement, TimestampMs};
use tollgate_usage::format_moment;

use super::crossing::Crossing;
use crate::hex;

/// An alert. Its body never changes, however often it is sent.
#[derive(Clone, Debug)]
pub(super) struct BudgetAlert {
    /// The same for the same counter, period and threshold, in every process: receivers tell repetitions by it.
    pub(super) id: String,
    pub(super) scope: Scope,
    /// The value of the scope.
    pub(super) value: String,
    pub(super) percent: u64,
    pub(super) at: TimestampMs,
    /// What is posted.
    pub(super) body: String,
}

impl BudgetAlert {
    pub(super) fn new(crossing: &Crossing) -> Self {
        let Crossing { limit, percent, spent, starts, ends, at, .. } = crossing;
        let rule = &limit.rule;
        let named = format!("{:?} {} {percent}", limit.limit.key, starts.map_or(0, TimestampMs::get));
        let id = hex::text(Sha256::digest(named.as_bytes()).get(..16).unwrap_or_default());
        let tenant = match rule.scope {
            Scope::Tenant => Some(&*limit.id),
            Scope::Key | Scope::Session => Some(&*crossing.tenant),
            // What callers choose counts within their tenant.
            _ => limit.is_open.then_some(&*crossing.tenant),
        };
        let body = json!({
            "v": 1,
            "type": "budget_threshold",
            "alert_id": id,
            "ts": format_moment(*at),
            "scope": rule.scope.name(),
            "id": &*limit.id,
            "tenant": tenant,
            "session": limit.session.as_deref(),
            "models": rule.models.as_ref().map(|globs| globs.patterns()),
            "window": rule.window,
            "period_start": starts.map(format_moment),
            "period_end": ends.map(format_moment),
            "mode": if rule.enforcement == Enforcement::Hard { "hard" } else { "soft" },
            "limit_micro_usd": limit.limit.amount.get(),
            "spent_micro_usd": spent.get(),
            "threshold_percent": percent,
        });
        let (value, scope) = (limit.id.to_string(), rule.scope);
        Self { id, scope, value, percent: *percent, at: *at, body: body.to_string() }
    }

    /// The alert whose body this is; `None`: it is none of ours.
    pub(super) fn from_body(body: &Value, at: TimestampMs) -> Option<Self> {
        let text = |name: &str| body.get(name)?.as_str().map(str::to_owned);
        let scope = text("scope")?;
        Some(Self {
            id: text("alert_id")?,
            scope: Scope::ALL.into_iter().find(|known| known.name() == scope)?,
            value: text("id")?,
            percent: body.get("threshold_percent")?.as_u64()?,
            at,
            body: body.to_string(),
        })
    }
}
