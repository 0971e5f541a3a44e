//! Counters in shards, each behind its own lock.

use std::{
    array,
    collections::HashMap,
    hash::BuildHasher,
    sync::{Mutex, MutexGuard, PoisonError},
};

use foldhash::quality::RandomState;
use tollgate_limiter::{Counter, CounterKey, Counters, Limit, Sweep, TimestampMs};

/// How many shards. A set of them fits the bits of a `u64`.
pub(super) const SHARDS: usize = 64;

/// Room that a shard keeps when a sweep has emptied it.
const CAPACITY_KEPT: usize = 64;

/// The lock's value, also after a thread panicked while it held it: the limiter's transitions do
/// not stop half-way, so what a panic leaves behind is a state between two of them.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The shard that a hash falls into.
pub(super) fn shard_of(hash: u64) -> usize {
    usize::try_from(hash.rem_euclid(SHARDS as u64)).unwrap_or(0)
}

/// All counters. Those of one partition are in one shard.
///
/// The hash is seeded anew in every process and is not cryptographic: who knows how to make names
/// collide (sessions, one day) is a client with a key, and has slower ways to waste time.
pub(super) struct CounterShards {
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

impl CounterShards {
    pub(super) fn new() -> Self {
        Self { hasher: RandomState::default(), shards: array::from_fn(|_| Mutex::default()) }
    }

    /// Locks the shards of some limits, in ascending order.
    pub(super) fn lock<'a>(&self, limits: impl Iterator<Item = &'a Limit>) -> Locked<'_> {
        let mut wanted = self.shards_of(limits);
        let mut locked = Locked { all: self, few: [const { None }; FEW], more: Vec::new() };
        for place in 0..SHARDS {
            if wanted == 0 {
                break;
            }
            let shard = usize::try_from(wanted.trailing_zeros()).unwrap_or(0);
            wanted &= wanted - 1;
            let guard = (shard, lock(&self.shards[shard]));
            match locked.few.get_mut(place) {
                Some(free) => *free = Some(guard),
                None => locked.more.push(guard),
            }
        }
        locked
    }

    /// The shards of some limits, as bits.
    fn shards_of<'a>(&self, limits: impl Iterator<Item = &'a Limit>) -> u64 {
        let (mut wanted, mut last) = (0_u64, None);
        for limit in limits {
            // The entries of a plan mostly share a partition.
            if last != Some(limit.key.partition()) {
                last = Some(limit.key.partition());
                wanted |= 1 << self.shard(&limit.key);
            }
        }
        wanted
    }

    fn shard(&self, key: &CounterKey) -> usize {
        shard_of(self.hasher.hash_one(key.partition()))
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).by_key.len()).sum()
    }
}

#[derive(Default)]
struct Shard {
    by_key: HashMap<CounterKey, Counter, RandomState>,
    sweep: Sweep,
}

impl Shard {
    fn sweep(&mut self, now: TimestampMs) {
        self.sweep.call(now, self.by_key.len(), || {
            self.by_key.retain(|_, counter| !counter.is_idle(now));
            if self.by_key.capacity() / 4 > self.by_key.len() {
                self.by_key.shrink_to(CAPACITY_KEPT);
            }
            self.by_key.len()
        });
    }
}

/// How many locked shards fit without allocation: the partitions of a usual plan.
const FEW: usize = 4;

/// The locked shards of one call.
pub(super) struct Locked<'a> {
    all: &'a CounterShards,
    few: [Option<(usize, MutexGuard<'a, Shard>)>; FEW],
    more: Vec<(usize, MutexGuard<'a, Shard>)>,
}

impl Locked<'_> {
    /// Drops idle counters where it is time.
    pub(super) fn sweep(&mut self, now: TimestampMs) {
        for (_, shard) in self.few.iter_mut().flatten().chain(&mut self.more) {
            shard.sweep(now);
        }
    }

    /// The shard of a counter; `None` only for a limit that was not among the locked ones.
    fn shard(&self, limit: &Limit) -> Option<&Shard> {
        match &self.few {
            [Some((_, only)), None, ..] => Some(only),
            few => {
                let wanted = self.all.shard(&limit.key);
                let mut locked = few.iter().flatten().chain(&self.more);
                locked.find(|(shard, _)| *shard == wanted).map(|(_, guard)| &**guard)
            }
        }
    }

    fn shard_mut(&mut self, limit: &Limit) -> Option<&mut Shard> {
        match &mut self.few {
            [Some((_, only)), None, ..] => Some(only),
            few => {
                let wanted = self.all.shard(&limit.key);
                let mut locked = few.iter_mut().flatten().chain(&mut self.more);
                locked.find(|(shard, _)| *shard == wanted).map(|(_, guard)| &mut **guard)
            }
        }
    }
}

impl Counters for Locked<'_> {
    fn get(&self, limit: &Limit, now: TimestampMs) -> Counter {
        let Some(shard) = self.shard(limit) else { return Counter::new(limit.rule, now) };
        match shard.by_key.get(&limit.key) {
            Some(counter) if counter.rule() == limit.rule => *counter,
            _ => shard.sweep.new_counter(limit.rule, now),
        }
    }

    fn change<T>(&mut self, limit: &Limit, now: TimestampMs, change: impl FnOnce(&mut Counter) -> T) -> T {
        let Some(shard) = self.shard_mut(limit) else { return change(&mut Counter::new(limit.rule, now)) };
        if let Some(counter) = shard.by_key.get_mut(&limit.key)
            && counter.rule() == limit.rule
        {
            return change(counter);
        }
        let mut counter = shard.sweep.new_counter(limit.rule, now);
        let changed = change(&mut counter);
        shard.by_key.insert(limit.key.clone(), counter);
        changed
    }
}

#[cfg(test)]
mod tests {
    use std::{
        panic,
        sync::{Mutex, PoisonError},
    };

    use super::lock;

    #[test]
    fn a_poisoned_lock_does_not_reach_callers() {
        let mutex = Mutex::new(7);
        let died = panic::catch_unwind(|| {
            let _held = mutex.lock().unwrap_or_else(PoisonError::into_inner);
            panic!("while it holds the lock");
        });
        assert!(died.is_err() && mutex.is_poisoned());
        assert_eq!(*lock(&mutex), 7);
    }
}
