//! Limits and money in words.

use tollgate_config::Scope;
use tollgate_limiter::Enforcement;
use tollgate_pricing::PicoUsd;
use tollgate_proxy::KeyLimit;

/// `rate     600 requests per minute, sliding-window: team ml, models claude-*`
pub(crate) fn describe_limit(limit: &KeyLimit) -> String {
    let amount = limit.amount;
    let what = match (limit.unit, limit.counting) {
        ("micro_usd", _) => {
            let micro = amount.get();
            let mode = if limit.enforcement == Enforcement::Hard { "hard" } else { "soft" };
            let window = if limit.window == "total" { "lifetime" } else { limit.window };
            format!("budget   {}.{:06} USD per {window}, {mode}", micro / 1_000_000, micro % 1_000_000)
        }
        (_, "elapsed") => format!("run      {} s since its first call", amount.get() / 1_000),
        (unit, "idle") => format!("run      {amount} {unit}"),
        (_, "open") => format!("open     {amount} requests at a time"),
        (unit, "request") => format!("size     {amount} {unit} per request"),
        (unit, algorithm) => format!("rate     {amount} {unit} per {}, {algorithm}", limit.window),
    };
    let whose = match (limit.scope, &limit.id) {
        (Scope::Global, _) => "global".to_owned(),
        (scope, Some(id)) => format!("{scope} {id}"),
        (scope, None) => format!("each {scope}"),
    };
    let models = limit.models.as_ref();
    let models = models.map_or_else(String::new, |globs| format!(", models {}", globs.join(", ")));
    format!("{what}: {whose}{models}")
}

/// Dollars, exact, without needless zeros.
pub(crate) fn usd(pico: PicoUsd) -> String {
    const PICO_IN_USD: u128 = 1_000_000_000_000;
    let text = format!("{}.{:012}", pico.get() / PICO_IN_USD, pico.get() % PICO_IN_USD);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
