//! From the text of a price table to its rows: every number exact, every field where it may stand.

use globset::{GlobBuilder, GlobMatcher};
use tollgate_limiter::TimestampMs;

use crate::bounds;
use crate::class::Class;
use crate::currency::CurrencyRates;
use crate::decimal::Decimal;
use crate::error::PriceError;
use crate::price::{ModelPrice, is_standard};
use crate::rates::{Factor, Listed, Rates, Steps};
use crate::raw::{RawRow, RawSet, RawTable};
use crate::table::Row;

/// More rows than any provider's list has: a bound on what a file can make us hold.
const ROWS_MAX: usize = 50_000;
const STEPS_MAX: usize = 16;
const TIERS_MAX: usize = 32;

/// The rows of a price table, by id.
pub(crate) fn read(text: &str, currencies: &CurrencyRates) -> Result<Vec<Row>, PriceError> {
    let table: RawTable =
        serde_saphyr::from_str(text).map_err(|error| PriceError::Syntax(error.to_string()))?;
    if table.models.len() > ROWS_MAX {
        return Err(PriceError::Syntax(format!("more than {ROWS_MAX} models")));
    }
    table.models.iter().map(|(id, row)| Reader::new(id, row, currencies)?.row(row)).collect()
}

/// Reads one row. Holds what its errors and conversions need.
struct Reader<'a> {
    id: &'a str,
    usd_per_unit: Decimal,
}

impl<'a> Reader<'a> {
    fn new(id: &'a str, row: &RawRow, currencies: &CurrencyRates) -> Result<Self, PriceError> {
        let currency = row.currency.as_deref().unwrap_or("USD");
        let usd_per_unit = currencies
            .get(currency)
            .ok_or_else(|| PriceError::NoRate { model: id.to_owned(), currency: currency.to_owned() })?;
        Ok(Self { id, usd_per_unit })
    }

    fn row(&self, raw: &RawRow) -> Result<Row, PriceError> {
        let mut prices = vec![self.price(raw, &raw.set, "")?];
        for (index, change) in raw.changes.iter().enumerate() {
            let at = format!("changes[{index}].");
            if change.from.is_none() {
                return Err(self.fault(
                    &at,
                    "from",
                    "is missing: a change needs the day from which it holds",
                ));
            }
            let price = self.price(raw, change, &at)?;
            if prices.last().is_some_and(|last| last.valid_from >= price.valid_from) {
                return Err(self.fault(&at, "from", "must be later than the price before it"));
            }
            prices.push(price);
        }
        let patterns = raw.patterns.iter().map(|pattern| self.pattern(pattern)).collect::<Result<_, _>>()?;
        Ok(Row { prices, aliases: raw.aliases.clone(), patterns })
    }

    fn price(&self, row: &RawRow, set: &RawSet, at: &str) -> Result<ModelPrice, PriceError> {
        if set.above.is_some() {
            return Err(self.fault(at, "above", "belongs into an entry of `context`"));
        }
        if set.tiers.len().saturating_add(set.multipliers.len()) > TIERS_MAX {
            return Err(self.fault(at, "tiers", &format!("and `multipliers` may be {TIERS_MAX} at most")));
        }
        let base = self.listed(set, at)?;
        let tiers = set.tiers.iter().map(|(name, tier)| {
            let at = format!("{at}tiers.{name}.");
            self.tier_name(name, &at)?;
            if tier.from.is_some()
                || tier.above.is_some()
                || !tier.tiers.is_empty()
                || !tier.multipliers.is_empty()
            {
                return Err(self.fault(&at, "", "may hold prices and `context` only"));
            }
            Ok((name.as_str().into(), self.steps(tier, self.with_fees(self.listed(tier, &at)?, &base), &at)?))
        });
        let tiers = tiers.collect::<Result<_, _>>()?;
        let multipliers = set.multipliers.iter().map(|(name, text)| {
            let at = format!("{at}multipliers.");
            self.tier_name(name, &at)?;
            if set.tiers.contains_key(name) {
                return Err(self.fault(&at, name, "is a tier too: a name can only mean one of them"));
            }
            Ok((name.as_str().into(), self.factor(text, &at, name)?))
        });
        Ok(ModelPrice {
            id: self.id.into(),
            provider: row.provider.as_deref().map(Into::into),
            valid_from: self.day(set.from.as_deref(), at)?,
            standard: self.steps(set, base, at)?,
            multipliers: multipliers.collect::<Result<_, _>>()?,
            tiers,
            max_input_tokens: self.count(row.max_input_tokens.as_deref(), "", "max_input_tokens")?,
            max_output_tokens: self.count(row.max_output_tokens.as_deref(), "", "max_output_tokens")?,
            cache_auto: row.cache_auto,
        })
    }

    fn steps(&self, set: &RawSet, base: Listed, at: &str) -> Result<Steps, PriceError> {
        if set.context.len() > STEPS_MAX {
            return Err(self.fault(at, "context", &format!("may have {STEPS_MAX} entries at most")));
        }
        let mut above: Vec<(u64, Rates)> = Vec::with_capacity(set.context.len());
        for (index, step) in set.context.iter().enumerate() {
            let at = format!("{at}context[{index}].");
            if step.from.is_some()
                || !step.context.is_empty()
                || !step.tiers.is_empty()
                || !step.multipliers.is_empty()
            {
                return Err(self.fault(&at, "", "may hold `above` and prices only"));
            }
            let threshold = self.count(step.above.as_deref(), &at, "above")?.ok_or_else(|| {
                self.fault(&at, "above", "is missing: the input tokens above which it holds")
            })?;
            if above.last().is_some_and(|(last, _)| *last >= threshold) {
                return Err(self.fault(&at, "above", "must be larger than that of the entry before"));
            }
            above.push((threshold, Rates::new(&self.with_fees(self.listed(step, &at)?, &base))));
        }
        Ok(Steps::new(Rates::new(&base), above))
    }

    /// The prices a set lists. A set without any would make everything free by an oversight.
    fn listed(&self, set: &RawSet, at: &str) -> Result<Listed, PriceError> {
        if set.prices.is_empty() {
            return Err(self.fault(at, "", "has no price: write `input: 0` if it is free"));
        }
        let mut listed = Listed::default();
        for (class, text) in &set.prices {
            listed[class.index()] = Some(self.pico(*class, text, at)?);
        }
        Ok(listed)
    }

    /// Fees are the same in every tier and step that does not name them.
    fn with_fees(&self, mut listed: Listed, base: &Listed) -> Listed {
        for class in Class::ALL.into_iter().filter(|class| class.is_fee()) {
            listed[class.index()] = listed[class.index()].or(base[class.index()]);
        }
        listed
    }

    fn pico(&self, class: Class, text: &str, at: &str) -> Result<u64, PriceError> {
        let field = class.name();
        let number = |source| self.number(at, field, text, source);
        let price: Decimal = text.parse().map_err(number)?;
        let usd = price.times(self.usd_per_unit).map_err(number)?;
        bounds::check(class, usd).map_err(|problem| self.fault(at, field, &format!("{text} {problem}")))?;
        let places = class.unit().places();
        // What USD prices cannot hold is an error; the product with a currency's rate is rounded up.
        price.scaled(places).map_err(number)?;
        let pico = usd.scaled_up(places).map_err(number)?;
        u64::try_from(pico).map_err(|_| self.fault(at, field, "is too large"))
    }

    fn factor(&self, text: &str, at: &str, name: &str) -> Result<Factor, PriceError> {
        let number = |source| self.number(at, name, text, source);
        let millionths = text.parse::<Decimal>().and_then(|factor| factor.scaled(6)).map_err(number)?;
        u64::try_from(millionths)
            .ok()
            .filter(|millionths| bounds::FACTOR_MILLIONTHS.contains(millionths))
            .map(Factor)
            .ok_or_else(|| self.fault(at, name, "must be a factor between 0.01 and 100"))
    }

    fn tier_name(&self, name: &str, at: &str) -> Result<(), PriceError> {
        if is_standard(name) || name.contains('+') {
            return Err(self.fault(
                at,
                "",
                "cannot be a tier's name: it means the standard price, or joins names",
            ));
        }
        Ok(())
    }

    fn day(&self, text: Option<&str>, at: &str) -> Result<TimestampMs, PriceError> {
        let Some(text) = text else { return Ok(TimestampMs::EPOCH) };
        let midnight = text
            .parse::<jiff::civil::Date>()
            .ok()
            .filter(|_| text.len() == 10)
            .and_then(|day| jiff::tz::Offset::UTC.to_timestamp(day.at(0, 0, 0, 0)).ok())
            .and_then(|midnight| u64::try_from(midnight.as_millisecond()).ok());
        midnight
            .map(TimestampMs::new)
            .ok_or_else(|| self.fault(at, "from", &format!("{text} is no day such as 2026-09-01")))
    }

    fn count(&self, text: Option<&str>, at: &str, field: &str) -> Result<Option<u64>, PriceError> {
        text.map(|text| text.parse().map_err(|_| self.fault(at, field, "must be a whole number of tokens")))
            .transpose()
    }

    fn pattern(&self, pattern: &str) -> Result<GlobMatcher, PriceError> {
        GlobBuilder::new(pattern)
            .build()
            .map(|glob| glob.compile_matcher())
            .map_err(|error| self.fault("", "patterns", &format!("has a bad pattern: {error}")))
    }

    fn fault(&self, at: &str, field: &str, problem: &str) -> PriceError {
        let path = format!("{at}{field}");
        let field = path.trim_end_matches('.').to_owned();
        PriceError::Field { model: self.id.to_owned(), field, problem: problem.to_owned() }
    }

    fn number(&self, at: &str, field: &str, text: &str, source: crate::decimal::DecimalError) -> PriceError {
        PriceError::Number {
            model: self.id.to_owned(),
            field: format!("{at}{field}"),
            text: text.to_owned(),
            source,
        }
    }
}
