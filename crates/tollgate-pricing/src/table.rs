//! The table: which row a model's name leads to.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use foldhash::fast::RandomState;
use globset::GlobMatcher;
use tollgate_limiter::TimestampMs;

use crate::currency::CurrencyRates;
use crate::document;
use crate::error::PriceError;
use crate::price::ModelPrice;

/// The table in the repository's root, compiled in.
const BUILTIN: &str = include_str!("../../../pricing.yaml");
/// No provider has longer ids; longer names are not matched against patterns.
const MODEL_LEN_MAX: usize = 256;

/// Prices of many models.
#[derive(Clone, Debug, Default)]
pub struct PriceTable {
    rows: Vec<Row>,
    /// Ids and aliases.
    names: HashMap<Box<str>, usize, RandomState>,
    /// In the order in which they are tried.
    patterns: Vec<(GlobMatcher, usize)>,
}

/// One model: its prices, ascending by the day from which they hold. Never empty.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) prices: Vec<ModelPrice>,
    pub(crate) aliases: Vec<String>,
    pub(crate) patterns: Vec<GlobMatcher>,
}

/// The prices of one model.
#[derive(Clone, Copy, Debug)]
pub struct Prices<'a>(&'a Row);

impl<'a> Prices<'a> {
    /// The one that holds at the moment `at`; `None`: the first comes later.
    pub fn at(self, at: TimestampMs) -> Option<&'a ModelPrice> {
        self.0.prices.iter().rev().find(|price| price.valid_from <= at)
    }
}

impl PriceTable {
    /// The table that is compiled in, parsed once.
    pub fn builtin() -> Arc<Self> {
        static TABLE: OnceLock<Arc<PriceTable>> = OnceLock::new();
        // A test parses the same text, so the default, in which nothing has a price, is never taken.
        Arc::clone(TABLE.get_or_init(|| Arc::new(Self::from_yaml(BUILTIN).unwrap_or_default())))
    }

    /// The table that `text` describes, all of it in USD. The head of `pricing.yaml` documents the format.
    ///
    /// # Errors
    /// What is wrong first, with the row and the field; [`PriceError::NoRate`] for another currency.
    pub fn from_yaml(text: &str) -> Result<Self, PriceError> {
        Self::from_yaml_with(text, &CurrencyRates::default())
    }

    /// The table that `text` describes, with what a unit of each other currency is worth.
    ///
    /// # Errors
    /// What is wrong first, with the row and the field; [`PriceError::NoRate`] for a currency that
    /// `rates` does not have.
    pub fn from_yaml_with(text: &str, rates: &CurrencyRates) -> Result<Self, PriceError> {
        Self::from_rows(document::read(text, rates)?)
    }

    /// The prices of `model` at the moment `at`.
    ///
    /// Tried in this order: the id or alias as it stands; without a date at its end (`-20260901`,
    /// `-2026-09-01`, `@20260901`); both without the name of the row's own provider before it
    /// (`anthropic/…`) or Gemini's `models/`; patterns, the longest first. A model that only gets its
    /// price later is not found.
    pub fn lookup(&self, model: &str, at: TimestampMs) -> Option<&ModelPrice> {
        self.prices(model)?.at(at)
    }

    /// The prices of `model`, whenever they hold. As [`lookup`](Self::lookup) finds them.
    pub fn prices(&self, model: &str) -> Option<Prices<'_>> {
        self.rows.get(self.find(model)?).map(Prices)
    }

    /// Every id and alias, in no order, with the first price of its row.
    pub fn names(&self) -> impl Iterator<Item = (&str, &ModelPrice)> {
        let price = |row: usize| self.rows.get(row)?.prices.first();
        self.names.iter().filter_map(move |(name, row)| Some((&**name, price(*row)?)))
    }

    /// All prices of all models, those of the past and of the future too, by id and then by date.
    pub fn models(&self) -> impl Iterator<Item = &ModelPrice> {
        self.rows.iter().flat_map(|row| &row.prices)
    }

    fn find(&self, model: &str) -> Option<usize> {
        if let Some(row) = self.names.get(model) {
            return Some(*row);
        }
        if model.len() > MODEL_LEN_MAX {
            return None;
        }
        let undated = |name: &str| without_date(name).and_then(|name| self.names.get(name).copied());
        undated(model)
            .or_else(|| {
                let (vendor, name) = model.split_once('/')?;
                let row = self.names.get(name).copied().or_else(|| undated(name))?;
                self.sells(row, vendor).then_some(row)
            })
            .or_else(|| self.patterns.iter().find(|(glob, _)| glob.is_match(model)).map(|(_, row)| *row))
    }

    fn sells(&self, row: usize, vendor: &str) -> bool {
        let provider = self.rows.get(row).and_then(|row| row.prices.first()).and_then(ModelPrice::provider);
        provider == Some(vendor) || (vendor == "models" && provider == Some("gemini"))
    }

    fn from_rows(mut rows: Vec<Row>) -> Result<Self, PriceError> {
        let mut names: HashMap<Box<str>, usize, RandomState> = HashMap::default();
        let mut patterns = Vec::new();
        for (index, row) in rows.iter_mut().enumerate() {
            let id = row.prices.first().map(|price| price.id.clone()).unwrap_or_default();
            let aliases = core::mem::take(&mut row.aliases).into_iter().map(String::into_boxed_str);
            for name in core::iter::once(id).chain(aliases) {
                if let Some(other) = names.insert(name.clone(), index) {
                    return Err(ambiguous(&name, &rows, other, index));
                }
            }
            patterns.extend(core::mem::take(&mut row.patterns).into_iter().map(|glob| (glob, index)));
        }
        // The longest pattern says most; the text decides between equals, so that the order is one.
        patterns.sort_by(|(left, _), (right, _)| {
            let (left, right) = (left.glob().glob(), right.glob().glob());
            right.len().cmp(&left.len()).then_with(|| left.cmp(right))
        });
        if let Some([(glob, first), (_, second)]) = patterns
            .array_windows::<2>()
            .find(|[(left, _), (right, _)]| left.glob().glob() == right.glob().glob())
        {
            return Err(ambiguous(glob.glob().glob(), &rows, *first, *second));
        }
        Ok(Self { rows, names, patterns })
    }
}

fn ambiguous(name: &str, rows: &[Row], first: usize, second: usize) -> PriceError {
    let id = |index: usize| {
        rows.get(index)
            .and_then(|row| row.prices.first())
            .map(|price| price.id.to_string())
            .unwrap_or_default()
    };
    PriceError::Ambiguous { name: name.to_owned(), first: id(first), second: id(second) }
}

/// The id before a date at its end: `-20260901`, `@20260901` or `-2026-09-01`.
fn without_date(model: &str) -> Option<&str> {
    let cut = |len: usize| model.split_at_checked(model.len().checked_sub(len)?);
    let (name, tail) = match cut(9) {
        Some((name, tail)) if tail.starts_with(['-', '@']) => (name, tail),
        _ => cut(11)?,
    };
    let is_date = match *tail.as_bytes() {
        [b'-' | b'@', b'2', b'0', y3, y4, m1, m2, d1, d2]
        | [b'-', b'2', b'0', y3, y4, b'-', m1, m2, b'-', d1, d2] => {
            [y3, y4, m1, m2, d1, d2].iter().all(u8::is_ascii_digit)
                && (*b"01"..=*b"12").contains(&[m1, m2])
                && (*b"01"..=*b"31").contains(&[d1, d2])
        }
        _ => false,
    };
    (is_date && !name.is_empty()).then_some(name)
}
