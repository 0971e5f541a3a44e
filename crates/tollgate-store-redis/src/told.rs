//! What a copy tells a Redis that has forgotten it: what was spent of each counter that still counts, in parts.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use tollgate_limiter::{CounterKey, ExactAmount, Limit, ReservationId, Rule, TimestampMs};
use tollgate_store::{Clock, CounterView, MemoryStore, Store as _};

use crate::{guard::Told, keys::Tag};

/// In how many parts a copy brings back what it spent, at most twice: each of them is taken once, whatever is
/// repeated. So a counter is always in the same part, also after a restart in the middle. A million counters are some
/// 250 in a part: one script charges a part, and the server does nothing else meanwhile.
const PARTS: u64 = 4_096;

/// Of so many calls that ended last it is known that they are among what is told.
const LATEST_MAX: usize = 65_536;

/// Counters to seed, by where they lie and the name of their part.
pub(crate) type Parts = BTreeMap<(Tag, String), Vec<Seed>>;

/// What one counter gets back.
pub(crate) struct Seed {
    pub(crate) limit: Arc<Limit>,
    pub(crate) at: TimestampMs,
    pub(crate) spent: ExactAmount,
}

/// What a call has spent of a limit that Redis has counted: it was reserved after that had forgotten everything else.
pub(crate) struct Counted {
    pub(crate) limit: Arc<Limit>,
    pub(crate) at: TimestampMs,
    pub(crate) spent: ExactAmount,
}

/// What the usage files of a copy say.
pub(crate) struct Collected {
    clock: Arc<dyn Clock>,
    now: TimestampMs,
    memory: MemoryStore,
    /// Each counter with its limit and when it was used last.
    counters: HashMap<CounterKey, (Arc<Limit>, TimestampMs)>,
    latest: HashSet<ReservationId>,
}

impl Collected {
    /// Reads them.
    ///
    /// # Errors
    ///
    /// A text where that is not possible now.
    pub(crate) fn read(spent: &Told, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let (now, memory) = (clock.now(), MemoryStore::new(Arc::clone(&clock)));
        let mut counters: HashMap<CounterKey, (Arc<Limit>, TimestampMs)> = HashMap::new();
        let mut latest = VecDeque::new();
        spent(&mut |call, limit, at, amount| {
            if let Some(call) = call.filter(|call| latest.back() != Some(call)) {
                if latest.len() == LATEST_MAX {
                    latest.pop_front();
                }
                latest.push_back(call);
            }
            let last = *at.end();
            memory.restore(limit, at, amount);
            let entry = counters.entry(limit.key.clone()).or_insert_with(|| (Arc::new(limit.clone()), last));
            entry.1 = entry.1.max(last);
        })?;
        Ok(Self { clock, now, memory, counters, latest: latest.into_iter().collect() })
    }

    /// Whether a call that has just ended is among it.
    pub(crate) fn has(&self, call: ReservationId) -> bool {
        self.latest.contains(&call)
    }

    /// Whether any call can be.
    pub(crate) fn has_calls(&self) -> bool {
        !self.latest.is_empty()
    }

    /// In parts, without what Redis has `counted`. A run has two moments: it is in two parts.
    pub(crate) fn into_parts(
        self,
        mut counted: Vec<Counted>,
        tag: impl Fn(&CounterKey) -> Tag,
    ) -> Result<Parts, String> {
        let known = MemoryStore::new(self.clock);
        counted.sort_unstable_by_key(|counted| counted.at);
        for Counted { limit, at, spent } in counted {
            known.restore(&limit, at..=at, spent);
        }
        let (limits, moments): (Vec<_>, Vec<_>) = self.counters.into_values().unzip();
        let views = views(&self.memory, &limits)?.into_iter().zip(views(&known, &limits)?);
        let mut parts = Parts::new();
        for ((limit, at), (view, known)) in limits.into_iter().zip(moments).zip(views) {
            let tag = tag(&limit.key);
            if matches!(limit.rule, Rule::Elapsed { .. }) {
                if view.resets_at.is_some() {
                    let first = TimestampMs::new(self.now.get().saturating_sub(view.spent.units()));
                    let spent = ExactAmount::whole(1);
                    add(&mut parts, tag, "end", Seed { limit: Arc::clone(&limit), at, spent });
                    add(&mut parts, tag, "", Seed { limit, at: first, spent });
                }
                continue;
            }
            let spent = view.spent.saturating_sub(known.spent);
            if spent > ExactAmount::ZERO {
                add(&mut parts, tag, "", Seed { limit, at, spent });
            }
        }
        Ok(parts)
    }
}

fn views(memory: &MemoryStore, limits: &[Arc<Limit>]) -> Result<Vec<CounterView>, String> {
    match memory.inspect(limits).now_or_later() {
        Ok(Ok(views)) => Ok(views),
        _ => Err("no answer".to_owned()),
    }
}

/// Adds a seed to the part that its counter is in.
fn add(parts: &mut Parts, tag: Tag, kind: &str, seed: Seed) {
    let name = seed.limit.key.name().bytes().chain(seed.limit.key.partition().bytes());
    let hash = name.fold(0_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    parts.entry((tag, format!("{kind}{}", hash % PARTS))).or_default().push(seed);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tollgate_limiter::{
        Amount, CounterKey, DurationMs, Enforcement, ExactAmount, Limit, Period, ReservationId, Rule,
        TimestampMs,
    };
    use tollgate_store::{Clock, ManualClock};

    use super::{Collected, Counted, Parts};
    use crate::{
        guard::{Spend, Told},
        keys::Keys,
    };

    const NOW: TimestampMs = TimestampMs::new(1_795_996_823_456);

    /// On one server.
    fn collect(told: &Told, clock: Arc<dyn Clock>) -> Result<Parts, String> {
        let keys = Keys::new("tollgate", false);
        Collected::read(told, clock)?.into_parts(Vec::new(), |key| keys.tag(key.partition()))
    }

    fn limit(name: &str, rule: Rule) -> Limit {
        let (key, amount) = (CounterKey::new("acme", name), Amount::new(1_000_000));
        Limit { key, rule, amount, enforcement: Enforcement::Hard }
    }

    #[test]
    fn a_counter_is_in_the_same_part_whatever_else_was_spent() {
        let collected = |counters: &[u64]| {
            let counters = counters.to_vec();
            let told = move |each: Spend<'_>| {
                for number in &counters {
                    let limit = limit(&format!("limit {number}"), Rule::Calendar(Period::Day));
                    each(None, &limit, NOW..=NOW, ExactAmount::whole(1 + *number));
                }
                Ok(())
            };
            collect(&told, Arc::new(ManualClock::new(NOW)) as Arc<dyn Clock>).unwrap()
        };
        let all: Vec<_> = (0..1_000).collect();
        let (few, many) = (collected(&all[..10]), collected(&all));
        assert_eq!(many.values().map(Vec::len).sum::<usize>(), 1_000);
        for (name, seeds) in few {
            for seed in seeds {
                let same = many[&name].iter().find(|other| other.limit == seed.limit).unwrap();
                assert_eq!((same.at, same.spent), (seed.at, seed.spent));
            }
        }
    }

    #[test]
    fn a_run_comes_back_with_its_beginning_and_its_last_use_and_what_is_over_does_not() {
        let hour = DurationMs::new(3_600_000);
        let before = |ms: u64| TimestampMs::new(NOW.get() - ms);
        let told = move |each: Spend<'_>| {
            let one = ExactAmount::whole(1);
            let (run, old) =
                (limit("run", Rule::Elapsed { after: hour }), limit("old", Rule::Idle { after: hour }));
            each(None, &old, before(4_000_000)..=before(4_000_000), one);
            each(
                None,
                &limit("yesterday", Rule::Calendar(Period::Day)),
                before(86_400_000)..=before(86_400_000),
                one,
            );
            each(None, &run, before(2_000_000)..=before(2_000_000), one);
            each(None, &run, before(50_000)..=before(50_000), one);
            Ok(())
        };
        let parts = collect(&told, Arc::new(ManualClock::new(NOW)) as Arc<dyn Clock>).unwrap();
        let mut moments: Vec<_> =
            parts.values().flatten().map(|seed| (seed.limit.key.name(), seed.at)).collect();
        moments.sort();
        assert_eq!(moments, [("run", before(2_000_000)), ("run", before(50_000))]);
    }

    #[test]
    fn what_redis_has_counted_of_calls_that_have_just_ended_is_not_told() {
        let day = Arc::new(limit("day", Rule::Calendar(Period::Day)));
        let told = {
            let day = Arc::clone(&day);
            move |each: Spend<'_>| {
                each(None, &day, NOW..=NOW, ExactAmount::whole(100));
                (0..3).for_each(|id| {
                    each(Some(ReservationId::new(id)), &day, NOW..=NOW, ExactAmount::whole(10));
                });
                Ok(())
            }
        };
        let spent_without = |moments: &[TimestampMs]| {
            let clock = Arc::new(ManualClock::new(NOW)) as Arc<dyn Clock>;
            let collected = Collected::read(&told, clock).unwrap();
            assert!(collected.has(ReservationId::new(2)) && !collected.has(ReservationId::new(3)));
            let counted = moments.iter().map(|at| Counted {
                limit: Arc::clone(&day),
                at: *at,
                spent: ExactAmount::whole(10),
            });
            let keys = Keys::new("tollgate", false);
            let parts = collected.into_parts(counted.collect(), |key| keys.tag(key.partition())).unwrap();
            parts.values().flatten().map(|seed| seed.spent.units()).sum::<u64>()
        };
        assert_eq!(spent_without(&[]), 130);
        assert_eq!(spent_without(&[NOW, NOW]), 110);
        // Of the day before nothing is told.
        assert_eq!(spent_without(&[NOW, TimestampMs::new(NOW.get() - 86_400_000)]), 120);
        assert_eq!(spent_without(&[NOW; 20]), 0);
    }
}
