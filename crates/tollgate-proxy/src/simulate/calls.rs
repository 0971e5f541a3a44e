//! Recorded calls, small: what millions of them have in common is kept once.

use std::{collections::HashMap, sync::Arc};

use foldhash::quality::RandomState;
use tollgate_config::Scope;
use tollgate_limiter::{ExactAmount, TimestampMs, Tokens};
use tollgate_pricing::PicoUsd;
use tollgate_usage::Replayed;

use crate::{amounts::Amounts, policy::Policy};

/// One call.
#[derive(Clone, Copy, Debug)]
pub(super) struct PastCall {
    /// When it was admitted.
    pub(super) at: TimestampMs,
    /// When it was settled.
    pub(super) ends: TimestampMs,
    /// The place of its [`Kind`].
    pub(super) kind: u32,
    /// The place of its session's id; that of the empty text for none.
    session: u32,
    estimated_input: u64,
    /// What it reserved at its admission.
    reserved_output: u64,
    reserved_micro_usd: u64,
    /// What it was settled to.
    input: u64,
    output: u64,
    /// What it cost.
    pub(super) cost: ExactAmount,
}

/// What the limits of calls depend on, sessions aside.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    pub(super) tenant: Arc<str>,
    pub(super) key: Arc<str>,
    pub(super) provider: Arc<str>,
    /// The model that was asked for.
    pub(super) asked: Arc<str>,
    /// The model that counts at the end.
    pub(super) charged: Arc<str>,
    /// What the callers have set.
    pub(super) caller: Vec<(Scope, Arc<str>)>,
    /// Whether the call cost tokens and money, as far as anything was reserved for it.
    pub(super) is_billed: bool,
}

impl PastCall {
    pub(super) fn reserved(&self) -> Amounts {
        Amounts {
            requests: 1,
            input_tokens: self.estimated_input,
            output_tokens: self.reserved_output,
            cost: PicoUsd::new(u128::from(self.reserved_micro_usd).saturating_mul(1_000_000)),
        }
    }

    /// What it was settled to.
    pub(super) fn used(&self) -> Amounts {
        Amounts {
            requests: 1,
            input_tokens: self.input,
            output_tokens: self.output,
            cost: PicoUsd::new(self.cost.as_millionths()),
        }
    }
}

/// Recorded calls.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<PastCall>,
    kinds: Vec<Kind>,
    /// The places of `kinds`.
    named: HashMap<Named, u32, RandomState>,
    texts: Texts,
    without_reserved_output: u64,
}

/// A [`Kind`] by the places of its texts, which are quicker to compare: nearly every call is of a kind that
/// was there before.
#[derive(Debug, Eq, Hash, PartialEq)]
struct Named {
    /// Tenant, key, provider, the model asked for, the one that counts.
    texts: [u32; 5],
    caller: Vec<(Scope, u32)>,
    is_billed: bool,
}

impl Calls {
    pub(super) fn push(&mut self, policy: &Policy, event: &Replayed<'_>) {
        let asked = event.requested_model.unwrap_or(event.model);
        let charged = policy.charged_as(event).name;
        let reserved = event.reserved.get();
        let is_billed = reserved > 0 || event.estimated_input.get() > 0 || event.cost > ExactAmount::ZERO;
        let texts = [event.tenant, event.key, event.provider, asked, charged];
        let texts = texts.map(|text| self.texts.place(text));
        let caller = self.caller(event);
        let kind = self.kind(Named { texts, caller, is_billed });
        self.without_reserved_output += u64::from(event.reserved_output.is_none() && is_billed);
        let session = event.session.unwrap_or_default();
        let (used_input, used_output) = (event.tokens.input_total(), event.tokens.output);
        let estimated_input = event.estimated_input.get();
        let reserved_output = event.reserved_output.map_or(used_output, Tokens::get);
        // An estimate is never below the reservation, with all that it has grown to.
        let (input, output) = match event.usage_estimated {
            true => (used_input.max(estimated_input), used_output.max(reserved_output)),
            false => (used_input, used_output),
        };
        let first = event.first_reserved;
        self.calls.push(PastCall {
            at: event.ts,
            ends: event.ts.saturating_add(event.duration),
            kind,
            session: self.texts.place(session),
            estimated_input,
            reserved_output: first.map_or(reserved_output, |first| first.output.get()),
            reserved_micro_usd: first.map_or(reserved, |first| first.cost.get()),
            input,
            output,
            cost: event.cost,
        });
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(super) const fn without_reserved_output(&self) -> u64 {
        self.without_reserved_output
    }

    pub(super) fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    pub(super) fn session(&self, call: &PastCall) -> Option<&str> {
        let id = self.texts.kept.get(call.session as usize)?;
        (!id.is_empty()).then_some(&**id)
    }

    /// In the order of their admission; those of one millisecond in the file's order.
    pub(super) fn in_order(&self) -> Vec<PastCall> {
        let mut calls = self.calls.clone();
        calls.sort_by_key(|call| call.at);
        calls
    }

    /// The first and the last admission.
    pub(super) fn span(&self) -> Option<(TimestampMs, TimestampMs)> {
        let times = || self.calls.iter().map(|call| call.at);
        times().min().zip(times().max())
    }

    /// The place of a kind. There are fewer than calls ([`super::CALLS_MAX`]).
    fn kind(&mut self, named: Named) -> u32 {
        if let Some(place) = self.named.get(&named) {
            return *place;
        }
        let place = u32::try_from(self.kinds.len()).unwrap_or(u32::MAX);
        let text = |place: u32| self.texts.kept.get(place as usize).cloned().unwrap_or_default();
        let [tenant, key, provider, asked, charged] = named.texts.map(text);
        let caller = named.caller.iter().map(|(scope, value)| (*scope, text(*value))).collect();
        self.kinds.push(Kind { tenant, key, provider, asked, charged, caller, is_billed: named.is_billed });
        self.named.insert(named, place);
        place
    }

    fn caller(&mut self, event: &Replayed<'_>) -> Vec<(Scope, u32)> {
        let scope = |name: &str| Scope::ATTRIBUTES.into_iter().find(|scope| scope.name() == name);
        let chosen = event.attributes().filter(|(name, _)| event.is_from_caller(name));
        chosen.filter_map(|(name, value)| Some((scope(name)?, self.texts.place(value)))).collect()
    }
}

/// Texts, each once, by their places.
#[derive(Debug, Default)]
struct Texts {
    places: HashMap<Arc<str>, u32, RandomState>,
    kept: Vec<Arc<str>>,
}

impl Texts {
    /// The place of a text. There are fewer than calls times their fields.
    fn place(&mut self, text: &str) -> u32 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = u32::try_from(self.kept.len()).unwrap_or(u32::MAX);
        let own: Arc<str> = text.into();
        self.kept.push(own.clone());
        self.places.insert(own, place);
        place
    }
}
