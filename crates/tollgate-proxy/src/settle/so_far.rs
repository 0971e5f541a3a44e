//! What an answer that still runs has used so far, priced like its bill.

use std::sync::Arc;

use tollgate_limiter::TimestampMs;
use tollgate_pricing::{ModelPrice, PriceTable, Usage};
use tollgate_providers::Running;
use tollgate_usage::Flags;

use super::{Priced, Pricing, Tier, amounts, cost_of, estimated, with_input};
use crate::{amounts::Amounts, quote::Quote};

/// What the model that answers has used so far: the reported input, or the estimated one while none is
/// reported, and the output that was seen. What other models use inside the answer is reported at its end.
pub(crate) struct SoFar<'a> {
    usage: Usage,
    price: Option<&'a ModelPrice>,
    counted: Arc<str>,
    served_tier: Option<String>,
    asked_tier: Option<&'a str>,
    /// Whether the output may be audio.
    audio: bool,
}

impl<'a> SoFar<'a> {
    /// As the bill would have it if the answer broke off here.
    pub(crate) fn new(
        running: Running<'_>,
        quote: &'a Quote,
        prices: &'a PriceTable,
        at: TimestampMs,
    ) -> Self {
        let pricing = Pricing { quote, prices, at };
        let Priced { price, counted, .. } = pricing.priced_as(running.model, &quote.model, &mut Flags::new());
        Self {
            usage: with_input(running.usage.unwrap_or_else(|| estimated(quote, running.output_seen)), quote),
            price,
            counted,
            served_tier: running.service_tier,
            asked_tier: quote.service_tier.as_deref(),
            audio: quote.audio,
        }
    }

    /// The model that decides the price: its id in the price table, or its name where it has no price.
    pub(crate) fn model(&self) -> &str {
        self.price.map_or(&*self.counted, ModelPrice::id)
    }

    /// The output tokens so far.
    pub(crate) const fn output_tokens(&self) -> u64 {
        self.usage.output
    }

    /// What is used once the output has come to `output_tokens`.
    pub(crate) fn with_output(&self, output_tokens: u64) -> Amounts {
        let more = output_tokens.saturating_sub(self.usage.output);
        let audio_output = self.usage.audio_output.saturating_add(if self.audio { more } else { 0 });
        let usage = Usage { output: output_tokens, audio_output, ..self.usage };
        let tier = Tier { served: self.served_tier.as_deref(), asked: self.asked_tier };
        amounts(&usage, cost_of(self.price, &usage, tier, &mut Flags::new()))
    }
}
