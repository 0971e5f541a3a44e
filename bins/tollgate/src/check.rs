//! `tollgate check`: is this configuration usable, and what may each key do?

use std::fmt::Write;

use tollgate_config::{Key, OutputReservation, Provider, Reservation, Store, Unpriced};
use tollgate_proxy::Setup;
use tollgate_store::{Clock, SystemClock};

use crate::{
    cli::{ConfigArgs, Failure},
    describe::describe_limit,
    load,
    out::print,
    store,
};

pub(crate) fn run(args: &ConfigArgs) -> Result<(), Failure> {
    // A failed check is refused input, not a server that cannot start.
    let failed = |failure: Failure| Failure::refused(failure.message);
    let (config, prices) = load::load(&args.config).map_err(failed)?;
    store::check(&config).map_err(failed)?;
    let models = prices.models().count();
    let setup = Setup::new(config.clone(), prices);
    // Writing into a string cannot fail.
    let mut out = String::new();
    for provider in &config.providers {
        let _ =
            writeln!(out, "provider {:<16} {:<10} {}", provider.id, protocol(provider), provider.base_url);
    }
    let _ = writeln!(out, "prices   {models} models");
    let _ = writeln!(out, "store    {}", store_of(&config.store));
    let _ = writeln!(out, "reserves {}", reservation(&config.reservation));
    for tenant in &config.tenants {
        let _ = writeln!(out, "\ntenant {}", tenant.id);
        for key in &tenant.keys {
            describe_key(&mut out, &setup, key);
        }
    }
    for warning in config.warnings.iter().chain(&setup.warnings(SystemClock::new().now())) {
        let _ = writeln!(out, "\nwarning: {warning}");
    }
    let _ = writeln!(out, "\n{}: ok", args.config.display());
    print(&out)
}

/// Where counters are. Not the URL, which may hold a password.
fn store_of(store: &Store) -> String {
    match store {
        Store::Redis(redis) => {
            let (retry_seconds, timeout_ms) = (redis.retry.as_secs(), redis.timeout.as_millis());
            let away = if redis.closed { "nothing passes" } else { "local limits" };
            format!(
                "redis, prefix {}, one of {} (local_share); away: {away}, tried every {retry_seconds} s, \
                 {timeout_ms} ms a call",
                redis.prefix, redis.local_share
            )
        }
        _ => "memory".to_owned(),
    }
}

fn describe_key(out: &mut String, setup: &Setup, key: &Key) {
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
    if !key.caller_attributes.is_empty() {
        let names: Vec<_> = key.caller_attributes.iter().map(|scope| scope.name()).collect();
        let _ = writeln!(out, "    accepts  {} from its callers", names.join(", "));
    }
    let limits = setup.key_limits(&key.hash).unwrap_or_default();
    if limits.is_empty() {
        let _ = writeln!(out, "    limits   none: every call passes");
    }
    for limit in &limits {
        let _ = writeln!(out, "    {}", describe_limit(limit));
    }
    let unpriced = match setup.unpriced(&key.hash) {
        Some(Unpriced::Block) => "refused",
        Some(Unpriced::Warn) => "logged, unless a budget of the call refuses them",
        _ => "passed, unless a budget of the call refuses them",
    };
    let _ = writeln!(out, "    models without a price: {unpriced}");
}

/// How much output is reserved, and what becomes of what is more.
fn reservation(reservation: &Reservation) -> String {
    match reservation.output_tokens {
        OutputReservation::Max if reservation.fit => {
            "the output limit of each request, lowered to what hard budgets afford".to_owned()
        }
        OutputReservation::Max => "the output limit of each request".to_owned(),
        OutputReservation::UpTo(tokens) => {
            let then = if reservation.cutoff { "cut off" } else { "let go on" };
            let slice = reservation.extend_tokens;
            format!(
                "up to {tokens} output tokens; under hard budgets streams grow by {slice}, or are {then} if they may not"
            )
        }
    }
}

const fn protocol(provider: &Provider) -> &'static str {
    match provider.protocol {
        tollgate_config::Protocol::Anthropic => "anthropic",
        _ => "openai",
    }
}
