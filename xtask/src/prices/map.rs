//! Reads the price map. Numbers stay the text that stands in the file: they are exact decimals, and
//! a JSON reader would make floats of them.

use std::collections::BTreeMap;
use std::error::Error;

use serde_json::value::RawValue;
use tollgate_pricing::{Class, Decimal};

/// One model of the map.
pub(super) struct Entry {
    pub(super) id: String,
    pub(super) provider: String,
    pub(super) mode: String,
    fields: BTreeMap<String, Box<RawValue>>,
}

/// What a field that ends in a price is about.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct PriceField<'a> {
    pub(super) class: Class,
    /// Holds for requests with more input tokens than this.
    pub(super) above: Option<u64>,
    pub(super) tier: Option<&'a str>,
}

/// The map's models, in the order of their ids.
pub(super) fn read(text: &str) -> Result<Vec<Entry>, Box<dyn Error>> {
    let map: BTreeMap<String, BTreeMap<String, Box<RawValue>>> = serde_json::from_str(text)?;
    let entries = map.into_iter().map(|(id, fields)| {
        let text = |name: &str| -> String {
            fields.get(name).and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
        };
        Entry { provider: text("litellm_provider"), mode: text("mode"), id, fields }
    });
    Ok(entries.collect())
}

impl Entry {
    /// The number that stands in a field.
    pub(super) fn number(&self, name: &str) -> Option<Decimal> {
        self.fields.get(name).and_then(|raw| number(raw))
    }

    /// The numbers of an object in a field.
    pub(super) fn numbers(&self, name: &str) -> BTreeMap<String, Decimal> {
        let object = self
            .fields
            .get(name)
            .and_then(|raw| serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(raw.get()).ok());
        let numbers = object.into_iter().flatten().filter_map(|(key, raw)| Some((key, number(&raw)?)));
        numbers.collect()
    }

    /// All fields with a price, and their prices.
    pub(super) fn costs(&self) -> impl Iterator<Item = (&str, Decimal)> {
        self.fields
            .iter()
            .filter(|(name, _)| name.contains("_cost"))
            .filter_map(|(name, raw)| Some((name.as_str(), number(raw)?)))
    }
}

fn number(raw: &RawValue) -> Option<Decimal> {
    raw.get().trim_matches('"').parse().ok()
}

/// The token classes by the beginning of their field's name. A longer name stands before its beginning.
const TOKEN_FIELDS: [(&str, Class); 11] = [
    ("cache_creation_input_token_cost_above_1hr", Class::CacheWrite1h),
    ("cache_creation_input_token_cost", Class::CacheWrite),
    ("cache_read_input_audio_token_cost", Class::CachedAudioInput),
    ("cache_read_input_token_cost", Class::CacheRead),
    ("input_cost_per_audio_token", Class::AudioInput),
    ("input_cost_per_image_token", Class::ImageInput),
    ("input_cost_per_token", Class::Input),
    ("output_cost_per_audio_token", Class::AudioOutput),
    ("output_cost_per_image_token", Class::ImageOutput),
    ("output_cost_per_reasoning_token", Class::Reasoning),
    ("output_cost_per_token", Class::Output),
];

/// The service tiers by the end of their fields' names, and how providers name them.
const TIERS: [(&str, &str); 4] =
    [("batches", "batch"), ("flex", "flex"), ("priority", "priority"), ("ultrafast", "ultrafast")];

/// A price set of the map that no provider lists as a service tier.
const DECISIONS: &str = "decisions";

/// What a token price is about; `None` for prices of other things and in ways the table cannot say.
pub(super) fn token_field(name: &str) -> Option<PriceField<'static>> {
    let (class, mut rest) =
        TOKEN_FIELDS.iter().find_map(|(start, class)| Some((*class, name.strip_prefix(start)?)))?;
    let mut above = None;
    if let Some(after) = rest.strip_prefix("_above_") {
        let (thousands, after) = after.split_once("k_tokens")?;
        above = Some(thousands.parse::<u64>().ok()?.checked_mul(1_000)?);
        rest = after;
    }
    let tier = match rest.strip_prefix('_') {
        None if rest.is_empty() => None,
        None => return None,
        Some(suffix) => Some(TIERS.iter().find(|(end, _)| *end == suffix)?.1),
    };
    Some(PriceField { class, above, tier })
}

/// The field's name without its tier and context step, for a note.
pub(super) fn kind(name: &str) -> &str {
    if name.ends_with(DECISIONS) {
        return DECISIONS;
    }
    let untiered = TIERS.iter().find_map(|(end, _)| name.strip_suffix(end)?.strip_suffix('_'));
    let name = untiered.unwrap_or(name);
    match name.strip_suffix("k_tokens").and_then(|stepped| stepped.rsplit_once("_above_")) {
        Some((start, _)) => start,
        None => name,
    }
}
