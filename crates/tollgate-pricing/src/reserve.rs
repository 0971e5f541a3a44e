//! The most a request can cost, asked before it is sent.

use crate::class::Class;
use crate::money::PicoUsd;
use crate::price::{ModelPrice, cost};
use crate::rates::{Factor, Rates, Steps};

/// An input estimate may be this part too low: one eighth. A request whose estimate with this margin
/// passes a context step is held at the dearer price of the two.
const STEP_MARGIN_DIVISOR: u64 = 8;

/// What a request may use, as far as can be told before it is sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReserveRequest<'a> {
    /// Estimate of the input tokens.
    pub input_tokens: u64,
    /// The most output tokens, over all choices.
    pub output_tokens: u64,
    /// What the request asks to be written to a cache.
    pub cache_write: CacheWrite,
    /// The service tier that is asked for, named as in [`ModelPrice::cost`].
    pub tier: Option<&'a str>,
    /// The most web searches the provider may run.
    pub web_searches: u64,
    /// Whether audio goes in or may come out: then all of it is held at the audio prices.
    pub audio: bool,
}

/// What a request asks to be written to a prompt cache.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum CacheWrite {
    /// Nothing.
    #[default]
    None,
    /// Entries that live for five minutes.
    FiveMinutes,
    /// Entries that live for one hour.
    OneHour,
}

impl ModelPrice {
    /// The most that `request` costs if its numbers hold: all input in the dearest class it can be
    /// billed in, all output likewise, fees, in the dearest of the price sets it can come to.
    ///
    /// Those are: the tier asked for and the standard price, as a provider may serve a request in the
    /// standard tier instead; for a tier without prices all that the row knows; and each context step
    /// that the estimate plus an eighth of it passes. Nothing is expected to come from a cache.
    pub fn reserve(&self, request: &ReserveRequest<'_>) -> PicoUsd {
        let selected = self.select(request.tier);
        let (tiers, factor): (&[_], _) = if selected.unknown {
            let dearest = self.multipliers.iter().map(|(_, factor)| *factor).fold(Factor::ONE, Factor::max);
            (&self.tiers, selected.factor.times(dearest))
        } else {
            (&[], selected.factor)
        };
        let sets = [&self.standard, selected.steps].into_iter().chain(tiers.iter().map(|(_, steps)| steps));
        // A discount may fall away together with the tier that it comes from.
        let factor = factor.max(Factor::ONE);
        sets.map(|steps| self.bound(steps, factor, request)).max().unwrap_or(PicoUsd::ZERO)
    }

    fn bound(&self, steps: &Steps, factor: Factor, request: &ReserveRequest<'_>) -> PicoUsd {
        let margin = request.input_tokens.div_euclid(STEP_MARGIN_DIVISOR);
        let reached = steps.up_to(request.input_tokens.saturating_add(margin));
        reached.map(|rates| self.bound_by(rates, factor, request)).max().unwrap_or(PicoUsd::ZERO)
    }

    fn bound_by(&self, rates: &Rates, factor: Factor, request: &ReserveRequest<'_>) -> PicoUsd {
        let written = match request.cache_write {
            CacheWrite::None if self.cache_auto => CacheWrite::FiveMinutes,
            asked => asked,
        };
        let applies = |class: &Class| match class {
            Class::CacheWrite => written >= CacheWrite::FiveMinutes,
            Class::CacheWrite1h => written >= CacheWrite::OneHour,
            Class::AudioInput | Class::CachedAudioInput | Class::AudioOutput => request.audio,
            _ => true,
        };
        let dearest = |classes: &[Class]| {
            classes.iter().filter(|class| applies(class)).map(|class| rates.get(*class).0).max().unwrap_or(0)
        };
        // A cache read is cheaper in every price list there is; if one says otherwise it is believed.
        let input = dearest(&[
            Class::Input,
            Class::ImageInput,
            Class::AudioInput,
            Class::CacheRead,
            Class::CachedAudioInput,
            Class::CacheWrite,
            Class::CacheWrite1h,
        ]);
        let output = dearest(&[Class::Output, Class::Reasoning, Class::ImageOutput, Class::AudioOutput]);
        [
            cost(Class::Input, request.input_tokens, input, factor),
            cost(Class::Output, request.output_tokens, output, factor),
            cost(Class::Request, 1, rates.get(Class::Request).0, Factor::ONE),
            cost(Class::WebSearch, request.web_searches, rates.get(Class::WebSearch).0, Factor::ONE),
        ]
        .into_iter()
        .fold(PicoUsd::ZERO, PicoUsd::saturating_add)
    }
}
