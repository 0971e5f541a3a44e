//! An empty Redis: one that is new, was emptied, or was replaced by one without data. Budgets would begin anew.
//!
//! A mark in Redis says that enough copies have brought back what they had spent. Without it a reserve under a
//! hard budget is refused, by the script itself. Each copy looks every second whether it is known to have done
//! its part, and does it if not: once, whatever is repeated. In a cluster each hash tag has a mark of its own, so that
//! one server of several that is replaced by an empty one is noticed, and slots may move.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    num::NonZeroU64,
    ops::RangeInclusive,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use tollgate_limiter::{CounterKey, ExactAmount, Limit, Rule, TimestampMs};
use tollgate_store::{Attempt, Clock, MemoryStore, Store as _, StoreError};

use crate::{RedisStore, client::Client, keys::Tag, reply, request, steps::all};

/// Hears of each budget, session or run that was spent from: the limit, from when to when, how much.
pub type Spend<'a> = &'a mut dyn FnMut(&Limit, RangeInclusive<TimestampMs>, ExactAmount);

/// Tells of everything that a copy had spent, in the order of time. A text where that is not possible now.
pub type Told = dyn Fn(Spend<'_>) -> Result<(), String> + Send + Sync;

/// How hard budgets are guarded against an empty Redis.
#[derive(Clone)]
pub struct Guard {
    /// Names this copy among all, the same after a restart.
    pub copy: Arc<str>,
    /// How many copies have to bring back what they had spent.
    pub copies: NonZeroU64,
    /// What this copy had spent. Called on a thread where it may block, and again where it fails.
    pub spent: Arc<Told>,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("copy", &self.copy)
            .field("copies", &self.copies)
            .finish_non_exhaustive()
    }
}

/// How far the copies are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Copies {
    has_this: bool,
    have: u64,
    is_enough: bool,
    /// This one was not among them any more, though what it had told is there, and is again.
    was_lost: bool,
}

/// The servers that answer, by the ids of their runs.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Servers(BTreeSet<String>);

/// How far the copies were where that could be seen last.
type Found = BTreeMap<Tag, Copies>;

/// What a look at them has found.
pub(crate) struct Seen {
    servers: Servers,
    found: Found,
    /// They know what this copy had spent, though not all of them are those of before.
    pub(crate) lacks_latest: bool,
    /// They know what this copy had spent.
    pub(crate) are_told: bool,
}

/// In how many parts a copy brings back what it spent, at most twice: each of them is taken once, whatever is
/// repeated. So a counter is always in the same part, also after a restart in the middle. A million counters are some
/// 250 in a part: one script charges a part, and the server does nothing else meanwhile.
const PARTS: u64 = 4_096;

/// How many hash tags are looked at together.
const TOGETHER: usize = 16;

/// Counters to seed, by where they lie and the name of their part.
type Parts = BTreeMap<(Tag, String), Vec<Seed>>;

/// What one counter gets back.
struct Seed {
    limit: Arc<Limit>,
    at: TimestampMs,
    spent: ExactAmount,
}

impl RedisStore {
    /// Looks whether this copy is known everywhere to have brought back what it had spent, and does so where not.
    /// `before` is what the last look has found, and `begin` is called before anything is told.
    pub(crate) async fn keep_seeded(
        &self,
        guard: &Guard,
        clock: &Arc<dyn Clock>,
        before: Option<&Seen>,
        begin: impl FnOnce(),
    ) -> Result<Seen, StoreError> {
        let servers = self.servers().await?;
        let tags: Vec<_> = self.0.keys.tags().collect();
        let before_now = before.map(|before| &before.found);
        let mut found = self.look(guard, &tags, None, before_now).await?;
        // What was found may be another server's.
        if self.servers().await? != servers {
            return Err(StoreError::Unavailable("another Redis has begun to answer".to_owned()));
        }
        self.note(guard, &found);
        let missing = |(tag, copies): (&Tag, &Copies)| (!copies.has_this).then_some(*tag);
        let missing: Vec<_> = found.iter().filter_map(missing).collect();
        if !missing.is_empty() {
            begin();
            self.bring_back(guard, clock, &missing).await?;
            found = self.look(guard, &tags, None, Some(&found)).await?;
            self.note(guard, &found);
        }
        // One that knew nothing has been told everything.
        let lacks_latest = missing.is_empty() && before.is_some_and(|before| before.servers != servers);
        let are_told = found.values().all(|copies| copies.has_this);
        Ok(Seen { servers, found, lacks_latest, are_told })
    }

    /// Who answers on the main connection.
    async fn servers(&self) -> Result<Servers, StoreError> {
        servers(self.0.client()).await
    }

    /// Looks at the connections of other runtimes: one that does not answer, or on which another server does than on
    /// the main one, is not used.
    pub(crate) async fn look_after_lines(&self) {
        self.0.lines.look_after(async |client: &Client| servers(client).await.ok()).await;
    }

    /// Ends the connections of other runtimes, which may be to servers that are no more what they were.
    pub(crate) fn close_lines(&self) {
        self.0.lines.close_others();
    }

    async fn bring_back(
        &self,
        guard: &Guard,
        clock: &Arc<dyn Clock>,
        missing: &[Tag],
    ) -> Result<(), StoreError> {
        let (spent, clock, store) = (Arc::clone(&guard.spent), Arc::clone(clock), self.clone());
        let collected = tokio::task::spawn_blocking(move || {
            collect(&*spent, clock, |key| store.0.keys.tag(key.partition()))
        });
        let parts = match collected.await {
            Ok(Ok(parts)) => parts,
            Ok(Err(reason)) => return Err(StoreError::Unavailable(reason)),
            Err(error) => return Err(StoreError::Unavailable(error.to_string())),
        };
        let mut told = BTreeMap::<Tag, usize>::new();
        let mut missing = missing.to_vec();
        for ((tag, name), part) in &parts {
            if missing.contains(tag) {
                match self.seed(guard, *tag, name, part).await {
                    Ok(()) => *told.entry(*tag).or_default() += 1,
                    // Next time.
                    Err(StoreError::Unavailable(_)) => missing.retain(|other| other != tag),
                    Err(error) => return Err(error),
                }
            }
        }
        self.look(guard, &missing, Some(&told), None).await?;
        tracing::info!(
            counters = parts.values().map(Vec::len).sum::<usize>(),
            places = missing.len(),
            "brought back what was spent"
        );
        Ok(())
    }

    /// How far the copies are at each of `tags`, where this one has told so many parts, if it has told all. Of one that is
    /// on its way to another server what was found before, if anything.
    async fn look(
        &self,
        guard: &Guard,
        tags: &[Tag],
        told: Option<&BTreeMap<Tag, usize>>,
        before: Option<&Found>,
    ) -> Result<Found, StoreError> {
        let told = |tag| told.map(|told| told.get(tag).copied().unwrap_or_default());
        let mut found = Found::new();
        for some in tags.chunks(TOGETHER) {
            let copies = all(some.iter().map(|tag| self.copies(guard, *tag, told(tag)))).await;
            for (tag, copies) in some.iter().zip(copies) {
                let known = match copies {
                    Err(StoreError::Unavailable(_)) => before
                        .and_then(|before| before.get(tag))
                        .map(|copies| Copies { was_lost: false, ..*copies }),
                    copies => Some(copies?),
                };
                found.extend(known.map(|copies| (*tag, copies)));
            }
        }
        Ok(found)
    }

    async fn copies(&self, guard: &Guard, tag: Tag, told: Option<usize>) -> Result<Copies, StoreError> {
        let store = &self.0;
        let arguments = |_: Attempt| {
            let (copy, copies) = (guard.copy.to_string(), guard.copies.to_string());
            let told = told.map(|parts| parts.to_string()).unwrap_or_default();
            [copy, copies, told].map(Bytes::from).to_vec()
        };
        let keys = vec![store.keys.copies(tag), store.keys.ready(tag), store.keys.told(tag, &guard.copy)];
        let (reply, _) = store.run(&store.copies, keys, arguments).await?;
        let reply = reply::text(&reply)?;
        let numbers: Option<Vec<u64>> = reply.split(' ').map(|number| number.parse().ok()).collect();
        match numbers.as_deref() {
            Some([this, have, enough, lost]) => Ok(Copies {
                has_this: *this == 1,
                have: *have,
                is_enough: *enough == 1,
                was_lost: *lost == 1,
            }),
            _ => Err(StoreError::Corrupt(reply.to_owned())),
        }
    }

    async fn seed(&self, guard: &Guard, tag: Tag, part: &str, seeds: &[Seed]) -> Result<(), StoreError> {
        let store = &self.0;
        let limits = || seeds.iter().map(|seed| &*seed.limit);
        let plan = request::limits(limits())?;
        let spent: Vec<_> = seeds.iter().map(|seed| seed.spent).collect();
        let moments = request::numbers(seeds.iter().map(|seed| seed.at.get()));
        let spent = request::actuals(&spent);
        let counters = limits().map(|limit| store.keys.counter(&limit.key));
        let keys = std::iter::once(store.keys.told(tag, &guard.copy)).chain(counters).collect();
        let arguments = |_: Attempt| {
            vec![store.now(), part.to_owned().into(), spent.clone(), moments.clone(), plan.clone()]
        };
        let (reply, _) = store.run(&store.seed, keys, arguments).await?;
        reply::done(&reply, &["S applied", "S already"])
    }

    /// Notes whether hard budgets are decided everywhere, with a line when that changes, and says where this copy was lost.
    fn note(&self, guard: &Guard, found: &Found) {
        let places = found.values().filter(|copies| copies.was_lost).count();
        if places > 0 {
            tracing::warn!(
                places,
                "Redis had lost which copies have told what they spent, and not what they told: nothing is told again"
            );
        }
        let is_enough = found.values().all(|copies| copies.is_enough);
        let have = found.values().filter(|copies| !copies.is_enough).map(|copies| copies.have).min();
        let was_empty = self.0.is_empty.swap(!is_enough, Ordering::SeqCst);
        match (was_empty, is_enough) {
            (false, false) => tracing::error!(
                have = have.unwrap_or_default(),
                needed = guard.copies,
                "Redis does not know what was spent: hard budgets are refused until the copies have brought it back"
            ),
            (true, true) => tracing::warn!("Redis knows what was spent: hard budgets are decided again"),
            _ => {}
        }
    }
}

/// What was spent of each counter that still counts, in parts. A run has two moments: it is in two parts.
fn collect(spent: &Told, clock: Arc<dyn Clock>, tag: impl Fn(&CounterKey) -> Tag) -> Result<Parts, String> {
    let now = clock.now();
    let memory = MemoryStore::new(clock);
    let mut last: HashMap<CounterKey, (Arc<Limit>, TimestampMs)> = HashMap::new();
    spent(&mut |limit, at, amount| {
        let latest = *at.end();
        memory.restore(limit, at, amount);
        let entry = last.entry(limit.key.clone()).or_insert_with(|| (Arc::new(limit.clone()), latest));
        entry.1 = entry.1.max(latest);
    })?;
    let (limits, moments): (Vec<_>, Vec<_>) = last.into_values().unzip();
    let Ok(Ok(views)) = memory.inspect(&limits).now_or_later() else { return Err("no answer".to_owned()) };
    let mut parts = Parts::new();
    for ((limit, at), view) in limits.into_iter().zip(moments).zip(views) {
        let tag = tag(&limit.key);
        match limit.rule {
            Rule::Elapsed { .. } if view.resets_at.is_some() => {
                let first = TimestampMs::new(now.get().saturating_sub(view.spent.units()));
                let spent = ExactAmount::whole(1);
                add(&mut parts, tag, "end", Seed { limit: Arc::clone(&limit), at, spent });
                add(&mut parts, tag, "", Seed { limit, at: first, spent });
            }
            _ if view.spent == ExactAmount::ZERO => {}
            _ => add(&mut parts, tag, "", Seed { limit, at, spent: view.spent }),
        }
    }
    Ok(parts)
}

/// Who answers: the ids that servers make up when they start.
async fn servers(client: &Client) -> Result<Servers, StoreError> {
    let run_id = |info: &String| {
        let line = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        line.unwrap_or_default().trim().to_owned()
    };
    Ok(Servers(client.info("server").await?.iter().map(run_id).collect()))
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
        Amount, CounterKey, DurationMs, Enforcement, ExactAmount, Limit, Period, Rule, TimestampMs,
    };
    use tollgate_store::{Clock, ManualClock};

    use super::{Parts, Spend, Told};
    use crate::keys::Keys;

    const NOW: TimestampMs = TimestampMs::new(1_795_996_823_456);

    /// On one server.
    fn collect(told: &Told, clock: Arc<dyn Clock>) -> Result<Parts, String> {
        let keys = Keys::new("tollgate", false);
        super::collect(told, clock, |key| keys.tag(key.partition()))
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
                    each(&limit, NOW..=NOW, ExactAmount::whole(1 + *number));
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
            each(&old, before(4_000_000)..=before(4_000_000), one);
            each(
                &limit("yesterday", Rule::Calendar(Period::Day)),
                before(86_400_000)..=before(86_400_000),
                one,
            );
            each(&run, before(2_000_000)..=before(2_000_000), one);
            each(&run, before(50_000)..=before(50_000), one);
            Ok(())
        };
        let parts = collect(&told, Arc::new(ManualClock::new(NOW)) as Arc<dyn Clock>).unwrap();
        let mut moments: Vec<_> =
            parts.values().flatten().map(|seed| (seed.limit.key.name(), seed.at)).collect();
        moments.sort();
        assert_eq!(moments, [("run", before(2_000_000)), ("run", before(50_000))]);
    }
}
