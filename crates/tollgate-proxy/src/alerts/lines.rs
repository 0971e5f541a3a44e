//! The log's lines about budgets.
//!
//! A budget that the configuration names has a line for each threshold. Of those that callers choose, such as
//! sessions', there may be any number: the first of them to reach a threshold of a limit has a line, those of
//! the next minute are counted in one. Metrics and posts know each.

use std::{collections::HashMap, sync::Arc, time::Duration};

use foldhash::quality::RandomState;
use tollgate_config::Scope;
use tollgate_limiter::TimestampMs;

use super::{alert::BudgetAlert, crossing::Crossing};

/// How long crossings are counted before a line says how many they were.
pub(super) const COUNTED: Duration = Duration::from_secs(60);
const COUNTED_MS: u64 = 60_000;

/// Decides which crossings have a line of their own.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// As many as the configuration has limits with thresholds.
    counted: HashMap<Alike, Count, RandomState>,
}

/// What lines that say the same are about: a threshold of one limit.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Alike {
    scope: Scope,
    /// The value of the scope; `*` for those that callers choose.
    id: Arc<str>,
    window: &'static str,
    percent: u64,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    since: TimestampMs,
    crossings: u64,
}

impl Lines {
    /// Logs a crossing, or counts it.
    pub(super) fn crossed(&mut self, crossing: &Crossing, alert: &BudgetAlert, now: TimestampMs) {
        self.tell(now);
        if !self.has_line(crossing, now) {
            return;
        }
        tracing::warn!(
            alert_id = alert.id,
            scope = crossing.limit.rule.scope.name(),
            id = crossing.limit.bounded_id(),
            window = crossing.limit.rule.window,
            threshold_percent = crossing.percent,
            alert = alert.body,
            "budget threshold reached"
        );
    }

    /// Logs what was counted for long enough.
    pub(super) fn tell(&mut self, now: TimestampMs) {
        self.take(now).iter().for_each(Alike::log);
    }

    /// Logs all that was counted.
    pub(super) fn tell_all(&mut self) {
        self.tell(TimestampMs::new(u64::MAX));
    }

    /// Whether there may be something to tell later.
    pub(super) fn is_counting(&self) -> bool {
        !self.counted.is_empty()
    }

    fn has_line(&mut self, crossing: &Crossing, now: TimestampMs) -> bool {
        let limit = &crossing.limit;
        // A budget for each session of a tenant, or for each value that calls bring along.
        if !limit.is_open && limit.session.is_none() {
            return true;
        }
        let (scope, id, window) = (limit.rule.scope, limit.bounded_id().into(), limit.rule.window);
        let alike = Alike { scope, id, window, percent: crossing.percent };
        let is_first = !self.counted.contains_key(&alike);
        let count = self.counted.entry(alike).or_insert(Count { since: now, crossings: 0 });
        count.crossings += u64::from(!is_first);
        is_first
    }

    /// What was counted for long enough, with how often. Where there was something, counting goes on.
    fn take(&mut self, now: TimestampMs) -> Vec<(Alike, u64)> {
        let mut told = Vec::new();
        self.counted.retain(|alike, count| {
            if now.get().saturating_sub(count.since.get()) < COUNTED_MS {
                return true;
            }
            let Count { crossings, .. } = std::mem::replace(count, Count { since: now, crossings: 0 });
            if crossings > 0 {
                told.push((alike.clone(), crossings));
            }
            crossings > 0
        });
        told
    }
}

impl Alike {
    fn log((alike, crossings): &(Self, u64)) {
        let Self { scope, id, window, percent } = alike;
        tracing::warn!(
            scope = scope.name(),
            id = &**id,
            window,
            threshold_percent = percent,
            crossings,
            "budget threshold reached by more counters of this limit"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tollgate_limiter::Amount;

    use super::*;
    use crate::policy::{AppliedLimit, Circumstances, tests::compile};

    const NOW: TimestampMs = TimestampMs::new(1_795_996_800_000);

    const CONFIG: &str = "[[providers]]\nid = \"a\"\nprotocol = \"anthropic\"\nbase_url = \"https://a.example\"\n\
        [[tenants]]\nid = \"t\"\n[[tenants.keys]]\nid = \"k\"\nkey_env = \"key_0\"\n\
        [[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = 1\n\
        [[limits]]\nscope = \"session\"\nbudget_usd = 1\nwindow = \"session\"\n\
        [[runs]]\ntenant = \"t\"\nbudget_usd = 1\n";

    /// The budgets that a call of a session meets: the tenant's, the session's, the run's.
    fn crossings(session: &str) -> Vec<Crossing> {
        let policy = compile(CONFIG, "models:\n  m:\n    input: 1\n    output: 1\n");
        let key = policy.key_named("k").unwrap();
        let circumstances = Circumstances { caller: &[], session: Some(session), provider: "a", models: &[] };
        let limits = policy.limits(key, &circumstances, true);
        let crossing = |limit: &AppliedLimit| Crossing {
            limit: limit.clone(),
            tenant: "t".into(),
            percent: 50,
            spent: Amount::new(500_000),
            starts: None,
            ends: None,
            at: NOW,
        };
        limits.iter().map(crossing).collect()
    }

    #[test]
    fn any_number_of_sessions_have_a_line_a_minute_that_says_how_many_and_named_budgets_one_each() {
        let mut lines = Lines::default();
        let (mut own, mut counted, mut tellings) = (BTreeMap::<&str, u64>::new(), 0, 0);
        for second in 0..200_u64 {
            let now = TimestampMs::new(NOW.get() + second * 1_000);
            let told = lines.take(now);
            tellings += told.len();
            counted += told.iter().map(|(_, crossings)| crossings).sum::<u64>();
            for crossing in crossings(&format!("s{second}")) {
                let is_told = lines.has_line(&crossing, now);
                *own.entry(crossing.limit.rule.window).or_default() += u64::from(is_told);
            }
        }
        assert_eq!(own, BTreeMap::from([("day", 200), ("run", 1), ("session", 1)]));
        counted += lines.take(TimestampMs::new(u64::MAX)).iter().map(|(_, crossings)| crossings).sum::<u64>();
        assert_eq!((counted, tellings), (2 * 199, 2 * 3));
        // A minute without any: the next one has a line of its own.
        let (mut lines, later) = (Lines::default(), TimestampMs::new(NOW.get() + 60_000));
        crossings("first").iter().for_each(|crossing| assert!(lines.has_line(crossing, NOW)));
        assert_eq!(lines.take(later).len(), 0);
        assert!(
            !lines.is_counting() && crossings("s").iter().all(|crossing| lines.has_line(crossing, later))
        );
    }
}
