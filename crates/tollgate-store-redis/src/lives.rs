//! Copies that have died: places of limits on concurrency come back that they held.
//!
//! Nobody else would ever give them back. A copy says every few seconds that it lives; one that was not heard of for
//! [`SILENT_MAX`], or has begun a new life, is dead. Whoever finds that looks through all records for those of its that
//! hold places: a reservation's record says whose they are and of which counters, so that a call pays nothing for
//! this but some bytes. Each record gives its places back once, and what it was charged otherwise stays charged.
//!
//! A copy that was only cut off, and finds itself taken for dead, begins a new life: what it does from then on is not
//! mistaken for what it did before.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use tollgate_store::{Attempt, StoreError};

use crate::{RedisStore, reply};

/// How often a copy says that it lives.
pub(crate) const EVERY: Duration = Duration::from_secs(5);

/// A copy that was not heard of for so long is dead.
const SILENT_MAX: Duration = Duration::from_secs(30);

/// The life of a copy: from a start to its end, or until it is taken for dead.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Life(u64);

impl Life {
    const BYTES: usize = 8;

    fn begin() -> Self {
        Self(rand::random())
    }

    pub(crate) const fn bytes(self) -> [u8; Self::BYTES] {
        self.0.to_le_bytes()
    }
}

/// The lives of this process.
#[derive(Debug)]
pub(crate) struct Lives {
    now: AtomicU64,
    told: Mutex<Told>,
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
        Self { now: AtomicU64::new(Life::begin().0), told: Mutex::new(Told::Start) }
    }
}

impl Lives {
    pub(crate) fn now(&self) -> Life {
        Life(self.now.load(Ordering::Relaxed))
    }

    fn told(&self) -> Told {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, told: Told) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = told;
    }

    fn begin_anew(&self) {
        self.now.store(Life::begin().0, Ordering::Relaxed);
        self.tell(Told::New);
    }
}

impl RedisStore {
    /// Says that `copy` lives, and gives back the places of those that have died. `copy` is the same after a restart,
    /// and no other process has it.
    ///
    /// # Errors
    ///
    /// Redis did not answer. What is left is done a minute later, by whoever asks then.
    pub(crate) async fn look_after_places(&self, copy: &Arc<str>) -> Result<(), StoreError> {
        let lives = &self.0.lives;
        let answer = self.tell(lives.now(), copy, lives.told()).await?;
        let Some(dead) = answer.strip_prefix(b"A") else {
            tracing::warn!(
                "Redis had not heard of this copy for too long: calls that are open hold no places"
            );
            lives.begin_anew();
            return Ok(());
        };
        lives.tell(Told::On);
        let dead: Vec<_> = dead.as_chunks().0.iter().map(|life| Life(u64::from_le_bytes(*life))).collect();
        if dead.is_empty() {
            return Ok(());
        }
        let places = self.give_back(&dead).await?;
        for life in &dead {
            self.tell(*life, copy, Told::Gone).await?;
        }
        if places > 0 {
            tracing::warn!(
                copies = dead.len(),
                places,
                "places for open calls that dead copies held are free"
            );
        }
        Ok(())
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

    /// Looks through all records for places that `dead` hold. How many are free now.
    async fn give_back(&self, dead: &[Life]) -> Result<u64, StoreError> {
        let (store, mut places) = (&self.0, 0);
        let mut scan = store.client().scan(store.keys.all_records());
        while let Some(records) = scan.next().await? {
            for records in self.together(records) {
                let values = store.client().get_all(&records).await?;
                for (record, value) in records.into_iter().zip(values) {
                    if let Some((life, counters)) = value.and_then(held_places)
                        && dead.contains(&life)
                    {
                        places += self.free(life, record, counters).await?;
                    }
                }
            }
        }
        Ok(places)
    }

    /// Keys that one command can read.
    fn together(&self, keys: Vec<Bytes>) -> Vec<Vec<Bytes>> {
        if !self.is_cluster() {
            return vec![keys];
        }
        let mut by_tag = BTreeMap::<Vec<u8>, Vec<Bytes>>::new();
        for key in keys {
            let tag = key.split(|byte| *byte == b'}').next().unwrap_or_default();
            by_tag.entry(tag.to_vec()).or_default().push(key);
        }
        by_tag.into_values().collect()
    }

    async fn free(&self, life: Life, record: Bytes, counters: Vec<Bytes>) -> Result<u64, StoreError> {
        let store = &self.0;
        let keys = std::iter::once(record).chain(counters).collect();
        let arguments = |_: Attempt| vec![store.now(), Bytes::copy_from_slice(&life.bytes())];
        let (freed, _) = store.run(&store.free, keys, arguments).await?;
        let freed = reply::text(&freed)?;
        freed.parse().map_err(|_| StoreError::Corrupt(freed.to_owned()))
    }
}

/// Of a record as scripts write it (`lua/record.lua`): whose places it holds, and of which counters. `None`: of none.
fn held_places(mut record: Bytes) -> Option<(Life, Vec<Bytes>)> {
    const HEAD_BYTES: usize = 1 + crate::request::FINGERPRINT_BYTES;
    if record.first() != Some(&b'H') || record.len() < HEAD_BYTES {
        return None;
    }
    record.advance(HEAD_BYTES);
    let _answer = text(&mut record)?;
    let mut places = text(&mut record)?;
    let life = Life(places.try_get_u64_le().ok()?);
    let mut counters = Vec::new();
    while places.has_remaining() {
        let _charge = places.try_get_u64_le().ok()?;
        counters.push(text(&mut places)?);
    }
    Some((life, counters))
}

/// Takes what follows its length.
fn text(from: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(from.try_get_u32_le().ok()?).ok()?;
    (length <= from.len()).then(|| from.split_to(length))
}
