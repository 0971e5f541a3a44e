//! Recorded calls, small: what millions of them have in common is kept once.

use std::{borrow::Borrow, collections::HashMap, hash::Hash, sync::Arc};

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
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
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
    kinds: Table<Kind>,
    texts: Table<Arc<str>>,
    without_reserved_output: u64,
}

impl Calls {
    pub(super) fn push(&mut self, policy: &Policy, event: &Replayed<'_>) {
        let asked = event.requested_model.unwrap_or(event.model);
        let charged = policy.charged_as(event).name;
        let reserved = event.reserved.get();
        let is_billed = reserved > 0 || event.estimated_input.get() > 0 || event.cost > ExactAmount::ZERO;
        let kind = Kind {
            tenant: self.text(event.tenant),
            key: self.text(event.key),
            provider: self.text(event.provider),
            asked: self.text(asked),
            charged: self.text(charged),
            caller: self.caller(event),
            is_billed,
        };
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
            kind: self.kinds.place(&kind, || kind.clone()),
            session: self.texts.place(session, || session.into()),
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
        &self.kinds.kept
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

    fn text(&mut self, text: &str) -> Arc<str> {
        let place = self.texts.place(text, || text.into());
        self.texts.kept.get(place as usize).cloned().unwrap_or_else(|| text.into())
    }

    fn caller(&mut self, event: &Replayed<'_>) -> Vec<(Scope, Arc<str>)> {
        let scope = |name: &str| Scope::ATTRIBUTES.into_iter().find(|scope| scope.name() == name);
        let chosen = event.attributes().filter(|(name, _)| event.is_from_caller(name));
        chosen.filter_map(|(name, value)| Some((scope(name)?, self.text(value)))).collect()
    }
}

/// Values, each once, by their places.
#[derive(Debug)]
struct Table<T> {
    places: HashMap<T, u32, RandomState>,
    kept: Vec<T>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { places: HashMap::default(), kept: Vec::new() }
    }
}

impl<T: Clone + Eq + Hash> Table<T> {
    /// The place of a value. There are fewer than calls ([`super::CALLS_MAX`]) times their fields.
    fn place<Q: Eq + Hash + ?Sized>(&mut self, value: &Q, own: impl FnOnce() -> T) -> u32
    where
        T: Borrow<Q>,
    {
        if let Some(place) = self.places.get(value) {
            return *place;
        }
        let place = u32::try_from(self.kept.len()).unwrap_or(u32::MAX);
        let own = own();
        self.kept.push(own.clone());
        self.places.insert(own, place);
        place
    }
}
