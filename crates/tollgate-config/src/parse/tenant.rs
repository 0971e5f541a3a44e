//! `[[tenants]]` with their limits, budgets and keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_limiter::{Amount, DurationMs, Enforcement, MicroUsd, Period, WINDOW_AMOUNT_MAX};
use toml::de::DeValue;

use super::context::{Context, Distinct};
use super::server::UNPRICED;
use crate::money::micro_usd;
use crate::nearest::nearest;
use crate::section::{Field, Section};
use crate::{Attributes, Budget, Key, KeyHash, RateLimit, Tenant, Unit, Unpriced};

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

const PERIODS: [(&str, Period); 6] = [
    ("minute", Period::Minute),
    ("hour", Period::Hour),
    ("day", Period::Day),
    ("week", Period::Week),
    ("month", Period::Month),
    ("total", Period::Total),
];

/// The attributes a key can have.
const ATTRIBUTES: [&str; 6] = ["org", "team", "project", "user", "customer", "business_unit"];

/// The longest value of an attribute.
const ATTRIBUTE_CHARS_MAX: usize = 128;

pub(super) fn tenants(context: &Context<'_>, root: &Section<'_>, unpriced: Unpriced) -> Vec<Tenant> {
    let sections = root.tables("tenants");
    if sections.is_empty() {
        context.problems.warn(&root.place_of("tenants"), "there is none: nobody can make a call");
    }
    let mut reader =
        Reader { context, unpriced, ids: Distinct::new(), keys: Distinct::new(), hashes: Distinct::new() };
    sections.into_iter().filter_map(|section| reader.tenant(section)).collect()
}

struct Reader<'a> {
    context: &'a Context<'a>,
    /// The deployment's rule, which a budget can only make stricter.
    unpriced: Unpriced,
    ids: Distinct<Arc<str>>,
    keys: Distinct<Arc<str>>,
    hashes: Distinct<KeyHash>,
}

impl Reader<'_> {
    fn tenant(&mut self, section: Section<'_>) -> Option<Tenant> {
        let id = self.context.id(&section);
        if let Some(id) = &id {
            self.ids.check(self.context.problems, Arc::clone(id), &section.place_of("id"), "this id");
        }
        let rates: Vec<_> = RATES.iter().filter_map(|rate| rate_limit(&section, *rate)).collect();
        let budgets = self.budgets(&section);
        if rates.is_empty() && budgets.is_empty() {
            self.context
                .problems
                .warn(section.place(), "has neither limit nor budget: its calls are not bounded");
        }
        let keys = section.tables("keys").into_iter().filter_map(|key| self.key(key)).collect();
        section.finish();
        Some(Tenant { id: id?, rates, budgets, keys })
    }

    fn budgets(&self, tenant: &Section<'_>) -> Vec<Budget> {
        let mut windows = Distinct::new();
        let budget = |section: Section<'_>| {
            let window = section.required("window").and_then(|field| period(&field));
            if let Some((name, _)) = window {
                windows.check(self.context.problems, name, &section.place_of("window"), "this window");
            }
            let limit = section.required("limit_usd").and_then(|field| amount_usd(&field));
            let modes = [("hard", Enforcement::Hard), ("soft", Enforcement::Soft)];
            let mode =
                section.field("mode").and_then(|field| field.choice(&modes)).unwrap_or(Enforcement::Hard);
            let unpriced = section.field("unpriced").and_then(|field| self.stricter(&field));
            section.finish();
            Some(Budget { period: window?.1, limit: limit?, mode, unpriced })
        };
        tenant.tables("budgets").into_iter().filter_map(budget).collect()
    }

    fn stricter(&self, field: &Field<'_>) -> Option<Unpriced> {
        let unpriced = field.choice(&UNPRICED)?;
        if unpriced < self.unpriced {
            field.fail("must not be laxer than `pricing.unpriced` (which is \"warn\" if it is left out)");
        }
        Some(unpriced)
    }

    fn key(&mut self, section: Section<'_>) -> Option<Key> {
        let id = self.context.id(&section);
        if let Some(id) = &id {
            self.keys.check(self.context.problems, Arc::clone(id), &section.place_of("id"), "this id");
        }
        let hash = self.hash(&section);
        let models = section.field("models").map(|field| self.context.globs(&field));
        let attributes = section.field("attributes").and_then(|field| field.section()).map(attributes);
        section.finish();
        let models = match models {
            Some(globs) => Some(globs?),
            None => None,
        };
        Some(Key { id: id?, hash: hash?, models, attributes: attributes.unwrap_or_default() })
    }

    fn hash(&mut self, section: &Section<'_>) -> Option<KeyHash> {
        let (written, variable) = (section.field("hash"), section.field("key_env"));
        let (field, hash) = match (written, variable) {
            (Some(field), None) => {
                let hash = field.text()?.parse().map_err(|message: &str| field.fail(message)).ok()?;
                (field, hash)
            }
            (None, Some(field)) => {
                let key = self.context.secret_from_variable(&field)?;
                (field, KeyHash::of(key.expose()))
            }
            (Some(_), Some(field)) => {
                field.fail("`hash` is there too: only one of them is possible");
                return None;
            }
            (None, None) => {
                let place = section.place_of("hash");
                self.context
                    .problems
                    .error(&place, "is missing: `hash` (or `key_env`) says which key this is");
                return None;
            }
        };
        self.hashes.check(self.context.problems, hash, field.place(), "this key");
        Some(hash)
    }
}

fn rate_limit(
    section: &Section<'_>,
    (name, unit, window_ms): (&'static str, Unit, u64),
) -> Option<RateLimit> {
    let amount = section.field(name)?.integer(0..=WINDOW_AMOUNT_MAX.get())?;
    Some(RateLimit { unit, window: DurationMs::new(window_ms), amount: Amount::new(amount) })
}

fn period(field: &Field<'_>) -> Option<(&'static str, Period)> {
    if field.value().as_str() == Some("session") {
        field.fail(
            "\"session\" is not available in this version; available: minute, hour, day, week, month, total",
        );
        return None;
    }
    field.choice(&PERIODS.map(|(name, period)| (name, (name, period))))
}

/// USD, read from the digits that are in the file.
fn amount_usd(field: &Field<'_>) -> Option<MicroUsd> {
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

fn attributes(section: Section<'_>) -> Attributes {
    let mut attributes = BTreeMap::new();
    for (name, field) in section.entries() {
        if !ATTRIBUTES.contains(&name) {
            let hint = nearest(name, &ATTRIBUTES).unwrap_or_default();
            field.fail(format!(
                "unknown attribute; the nearest known one is `{hint}`, all are {}",
                ATTRIBUTES.join(", ")
            ));
            continue;
        }
        let Some(value) = field.text() else { continue };
        if value.is_empty() || value.chars().count() > ATTRIBUTE_CHARS_MAX || value.contains(char::is_control)
        {
            field.fail(format!(
                "must be 1 to {ATTRIBUTE_CHARS_MAX} characters, none of them a control character"
            ));
            continue;
        }
        attributes.insert(Arc::from(name), Arc::from(value));
    }
    Arc::new(attributes)
}
