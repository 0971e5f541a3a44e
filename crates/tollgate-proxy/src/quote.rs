//! What a request is expected to use, which limits it meets, and what is reserved for it.
//!
//! A function of the policy, the request and the time: the request path decides by it, and `explain`
//! shows it.

use std::{iter, sync::Arc};

use tollgate_config::{OutputReservation, Scope, Unpriced};
use tollgate_limiter::{Amount, ENTRIES_MAX, Entry, Plan, PlanError, ReservationId, TimestampMs, Tokens};
use tollgate_pricing::{ModelPrice, PicoUsd, ReserveRequest};
use tollgate_providers::{Endpoint, ErrorKind, Protocol, RequestFacts, estimate_input};

use crate::{
    amounts::Amounts,
    estimates::{Estimates, Lessons, LoopId},
    policy::{AppliedLimit, Called, Circumstances, KeyPolicy, Measure, Policy},
    refuse::Refused,
};

/// What a request under `reservation.output_tokens = "max"` reserves where neither it nor its
/// model's price row names a limit: the largest output limit of today's models.
const OUTPUT_TOKENS_UNNAMED: u64 = 128_000;

/// A request as it is judged.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// For the log.
    pub(crate) request_id: ReservationId,
    pub(crate) key: &'a KeyPolicy,
    /// Attributes that the caller has set.
    pub(crate) caller: &'a [(Scope, Arc<str>)],
    /// The session's id.
    pub(crate) session: Option<&'a str>,
    /// The provider it goes to.
    pub(crate) provider: &'a str,
    pub(crate) endpoint: Endpoint,
    /// `None` for a call without a body.
    pub(crate) facts: Option<&'a RequestFacts>,
    /// What earlier estimates have taught.
    pub(crate) estimates: &'a Estimates,
}

impl Asked<'_> {
    /// The agent loop that the request belongs to. What the body does not show is not known to be in the next
    /// one too.
    fn of_loop(&self, facts: &RequestFacts) -> Option<LoopId> {
        let (session, prompt) = self.session.zip(facts.session.prompt)?;
        let protocol = self.endpoint.protocol;
        let id = self.estimates.loops.id(&self.key.tenant, session, protocol, &facts.model, prompt);
        facts.shows_all_input().then_some(id)
    }
}

/// What is expected of a request, and what limits it.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) quote: Quote,
    /// Every limit it meets.
    pub(crate) limits: Arc<[AppliedLimit]>,
}

/// What is expected of a request.
#[derive(Clone, Debug)]
pub(crate) struct Quote {
    /// Whether the provider bills this call.
    pub(crate) billed: bool,
    /// What is reserved.
    pub(crate) reserved: Amounts,
    pub(crate) estimated_input: Tokens,
    /// The same before it was corrected, where the body shows all that will be read.
    pub(crate) uncorrected_input: Option<Tokens>,
    /// Where what it teaches about estimates goes, where that is known.
    pub(crate) lessons: Option<Lessons>,
    /// The agent loop that it belongs to, where that is known and the body shows all that will be read.
    pub(crate) of_loop: Option<LoopId>,
    /// What a call that is billed is spoken in.
    pub(crate) protocol: Option<Protocol>,
    /// The most tokens that it may need: more than is reserved where its own output limit is above the
    /// reservation's.
    largest: Tokens,
    /// The most output that the provider may give, over all choices, where the request or what is put into
    /// it names a limit.
    pub(crate) output_limit: Option<u64>,
    /// The output limit of each choice that goes into the request: where it has none, or one that was
    /// lowered.
    pub(crate) limit_to_send: Option<u64>,
    /// Whether the output limit was lowered to what the budgets afford.
    pub(crate) is_fitted: bool,
    /// The model the request names.
    pub(crate) model: Arc<str>,
    /// The tier the request names.
    pub(crate) service_tier: Option<Arc<str>>,
    /// Whether the prompt holds what is not in the body, so that the estimate had to guess.
    pub(crate) hidden_input: bool,
    /// Whether audio goes in or may come out: what nobody reports counts as audio, as it was reserved.
    pub(crate) audio: bool,
    /// What each model may cost; empty where the request names one only.
    parts: Vec<Part>,
}

/// What one of several models may cost.
#[derive(Clone, Debug)]
struct Part {
    name: Arc<str>,
    /// Its id in the price table.
    id: Arc<str>,
    cost: PicoUsd,
}

impl Judged {
    /// Estimates and prices a request.
    ///
    /// # Errors
    ///
    /// A model has no price, and a rule blocks such models.
    pub(crate) fn new(policy: &Policy, asked: &Asked<'_>, at: TimestampMs) -> Result<Self, Refused> {
        let named = asked.facts.into_iter().flat_map(names);
        let models = policy.models_called(named, at);
        let circumstances = Circumstances {
            caller: asked.caller,
            session: asked.session,
            provider: asked.provider,
            models: &models,
        };
        let is_billed = asked.facts.is_some() && asked.endpoint.is_billed();
        let limits = policy.limits(asked.key, &circumstances, is_billed);
        let quote = match asked.facts.filter(|_| is_billed) {
            Some(facts) => Quote::billed(policy, asked, facts, &limits, at)?,
            None => {
                Quote::unbilled(asked.facts.map_or_else(|| "".into(), |facts| facts.model.as_str().into()))
            }
        };
        Ok(Self { quote, limits })
    }

    /// Whether a stream may come to more than is reserved for it under a hard budget.
    pub(crate) fn grows(&self) -> bool {
        let Self { quote, limits } = self;
        quote.billed && !quote.is_covered() && limits.iter().any(AppliedLimit::grows_with_output)
    }

    /// The limits with what the request would add to each.
    ///
    /// # Errors
    ///
    /// They are too many for one decision.
    pub(crate) fn plan(&self) -> Result<Plan, Refused> {
        let entry =
            |limit: &AppliedLimit| Entry { limit: limit.limit.clone(), charge: self.quote.charge(limit) };
        Plan::new(self.limits.iter().map(entry).collect()).map_err(|error| {
            if !self.quote.parts.is_empty() {
                let message = format!("This request names too many models to be checked at once: {error}.");
                return Refused::new(ErrorKind::BadRequest, "bad_request", message);
            }
            if let PlanError::TooManyEntries { entries } = error {
                let message = format!(
                    "This call meets {entries} limits, and a call can be checked against {ENTRIES_MAX}: send it \
                     without some of its own attributes or session, or ask for some limits to be removed."
                );
                return Refused::new(ErrorKind::BadRequest, "too_many_limits", message);
            }
            tracing::error!(%error, "a request's limits make no plan");
            let message = format!("This request's limits cannot be checked: {error}.");
            Refused::new(ErrorKind::Internal, "internal", message)
        })
    }
}

impl Quote {
    /// A call that costs neither tokens nor money.
    pub(crate) const fn unbilled(model: Arc<str>) -> Self {
        Self {
            billed: false,
            reserved: Amounts::FREE,
            estimated_input: Tokens::ZERO,
            uncorrected_input: None,
            lessons: None,
            of_loop: None,
            protocol: None,
            largest: Tokens::ZERO,
            output_limit: None,
            limit_to_send: None,
            is_fitted: false,
            model,
            service_tier: None,
            hidden_input: false,
            audio: false,
            parts: Vec::new(),
        }
    }

    fn billed(
        policy: &Policy,
        asked: &Asked<'_>,
        facts: &RequestFacts,
        limits: &[AppliedLimit],
        at: TimestampMs,
    ) -> Result<Self, Refused> {
        for name in names(facts) {
            let price = policy.prices.lookup(name, at);
            if price.is_none() {
                unpriced(asked, limits, Called::new(name, price))?;
            }
        }
        let put_in = || {
            (policy.output_reservation == OutputReservation::Max)
                .then(|| unnamed_limit(policy.prices.lookup(&facts.model, at)))
        };
        let limit_to_send = if facts.output_limit.is_none() { put_in() } else { None };
        let (protocol, uncorrected) = (asked.endpoint.protocol, estimate_input(facts));
        let price = policy.prices.lookup(&facts.model, at).map(ModelPrice::id);
        let of_loop = asked.of_loop(facts);
        let latest = of_loop.and_then(|id| asked.estimates.loops.latest(id, at));
        let of_tenant = (protocol, &*asked.key.tenant);
        let (estimated_input, lessons) =
            asked.estimates.corrected(of_tenant, price, &facts.model, uncorrected, latest);
        let quote = Self {
            billed: true,
            estimated_input,
            lessons,
            uncorrected_input: facts.shows_all_input().then_some(uncorrected),
            of_loop,
            protocol: Some(protocol),
            limit_to_send,
            model: facts.model.as_str().into(),
            service_tier: facts.service_tier.as_deref().map(Arc::from),
            hidden_input: facts.hidden_input,
            audio: facts.audio,
            ..Self::unbilled("".into())
        };
        Ok(quote.with_output(policy, facts, facts.output_limit.or(limit_to_send), at))
    }

    /// The same with an output limit that is lowered to `limit_each` for each choice.
    pub(crate) fn fitted(
        &self,
        policy: &Policy,
        facts: &RequestFacts,
        limit_each: u64,
        at: TimestampMs,
    ) -> Self {
        let fitted = Self { limit_to_send: Some(limit_each), is_fitted: true, ..self.clone() };
        fitted.with_output(policy, facts, Some(limit_each), at)
    }

    /// The same with what is reserved under the output limit `limit_each` of each choice.
    fn with_output(
        self,
        policy: &Policy,
        facts: &RequestFacts,
        limit_each: Option<u64>,
        at: TimestampMs,
    ) -> Self {
        let output_limit = limit_each.map(|limit| limit.saturating_mul(facts.choices));
        let output_tokens = match policy.output_reservation {
            OutputReservation::UpTo(cap) => output_limit.unwrap_or(u64::MAX).min(cap.get()),
            OutputReservation::Max => output_limit.unwrap_or(u64::MAX),
        };
        let input = self.estimated_input;
        let request = reserve_request(facts, input, output_tokens);
        // Each model that a tool of the request names may make a pass of its own over the same input.
        let (mut cost, mut parts) = (PicoUsd::ZERO, Vec::new());
        for name in names(facts) {
            let price = policy.prices.lookup(name, at);
            let of_model = price.map_or(PicoUsd::ZERO, |price| price.reserve(&request));
            cost = cost.saturating_add(of_model);
            if !facts.other_models.is_empty() {
                parts.push(Part {
                    name: name.into(),
                    id: Called::new(name, price).id.into(),
                    cost: of_model,
                });
            }
        }
        let largest_output = output_limit.unwrap_or(output_tokens);
        Self {
            reserved: Amounts { requests: 1, input_tokens: input.get(), output_tokens, cost },
            largest: Tokens::new(input.get().saturating_add(largest_output)),
            output_limit,
            parts,
            ..self
        }
    }

    /// What the request adds to the counter of `limit`. A limit on the size of requests is about what this
    /// one may need, of which no more than a part may be reserved.
    pub(crate) fn charge(&self, limit: &AppliedLimit) -> Amount {
        match limit.rule.measure {
            Measure::RequestTokens => Amount::new(self.largest.get()),
            measure => measure.charge(&self.reserved_for(limit)),
        }
    }

    /// What is reserved against `limit`: all of it, or what the models that count may cost. Each of
    /// them may use the input and output of the whole.
    pub(crate) fn reserved_for(&self, limit: &AppliedLimit) -> Amounts {
        if self.parts.is_empty() || !limit.is_of_models() {
            return self.reserved;
        }
        let counted = self.parts.iter().filter(|part| limit.counts(&part.name, &part.id));
        let cost = counted.fold(PicoUsd::ZERO, |sum, part| sum.saturating_add(part.cost));
        Amounts { cost, ..self.reserved }
    }

    /// Whether all the output is reserved that the provider may give.
    pub(crate) fn is_covered(&self) -> bool {
        self.output_limit.is_some_and(|limit| self.reserved.output_tokens >= limit)
    }

    /// What is reserved for what the model `id` of the price table uses: its own part where the request
    /// names several, the first where it is none of them.
    pub(crate) fn share(&self, id: &str) -> Amounts {
        match self.part_of(id).and_then(|index| self.parts.get(index)) {
            Some(part) => Amounts { cost: part.cost, ..self.reserved },
            None => self.reserved,
        }
    }

    /// The same with no less than `need` reserved for what the model `id` uses. What is reserved for others
    /// stays as it is.
    pub(crate) fn grown(&self, id: &str, need: &Amounts) -> Self {
        let mut grown = self.clone();
        let more = PicoUsd::new(need.cost.get().saturating_sub(self.share(id).cost.get()));
        if let Some(part) = self.part_of(id).and_then(|index| grown.parts.get_mut(index)) {
            part.cost = part.cost.saturating_add(more);
        }
        let cost = self.reserved.cost.saturating_add(more);
        grown.reserved = Amounts { cost, ..self.reserved.max(need) };
        grown
    }

    fn part_of(&self, id: &str) -> Option<usize> {
        let index = self.parts.iter().position(|part| *part.id == *id);
        index.or((!self.parts.is_empty()).then_some(0))
    }

    /// Of the models that the request names beside its own, the one that may cost the most.
    pub(crate) fn dearest_other(&self) -> Option<&Arc<str>> {
        self.parts.iter().skip(1).max_by_key(|part| part.cost).map(|part| &part.name)
    }
}

/// What a request asks for, as its price is reserved by.
pub(crate) fn reserve_request(facts: &RequestFacts, input: Tokens, output_tokens: u64) -> ReserveRequest<'_> {
    ReserveRequest {
        input_tokens: input.get(),
        output_tokens,
        cache_write: facts.cache_write,
        tier: facts.service_tier.as_deref(),
        web_searches: facts.web_searches_max.unwrap_or(0),
        audio: facts.audio,
    }
}

/// The models that a request names, its own first.
fn names(facts: &RequestFacts) -> impl Iterator<Item = &str> {
    iter::once(&facts.model).chain(&facts.other_models).map(String::as_str)
}

fn unnamed_limit(price: Option<&ModelPrice>) -> u64 {
    price.and_then(ModelPrice::max_output_tokens).unwrap_or(OUTPUT_TOKENS_UNNAMED)
}

/// What the strictest rule that applies says of calls to a model if it has no price.
pub(crate) fn unpriced_rule(key: &KeyPolicy, limits: &[AppliedLimit], model: Called<'_>) -> Unpriced {
    let applies = |limit: &&AppliedLimit| !limit.is_of_models() || limit.counts(model.name, model.id);
    let demands = limits.iter().filter(applies).filter_map(|limit| limit.rule.unpriced);
    demands.fold(key.unpriced, Unpriced::max)
}

/// Refuses a model without a price where the strictest rule that applies says so.
fn unpriced(asked: &Asked<'_>, limits: &[AppliedLimit], model: Called<'_>) -> Result<(), Refused> {
    let rule = unpriced_rule(asked.key, limits, model);
    let (request_id, model) = (asked.request_id, model.name);
    match rule {
        Unpriced::Ignore => Ok(()),
        Unpriced::Warn => {
            tracing::warn!(%request_id, model, "no price is known for this model");
            Ok(())
        }
        Unpriced::Block => Err(Refused {
            should_retry: Some(false),
            ..Refused::new(
                ErrorKind::BudgetExceeded,
                "model_unpriced",
                format!(
                    "No price is known for model `{model}`, so this call would escape its budget. Add the \
                     model to the price table, or set `unpriced` of the budget."
                ),
            )
        }),
    }
}
