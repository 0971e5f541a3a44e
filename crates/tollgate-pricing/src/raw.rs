//! The price table as it is written: names checked, numbers still text so that none becomes a float.

use core::fmt;
use std::collections::BTreeMap;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use crate::class::Class;

/// The whole file.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawTable {
    pub(crate) models: BTreeMap<String, RawRow>,
}

/// A model's row.
#[derive(Debug, Default)]
pub(crate) struct RawRow {
    pub(crate) set: RawSet,
    pub(crate) provider: Option<String>,
    pub(crate) currency: Option<String>,
    pub(crate) max_input_tokens: Option<String>,
    pub(crate) max_output_tokens: Option<String>,
    pub(crate) cache_auto: bool,
    pub(crate) aliases: Vec<String>,
    pub(crate) patterns: Vec<String>,
    pub(crate) changes: Vec<RawSet>,
}

/// A set of prices, and what may hang on it. Which of the fields may stand where is checked later.
#[derive(Debug, Default)]
pub(crate) struct RawSet {
    pub(crate) prices: Vec<(Class, String)>,
    pub(crate) from: Option<String>,
    pub(crate) above: Option<String>,
    pub(crate) context: Vec<RawSet>,
    pub(crate) tiers: BTreeMap<String, RawSet>,
    pub(crate) multipliers: BTreeMap<String, String>,
}

const SET_FIELDS: [&str; 5] = ["from", "above", "context", "tiers", "multipliers"];
const ROW_FIELDS: [&str; 8] = [
    "provider",
    "currency",
    "max_input_tokens",
    "max_output_tokens",
    "cache_auto",
    "aliases",
    "patterns",
    "changes",
];

impl RawSet {
    /// Takes the field if it is one of a price set's; `false` if it is not.
    fn take<'de, A: MapAccess<'de>>(&mut self, field: &str, map: &mut A) -> Result<bool, A::Error> {
        if let Some(class) = Class::from_name(field) {
            self.prices.push((class, map.next_value()?));
            return Ok(true);
        }
        match field {
            "from" => self.from = Some(map.next_value()?),
            "above" => self.above = Some(map.next_value()?),
            "context" => self.context = map.next_value()?,
            "tiers" => self.tiers = map.next_value()?,
            "multipliers" => self.multipliers = map.next_value()?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

struct SetVisitor;

impl<'de> Visitor<'de> for SetVisitor {
    type Value = RawSet;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a set of prices")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawSet, A::Error> {
        let mut set = RawSet::default();
        while let Some(field) = map.next_key::<String>()? {
            if !set.take(&field, &mut map)? {
                return Err(unknown(&field, &[]));
            }
        }
        Ok(set)
    }
}

impl<'de> Deserialize<'de> for RawSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(SetVisitor)
    }
}

struct RowVisitor;

impl<'de> Visitor<'de> for RowVisitor {
    type Value = RawRow;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a model's prices")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawRow, A::Error> {
        let mut row = RawRow::default();
        while let Some(field) = map.next_key::<String>()? {
            match field.as_str() {
                "provider" => row.provider = Some(map.next_value()?),
                "currency" => row.currency = Some(map.next_value()?),
                "max_input_tokens" => row.max_input_tokens = Some(map.next_value()?),
                "max_output_tokens" => row.max_output_tokens = Some(map.next_value()?),
                "cache_auto" => row.cache_auto = map.next_value()?,
                "aliases" => row.aliases = map.next_value()?,
                "patterns" => row.patterns = map.next_value()?,
                "changes" => row.changes = map.next_value()?,
                other => {
                    if !row.set.take(other, &mut map)? {
                        return Err(unknown(other, &ROW_FIELDS));
                    }
                }
            }
        }
        Ok(row)
    }
}

impl<'de> Deserialize<'de> for RawRow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RowVisitor)
    }
}

fn unknown<E: Error>(field: &str, more: &[&str]) -> E {
    let prices = Class::ALL.map(Class::name);
    let known: Vec<&str> = prices.iter().chain(&SET_FIELDS).chain(more).copied().collect();
    E::custom(format_args!("unknown field `{field}`; known are {}", known.join(", ")))
}
