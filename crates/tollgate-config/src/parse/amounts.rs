//! The amounts that tenants and limits have in common: rates, money, windows.

use tollgate_limiter::{Amount, DurationMs, Enforcement, MicroUsd, WINDOW_AMOUNT_MAX};
use toml::de::DeValue;

use super::server::UNPRICED;
use crate::money::micro_usd;
use crate::section::{Field, Section};
use crate::{Algorithm, BudgetWindow, RateLimit, Unit, Unpriced};

const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// The fields that are rate limits.
const RATES: [(&str, Unit, u64); 16] = [
    ("requests_per_second", Unit::Requests, SECOND_MS),
    ("requests_per_minute", Unit::Requests, MINUTE_MS),
    ("requests_per_hour", Unit::Requests, HOUR_MS),
    ("requests_per_day", Unit::Requests, DAY_MS),
    ("tokens_per_second", Unit::Tokens, SECOND_MS),
    ("tokens_per_minute", Unit::Tokens, MINUTE_MS),
    ("tokens_per_hour", Unit::Tokens, HOUR_MS),
    ("tokens_per_day", Unit::Tokens, DAY_MS),
    ("input_tokens_per_second", Unit::InputTokens, SECOND_MS),
    ("input_tokens_per_minute", Unit::InputTokens, MINUTE_MS),
    ("input_tokens_per_hour", Unit::InputTokens, HOUR_MS),
    ("input_tokens_per_day", Unit::InputTokens, DAY_MS),
    ("output_tokens_per_second", Unit::OutputTokens, SECOND_MS),
    ("output_tokens_per_minute", Unit::OutputTokens, MINUTE_MS),
    ("output_tokens_per_hour", Unit::OutputTokens, HOUR_MS),
    ("output_tokens_per_day", Unit::OutputTokens, DAY_MS),
];

/// A rate limit and its field's name.
pub(super) type NamedRate = (&'static str, RateLimit);

/// The rate limits of a table, each counted by `algorithm`.
pub(super) fn rates(section: &Section<'_>, algorithm: Algorithm) -> Vec<NamedRate> {
    let rate = |(name, unit, window_ms): &(&'static str, Unit, u64)| {
        let amount = amount(&section.field(name)?)?;
        Some((*name, RateLimit { unit: *unit, window: DurationMs::new(*window_ms), amount, algorithm }))
    };
    RATES.iter().filter_map(rate).collect()
}

/// Whether a table names a rate limit, right or wrong.
pub(super) fn has_rates(section: &Section<'_>) -> bool {
    RATES.iter().any(|(name, ..)| section.field(name).is_some())
}

/// A number of requests or tokens.
pub(super) fn amount(field: &Field<'_>) -> Option<Amount> {
    field.integer(0..=WINDOW_AMOUNT_MAX.get()).map(Amount::new)
}

/// The window of a budget.
pub(super) fn budget_window(field: &Field<'_>) -> Option<BudgetWindow> {
    field.choice(&BudgetWindow::ALL.map(|window| (window.name(), window)))
}

/// The mode of a budget.
pub(super) fn mode(field: &Field<'_>) -> Option<Enforcement> {
    field.choice(&[("hard", Enforcement::Hard), ("soft", Enforcement::Soft)])
}

/// What a budget demands of models without a price: not less than the whole `deployment` does.
pub(super) fn stricter(field: &Field<'_>, deployment: Unpriced) -> Option<Unpriced> {
    let unpriced = field.choice(&UNPRICED)?;
    if unpriced < deployment {
        field.fail("must not be laxer than `pricing.unpriced` (which is \"warn\" if it is left out)");
    }
    Some(unpriced)
}

/// USD, read from the digits that are in the file.
pub(super) fn usd(field: &Field<'_>) -> Option<MicroUsd> {
    let digits = match field.value() {
        DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str(),
        DeValue::Float(decimal) => decimal.as_str(),
        DeValue::String(text) => text,
        _ => {
            field.fail_type("an amount in USD");
            return None;
        }
    };
    micro_usd(digits).map_err(|message| field.fail(message)).ok()
}
