//! One amount of the configuration, for one scope: what it counts, and which counter it has for whom.
//!
//! A counter belongs to scope, id, model filter, unit and window. Neither the amount nor the mode nor
//! the algorithm's name is part of it: raising a limit keeps what was counted.

use std::{fmt::Write, sync::Arc};

use tollgate_config::{
    Algorithm, Budget, BudgetWindow, ModelGlobs, RateLimit, Run, RunOwner, Scope, ScopedLimit, Tenant, Unit,
    Unpriced,
};
use tollgate_limiter::{Amount, CounterKey, DurationMs, Enforcement, Limit, Rule};

use super::{Measure, Owner};

/// How long a session is remembered after its last call.
const SESSION_IDLE: DurationMs = DurationMs::new(86_400_000);

/// The window of a run's limits.
const RUN: &str = "run";

/// One amount that is limited.
#[derive(Debug)]
pub(crate) struct LimitRule {
    /// What it is about.
    pub(crate) scope: Scope,
    /// The one value it is for; `None`: each value has a counter of its own.
    pub(crate) id: Option<Arc<str>>,
    /// The models whose calls count; `None`: all.
    pub(crate) models: Option<ModelGlobs>,
    /// What it counts.
    pub(crate) measure: Measure,
    /// The window's name: `none` for what is open, `request` for what one request may need.
    pub(crate) window: &'static str,
    /// How it counts.
    pub(crate) rule: Rule,
    /// The most it lets through.
    pub(crate) amount: Amount,
    /// Whether it refuses or warns.
    pub(crate) enforcement: Enforcement,
    /// What it demands of models without a price, if anything.
    pub(crate) unpriced: Option<Unpriced>,
    /// What the names of its counters begin with.
    name: Arc<str>,
    /// Its limit, where it has one counter only.
    only: Option<Arc<Limit>>,
}

/// A limit as one call meets it.
#[derive(Clone, Debug)]
pub(crate) struct AppliedLimit {
    /// As the store decides it.
    pub(crate) limit: Arc<Limit>,
    /// What the configuration says.
    pub(crate) rule: Arc<LimitRule>,
    /// The value of the scope: whose counter it is.
    pub(crate) id: Arc<str>,
    /// The session whose counter it is, where its scope is another.
    pub(crate) session: Option<Arc<str>>,
    /// Whether the value was chosen by whoever made the call, so that there may be any number of them.
    pub(crate) is_open: bool,
}

impl AppliedLimit {
    /// The value of the scope where the configuration bounds how many there are.
    pub(crate) fn bounded_id(&self) -> &str {
        if self.is_open { "*" } else { &self.id }
    }

    /// Whether it refuses, and counts what it must not forget: a period's or a session's use.
    pub(crate) fn is_hard_budget(&self) -> bool {
        let is_kept = matches!(self.limit.rule, Rule::Calendar(_) | Rule::Idle { .. });
        is_kept && self.limit.enforcement == Enforcement::Hard
    }

    /// Whether the use of a model counts: `name` as the call has it, `id` as the price table has it.
    pub(crate) fn counts(&self, name: &str, id: &str) -> bool {
        let is_it = self.rule.scope != Scope::Model
            || self.id.eq_ignore_ascii_case(id)
            || self.id.eq_ignore_ascii_case(name);
        is_it && self.rule.passes(name, id)
    }

    /// Whether the uses of some models count and those of others do not.
    pub(crate) fn is_of_models(&self) -> bool {
        self.rule.is_of_models()
    }

    /// Whether it is a hard budget of money or tokens: what a stream's reservation grows against, and what a
    /// request's output limit is fitted to.
    pub(crate) fn grows_with_output(&self) -> bool {
        let grows = match self.rule.measure {
            Measure::MicroUsd => true,
            Measure::Unit(unit) => unit != Unit::Requests,
            _ => false,
        };
        grows && self.is_hard_budget()
    }
}

impl LimitRule {
    /// The rules of one `[[limits]]` table.
    pub(super) fn of_limit(limit: &ScopedLimit) -> Vec<Self> {
        let about = About { scope: limit.scope, id: limit.id.as_ref(), models: limit.models.as_ref() };
        let mut rules: Vec<_> = limit.rates.iter().map(|rate| about.rate(rate)).collect();
        if let Some(amount) = limit.max_concurrent {
            rules.push(about.rule(Measure::Concurrent, "none", Rule::Concurrent, amount));
        }
        if let Some(amount) = limit.max_request_tokens {
            rules.push(about.rule(Measure::RequestTokens, "request", Rule::PerRequest, amount));
        }
        rules.extend(limit.budget.iter().map(|budget| about.budget(budget)));
        rules.into_iter().map(Self::with_only).collect()
    }

    /// The rules of a tenant's own limits and budgets.
    pub(super) fn of_tenant(tenant: &Tenant) -> Vec<Self> {
        let about = About { scope: Scope::Tenant, id: Some(&tenant.id), models: None };
        let rates = tenant.rates.iter().map(|rate| about.rate(rate));
        let budgets = tenant.budgets.iter().map(|budget| about.budget(budget));
        rates.chain(budgets).map(Self::with_only).collect()
    }

    /// The rules of one `[[runs]]` table: counters of each session, of everybody or of one tenant or key.
    pub(super) fn of_run(run: &Run) -> Vec<Self> {
        let (scope, id) = match &run.owner {
            RunOwner::All => (Scope::Session, None),
            RunOwner::Tenant(id) => (Scope::Tenant, Some(id)),
            RunOwner::Key(id) => (Scope::Key, Some(id)),
        };
        let about = About { scope, id, models: None };
        let sum = Rule::Idle { after: SESSION_IDLE };
        let time = Rule::Elapsed { after: SESSION_IDLE };
        let rules = [
            run.steps.map(|steps| about.rule(Measure::Steps, RUN, sum, steps)),
            run.tokens.map(|tokens| about.rule(Measure::Unit(Unit::Tokens), RUN, sum, tokens)),
            run.budget.map(|budget| LimitRule {
                unpriced: Some(Unpriced::Block),
                ..about.rule(Measure::MicroUsd, RUN, sum, Amount::new(budget.get()))
            }),
            run.time.map(|time_ms| about.rule(Measure::Elapsed, RUN, time, Amount::new(time_ms.get()))),
        ];
        rules.into_iter().flatten().collect()
    }

    /// Whether it is one of a run.
    pub(crate) fn is_of_run(&self) -> bool {
        self.window == RUN
    }

    /// Whether it counts the use of a model: `name` as the call has it, `id` as the price table has it.
    pub(super) fn passes(&self, name: &str, id: &str) -> bool {
        self.models.as_ref().is_none_or(|globs| globs.matches_any_case(name) || globs.matches_any_case(id))
    }

    /// Whether the uses of some models count and those of others do not.
    pub(super) fn is_of_models(&self) -> bool {
        self.scope == Scope::Model || self.models.is_some()
    }

    /// Whether each session has a counter of its own.
    pub(super) fn is_per_session(&self) -> bool {
        self.scope == Scope::Session || matches!(self.rule, Rule::Idle { .. } | Rule::Elapsed { .. })
    }

    /// The limit for `value` of the scope. `session` is that of the call, for rules that have a counter
    /// for each.
    pub(super) fn applied(
        self: &Arc<Self>,
        value: Arc<str>,
        owner: Owner<'_>,
        session: Option<&str>,
    ) -> AppliedLimit {
        let limit = match &self.only {
            Some(only) => only.clone(),
            None => {
                let partition = partition(self.scope, &value, owner.tenant);
                Arc::new(self.limit(CounterKey::new(partition, self.name_for(owner, session))))
            }
        };
        AppliedLimit {
            limit,
            rule: self.clone(),
            id: value,
            session: self.own_session(session),
            is_open: false,
        }
    }

    /// The same for a `value` that a caller has chosen: it counts within the caller's tenant, so that nobody
    /// can use up, or learn of, what is another's.
    pub(super) fn chosen(
        self: &Arc<Self>,
        value: Arc<str>,
        owner: Owner<'_>,
        session: Option<&str>,
    ) -> AppliedLimit {
        let mut name = format!("{}/{value}", self.name);
        if let Some(session) = session.filter(|_| self.is_per_session()) {
            // No session has a space, which a value may have. Writing into a string cannot fail.
            let _ = write!(name, " {session}");
        }
        let limit = Arc::new(self.limit(CounterKey::new(owner.tenant, name)));
        let session = self.own_session(session);
        AppliedLimit { limit, rule: self.clone(), id: value, session, is_open: self.id.is_none() }
    }

    /// The session that has a counter of its own beside the value of another scope.
    fn own_session(&self, session: Option<&str>) -> Option<Arc<str>> {
        session.filter(|_| self.is_per_session() && self.scope != Scope::Session).map(Arc::from)
    }

    fn limit(&self, key: CounterKey) -> Limit {
        Limit { key, rule: self.rule, amount: self.amount, enforcement: self.enforcement }
    }

    /// The rule with its limit, if it has one counter whoever calls.
    fn with_only(self) -> Self {
        let value = match (self.scope, &self.id) {
            (Scope::Key | Scope::Session, _) => None,
            (Scope::Global, _) => Some(Scope::Global.name()),
            (_, id) => id.as_deref(),
        };
        let key = value
            .filter(|_| !self.is_per_session())
            .map(|value| CounterKey::new(partition(self.scope, value, value), self.name.clone()));
        Self { only: key.map(|key| Arc::new(self.limit(key))), ..self }
    }

    /// No id of a tenant or key has a slash, and a session's stands last: no two names are the same.
    fn name_for(&self, owner: Owner<'_>, session: Option<&str>) -> Arc<str> {
        let of_key = self.scope == Scope::Key;
        let session = session.filter(|_| self.is_per_session());
        if !of_key && session.is_none() {
            return self.name.clone();
        }
        let mut name = self.name.to_string();
        // Writing into a string cannot fail.
        if of_key {
            let _ = write!(name, "/{}", owner.key);
        }
        if let Some(session) = session {
            if !matches!(self.scope, Scope::Tenant | Scope::Key | Scope::Session) {
                let _ = write!(name, "/{}", owner.tenant);
            }
            let _ = write!(name, "/{session}");
        }
        name.into()
    }
}

/// Counters of a tenant, its keys and its sessions lie together, and so do those of values that its callers
/// choose ([`LimitRule::chosen`]); those of what tenants share lie with what they share.
fn partition(scope: Scope, value: &str, tenant: &str) -> Arc<str> {
    match scope {
        Scope::Global => Scope::Global.name().into(),
        Scope::Tenant | Scope::Key | Scope::Session => tenant.into(),
        // Providers may ignore the case of a model's name.
        Scope::Model => format!("{scope}:{}", value.to_ascii_lowercase()).into(),
        scope => format!("{scope}:{value}").into(),
    }
}

/// Whom the rules of one table are about.
#[derive(Clone, Copy)]
struct About<'a> {
    scope: Scope,
    id: Option<&'a Arc<str>>,
    models: Option<&'a ModelGlobs>,
}

impl About<'_> {
    fn rate(self, rate: &RateLimit) -> LimitRule {
        let window = rate.window;
        let rule = match rate.algorithm {
            Algorithm::SlidingWindow => Rule::SlidingWindow { window },
            Algorithm::BucketedWindow => Rule::BucketedWindow { window },
            Algorithm::TokenBucket => Rule::TokenBucket { window },
        };
        self.rule(Measure::Unit(rate.unit), rate.window_name(), rule, rate.amount)
    }

    fn budget(self, budget: &Budget) -> LimitRule {
        let rule = match budget.window {
            BudgetWindow::Period(period) => Rule::Calendar(period),
            BudgetWindow::Session => Rule::Idle { after: SESSION_IDLE },
        };
        let amount = Amount::new(budget.limit.get());
        // Under a hard budget an unpriced call would be free: it is blocked unless the budget says otherwise.
        let unpriced = budget.unpriced.or((budget.mode == Enforcement::Hard).then_some(Unpriced::Block));
        let rule = self.rule(Measure::MicroUsd, budget.window.name(), rule, amount);
        LimitRule { enforcement: budget.mode, unpriced, ..rule }
    }

    fn rule(self, measure: Measure, window: &'static str, rule: Rule, amount: Amount) -> LimitRule {
        LimitRule {
            scope: self.scope,
            id: self.id.cloned(),
            models: self.models.cloned(),
            measure,
            window,
            rule,
            amount,
            enforcement: Enforcement::Hard,
            unpriced: None,
            name: self.name(measure, window),
            only: None,
        }
    }

    /// `scope:unit:window`, with a star where each value has its own, and the globs as a set.
    fn name(self, measure: Measure, window: &str) -> Arc<str> {
        let star = if self.id.is_none() && self.scope != Scope::Global { "*" } else { "" };
        let mut name = format!("{}{star}:{}:{window}", self.scope, measure.name());
        // No glob has a bracket.
        for glob in self.models.map(ModelGlobs::as_set).unwrap_or_default() {
            let _ = write!(name, "[{glob}]");
        }
        name.into()
    }
}
