//! The configuration as the request path needs it: limits compiled per key, looked up by hash.

use std::{collections::HashMap, fmt, sync::Arc};

use foldhash::quality::RandomState;
use tollgate_config::{Config, KeyHash, ModelGlobs, OutputReservation, Route, Tenant, Unit, Unpriced};
use tollgate_limiter::{Amount, CounterKey, DurationMs, Enforcement, ExactAmount, Limit, Period, Rule};
use tollgate_pricing::PriceTable;
use tollgate_usage::Attributes;

use crate::amounts::Amounts;

/// Everything a request is judged by. Immutable; a reload makes a new one.
pub(crate) struct Policy {
    keys: HashMap<KeyHash, Arc<KeyPolicy>, RandomState>,
    tenants: HashMap<Arc<str>, Arc<[TenantLimit]>>,
    routes: Vec<Route>,
    /// The price table.
    pub(crate) prices: Arc<PriceTable>,
    /// How much output is reserved.
    pub(crate) output_reservation: OutputReservation,
}

/// What one key may do.
pub(crate) struct KeyPolicy {
    /// The key's tenant.
    pub(crate) tenant: Arc<str>,
    /// The key's name.
    pub(crate) key: Arc<str>,
    /// The models it may call.
    pub(crate) models: Option<ModelGlobs>,
    /// What its events carry.
    pub(crate) attributes: Attributes,
    /// Limits of a call that costs tokens and money.
    pub(crate) billed: Arc<[TenantLimit]>,
    /// Limits of a call that costs nothing.
    pub(crate) unbilled: Arc<[TenantLimit]>,
    /// What happens to a model without a price.
    pub(crate) unpriced: Unpriced,
}

/// One limit with what its messages say.
#[derive(Clone, Debug)]
pub(crate) struct TenantLimit {
    /// As the store decides it.
    pub(crate) limit: Arc<Limit>,
    /// What it counts.
    pub(crate) measure: Measure,
    /// What it is about.
    pub(crate) scope: &'static str,
    /// Whose it is.
    pub(crate) id: Arc<str>,
    /// The window's name.
    pub(crate) window: &'static str,
}

/// What a limit counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Measure {
    /// Requests or tokens.
    Unit(Unit),
    /// Money.
    MicroUsd,
}

impl Measure {
    /// The name used in events and metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Unit(unit) => unit.name(),
            Self::MicroUsd => "micro_usd",
        }
    }

    /// What a request would add, rounded up.
    pub(crate) fn charge(self, amounts: &Amounts) -> Amount {
        self.exact(amounts).rounded_up()
    }

    /// What a request really added.
    pub(crate) fn exact(self, amounts: &Amounts) -> ExactAmount {
        match self {
            Self::Unit(Unit::Requests) => ExactAmount::whole(amounts.requests),
            Self::Unit(Unit::Tokens) => {
                ExactAmount::whole(amounts.input_tokens.saturating_add(amounts.output_tokens))
            }
            Self::Unit(Unit::InputTokens) => ExactAmount::whole(amounts.input_tokens),
            Self::Unit(Unit::OutputTokens) => ExactAmount::whole(amounts.output_tokens),
            Self::MicroUsd => amounts.cost.to_exact(),
        }
    }

    const fn applies_to_unbilled(self) -> bool {
        matches!(self, Self::Unit(Unit::Requests))
    }
}

impl Policy {
    /// Compiles `config` with the price table it names.
    pub(crate) fn new(config: &Config, prices: Arc<PriceTable>) -> Self {
        let mut keys = HashMap::default();
        let mut tenants = HashMap::new();
        for tenant in &config.tenants {
            let billed: Arc<[TenantLimit]> = compile(tenant).into();
            let unbilled: Arc<[TenantLimit]> =
                billed.iter().filter(|limit| limit.measure.applies_to_unbilled()).cloned().collect();
            let unpriced = unpriced_rule(tenant, config.pricing.unpriced);
            for key in &tenant.keys {
                let policy = KeyPolicy {
                    tenant: tenant.id.clone(),
                    key: key.id.clone(),
                    models: key.models.clone(),
                    attributes: key.attributes.clone(),
                    billed: billed.clone(),
                    unbilled: unbilled.clone(),
                    unpriced,
                };
                keys.insert(key.hash, Arc::new(policy));
            }
            tenants.insert(tenant.id.clone(), billed);
        }
        Self {
            keys,
            tenants,
            routes: config.routes.clone(),
            prices,
            output_reservation: config.reservation.output_tokens,
        }
    }

    /// The key whose hash this is.
    pub(crate) fn key(&self, hash: &KeyHash) -> Option<&Arc<KeyPolicy>> {
        self.keys.get(hash)
    }

    /// All limits of a tenant; none for a tenant that is not configured.
    pub(crate) fn tenant_limits(&self, tenant: &str) -> &[TenantLimit] {
        self.tenants.get(tenant).map_or(&[], |limits| limits)
    }

    /// The provider id that the first matching route names.
    pub(crate) fn route(&self, model: &str) -> Option<&str> {
        self.routes.iter().find(|route| route.models.matches(model)).map(|route| &*route.provider)
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

/// A budget can only be stricter than the deployment; a hard one blocks unless it says otherwise,
/// since an unpriced call would be free.
fn unpriced_rule(tenant: &Tenant, deployment: Unpriced) -> Unpriced {
    let of_budget = |budget: &tollgate_config::Budget| match (budget.unpriced, budget.mode) {
        (Some(rule), _) => rule,
        (None, Enforcement::Hard) => Unpriced::Block,
        (None, Enforcement::Soft) => deployment,
    };
    tenant.budgets.iter().map(of_budget).fold(deployment, Unpriced::max)
}

fn compile(tenant: &Tenant) -> Vec<TenantLimit> {
    let rates = tenant.rates.iter().map(|rate| {
        let window = window_name(rate.window);
        let rule = Rule::SlidingWindow { window: rate.window };
        tenant_limit(tenant, Measure::Unit(rate.unit), window, rule, rate.amount, Enforcement::Hard)
    });
    let budgets = tenant.budgets.iter().map(|budget| {
        let window = period_name(budget.period);
        let rule = Rule::Calendar(budget.period);
        let amount = Amount::new(budget.limit.get());
        tenant_limit(tenant, Measure::MicroUsd, window, rule, amount, budget.mode)
    });
    rates.chain(budgets).collect()
}

fn tenant_limit(
    tenant: &Tenant,
    measure: Measure,
    window: &'static str,
    rule: Rule,
    amount: Amount,
    enforcement: Enforcement,
) -> TenantLimit {
    let scope = "tenant";
    // The amount is no part of the name: raising a limit keeps what was spent.
    let key = CounterKey::new(tenant.id.clone(), format!("{scope}:{}:{window}", measure.name()));
    TenantLimit {
        limit: Arc::new(Limit { key, rule, amount, enforcement }),
        measure,
        scope,
        id: tenant.id.clone(),
        window,
    }
}

const fn window_name(window: DurationMs) -> &'static str {
    match window.get() {
        1_000 => "second",
        60_000 => "minute",
        3_600_000 => "hour",
        _ => "day",
    }
}

const fn period_name(period: Period) -> &'static str {
    match period {
        Period::Minute => "minute",
        Period::Hour => "hour",
        Period::Day => "day",
        Period::Week => "week",
        Period::Month => "month",
        Period::Total => "total",
    }
}
