//! Makes recorded calls small, on the thread that has read them.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use foldhash::quality::RandomState;
use tollgate_config::Scope;
use tollgate_limiter::{ExactAmount, Limit, TimestampMs, Tokens};
use tollgate_usage::{Digest, Past, Replayed};

use crate::policy::Policy;

use super::calls::{Kind, PastCall};

/// What the calls of one thread have in common. [`PastCall`] has the places.
pub(super) struct Shrink<'p> {
    policy: &'p Policy,
    /// The first moment that is simulated.
    since: TimestampMs,
    /// Whether there are more calls than may be kept: nothing more is kept.
    is_full: &'p AtomicBool,
    kinds: Vec<Kind>,
    /// The places of `kinds`.
    named: HashMap<Named, u32, RandomState>,
    texts: Texts,
}

/// What a line comes to.
pub(super) enum Shrunk {
    /// A call that is simulated, and whether it says how much output was reserved, or need not.
    Call(PastCall, bool),
    /// One before those: its admission, its cost, and what it spent of which limits.
    Before(TimestampMs, ExactAmount, Vec<(Limit, ExactAmount)>),
    /// A refusal of that time.
    Refusal,
    /// Nothing that counts.
    Nothing,
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

impl Digest for Shrink<'_> {
    type Record = Shrunk;

    fn digest(&mut self, past: Past<'_>) -> Shrunk {
        match past {
            _ if self.is_full.load(Ordering::Relaxed) => Shrunk::Nothing,
            Past::Refusal(refusal) if refusal.ts < self.since => Shrunk::Nothing,
            Past::Refusal(_) => Shrunk::Refusal,
            Past::Usage(event) if event.ts < self.since => {
                let mut spent_of = Vec::new();
                self.policy.spent_of(event, |limit, spent| spent_of.push((limit.clone(), spent)));
                Shrunk::Before(event.ts, event.cost, spent_of)
            }
            Past::Usage(event) => self.call(event),
        }
    }
}

impl<'p> Shrink<'p> {
    pub(super) fn new(policy: &'p Policy, since: TimestampMs, is_full: &'p AtomicBool) -> Self {
        let (kinds, named) = (Vec::new(), HashMap::default());
        Self { policy, since, is_full, kinds, named, texts: Texts::default() }
    }

    pub(super) fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    pub(super) fn text(&self, place: u32) -> Option<&str> {
        self.texts.kept.get(place as usize).map(|text| &**text)
    }

    fn call(&mut self, event: &Replayed<'_>) -> Shrunk {
        let asked = event.requested_model.unwrap_or(event.model);
        // Without another name it is the one model.
        let charged = event.requested_model.map_or(event.model, |_| self.policy.charged_as(event).name);
        let reserved = event.reserved.get();
        let is_billed = reserved > 0 || event.estimated_input.get() > 0 || event.cost > ExactAmount::ZERO;
        let texts = [event.tenant, event.key, event.provider, asked, charged];
        let texts = texts.map(|text| self.texts.place(text));
        let caller = self.caller(event);
        let (used_input, used_output) = (event.tokens.input_total(), event.tokens.output);
        let estimated_input = event.estimated_input.get();
        let reserved_output = event.reserved_output.map_or(used_output, Tokens::get);
        // An estimate is never below the reservation, with all that it has grown to.
        let (input, output) = match event.usage_estimated {
            true => (used_input.max(estimated_input), used_output.max(reserved_output)),
            false => (used_input, used_output),
        };
        let first = event.first_reserved;
        let call = PastCall {
            at: event.ts,
            ends: event.ts.saturating_add(event.duration),
            kind: self.kind(Named { texts, caller, is_billed }),
            session: self.texts.place(event.session.unwrap_or_default()),
            reader: 0,
            estimated_input,
            reserved_output: first.map_or(reserved_output, |first| first.output.get()),
            reserved_micro_usd: first.map_or(reserved, |first| first.cost.get()),
            input,
            output,
            cost: event.cost,
        };
        Shrunk::Call(call, event.reserved_output.is_some() || !is_billed)
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
