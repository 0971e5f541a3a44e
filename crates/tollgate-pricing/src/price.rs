//! The prices of one model, and what a usage costs by them.

use tollgate_limiter::{MILLIONTHS, TimestampMs};

use crate::bill::{Bill, BillLine, Cost, CostFlags};
use crate::class::Class;
use crate::money::PicoUsd;
use crate::rates::{Factor, Origin, Steps, quantities};
use crate::usage::Usage;

/// Names that mean the standard price. What providers answer, or are asked, where nothing special holds.
const STANDARD_NAMES: [&str; 7] =
    ["", "standard", "standard_only", "default", "auto", "global", "not_available"];

/// The prices of one model from one day on.
#[derive(Clone, Debug)]
pub struct ModelPrice {
    pub(crate) id: Box<str>,
    pub(crate) provider: Option<Box<str>>,
    pub(crate) valid_from: TimestampMs,
    pub(crate) standard: Steps,
    pub(crate) tiers: Vec<(Box<str>, Steps)>,
    pub(crate) multipliers: Vec<(Box<str>, Factor)>,
    pub(crate) max_input_tokens: Option<u64>,
    pub(crate) max_output_tokens: Option<u64>,
    pub(crate) cache_auto: bool,
}

impl ModelPrice {
    /// The model's id in the table, whatever alias it was looked up by.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Who sells it at this price, if the table says.
    pub fn provider(&self) -> Option<&str> {
        self.provider.as_deref()
    }

    /// The moment from which these prices hold; [`TimestampMs::EPOCH`] for a row without a date.
    pub const fn valid_from(&self) -> TimestampMs {
        self.valid_from
    }

    /// The most input tokens the model takes.
    pub const fn max_input_tokens(&self) -> Option<u64> {
        self.max_input_tokens
    }

    /// The most output tokens the model gives.
    pub const fn max_output_tokens(&self) -> Option<u64> {
        self.max_output_tokens
    }

    /// Whether the provider writes prompts to its cache without being asked.
    pub const fn cache_auto(&self) -> bool {
        self.cache_auto
    }

    /// Whether the row has prices for `tier`: one name, or several joined by `+` (`batch+us`).
    pub fn has_tier(&self, tier: &str) -> bool {
        !self.select(Some(tier)).unknown
    }

    /// What `usage` costs.
    ///
    /// `tier` is the service tier that was used, as the provider names it, with what else changes
    /// the price joined to it by `+`: a region or a speed (`priority`, `us`, `batch+us`). Without
    /// one, and for the names of the standard tier, the standard price holds.
    pub fn cost(&self, usage: &Usage, tier: Option<&str>) -> Cost {
        let mut total = PicoUsd::ZERO;
        let (flags, _) = self.each_line(usage, tier, |line| total = total.saturating_add(line.cost));
        Cost { pico_usd: total, flags }
    }

    /// What `usage` costs, line by line. The sum is that of [`ModelPrice::cost`].
    pub fn bill(&self, usage: &Usage, tier: Option<&str>) -> Bill {
        let mut lines = Vec::new();
        let (flags, above_tokens) = self.each_line(usage, tier, |line| lines.push(line));
        let total = lines.iter().fold(PicoUsd::ZERO, |sum, line| sum.saturating_add(line.cost));
        Bill { lines, total, above_tokens, flags }
    }

    fn each_line(
        &self,
        usage: &Usage,
        tier: Option<&str>,
        mut line: impl FnMut(BillLine),
    ) -> (CostFlags, Option<u64>) {
        let Selected { steps, factor, unknown } = self.select(tier);
        let (rates, above_tokens) = steps.at(usage.input_total());
        let (quantities, clamped) = quantities(usage);
        let mut flags = CostFlags::NONE;
        flags.set(CostFlags::UNKNOWN_TIER, unknown);
        flags.set(CostFlags::CLAMPED, clamped);
        for class in Class::ALL {
            let quantity = quantities[class.index()];
            let (rate, origin) = rates.get(class);
            // Most models charge nothing for the call as such: that is no gap in the row.
            if quantity == 0 || (class == Class::Request && origin == Origin::Missing) {
                continue;
            }
            flags.set(CostFlags::RATE_FALLBACK, origin == Origin::Fallback);
            flags.set(CostFlags::UNRATED_USAGE, origin == Origin::Missing);
            let factor = if class.is_fee() { Factor::ONE } else { factor };
            line(BillLine {
                class,
                quantity,
                price: (origin != Origin::Missing).then(|| price(class, rate, factor)),
                cost: cost(class, quantity, rate, factor),
            });
        }
        (flags, above_tokens)
    }

    pub(crate) fn select(&self, tier: Option<&str>) -> Selected<'_> {
        let mut selected = Selected { steps: &self.standard, factor: Factor::ONE, unknown: false };
        let parts = tier.into_iter().flat_map(|tier| tier.split('+'));
        for part in parts.filter(|part| !is_standard(part)) {
            if let Some((_, steps)) = self.tiers.iter().find(|(name, _)| name.eq_ignore_ascii_case(part)) {
                selected.steps = steps;
            } else if let Some((_, factor)) =
                self.multipliers.iter().find(|(name, _)| name.eq_ignore_ascii_case(part))
            {
                selected.factor = selected.factor.times(*factor);
            } else {
                selected.unknown = true;
            }
        }
        selected
    }
}

/// The prices a tier selects.
pub(crate) struct Selected<'a> {
    pub(crate) steps: &'a Steps,
    pub(crate) factor: Factor,
    pub(crate) unknown: bool,
}

pub(crate) fn is_standard(tier: &str) -> bool {
    STANDARD_NAMES.iter().any(|name| name.eq_ignore_ascii_case(tier))
}

/// What a quantity costs. Whole pico-USD except for parts of minutes and odd factors, which round up.
pub(crate) fn cost(class: Class, quantity: u64, rate: u64, factor: Factor) -> PicoUsd {
    // A token count of 64 bits, a rate of 34 and a factor of 27 fit; what does not is beyond all money.
    let product = u128::from(quantity).saturating_mul(u128::from(rate));
    let divisor = class.unit().counted_per_rate();
    if factor == Factor::ONE && divisor == 1 {
        return PicoUsd::new(product);
    }
    let divisor = divisor.saturating_mul(u128::from(MILLIONTHS));
    PicoUsd::new(product.saturating_mul(u128::from(factor.0)).div_ceil(divisor))
}

fn price(class: Class, rate: u64, factor: Factor) -> PicoUsd {
    let price = u128::from(rate).saturating_mul(class.unit().counted_per_price());
    PicoUsd::new(price.saturating_mul(u128::from(factor.0)).div_ceil(u128::from(MILLIONTHS)))
}
