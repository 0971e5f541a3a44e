//! Counters in shards, each behind its own lock.

use std::{array, collections::HashMap, hash::BuildHasher, num::NonZeroU32};

use foldhash::{fast, quality};
use tollgate_limiter::{Counter, CounterKey, CounterRow, Counters, Limit, TimestampMs};

use crate::sync::{Mutex, MutexGuard, lock};

/// How many shards. A set of them fits the bits of a `u64`.
pub(super) const SHARDS: usize = 64;

/// Room that a shard keeps when a sweep has emptied it.
const CAPACITY_KEPT: usize = 64;

/// The shard that a hash falls into.
pub(super) fn shard_of(hash: u64) -> usize {
    usize::try_from(hash.rem_euclid(SHARDS as u64)).unwrap_or(0)
}

/// All counters. Those of one partition are in one shard.
///
/// A key brings a hash of its texts along; what is mixed into it is made anew in every process.
pub(super) struct CounterShards {
    hasher: quality::RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

impl CounterShards {
    pub(super) fn new() -> Self {
        Self {
            hasher: quality::RandomState::default(),
            shards: array::from_fn(|_| Mutex::new(Shard::default())),
        }
    }

    /// Locks the shards of some limits, in ascending order, for the length of `call`.
    pub(super) fn lock<'a, T>(
        &self,
        limits: impl Iterator<Item = &'a Limit>,
        call: impl FnOnce(&mut Locked<'_>) -> T,
    ) -> T {
        let wanted = self.shards_of(limits);
        // Filled where it stays: to move it takes as long as to lock.
        let mut locked = Locked { all: self, wanted, few: [const { None }; FEW], more: Vec::new() };
        let mut left = wanted;
        for place in 0..SHARDS {
            if left == 0 {
                break;
            }
            let shard = usize::try_from(left.trailing_zeros()).unwrap_or(0);
            left &= left - 1;
            let guard = lock(&self.shards[shard]);
            match locked.few.get_mut(place) {
                Some(free) => *free = Some(guard),
                None => locked.more.push(guard),
            }
        }
        call(&mut locked)
    }

    /// The shards of some limits, as bits.
    fn shards_of<'a>(&self, limits: impl Iterator<Item = &'a Limit>) -> u64 {
        let (mut wanted, mut last) = (0_u64, None);
        for limit in limits {
            // The entries of a plan mostly share a partition.
            if last != Some(limit.key.partition_hash()) {
                last = Some(limit.key.partition_hash());
                wanted |= 1 << self.shard(&limit.key);
            }
        }
        wanted
    }

    fn shard(&self, key: &CounterKey) -> usize {
        shard_of(self.hasher.hash_one(key.partition_hash()))
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).kept.len()).sum()
    }
}

#[derive(Default)]
struct Shard {
    places: HashMap<CounterKey, usize, fast::RandomState>,
    kept: CounterRow,
}

impl Shard {
    fn sweep(&mut self, now: TimestampMs) {
        self.kept.sweep(now, |keep| {
            self.places.retain(|_, place| keep(place));
            if self.places.capacity() / 4 > self.places.len() {
                self.places.shrink_to(CAPACITY_KEPT);
            }
        });
    }
}

/// How many locked shards fit without allocation: the partitions of a usual plan.
const FEW: usize = 4;

/// The locked shards of one call.
pub(super) struct Locked<'a> {
    all: &'a CounterShards,
    /// Which shards they are, as bits. Their guards are in the order of the bits.
    wanted: u64,
    few: [Option<MutexGuard<'a, Shard>>; FEW],
    more: Vec<MutexGuard<'a, Shard>>,
}

impl Locked<'_> {
    /// Drops idle counters where it is time.
    pub(super) fn sweep(&mut self, now: TimestampMs) {
        for shard in self.few.iter_mut().map_while(Option::as_mut) {
            shard.sweep(now);
        }
        for shard in &mut self.more {
            shard.sweep(now);
        }
    }

    /// Which of the locked shards has a counter.
    fn guard(&self, limit: &Limit) -> usize {
        // Mostly there is one.
        if self.wanted.is_power_of_two() {
            return 0;
        }
        let lower = (1 << self.all.shard(&limit.key)) - 1;
        usize::try_from((self.wanted & lower).count_ones()).unwrap_or(usize::MAX)
    }

    /// # Panics
    ///
    /// Where there is no such guard.
    fn shard(&self, guard: usize) -> &Shard {
        match self.few.get(guard) {
            Some(Some(shard)) => shard,
            _ => &self.more[guard - FEW],
        }
    }

    fn shard_mut(&mut self, guard: usize) -> &mut Shard {
        match self.few.get_mut(guard) {
            Some(Some(shard)) => shard,
            _ => &mut self.more[guard - FEW],
        }
    }
}

/// A counter among the locked ones.
///
/// One word, found or not, since a call keeps several: there are at most [`SHARDS`] guards, and a shard has
/// no place for 2³² counters.
#[derive(Clone, Copy)]
pub(super) struct Place {
    guard: u32,
    /// From one on.
    number: NonZeroU32,
}

impl Place {
    fn new(guard: usize, index: usize) -> Option<Self> {
        let number = u32::try_from(index).ok()?.checked_add(1).and_then(NonZeroU32::new)?;
        Some(Self { guard: u32::try_from(guard).ok()?, number })
    }

    const fn guard(self) -> usize {
        self.guard as usize
    }

    const fn index(self) -> usize {
        self.number.get() as usize - 1
    }
}

impl Counters for Locked<'_> {
    type Place = Place;

    fn find(&self, limit: &Limit) -> Option<Place> {
        let guard = self.guard(limit);
        let index = *self.shard(guard).places.get(&limit.key)?;
        Place::new(guard, index)
    }

    fn at(&self, place: Place) -> &Counter {
        &self.shard(place.guard()).kept[place.index()]
    }

    fn at_mut(&mut self, place: Place) -> &mut Counter {
        &mut self.shard_mut(place.guard()).kept[place.index()]
    }

    fn new_counter(&self, limit: &Limit, now: TimestampMs) -> Counter {
        self.shard(self.guard(limit)).kept.new_counter(limit.rule, now)
    }

    fn keep(&mut self, limit: &Limit, counter: Counter) {
        let guard = self.guard(limit);
        let Shard { places, kept } = self.shard_mut(guard);
        places.insert(limit.key.clone(), kept.push(counter));
    }
}
