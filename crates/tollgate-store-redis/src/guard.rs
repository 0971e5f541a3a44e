//! An empty Redis: one that is new, was emptied, or was replaced by one without data. Budgets would begin anew.
//!
//! A mark in Redis says that enough copies have brought back what they had spent. Without it a reserve under a
//! hard budget is refused, by the script itself. Each copy looks every second whether it is known to have done
//! its part, and does it if not: once, whatever is repeated. In a cluster each hash tag has a mark of its own, so that
//! one server of several that is replaced by an empty one is noticed, and slots may move.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    num::NonZeroU64,
    ops::RangeInclusive,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use tollgate_limiter::{CounterKey, ExactAmount, Held, Limit, ReservationId, TimestampMs};
use tollgate_store::{Attempt, Clock, StoreError};

use crate::{
    RedisStore,
    client::Client,
    keys::Tag,
    reply, request,
    steps::all,
    told::{Collected, Counted, Parts, Seed},
};

/// Hears of each budget, session or run that was spent from: the call, if it is one and no sum of several, the limit, from
/// when to when, how much.
pub type Spend<'a> =
    &'a mut dyn FnMut(Option<ReservationId>, &Limit, RangeInclusive<TimestampMs>, ExactAmount);

/// Tells of everything that a copy had spent, in the order of time, and of calls that have just ended last. A text where
/// that is not possible now.
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
}

/// A telling that has begun. Broken off, it is gone on with as it was: a part that Redis has, and one that it has not, then
/// tell of the same calls.
pub(crate) struct Telling {
    tags: Vec<Tag>,
    parts: Parts,
}

/// How many hash tags, or calls, are looked at together.
const TOGETHER: usize = 16;

/// Settlements, and what was used.
pub(crate) type Settlements = Vec<(Held, Vec<ExactAmount>)>;

/// The calls of this copy that end while Redis is told what was spent.
pub(crate) trait Ending {
    /// All that have ended until now are told of.
    fn begin_telling(&self);

    /// So are those that `is_told` knows. Of them the settlements that wait, and those that Redis has taken since a while
    /// before it was last seen.
    fn told(&self, is_told: &dyn Fn(ReservationId) -> bool) -> Settlements;
}

impl RedisStore {
    /// Looks whether this copy is known everywhere to have brought back what it had spent, and does so where not, or goes
    /// on with a telling. `before` is what the last look has found.
    pub(crate) async fn keep_seeded(
        &self,
        guard: &Guard,
        clock: &Arc<dyn Clock>,
        before: Option<&Seen>,
        telling: &mut Option<Telling>,
        ending: &impl Ending,
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
        if missing.is_empty() {
            *telling = None;
        } else {
            self.bring_back(guard, clock, &missing, telling, ending).await?;
            found = self.look(guard, &tags, None, Some(&found)).await?;
            self.note(guard, &found);
        }
        // One that knew nothing has been told everything.
        let lacks_latest = missing.is_empty() && before.is_some_and(|before| before.servers != servers);
        Ok(Seen { servers, found, lacks_latest })
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
        telling: &mut Option<Telling>,
        ending: &impl Ending,
    ) -> Result<(), StoreError> {
        let begun = match telling.take() {
            Some(begun) if missing.iter().all(|tag| begun.tags.contains(tag)) => begun,
            _ => self.begin(guard, clock, missing, ending).await?,
        };
        let parts = &telling.insert(begun).parts;
        let mut told = BTreeMap::<Tag, usize>::new();
        let mut reached = missing.to_vec();
        for ((tag, name), part) in parts {
            if reached.contains(tag) {
                match self.seed(guard, *tag, name, part).await {
                    Ok(()) => *told.entry(*tag).or_default() += 1,
                    // Next time.
                    Err(StoreError::Unavailable(_)) => reached.retain(|other| other != tag),
                    Err(error) => return Err(error),
                }
            }
        }
        let counters = parts.values().map(Vec::len).sum::<usize>();
        self.look(guard, &reached, Some(&told), None).await?;
        // What is missing after that was emptied once more, and is told anew.
        if reached.len() == missing.len() {
            *telling = None;
        }
        tracing::info!(counters, places = reached.len(), "brought back what was spent");
        Ok(())
    }

    /// Reads what was spent, and says which calls are among it.
    async fn begin(
        &self,
        guard: &Guard,
        clock: &Arc<dyn Clock>,
        missing: &[Tag],
        ending: &impl Ending,
    ) -> Result<Telling, StoreError> {
        ending.begin_telling();
        let (spent, clock, store) = (Arc::clone(&guard.spent), Arc::clone(clock), self.clone());
        let collected = beside(move || Collected::read(&*spent, clock)).await?;
        let counted = self.counted(missing, &collected, ending).await?;
        let tag = move |key: &CounterKey| store.0.keys.tag(key.partition());
        let parts = beside(move || collected.into_parts(counted, tag)).await?;
        Ok(Telling { tags: missing.to_vec(), parts })
    }

    /// What is collected, and counted where Redis lacks the rest: of calls that were reserved after it had forgotten that.
    async fn counted(
        &self,
        missing: &[Tag],
        collected: &Collected,
        ending: &impl Ending,
    ) -> Result<Vec<Counted>, StoreError> {
        if !collected.has_calls() {
            return Ok(Vec::new());
        }
        // Until what was on its way when the usage files were read is answered.
        tokio::time::sleep(self.0.lines.timeout()).await;
        let mut all_counted = Vec::new();
        for some in ending.told(&|call| collected.has(call)).chunks(TOGETHER) {
            for counted in all(some.iter().map(|(held, used)| self.0.counted(held, used, missing))).await {
                all_counted.extend(counted?);
            }
        }
        Ok(all_counted)
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

/// Runs what takes long on a thread where it may.
async fn beside<T: Send + 'static>(
    run: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(run).await.map_err(|error| error.to_string());
    done.flatten().map_err(StoreError::Unavailable)
}

/// Who answers: the ids that servers make up when they start.
async fn servers(client: &Client) -> Result<Servers, StoreError> {
    let run_id = |info: &String| {
        let line = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        line.unwrap_or_default().trim().to_owned()
    };
    Ok(Servers(client.info("server").await?.iter().map(run_id).collect()))
}
