//! The crate seen from outside: the reported cases, the table's rules, the laws.

mod cases;
mod format;
mod laws;
mod lookup;

use std::sync::Arc;

use tollgate_limiter::TimestampMs;

use crate::{Cost, CostFlags, ModelPrice, PicoUsd, PriceTable, Usage};

/// 2026-11-29, a day on which every row of the built-in table holds.
const TODAY: TimestampMs = TimestampMs::new(1_795_910_400_000);

/// Pico-USD from a decimal amount of USD.
fn usd(text: &str) -> PicoUsd {
    PicoUsd::new(text.parse::<crate::Decimal>().unwrap().scaled(12).unwrap())
}

fn builtin() -> Arc<PriceTable> {
    PriceTable::builtin()
}

/// What a usage costs by the built-in table.
fn cost(model: &str, tier: Option<&str>, usage: Usage) -> Cost {
    let table = builtin();
    let price = table.lookup(model, TODAY).unwrap_or_else(|| panic!("{model} has a price"));
    price.cost(&usage, tier)
}

/// What a usage costs by the built-in table, where nothing about it may be unusual.
fn plain_cost(model: &str, usage: Usage) -> PicoUsd {
    let cost = cost(model, None, usage);
    assert_eq!(cost.flags, CostFlags::NONE, "{:?}", cost.flags.names().collect::<Vec<_>>());
    cost.pico_usd
}

/// A table with one model `m`; `fields` are the lines of its row.
fn table_of(fields: &str) -> PriceTable {
    let indented: String = fields.lines().map(|line| format!("    {line}\n")).collect();
    PriceTable::from_yaml(&format!("models:\n  m:\n{indented}")).unwrap()
}

fn model_of(table: &PriceTable) -> &ModelPrice {
    table.lookup("m", TODAY).unwrap()
}
