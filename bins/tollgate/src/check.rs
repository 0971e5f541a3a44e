//! `tollgate check`: is this configuration usable, and what may each key do?

use std::fmt::Write;

use tollgate_config::{Config, Key, Provider, Tenant};
use tollgate_limiter::{Enforcement, Period};

use crate::{
    cli::{ConfigArgs, Failure},
    out::print,
    serve,
};

pub(crate) fn run(args: &ConfigArgs) -> Result<(), Failure> {
    // A failed check is refused input, not a server that cannot start.
    let (config, prices) = serve::load(&args.config).map_err(|failure| Failure::refused(failure.message))?;
    // Writing into a string cannot fail.
    let mut out = String::new();
    for provider in &config.providers {
        let _ =
            writeln!(out, "provider {:<16} {:<10} {}", provider.id, protocol(provider), provider.base_url);
    }
    let _ = writeln!(out, "prices   {} models", prices.models().count());
    for tenant in &config.tenants {
        let _ = writeln!(out, "\ntenant {}", tenant.id);
        for key in &tenant.keys {
            describe_key(&mut out, &config, tenant, key);
        }
    }
    for warning in &config.warnings {
        let _ = writeln!(out, "\nwarning: {warning}");
    }
    let _ = writeln!(out, "\n{}: ok", args.config.display());
    print(&out)
}

fn describe_key(out: &mut String, config: &Config, tenant: &Tenant, key: &Key) {
    let _ = writeln!(out, "  key {}", key.id);
    match &key.models {
        Some(models) => {
            let _ = writeln!(out, "    models   {}", models.patterns().join(", "));
        }
        None => {
            let _ = writeln!(out, "    models   all");
        }
    }
    let attributes: Vec<_> = key.attributes.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if !attributes.is_empty() {
        let _ = writeln!(out, "    carries  {}", attributes.join(", "));
    }
    if tenant.rates.is_empty() && tenant.budgets.is_empty() {
        let _ = writeln!(out, "    limits   none: every call passes");
    }
    for limit in limits(tenant) {
        let _ = writeln!(out, "    {limit}");
    }
    let hard = tenant.budgets.iter().any(|budget| budget.mode == Enforcement::Hard);
    if !hard {
        let _ = writeln!(out, "    models without a price: {:?}", config.pricing.unpriced);
    }
}

/// The tenant's limits, most restrictive first: the smaller the amount per day, the earlier.
fn limits(tenant: &Tenant) -> Vec<String> {
    let mut rates: Vec<_> = tenant.rates.iter().collect();
    rates.sort_by_key(|rate| {
        let per_day = u128::from(rate.amount.get()) * (86_400_000 / u128::from(rate.window.get().max(1)));
        (rate.unit.name(), per_day)
    });
    let mut budgets: Vec<_> = tenant.budgets.iter().collect();
    budgets.sort_by_key(|budget| (budget.mode == Enforcement::Soft, budget.limit));
    let rates = rates.into_iter().map(|rate| {
        format!("rate     {} {} in {} s, sliding", rate.amount, rate.unit.name(), rate.window.get() / 1000)
    });
    let budgets = budgets.into_iter().map(|budget| {
        let mode = if budget.mode == Enforcement::Hard { "hard" } else { "soft" };
        let micro = budget.limit.get();
        format!(
            "budget   {}.{:06} USD per {}, {mode}",
            micro / 1_000_000,
            micro % 1_000_000,
            period(budget.period)
        )
    });
    rates.chain(budgets).collect()
}

const fn period(period: Period) -> &'static str {
    match period {
        Period::Minute => "minute",
        Period::Hour => "hour",
        Period::Day => "day",
        Period::Week => "week",
        Period::Month => "month",
        Period::Total => "lifetime",
    }
}

const fn protocol(provider: &Provider) -> &'static str {
    match provider.protocol {
        tollgate_config::Protocol::Anthropic => "anthropic",
        _ => "openai",
    }
}
