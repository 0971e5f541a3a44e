//! What estimates of the input have taught: for each tenant a correction for each model, and for each family of
//! models; and what the latest call of each agent loop came to. What one tenant sends changes no other's
//! reservations.

mod loops;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use foldhash::quality::RandomState;
use tollgate_limiter::{TimestampMs, Tokens};
use tollgate_pricing::ModelPrice;
use tollgate_providers::{InputRatios, Protocol, model_family, route};
use tollgate_usage::{Replayed, StandsFor, UsageEvent};

use crate::{policy::Policy, quote::Quote, settle::Bill};

use self::loops::{LatestCall, Loops};

pub(crate) use self::loops::LoopId;

/// The most models that are learned about, those of each tenant counted apart.
const MODELS_MAX: usize = 4_096;

/// Nothing is corrected.
const UNCORRECTED_PERMILLE: u64 = 1_000;

/// No estimate is corrected to less than a half of it, nor to more than four times, as
/// [`InputRatios::factor_permille`] has it.
const CORRECTED_PERMILLE: (u64, u64) = (500, 4_000);

/// What was learned, by protocol, tenant and model. Looking up takes no lock.
#[derive(Debug, Default)]
pub(crate) struct Estimates {
    anthropic: ArcSwap<Models>,
    /// All others.
    openai: ArcSwap<Models>,
    /// Held while a model is added.
    adding: Mutex<()>,
    pub(crate) loops: Loops,
}

type Models = HashMap<Box<str>, Arc<Learned>, RandomState>;

/// Where what a call teaches goes: to its model, if that has a price, and to its family.
#[derive(Clone, Debug)]
pub(crate) struct Lessons {
    model: Option<Arc<Learned>>,
    family: Arc<Learned>,
}

#[derive(Debug, Default)]
struct Learned {
    ratios: Mutex<InputRatios>,
    /// In thousandths; 0: too little is known.
    factor: AtomicU64,
}

impl Estimates {
    /// The estimate of a request: what its loop's latest call came to and what is new since, else all of it;
    /// either corrected by what its model or else its family has taught. `model` is the id of a price; `None`:
    /// it has none. Together with where the call's own lesson goes, unless that is for its end to find out.
    pub(crate) fn corrected(
        &self,
        (protocol, tenant): (Protocol, &str),
        model: Option<&str>,
        name: &str,
        estimate: Tokens,
        latest: Option<LatestCall>,
    ) -> (Tokens, Option<Lessons>) {
        let learned = self.models(protocol).load();
        let known = |name: &str| learned.get(&*key(tenant, name));
        let (of_model, family) = (model.map(known), known(model_family(name)));
        let of_model_known = of_model.flatten();
        let factor = of_model_known.and_then(|known| known.factor()).or_else(|| family?.factor());
        let factor = factor.unwrap_or(UNCORRECTED_PERMILLE);
        let is_known = of_model.is_none() || of_model_known.is_some();
        let lessons = family
            .filter(|_| is_known)
            .map(|family| Lessons { model: of_model_known.cloned(), family: family.clone() });
        let times = |permille: u64| Tokens::new(estimate.get().saturating_mul(permille).div_ceil(1_000));
        let corrected = match latest.and_then(|latest| latest.continued(estimate, factor)) {
            Some(continued) => continued.clamp(times(CORRECTED_PERMILLE.0), times(CORRECTED_PERMILLE.1)),
            None => times(factor),
        };
        (corrected, lessons)
    }

    /// Learns from a call that was settled, which its event tells.
    pub(crate) fn learn_from(&self, policy: &Policy, quote: &Quote, event: &UsageEvent) {
        if let (Some(protocol), Some(uncorrected)) = (quote.protocol, event.uncorrected_input) {
            let reported = Tokens::new(event.tokens.input_total());
            if let Some(Lessons { model, family }) = &quote.lessons {
                model.iter().chain([family]).for_each(|learned| learned.add(uncorrected, reported));
            } else {
                let price = policy.prices.lookup(&quote.model, event.ts).map(ModelPrice::id);
                self.learn((protocol, &*event.tenant), price, &quote.model, uncorrected, reported);
            }
            let latest = LatestCall { estimated: uncorrected, reported };
            quote.of_loop.into_iter().for_each(|id| self.loops.note(id, latest, event.ts));
        }
    }

    /// Learns from a call of the past, or from those that a checkpoint tells of.
    pub(crate) fn learn_again(&self, policy: &Policy, event: &Replayed<'_>) {
        let own = event.uncorrected_input.map(|input| [(input.get(), event.tokens.input_total())]);
        let pairs = match event.stands_for {
            StandsFor::Estimates(pairs) => pairs,
            _ => own.as_ref().map_or(&[][..], |own| own),
        };
        if pairs.is_empty() {
            return;
        }
        let Ok(endpoint) = route("POST", event.path, None) else { return };
        let name = event.requested_model.unwrap_or(event.model);
        let price = policy.prices.lookup(name, event.ts).map(ModelPrice::id);
        let of = (endpoint.protocol, event.tenant);
        for (uncorrected, reported) in pairs {
            self.learn(of, price, name, Tokens::new(*uncorrected), Tokens::new(*reported));
        }
    }

    /// Learns from a request whose input was estimated, uncorrected, and then reported.
    fn learn(
        &self,
        (protocol, tenant): (Protocol, &str),
        model: Option<&str>,
        name: &str,
        estimated: Tokens,
        reported: Tokens,
    ) {
        for name in model.into_iter().chain([model_family(name)]) {
            let learned = self.of(protocol, &key(tenant, name));
            learned.into_iter().for_each(|learned| learned.add(estimated, reported));
        }
    }

    const fn models(&self, protocol: Protocol) -> &ArcSwap<Models> {
        match protocol {
            Protocol::Anthropic => &self.anthropic,
            _ => &self.openai,
        }
    }

    /// What is known of a model; `None` where there is no room for one more.
    fn of(&self, protocol: Protocol, name: &str) -> Option<Arc<Learned>> {
        let models = self.models(protocol);
        if let Some(learned) = models.load().get(name) {
            return Some(learned.clone());
        }
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let known = models.load();
        if let Some(learned) = known.get(name) {
            return Some(learned.clone());
        }
        if known.len() >= MODELS_MAX {
            return None;
        }
        let learned = Arc::new(Learned::default());
        let mut more = HashMap::clone(&known);
        more.insert(name.into(), learned.clone());
        models.store(Arc::new(more));
        Some(learned)
    }
}

impl Learned {
    fn factor(&self) -> Option<u64> {
        let factor = self.factor.load(Ordering::Relaxed);
        (factor > 0).then_some(factor)
    }

    fn add(&self, estimated: Tokens, reported: Tokens) {
        let mut ratios = self.ratios.lock().unwrap_or_else(PoisonError::into_inner);
        ratios.add(estimated, reported);
        self.factor.store(ratios.factor_permille().unwrap_or(0), Ordering::Relaxed);
    }
}

/// What is learned of a tenant's calls to `model` is found under this key. Neither has a zero byte.
fn key(tenant: &str, model: &str) -> String {
    [tenant, model].join("\0")
}

/// The uncorrected estimate of a call whose report can be compared with it: the model that was asked for
/// has answered alone, has read nothing that the body does not show, and its provider said how much.
pub(crate) fn comparable(policy: &Policy, quote: &Quote, bill: &Bill, at: TimestampMs) -> Option<Tokens> {
    let id = |name: &str| policy.prices.lookup(name, at).map(ModelPrice::id);
    let is_same =
        || bill.model == quote.model || id(&bill.model).is_some_and(|own| Some(own) == id(&quote.model));
    let is_told = !bill.usage_estimated && bill.others.is_empty() && bill.tokens.input_total() > 0;
    quote.uncorrected_input.filter(|_| is_told && is_same())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_corrected_by_itself_and_a_new_one_by_its_family() {
        let estimates = Estimates::default();
        let (protocol, tokens) = ((Protocol::Anthropic, "t"), Tokens::new(1_000));
        let corrected =
            |protocol, model| estimates.corrected(protocol, model, "claude-sonnet-5-5", tokens, None).0.get();
        let learn = |model, reported| {
            for _ in 0..20 {
                estimates.learn(protocol, Some(model), model, tokens, Tokens::new(reported));
            }
        };
        assert_eq!(corrected(protocol, Some("claude-sonnet-5-5")), 1_000);
        learn("claude-haiku-5-5", 700);
        let of_family = corrected(protocol, Some("claude-sonnet-5-5"));
        assert!((700..=740).contains(&of_family), "{of_family}");
        assert_eq!(corrected(protocol, None), of_family, "a name without a price");
        assert_eq!(corrected((Protocol::OpenAi, "t"), Some("claude-sonnet-5-5")), 1_000);
        learn("claude-sonnet-5-5", 1_200);
        let of_model = corrected(protocol, Some("claude-sonnet-5-5"));
        assert!((1_200..=1_260).contains(&of_model), "{of_model}");
        let of_another = corrected((Protocol::Anthropic, "u"), Some("claude-sonnet-5-5"));
        assert_eq!(of_another, 1_000, "what a tenant sends teaches nothing of another's");
    }

    #[test]
    fn a_loop_goes_on_from_what_was_reported_within_the_bounds_of_all_corrections() {
        let estimates = Estimates::default();
        let corrected = |estimate, estimated, reported| {
            let latest = LatestCall { estimated: Tokens::new(estimated), reported: Tokens::new(reported) };
            estimates
                .corrected((Protocol::OpenAi, "t"), None, "m", Tokens::new(estimate), Some(latest))
                .0
                .get()
        };
        assert_eq!(corrected(1_100, 1_000, 700), 700 + 100);
        assert_eq!(corrected(1_100, 1_000, 1_600), 1_600 + 160);
        assert_eq!(corrected(999, 1_000, 1_600), 999, "what has shrunk is estimated as ever");
        assert_eq!(corrected(1_000, 1_000, 1), 500);
        assert_eq!(corrected(1_000, 1_000, 90_000), 4_000);
    }

    #[test]
    fn the_number_of_models_is_bounded() {
        let estimates = Estimates::default();
        for index in 0..MODELS_MAX + 50 {
            let model = format!("m{index}");
            estimates.learn((Protocol::OpenAi, "t"), Some(&model), &model, Tokens::new(1), Tokens::new(1));
        }
        assert_eq!(estimates.openai.load().len(), MODELS_MAX);
    }
}
