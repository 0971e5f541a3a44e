//! How a request's end becomes what it costs. Pure: no store, no clock.

mod so_far;
#[cfg(test)]
mod tests;

use std::{iter, sync::Arc};

use tollgate_limiter::{ExactAmount, TimestampMs, Tokens};
use tollgate_pricing::{ModelPrice, PicoUsd, PriceTable, Usage};
use tollgate_providers::{Metered, ModelUsage, Reported};
use tollgate_usage::{Flags, ModelUse, TokenCounts};

use crate::{
    amounts::Amounts,
    policy::{AppliedLimit, Policy},
    quote::Quote,
};

pub(crate) use self::so_far::SoFar;

/// How a request ended.
#[derive(Debug)]
pub(crate) enum End<'a> {
    /// The provider answered with an error, or not at all.
    Failed,
    /// The client left before the first byte, after the request had gone to the provider.
    NoAnswer,
    /// The answer was passed on to its end.
    Whole(&'a Metered),
    /// The answer broke off after its first byte.
    Broken(&'a Metered),
}

/// What a request costs.
#[derive(Debug)]
pub(crate) struct Bill {
    /// What its counters are settled to.
    pub(crate) amounts: Amounts,
    pub(crate) tokens: TokenCounts,
    pub(crate) usage_estimated: bool,
    /// The model that answered, by its own name for itself.
    pub(crate) model: Arc<str>,
    pub(crate) service_tier: Option<Arc<str>>,
    pub(crate) flags: Flags,
    pub(crate) others: Vec<ModelUse>,
    /// The model that decided the price, and whose limits are charged: the one that answered or, where
    /// its name has no price, the one that was asked for.
    counted: Arc<str>,
    /// What was used of it, for limits that are about models: not raised to the reservation.
    own: Amounts,
    /// What was used of others.
    parts: Vec<Part>,
}

/// What was used of one model.
#[derive(Debug)]
struct Part {
    /// As in [`Bill::counted`].
    counted: Arc<str>,
    amounts: Amounts,
}

/// The bill of a request that ended like `end` (SPEC §4, "how a request ends decides what it costs").
///
/// The request itself stays counted whatever its end: it was made.
pub(crate) fn bill(end: &End<'_>, quote: &Quote, prices: &PriceTable, at: TimestampMs) -> Bill {
    let pricing = Pricing { quote, prices, at };
    if !quote.billed {
        return pricing.nothing();
    }
    match end {
        End::Failed => pricing.nothing(),
        End::NoAnswer => pricing.at_least_reserved(&estimated(quote, Tokens::ZERO), None),
        End::Whole(metered) => match &metered.usage {
            Reported::Usage(usage) => pricing.reported(usage, metered),
            Reported::Missing => {
                pricing.at_least_reserved(&estimated(quote, metered.output_seen), Some(metered))
            }
        },
        End::Broken(metered) => pricing.at_least_reserved(&seen_so_far(quote, metered), Some(metered)),
    }
}

/// Usage nobody reported: the estimated input and the output that passed.
fn estimated(quote: &Quote, output_seen: Tokens) -> Usage {
    let (input, output) = (quote.estimated_input.get(), output_seen.get());
    let audio = |tokens| if quote.audio { tokens } else { 0 };
    Usage { input, audio_input: audio(input), output, audio_output: audio(output), ..Usage::default() }
}

/// What a broken answer had reported, with the output that passed where that is more.
fn seen_so_far(quote: &Quote, metered: &Metered) -> Usage {
    let seen = metered.usage_seen().unwrap_or_else(|| estimated(quote, metered.output_seen));
    if metered.is_final { seen } else { with_input(seen, quote) }
}

/// No prompt is empty: servers that report their input at the end report none until then.
fn with_input(usage: Usage, quote: &Quote) -> Usage {
    if usage.input_total() > 0 {
        return usage;
    }
    let Usage { input, audio_input, .. } = estimated(quote, Tokens::ZERO);
    Usage { input, audio_input, ..usage }
}

impl Bill {
    /// What each limit of the plan is settled to. One that is about models gets what was really used of
    /// them and, where that is an estimate, at least what was reserved for them. A request for a model
    /// was made, whichever answered: it is not given back.
    pub(crate) fn actuals(
        &self,
        limits: &[AppliedLimit],
        quote: &Quote,
        policy: &Policy,
        at: TimestampMs,
    ) -> Vec<ExactAmount> {
        let asked = policy.called(&quote.model, at);
        let amounts = |limit: &AppliedLimit| {
            if !limit.is_of_models() {
                return self.amounts;
            }
            let mut used = self.used(limit, policy, at);
            if limit.counts(asked.name, asked.id) {
                used.requests = 1;
            }
            if self.usage_estimated { used.max(&quote.reserved_for(limit)) } else { used }
        };
        limits.iter().map(|limit| limit.rule.measure.exact(&amounts(limit))).collect()
    }

    /// What was used of the models that a limit counts.
    pub(crate) fn used(&self, limit: &AppliedLimit, policy: &Policy, at: TimestampMs) -> Amounts {
        let counts = |model: &str| limit.counts(model, policy.called(model, at).id);
        let own = if counts(&self.counted) { self.own } else { Amounts::default() };
        let counted = self.parts.iter().filter(|part| counts(&part.counted));
        let sum = counted.fold(own, |sum, part| sum.plus(&part.amounts));
        // Several models in one request are still one request.
        Amounts { requests: sum.requests.min(1), ..sum }
    }

    /// The models whose limits are charged.
    pub(crate) fn models(&self) -> impl Iterator<Item = &str> {
        iter::once(&*self.counted).chain(self.parts.iter().map(|part| &*part.counted))
    }
}

struct Pricing<'a> {
    quote: &'a Quote,
    prices: &'a PriceTable,
    at: TimestampMs,
}

impl<'a> Pricing<'a> {
    fn nothing(&self) -> Bill {
        Bill {
            amounts: Amounts::FREE,
            tokens: TokenCounts::default(),
            usage_estimated: false,
            model: self.quote.model.clone(),
            service_tier: self.quote.service_tier.clone(),
            flags: Flags::new(),
            others: Vec::new(),
            counted: self.quote.model.clone(),
            own: Amounts::FREE,
            parts: Vec::new(),
        }
    }

    /// The provider's report decides, whatever was reserved.
    fn reported(&self, usage: &Usage, metered: &Metered) -> Bill {
        let mut bill = self.priced(usage, Some(metered));
        bill.usage_estimated = false;
        bill
    }

    /// The larger of the reservation and the price of `usage`.
    fn at_least_reserved(&self, usage: &Usage, metered: Option<&Metered>) -> Bill {
        let mut bill = self.priced(usage, metered);
        bill.amounts = bill.amounts.max(&self.quote.reserved);
        bill
    }

    fn priced(&self, usage: &Usage, metered: Option<&Metered>) -> Bill {
        let model = metered.and_then(|metered| metered.model.as_deref());
        let tier = metered.and_then(|metered| metered.service_tier.as_deref());
        let tier = Tier { served: tier, asked: self.quote.service_tier.as_deref() };
        let mut flags = Flags::new();
        let answered = self.priced_as(model, &self.quote.model, &mut flags);
        let own = amounts(usage, cost_of(answered.price, usage, tier, &mut flags));
        let mut all = own;
        let (mut others, mut parts) = (Vec::new(), Vec::new());
        for other in metered.map_or(&[][..], |metered| &metered.others) {
            let asked = self.quote.dearest_other().unwrap_or(&self.quote.model);
            let called = self.priced_as(Some(&other.model), asked, &mut flags);
            let used = amounts(&other.usage, cost_of(called.price, &other.usage, tier, &mut flags));
            all = Amounts { requests: 1, ..all.plus(&used) };
            parts.push(Part { counted: called.counted, amounts: used });
            others.push(model_use(called.name, other));
        }
        if self.quote.hidden_input {
            note(&mut flags, "hidden_input");
        }
        if metered.is_some_and(|metered| metered.is_contradictory) {
            note(&mut flags, "clamped");
        }
        if metered.is_some_and(|metered| metered.has_unread) {
            note(&mut flags, "unread_part");
        }
        Bill {
            amounts: all,
            tokens: counts(usage),
            usage_estimated: true,
            model: answered.name,
            service_tier: tier.name().map(Arc::from),
            flags,
            others,
            counted: answered.counted,
            own,
            parts,
        }
    }

    /// The answer's model decides the price; where it names none, or one without a price, the model that
    /// was asked for decides: the price, and with it whose limits are charged.
    fn priced_as(&self, answered: Option<&str>, asked: &Arc<str>, flags: &mut Flags) -> Priced<'a> {
        let other = answered.filter(|model| !model.is_empty() && **model != **asked);
        let name = other.map_or_else(|| asked.clone(), Arc::from);
        if let Some(price) = self.prices.lookup(&name, self.at) {
            return Priced { price: Some(price), counted: name.clone(), name };
        }
        let price = self.prices.lookup(asked, self.at);
        note(flags, if price.is_some() { "price_of_requested_model" } else { "model_unpriced" });
        Priced { price, counted: asked.clone(), name }
    }
}

/// A model that was used, and what it costs as.
struct Priced<'p> {
    price: Option<&'p ModelPrice>,
    /// As the answer names it.
    name: Arc<str>,
    /// As in [`Bill::counted`].
    counted: Arc<str>,
}

/// The service tier: the one that the answer names decides.
#[derive(Clone, Copy)]
struct Tier<'a> {
    served: Option<&'a str>,
    asked: Option<&'a str>,
}

impl<'a> Tier<'a> {
    fn name(self) -> Option<&'a str> {
        self.served.or(self.asked)
    }

    /// Where the answer names none, the tier that was asked for may have been ignored: the dearer of
    /// it and the standard one.
    fn cost(self, price: &ModelPrice, usage: &Usage) -> tollgate_pricing::Cost {
        let cost = price.cost(usage, self.name());
        if self.served.is_some() || self.asked.is_none() {
            return cost;
        }
        let standard = price.cost(usage, None);
        if standard.pico_usd > cost.pico_usd { standard } else { cost }
    }
}

fn cost_of(price: Option<&ModelPrice>, usage: &Usage, tier: Tier<'_>, flags: &mut Flags) -> PicoUsd {
    let Some(price) = price else { return PicoUsd::ZERO };
    let cost = tier.cost(price, usage);
    cost.flags.names().for_each(|word| note(flags, word));
    cost.pico_usd
}

fn note(flags: &mut Flags, word: &'static str) {
    if !flags.contains(&word) {
        flags.push(word);
    }
}

/// What one model used of a call.
fn amounts(usage: &Usage, cost: PicoUsd) -> Amounts {
    Amounts { requests: 1, input_tokens: usage.input_total(), output_tokens: usage.output, cost }
}

fn model_use(model: Arc<str>, other: &ModelUsage) -> ModelUse {
    ModelUse { model, tokens: counts(&other.usage) }
}

const fn counts(usage: &Usage) -> TokenCounts {
    TokenCounts {
        input: usage.input,
        cache_read: usage.cache_read,
        cache_write_5m: usage.cache_write_5m,
        cache_write_1h: usage.cache_write_1h,
        cache_write: usage.cache_write,
        output: usage.output,
        reasoning: usage.reasoning,
        audio_input: usage.audio_input,
        cached_audio_input: usage.cached_audio_input,
        image_input: usage.image_input,
        audio_output: usage.audio_output,
        image_output: usage.image_output,
        web_searches: usage.web_searches,
        web_fetches: usage.web_fetches,
    }
}
