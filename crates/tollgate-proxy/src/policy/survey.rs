//! What a configuration comes to: the limits of each key, and what it cannot mean.

use std::{collections::HashSet, sync::Arc};

use tollgate_config::{KeyHash, Scope, nearest};
use tollgate_limiter::{Amount, ENTRIES_MAX, Enforcement, Rule, TimestampMs};
use tollgate_pricing::ModelPrice;

use super::{AppliedLimit, KeyPolicy, LimitRule, Measure, Owner, Policy, reach::Reach};

/// One limit that calls of a key can meet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyLimit {
    /// What it is about.
    pub scope: Scope,
    /// The one value it is for. `None`: each value has a counter of its own, and the call decides which.
    pub id: Option<String>,
    /// Globs over the models that count; `None`: all.
    pub models: Option<Vec<String>>,
    /// What it counts, as in usage events.
    pub unit: &'static str,
    /// Its window, as in usage events.
    pub window: &'static str,
    /// The most it lets through: requests, tokens, micro-USD or, of a run, milliseconds.
    pub amount: Amount,
    /// How it counts: the algorithm's name of a rate limit, else `calendar`, `idle`, `elapsed`, `open` or
    /// `request`.
    pub counting: &'static str,
    /// Whether it refuses or warns.
    pub enforcement: Enforcement,
}

impl Policy {
    /// The limits that calls of a key can meet, the most restrictive first; `None` for a key that is not
    /// configured.
    ///
    /// Units come one after the other; within each, what lets the least through in a month is first, and
    /// what only warns is last. Limits of models that the key may not call are left out.
    pub(crate) fn key_limits(&self, hash: &KeyHash) -> Option<Vec<KeyLimit>> {
        let key = self.key(hash)?;
        let mut limits: Vec<_> =
            self.rules_of(key).map(|(rule, value)| (rank(rule), KeyLimit::new(rule, value))).collect();
        limits.sort_by_key(|(rank, _)| *rank);
        Some(limits.into_iter().map(|(_, limit)| limit).collect())
    }

    /// The budgets whose counters are known without a call: all but those of what callers choose, and of
    /// sessions.
    pub(crate) fn known_budgets(&self) -> Vec<AppliedLimit> {
        let of_keys = self.keys.values().flat_map(|key| {
            let bound = key.bound.iter().filter(|limit| !limit.rule.is_per_session());
            key.fixed.iter().chain(bound)
        });
        let mut budgets: Vec<_> =
            of_keys.filter(|limit| limit.rule.measure == Measure::MicroUsd).cloned().collect();
        let named = [Scope::Provider, Scope::Model].into_iter().flat_map(|scope| self.rules.of_scope(scope));
        let named = named.filter(|rule| rule.measure == Measure::MicroUsd && !rule.is_per_session());
        budgets.extend(named.filter_map(|rule| {
            let id = rule.id.clone()?;
            Some(rule.applied(id, Owner { tenant: "", key: "" }, None))
        }));
        let mut seen = HashSet::new();
        budgets.retain(|budget| seen.insert(budget.limit.key.clone()));
        budgets
    }

    /// The key called `id`.
    pub(crate) fn key_named(&self, id: &str) -> Option<&Arc<KeyPolicy>> {
        self.keys.values().find(|key| &*key.key == id)
    }

    /// What is allowed but probably not meant, one sentence each.
    pub(crate) fn warnings(&self, at: TimestampMs) -> Vec<String> {
        let mut warnings: Vec<_> = self.rules.all().filter_map(|rule| self.warning(rule, at)).collect();
        for key in self.keys.values() {
            let most = self.rules_of(key).count();
            if most > ENTRIES_MAX {
                warnings.push(format!(
                    "key `{}` can meet {most} limits, and a call can be checked against {ENTRIES_MAX}: \
                     calls that meet more are refused",
                    key.key
                ));
            }
        }
        // Several amounts of one table have one filter.
        warnings.sort();
        warnings.dedup();
        warnings
    }

    /// A limit on models of which none has a price: likely a misspelt name.
    fn warning(&self, rule: &LimitRule, at: TimestampMs) -> Option<String> {
        let subject = || match &rule.id {
            Some(id) => format!("the limit of {} `{id}`", rule.scope),
            None => format!("the limit of scope `{}`", rule.scope),
        };
        let priced = |price: &ModelPrice| rule.passes(price.id(), price.id());
        if let Some(models) = rule.models.as_ref().filter(|_| !self.prices.models().any(priced)) {
            let globs = models.patterns().join(", ");
            let hint = models.patterns().first().map_or_else(String::new, |glob| self.nearest_model(glob));
            return Some(format!(
                "{} is for models {globs}, and no model with a price matches{hint}",
                subject()
            ));
        }
        let callers_choose = || rule.scope == Scope::Session || self.is_set_by_callers(rule.scope);
        if rule.window == "total" && rule.id.is_none() && callers_choose() {
            return Some(format!(
                "{} has window \"total\", and callers choose the {}: a counter is kept for ever for each that they \
                 name",
                subject(),
                rule.scope
            ));
        }
        if let Some(id) = rule.id.as_deref().filter(|_| rule.scope == Scope::Model) {
            return self.name_warning(id, at).map(|warning| format!("{}: {warning}", subject()));
        }
        let bounds =
            rule.is_of_run() || rule.measure == Measure::MicroUsd && rule.enforcement == Enforcement::Hard;
        (bounds && rule.is_per_session() && !self.sessions.derive).then(|| {
            let subject = subject();
            let what = if rule.is_of_run() { "run" } else { "budget" };
            format!(
                "{subject} has a {what} for each session, and `sessions.derive` is off: calls that name no session \
                 are not bounded by it"
            )
        })
    }

    /// A limit for one model, by a name that no row of the price table has.
    fn name_warning(&self, id: &str, at: TimestampMs) -> Option<String> {
        if self.prices.models().any(|price| price.id().eq_ignore_ascii_case(id)) {
            return None;
        }
        Some(match self.prices.lookup(id, at) {
            Some(price) => format!(
                "it holds for calls that use this very name; \"{}\" is the model's id, and a limit for that holds \
                 for all its names",
                price.id()
            ),
            None => format!("no model of that name has a price{}", self.nearest_model(id)),
        })
    }

    fn nearest_model(&self, name: &str) -> String {
        let ids: Vec<&str> = self.prices.models().map(ModelPrice::id).collect();
        nearest(name, &ids).map_or_else(String::new, |near| format!("; the nearest one is {near:?}"))
    }

    fn is_set_by_callers(&self, scope: Scope) -> bool {
        self.keys.values().any(|key| key.caller_attributes.contains(&scope))
    }

    /// The rules that calls of a key can meet, those of models it may call among them, with the value where the key decides it.
    fn rules_of<'a>(&'a self, key: &'a KeyPolicy) -> impl Iterator<Item = (&'a LimitRule, Option<&'a str>)> {
        let fixed = key.fixed.iter().chain(&key.bound).map(|limit| {
            let value = (limit.rule.scope != Scope::Session).then_some(&*limit.id);
            (&*limit.rule, value)
        });
        let open = [Scope::Provider, Scope::Model, Scope::Session];
        let open = open.into_iter().chain(key.caller_attributes.iter().copied());
        let open =
            open.flat_map(|scope| self.rules.of_scope(scope).map(|rule| (&**rule, rule.id.as_deref())));
        let reach = Reach::new(key.models.as_ref(), &self.prices);
        fixed.chain(open).filter(move |(rule, _)| reach.meets(rule))
    }
}

impl KeyLimit {
    /// What a rule says, for `value` of its scope.
    pub(crate) fn new(rule: &LimitRule, value: Option<&str>) -> Self {
        Self {
            scope: rule.scope,
            id: value.map(str::to_owned),
            models: rule
                .models
                .as_ref()
                .map(|globs| globs.patterns().iter().map(|glob| glob.to_string()).collect()),
            unit: rule.measure.name(),
            window: rule.window,
            amount: rule.amount,
            counting: counting(rule.rule),
            enforcement: rule.enforcement,
        }
    }
}

const fn counting(rule: Rule) -> &'static str {
    match rule {
        Rule::SlidingWindow { .. } => "sliding-window",
        Rule::BucketedWindow { .. } => "bucketed-window",
        Rule::TokenBucket { .. } => "token-bucket",
        Rule::Calendar(_) => "calendar",
        Rule::Idle { .. } => "idle",
        Rule::Elapsed { .. } => "elapsed",
        Rule::Concurrent => "open",
        _ => "request",
    }
}

/// Orders limits: by unit, what refuses before what warns, then by the most that it lets through in a
/// month of 31 days. A lifetime's amount is all that ever passes; each of any number of sessions has its
/// own: they come last.
fn rank(rule: &LimitRule) -> (&'static str, bool, u128) {
    let amount = u128::from(rule.amount.get());
    // An amount has 64 bits, a month fewer than 22.
    let per_month = match rule.window {
        "second" => amount * 31 * 86_400,
        "minute" => amount * 31 * 1_440,
        "hour" => amount * 31 * 24,
        "day" => amount * 31,
        "week" => amount * 31 / 7,
        "session" | "run" => u128::MAX,
        _ => amount,
    };
    (rule.measure.name(), rule.enforcement == Enforcement::Soft, per_month)
}
