//! Copies that have died: places of limits on concurrency come back that they held.
//!
//! Nobody else would ever give them back. A copy says every few seconds that it lives; one that was not heard of for
//! [`SILENT_MAX`], or has begun a new life, is dead. Whoever finds that looks through all records for those of its that
//! hold places: a reservation's record says whose they are and of which counters, so that a call pays nothing for
//! this but some bytes. Each record gives its places back once, and what it was charged otherwise stays charged.
//!
//! A copy that was only cut off, and finds itself taken for dead, begins a new life: what it does from then on is not
//! mistaken for what it did before. Of lives that nobody has told of, or that had ended before, what is older than
//! [`SILENT_MAX`] is given back whenever somebody looks; so does each copy some time after its start, and after Redis
//! had forgotten it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use tollgate_store::{Attempt, StoreError};

use crate::{RedisStore, keys::Keys, reply, request::FINGERPRINT_BYTES};

/// How often a copy says that it lives.
pub(crate) const EVERY: Duration = Duration::from_secs(5);

/// How soon it is tried again where that failed.
pub(crate) const AGAIN: Duration = Duration::from_secs(1);

/// A copy that was not heard of for so long is dead.
const SILENT_MAX: Duration = Duration::from_secs(30);

/// How often a copy says that it lives before it looks for what is left of lives that nobody knows: longer than
/// [`SILENT_MAX`].
const BEATS_TO_A_LOOK: u32 = 8;

/// Between two looks at who lives, so many pages of records are looked through.
const PAGES_AT_ONCE: u32 = 64;

/// The life of a copy: from a start to its end, or until it is taken for dead.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Life(u64);

impl Life {
    const BYTES: usize = 8;

    /// Of a store that says nothing of its life: nobody takes it for dead.
    const NONE: Self = Self(0);

    fn begin() -> Self {
        Self(rand::random_range(1..=u64::MAX))
    }

    pub(crate) const fn bytes(self) -> [u8; Self::BYTES] {
        self.0.to_le_bytes()
    }
}

/// The lives of this process.
#[derive(Debug)]
pub(crate) struct Lives {
    now: AtomicU64,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    told: Told,
    /// So many times it says that it lives until it looks for what is left of others; `None`: that is not due.
    look_in: Option<u32>,
}

/// What is told next of the one that goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Told {
    /// It is the first of the process.
    Start,
    /// It is a later one.
    New,
    /// It goes on.
    On,
    /// The places of one that has ended are given back.
    Gone,
}

impl Told {
    const fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::New => "new",
            Self::On => "on",
            Self::Gone => "gone",
        }
    }
}

impl Default for Lives {
    fn default() -> Self {
        let state = State { told: Told::Start, look_in: Some(BEATS_TO_A_LOOK) };
        Self { now: AtomicU64::new(Life::NONE.0), state: Mutex::new(state) }
    }
}

impl Lives {
    pub(crate) fn now(&self) -> Life {
        Life(self.now.load(Ordering::Relaxed))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on Redis is told of it.
    pub(crate) fn begin(&self) {
        let _ =
            self.now.compare_exchange(Life::NONE.0, Life::begin().0, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn begin_anew(&self) {
        self.now.store(Life::begin().0, Ordering::Relaxed);
        *self.state() = State { told: Told::New, look_in: Some(BEATS_TO_A_LOOK) };
    }

    /// The life goes on; whether it is time to look for what is left of others.
    fn goes_on(&self, is_new_to_redis: bool) -> bool {
        let mut state = self.state();
        let look_in = if is_new_to_redis { Some(BEATS_TO_A_LOOK) } else { state.look_in };
        let is_due = look_in == Some(0);
        *state = State { told: Told::On, look_in: look_in.and_then(|beats| beats.checked_sub(1)) };
        is_due
    }
}

/// Who shares a Redis.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Living {
    /// How many copies live.
    pub(crate) copies: usize,
    /// Another process has the name of this copy.
    pub(crate) is_named_twice: bool,
}

/// Who lives, and who does not any more.
#[derive(Debug, Default)]
struct Census {
    /// What they held is given back by who asks.
    dead: Vec<Life>,
    living: Vec<Life>,
}

impl RedisStore {
    /// Says that `copy` lives, and gives back the places of those that have died: who lives. `copy` is the same after a
    /// restart, and no other process has it.
    ///
    /// # Errors
    ///
    /// Redis did not answer. What is left is done by whoever asks next.
    pub(crate) async fn look_after_places(&self, copy: &Arc<str>) -> Result<Living, StoreError> {
        let lives = &self.0.lives;
        lives.begin();
        let told = lives.state().told;
        let answer = match self.tell(lives.now(), copy, told).await? {
            answer if answer.starts_with(b"N") => {
                tracing::warn!(
                    "Redis had not heard of this copy for too long: what is open from before may hold no places"
                );
                lives.begin_anew();
                self.tell(lives.now(), copy, Told::New).await?
            }
            answer => answer,
        };
        let census = census(&answer)?;
        let living = Living { copies: census.living.len(), is_named_twice: answer.starts_with(b"T") };
        let is_due = lives.goes_on(answer.starts_with(b"F"));
        if census.dead.is_empty() && !is_due {
            return Ok(living);
        }
        let given_back = self.give_back(copy, census).await;
        if given_back.is_err() {
            lives.state().look_in = Some(0);
        }
        given_back.map(|()| living)
    }

    async fn tell(&self, life: Life, copy: &Arc<str>, told: Told) -> Result<Bytes, StoreError> {
        let store = &self.0;
        let arguments = |_: Attempt| {
            let (life, copy) = (Bytes::copy_from_slice(&life.bytes()), copy.to_string().into());
            let silent_ms = SILENT_MAX.as_millis().to_string().into();
            vec![store.now(), life, copy, silent_ms, told.word().into()]
        };
        Ok(store.run(&store.who_lives, vec![store.keys.lives()], arguments).await?.0)
    }

    /// Looks through all records for places of those that do not live.
    async fn give_back(&self, copy: &Arc<str>, mut census: Census) -> Result<(), StoreError> {
        let (store, mut places, mut pages, mut unseen) = (&self.0, 0, 0_u32, None);
        let mut scan = store.client().scan(store.keys.all_records())?;
        while let Some(records) = scan.next().await? {
            pages += 1;
            if pages.is_multiple_of(PAGES_AT_ONCE) {
                let later = self.tell(store.lives.now(), copy, Told::On).await?;
                let Census { dead, living } = self::census(&later)?;
                census.dead.extend(dead);
                census.living = living;
            }
            for records in self.together(records) {
                let values = match store.client().get_all(&records).await {
                    // Their slot is on its way to another server.
                    Err(error @ StoreError::Unavailable(_)) => {
                        unseen = Some(error);
                        continue;
                    }
                    values => values?,
                };
                for (record, value) in records.into_iter().zip(values) {
                    let Some(held) = value.and_then(|value| Places::held(record, value)) else { continue };
                    if held.life != Life::NONE && !census.living.contains(&held.life) {
                        let is_told = census.dead.contains(&held.life);
                        match self.free(&held, is_told).await {
                            Err(error @ StoreError::Unavailable(_)) => unseen = Some(error),
                            freed => places += freed?,
                        }
                    }
                }
            }
        }
        if let Some(error) = unseen {
            return Err(error);
        }
        for life in &census.dead {
            self.tell(*life, copy, Told::Gone).await?;
        }
        if places > 0 {
            let copies = census.dead.len();
            tracing::warn!(copies, places, "places for open calls that dead copies held are free");
        }
        Ok(())
    }

    /// Keys that one command can read.
    fn together(&self, keys: Vec<Bytes>) -> Vec<Vec<Bytes>> {
        if !self.is_cluster() {
            return vec![keys];
        }
        let mut by_slot = BTreeMap::<Vec<u8>, Vec<Bytes>>::new();
        for key in keys {
            by_slot.entry(Keys::of_slot(&key).to_vec()).or_default().push(key);
        }
        by_slot.into_values().collect()
    }

    /// Gives the places of one record back: how many. One that cannot be read does not stand in the way of others.
    /// `is_told`: the life is known to have ended, so that nothing of it goes on.
    async fn free(&self, held: &Places, is_told: bool) -> Result<u64, StoreError> {
        let store = &self.0;
        let keys = std::iter::once(&held.record).chain(&held.counters).cloned().collect();
        let age_ms = if is_told { 0 } else { SILENT_MAX.as_millis() };
        let arguments = |_: Attempt| {
            vec![store.now(), Bytes::copy_from_slice(&held.life.bytes()), age_ms.to_string().into()]
        };
        match store.run(&store.free, keys, arguments).await {
            Ok((freed, _)) => {
                let freed = reply::text(&freed)?;
                freed.parse().map_err(|_| StoreError::Corrupt(freed.to_owned()))
            }
            Err(StoreError::Corrupt(error)) => {
                let record = String::from_utf8_lossy(&held.record);
                tracing::warn!(%record, error, "a dead copy's places cannot be given back");
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }
}

/// What `lua/lives.lua` answers of others.
fn census(answer: &[u8]) -> Result<Census, StoreError> {
    const HEAD_BYTES: usize = 1 + 4;
    let read = || {
        let (head, lives) = answer.split_at_checked(HEAD_BYTES)?;
        let count = u32::from_le_bytes(head.get(1..)?.try_into().ok()?);
        let lives = lives.as_chunks().0.iter().map(|life| Life(u64::from_le_bytes(*life)));
        let mut dead: Vec<_> = lives.collect();
        let living = dead.split_off(usize::try_from(count).ok()?.min(dead.len()));
        Some(Census { dead, living })
    };
    read().ok_or_else(|| StoreError::Corrupt(String::from_utf8_lossy(answer).into_owned()))
}

/// The places that a reservation holds.
struct Places {
    /// The key of its record.
    record: Bytes,
    /// Whose they are.
    life: Life,
    /// The keys of their counters.
    counters: Vec<Bytes>,
}

impl Places {
    /// Out of a record as scripts write it (`lua/record.lua`). `None`: it holds none.
    fn held(record: Bytes, mut value: Bytes) -> Option<Self> {
        const HEAD_BYTES: usize = 1 + FINGERPRINT_BYTES;
        if value.first() != Some(&b'H') || value.len() < HEAD_BYTES {
            return None;
        }
        value.advance(HEAD_BYTES);
        let _answer = text(&mut value)?;
        let mut places = text(&mut value)?;
        let life = Life(places.try_get_u64_le().ok()?);
        let mut counters = Vec::new();
        while places.has_remaining() {
            let _charge = places.try_get_u64_le().ok()?;
            counters.push(text(&mut places)?);
        }
        Some(Self { record, life, counters })
    }
}

/// Takes what follows its length.
fn text(from: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(from.try_get_u32_le().ok()?).ok()?;
    (length <= from.len()).then(|| from.split_to(length))
}
