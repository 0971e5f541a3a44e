//! Which limits about models the calls of a key can meet at all.

use std::collections::BTreeSet;

use tollgate_config::{ModelGlobs, Scope};
use tollgate_limiter::TimestampMs;
use tollgate_pricing::{ModelPrice, PriceTable};

use super::LimitRule;

/// Prices of the future count too: a configuration outlives their day.
const EVER: TimestampMs = TimestampMs::new(u64::MAX);

/// The models that a key may call.
pub(super) struct Reach<'a> {
    allowed: Option<Allowed<'a>>,
}

struct Allowed<'a> {
    globs: &'a ModelGlobs,
    /// The rows of the price table that a name which is allowed belongs to.
    ids: BTreeSet<&'a str>,
}

impl<'a> Reach<'a> {
    /// What the globs of a key allow; `None`: everything.
    pub(super) fn new(globs: Option<&'a ModelGlobs>, prices: &'a PriceTable) -> Self {
        Self { allowed: globs.map(|globs| Allowed { globs, ids: ids(globs, prices) }) }
    }

    /// Whether a model that may be called counts for `rule`, by a name of its own or as a row of the price
    /// table.
    pub(super) fn meets(&self, rule: &LimitRule) -> bool {
        let Some(allowed) = self.allowed.as_ref().filter(|_| rule.is_of_models()) else { return true };
        let id = rule.id.as_deref().filter(|_| rule.scope == Scope::Model);
        let is_named = id.is_none_or(|id| allowed.globs.matches_any_case(id))
            && rule.models.as_ref().is_none_or(|globs| globs.overlaps(allowed.globs));
        let is_id = |row: &str| id.is_none_or(|id| id.eq_ignore_ascii_case(row)) && rule.passes(row, row);
        is_named || allowed.ids.iter().any(|row| is_id(row))
    }
}

fn ids<'a>(globs: &ModelGlobs, prices: &'a PriceTable) -> BTreeSet<&'a str> {
    let literal = globs.patterns().iter().filter_map(|glob| prices.lookup(glob, EVER));
    let mut ids: BTreeSet<&str> = literal.map(ModelPrice::id).collect();
    for (name, price) in prices.names() {
        let with_vendor =
            || price.provider().is_some_and(|vendor| globs.matches(&format!("{vendor}/{name}")));
        let is_dated = || globs.patterns().iter().any(|glob| is_dated(glob, name));
        if !ids.contains(price.id()) && (globs.matches(name) || with_vendor() || is_dated()) {
            ids.insert(price.id());
        }
    }
    ids
}

/// Whether a glob is for dated forms of a name, such as `gpt-6-2026-*` of `gpt-6`.
fn is_dated(glob: &str, name: &str) -> bool {
    let own = glob.rsplit_once('/').map_or(glob, |(_, own)| own);
    let date = own.strip_prefix(name).unwrap_or_default();
    let is_of_date = |char: char| char.is_ascii_digit() || "-*?".contains(char);
    date.starts_with(['-', '@']) && date.chars().skip(1).all(is_of_date)
}
