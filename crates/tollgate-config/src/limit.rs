//! Limits: whom they are about, what they count, how much they allow.

use std::fmt;
use std::sync::Arc;

use tollgate_limiter::{Amount, DurationMs, Enforcement, MicroUsd, Period};

use crate::{ModelGlobs, Unpriced};

/// What a limit is about: calls that share a value of it share a counter.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Scope {
    /// All calls.
    Global,
    /// The owner of the key.
    Tenant,
    /// The attribute `org`.
    Org,
    /// The attribute `team`.
    Team,
    /// The attribute `project`.
    Project,
    /// The key.
    Key,
    /// The attribute `user`.
    User,
    /// The attribute `customer`.
    Customer,
    /// The attribute `business_unit`.
    BusinessUnit,
    /// The model that is called.
    Model,
    /// The provider that is called.
    Provider,
    /// The session, within its tenant.
    Session,
}

impl Scope {
    /// All scopes, in the order in which messages list them.
    pub const ALL: [Self; 12] = [
        Self::Global,
        Self::Tenant,
        Self::Org,
        Self::Team,
        Self::Project,
        Self::Key,
        Self::User,
        Self::Customer,
        Self::BusinessUnit,
        Self::Model,
        Self::Provider,
        Self::Session,
    ];

    /// The scopes whose value is an attribute of a key or, where the key allows it, of a call.
    pub const ATTRIBUTES: [Self; 6] =
        [Self::Org, Self::Team, Self::Project, Self::User, Self::Customer, Self::BusinessUnit];

    /// The name in the configuration, in events and in messages. An attribute's scope has its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Tenant => "tenant",
            Self::Org => "org",
            Self::Team => "team",
            Self::Project => "project",
            Self::Key => "key",
            Self::User => "user",
            Self::Customer => "customer",
            Self::BusinessUnit => "business_unit",
            Self::Model => "model",
            Self::Provider => "provider",
            Self::Session => "session",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One `[[limits]]` table: everything that is limited for one scope.
#[derive(Clone, Debug)]
pub struct ScopedLimit {
    /// What it is about.
    pub scope: Scope,
    /// The one value it is for; `None`: every value has counters of its own, and the global scope has
    /// only one. A model's name means the same in any case of its letters.
    pub id: Option<Arc<str>>,
    /// The models whose calls count, in any case of their letters; `None`: all.
    pub models: Option<ModelGlobs>,
    /// Rate limits, at most one for each unit and window.
    pub rates: Vec<RateLimit>,
    /// The most calls that are open at a time.
    pub max_concurrent: Option<Amount>,
    /// The most tokens, input and output, that one request may need.
    pub max_request_tokens: Option<Amount>,
    /// The largest spend (`budget_usd` with `window`, `mode` and `unpriced`).
    pub budget: Option<Budget>,
}

/// Requests or tokens over a window.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RateLimit {
    /// What is counted.
    pub unit: Unit,
    /// The window's length: a second, a minute, an hour or a day.
    pub window: DurationMs,
    /// The most in a window. Zero lets nothing through that counts.
    pub amount: Amount,
    /// How the window is counted.
    pub algorithm: Algorithm,
}

impl RateLimit {
    /// The window's name in the configuration, in events and in messages.
    pub const fn window_name(&self) -> &'static str {
        match self.window.get() {
            1_000 => "second",
            60_000 => "minute",
            3_600_000 => "hour",
            _ => "day",
        }
    }
}

/// How a rate limit counts.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Algorithm {
    /// `sliding-window`: the current window and the part of the previous one that is still in sight.
    #[default]
    SlidingWindow,
    /// `bucketed-window`: in no period of the window's length more than the amount.
    BucketedWindow,
    /// `token-bucket`: bursts up to the amount, refilled evenly over the window.
    TokenBucket,
}

impl Algorithm {
    /// The name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SlidingWindow => "sliding-window",
            Self::BucketedWindow => "bucketed-window",
            Self::TokenBucket => "token-bucket",
        }
    }
}

/// What a rate limit counts.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Unit {
    /// Requests.
    Requests,
    /// All tokens, input and output.
    Tokens,
    /// Input tokens, cached ones included.
    InputTokens,
    /// Output tokens.
    OutputTokens,
}

impl Unit {
    /// The name that configuration fields, events and messages use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::InputTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
        }
    }
}

/// The largest spend in a window.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Budget {
    /// What the spend is summed over.
    pub window: BudgetWindow,
    /// The most that is spent in it (`limit_usd` of a tenant, `budget_usd` of a limit).
    pub limit: MicroUsd,
    /// Whether it refuses or warns.
    pub mode: Enforcement,
    /// What this budget demands of models without a price; `None`: nothing beyond the deployment's rule.
    pub unpriced: Option<Unpriced>,
}

/// What a budget sums over.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum BudgetWindow {
    /// A calendar period in UTC.
    Period(Period),
    /// All calls of one session of one tenant; forgotten a day after the last one.
    Session,
}

impl BudgetWindow {
    /// All windows, in the order in which messages list them.
    pub const ALL: [Self; 7] = [
        Self::Period(Period::Minute),
        Self::Period(Period::Hour),
        Self::Period(Period::Day),
        Self::Period(Period::Week),
        Self::Period(Period::Month),
        Self::Period(Period::Total),
        Self::Session,
    ];

    /// The name in the configuration, in events and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Period(Period::Minute) => "minute",
            Self::Period(Period::Hour) => "hour",
            Self::Period(Period::Day) => "day",
            Self::Period(Period::Week) => "week",
            Self::Period(Period::Month) => "month",
            Self::Period(Period::Total) => "total",
            Self::Session => "session",
        }
    }
}
