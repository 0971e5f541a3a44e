//! Prices of one set with every fallback already taken, so that a cost is a sum of products.

use tollgate_limiter::MILLIONTHS;

use crate::class::Class;
use crate::usage::Usage;

/// What each class costs, in pico-USD per token, character, minute or piece.
pub(crate) type Listed = [Option<u64>; Class::COUNT];

/// A factor on a price, in millionths.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Factor(pub(crate) u64);

impl Factor {
    pub(crate) const ONE: Self = Self(1_000_000);

    pub(crate) fn times(self, other: Self) -> Self {
        let product = u128::from(self.0).saturating_mul(u128::from(other.0)).div_ceil(u128::from(MILLIONTHS));
        Self(u64::try_from(product).unwrap_or(u64::MAX))
    }
}

/// One set of prices.
#[derive(Clone, Debug)]
pub(crate) struct Rates {
    rates: [Rate; Class::COUNT],
}

#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    pico: u64,
    origin: Origin,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Origin {
    #[default]
    Missing,
    Fallback,
    Listed,
}

impl Rates {
    /// The set that lists these prices: what is missing is taken from the class it falls back to.
    pub(crate) fn new(listed: &Listed) -> Self {
        Self { rates: Class::ALL.map(|class| resolve(listed, class)) }
    }

    /// The rate of a class in pico-USD, and where it comes from.
    pub(crate) fn get(&self, class: Class) -> (u64, Origin) {
        let Rate { pico, origin } = self.rates[class.index()];
        (pico, origin)
    }
}

fn resolve(listed: &Listed, class: Class) -> Rate {
    if let Some(pico) = listed[class.index()] {
        return Rate { pico, origin: Origin::Listed };
    }
    let mut usual = class.fallback_is_usual();
    let mut next = class.fallback();
    // Fallbacks form chains of at most two steps.
    while let Some(other) = next {
        if let Some(pico) = listed[other.index()] {
            return Rate { pico, origin: if usual { Origin::Listed } else { Origin::Fallback } };
        }
        usual = false;
        next = other.fallback();
    }
    Rate::default()
}

/// A set of prices, and the sets that replace it for requests with more input.
#[derive(Clone, Debug)]
pub(crate) struct Steps {
    base: Rates,
    /// Ascending by threshold.
    above: Vec<(u64, Rates)>,
}

impl Steps {
    /// `above` must be ascending.
    pub(crate) fn new(base: Rates, above: Vec<(u64, Rates)>) -> Self {
        Self { base, above }
    }

    /// The prices of a request with so many input tokens in all, and the threshold it is above.
    pub(crate) fn at(&self, input_total: u64) -> (&Rates, Option<u64>) {
        let passed = self.above.iter().rev().find(|(threshold, _)| input_total > *threshold);
        passed.map_or((&self.base, None), |(threshold, rates)| (rates, Some(*threshold)))
    }

    /// All sets that a request with at most so many input tokens can be billed by.
    pub(crate) fn up_to(&self, input_total: u64) -> impl Iterator<Item = &Rates> {
        let passed = self.above.iter().take_while(move |(threshold, _)| input_total > *threshold);
        core::iter::once(&self.base).chain(passed.map(|(_, rates)| rates))
    }
}

/// How much of each class a usage holds, and whether the usage contradicts itself.
pub(crate) fn quantities(usage: &Usage) -> ([u64; Class::COUNT], bool) {
    let mut quantities = [0; Class::COUNT];
    let mut clamped = false;
    let mut split = |whole: u64, parts: &[(Class, u64)], rest: Class| {
        let mut left = whole;
        for (class, part) in parts {
            let taken = left.min(*part);
            clamped |= taken < *part;
            quantities[class.index()] = taken;
            left = left.saturating_sub(taken);
        }
        quantities[rest.index()] = left;
    };
    // Where parts do not fit together, the dear ones are the ones that are believed.
    split(
        usage.input,
        &[(Class::AudioInput, usage.audio_input), (Class::ImageInput, usage.image_input)],
        Class::Input,
    );
    split(usage.cache_read, &[(Class::CachedAudioInput, usage.cached_audio_input)], Class::CacheRead);
    split(
        usage.output,
        &[
            (Class::AudioOutput, usage.audio_output),
            (Class::ImageOutput, usage.image_output),
            (Class::Reasoning, usage.reasoning),
        ],
        Class::Output,
    );
    for (class, quantity) in [
        (Class::CacheWrite, usage.cache_write_5m.saturating_add(usage.cache_write)),
        (Class::CacheWrite1h, usage.cache_write_1h),
        (Class::Image, usage.images),
        (Class::Audio, usage.audio_ms),
        (Class::Characters, usage.characters),
        (Class::Request, 1),
        (Class::WebSearch, usage.web_searches),
        (Class::WebFetch, usage.web_fetches),
    ] {
        quantities[class.index()] = quantity;
    }
    (quantities, clamped)
}
