//! What the latest call of an agent loop has taught. The next one sends the same again and more, so that only
//! what is new has to be estimated.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher,
    mem,
    sync::{Mutex, PoisonError},
};

use tollgate_limiter::{DurationMs, TimestampMs, Tokens};
use tollgate_providers::{PromptPrefix, Protocol};

/// The most loops that are known: some 50 bytes each.
const LOOPS_MAX: usize = 50_000;

/// A loop is known at least so long after its latest call, and no longer than twice that.
const IDLE: DurationMs = DurationMs::new(86_400_000);

/// The latest calls of loops.
#[derive(Debug, Default)]
pub(crate) struct Loops {
    /// Held for one lookup or one insertion.
    latest: Mutex<Generations>,
    /// With keys that nobody knows: callers choose what goes into an id.
    hasher: RandomState,
}

/// Names a loop: its tenant, session, protocol, model and the beginning of its prompt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LoopId(u64);

/// What is known of a loop's latest call whose input was reported.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LatestCall {
    /// The estimate of its input, uncorrected.
    pub(crate) estimated: Tokens,
    /// What its provider reported, of all classes.
    pub(crate) reported: Tokens,
}

/// Two maps in turns: when the recent one is full or old it takes the place of the one before, which is
/// dropped. No look through a map is ever needed.
#[derive(Debug, Default)]
struct Generations {
    recent: HashMap<u64, LatestCall, foldhash::fast::RandomState>,
    before: HashMap<u64, LatestCall, foldhash::fast::RandomState>,
    /// When the recent one began.
    since: TimestampMs,
}

impl Loops {
    /// The id of the loop that a call with these properties belongs to. A session alone is not enough: an
    /// agent and those that it starts may share it.
    pub(crate) fn id(
        &self,
        tenant: &str,
        session: &str,
        protocol: Protocol,
        model: &str,
        prompt: PromptPrefix,
    ) -> LoopId {
        LoopId(self.hasher.hash_one((tenant, session, protocol.name(), model, prompt)))
    }

    /// The latest call of a loop, as far as it is known at `at`.
    pub(crate) fn latest(&self, id: LoopId, at: TimestampMs) -> Option<LatestCall> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.age(at);
        latest.recent.get(&id.0).or_else(|| latest.before.get(&id.0)).copied()
    }

    /// A call of a loop was settled at `at`.
    pub(crate) fn note(&self, id: LoopId, call: LatestCall, at: TimestampMs) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.age(at);
        if latest.recent.len() >= LOOPS_MAX / 2 && !latest.recent.contains_key(&id.0) {
            latest.turn(at);
        }
        latest.recent.insert(id.0, call);
    }
}

impl Generations {
    fn age(&mut self, at: TimestampMs) {
        let age_ms = at.get().saturating_sub(self.since.get());
        if age_ms >= IDLE.get().saturating_mul(2) {
            *self = Self { since: at, ..Self::default() };
        } else if age_ms >= IDLE.get() {
            self.turn(at);
        }
    }

    fn turn(&mut self, at: TimestampMs) {
        self.before = mem::take(&mut self.recent);
        self.since = at;
    }
}

impl LatestCall {
    /// The input of the loop's next call, whose uncorrected estimate is `estimate`: what was reported, and what
    /// is new by `factor_permille`, or by the loop's own ratio where that is larger. `None`: the request has
    /// shrunk, so that it is not known what is left of what was reported.
    pub(crate) fn continued(&self, estimate: Tokens, factor_permille: u64) -> Option<Tokens> {
        let new = estimate.get().checked_sub(self.estimated.get())?;
        let estimated = self.estimated.get().max(1);
        let own_permille = self.reported.get().saturating_mul(1_000).div_ceil(estimated);
        let new = new.saturating_mul(factor_permille.max(own_permille)).div_ceil(1_000);
        Some(Tokens::new(self.reported.get().saturating_add(new)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: TimestampMs = TimestampMs::new(1_795_996_800_000);

    fn call(estimated: u64, reported: u64) -> LatestCall {
        LatestCall { estimated: Tokens::new(estimated), reported: Tokens::new(reported) }
    }

    fn after(days: u64) -> TimestampMs {
        START.saturating_add(DurationMs::new(days * IDLE.get()))
    }

    #[test]
    fn two_hundred_thousand_loops_take_the_room_of_fifty_thousand() {
        let loops = Loops::default();
        for id in 0..200_000 {
            loops.note(LoopId(id), call(id, id), START);
        }
        let known = (0..200_000).filter(|id| loops.latest(LoopId(*id), START).is_some()).count();
        assert!((LOOPS_MAX / 2..=LOOPS_MAX).contains(&known), "{known}");
        assert_eq!(loops.latest(LoopId(199_999), START), Some(call(199_999, 199_999)));
        let latest = loops.latest.lock().unwrap();
        assert!(latest.recent.capacity() + latest.before.capacity() <= 2 * LOOPS_MAX);
    }

    #[test]
    fn a_loop_is_forgotten_a_day_or_two_after_its_latest_call() {
        let loops = Loops::default();
        loops.note(LoopId(1), call(10, 7), START);
        assert!(loops.latest(LoopId(1), after(1)).is_some());
        loops.note(LoopId(2), call(20, 14), after(1));
        assert_eq!(loops.latest(LoopId(1), after(2)), None);
        assert_eq!(loops.latest(LoopId(2), after(2)), Some(call(20, 14)));
        assert_eq!(loops.latest(LoopId(2), after(9)), None);
    }

    #[test]
    fn every_part_of_a_loop_s_name_makes_another() {
        let loops = Loops::default();
        let prompt = |text: &str| {
            let body =
                format!("{{\"model\":\"m\",\"messages\":[{{\"role\":\"user\",\"content\":\"{text}\"}}]}}");
            let endpoint = tollgate_providers::route("POST", "/v1/chat/completions", None).unwrap();
            tollgate_providers::inspect(endpoint, body.as_bytes()).unwrap().session.prompt.unwrap()
        };
        let (first, second) = (prompt("one"), prompt("two"));
        let id =
            |tenant, session, protocol, model, prompt| loops.id(tenant, session, protocol, model, prompt);
        let own = id("t", "s", Protocol::Anthropic, "m", first);
        assert_eq!(own, id("t", "s", Protocol::Anthropic, "m", first));
        for other in [
            id("u", "s", Protocol::Anthropic, "m", first),
            id("t", "z", Protocol::Anthropic, "m", first),
            id("t", "s", Protocol::OpenAi, "m", first),
            id("t", "s", Protocol::Anthropic, "n", first),
            id("t", "s", Protocol::Anthropic, "m", second),
        ] {
            assert_ne!(own, other);
        }
    }

    proptest! {
        /// Never below what was reported, and never below what the new part comes to by either ratio.
        #[test]
        fn what_has_grown_is_never_below_what_was_reported(
            estimated in 0_u64..1_000_000, reported in 1_u64..1_000_000, new in 0_u64..1_000_000, factor in 500_u64..4_000,
        ) {
            let known = call(estimated, reported);
            let next = known.continued(Tokens::new(estimated + new), factor).unwrap().get();
            prop_assert!(next >= reported + (new * factor) / 1_000);
            prop_assert!(u128::from(next - reported) * u128::from(estimated) >= u128::from(new) * u128::from(reported));
            prop_assert_eq!(known.continued(Tokens::new(estimated), factor), Some(Tokens::new(reported)));
            prop_assert!(estimated == 0 || known.continued(Tokens::new(estimated - 1), factor).is_none());
        }
    }
}
