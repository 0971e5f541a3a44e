//! Counters in shards, each behind its own lock.

use std::{
    array,
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
};

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
pub(super) struct CounterShards {
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

impl CounterShards {
    pub(super) fn new() -> Self {
        Self { hasher: RandomState::new(), shards: array::from_fn(|_| Mutex::default()) }
    }

    /// Locks the shards of some limits, in ascending order.
    pub(super) fn lock<'a>(&self, limits: impl Iterator<Item = &'a Limit>) -> Locked<'_> {
        let wanted = limits.fold(0_u64, |wanted, limit| wanted | 1 << self.shard(&limit.key));
        let mut guards = [const { None }; SHARDS];
        for (index, (shard, guard)) in self.shards.iter().zip(&mut guards).enumerate() {
            if wanted & 1 << index != 0 {
                *guard = Some(lock(shard));
            }
        }
        Locked { all: self, guards }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).by_key.len()).sum()
    }

    fn shard(&self, key: &CounterKey) -> usize {
        shard_of(self.hasher.hash_one(key.partition()))
    }
}

#[derive(Default)]
struct Shard {
    by_key: HashMap<CounterKey, Counter>,
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

/// The locked shards of one call.
pub(super) struct Locked<'a> {
    all: &'a CounterShards,
    guards: [Option<MutexGuard<'a, Shard>>; SHARDS],
}

impl Locked<'_> {
    /// Drops idle counters where it is time.
    pub(super) fn sweep(&mut self, now: TimestampMs) {
        for shard in self.guards.iter_mut().flatten() {
            shard.sweep(now);
        }
    }
}

impl Counters for Locked<'_> {
    fn get(&self, limit: &Limit, now: TimestampMs) -> Counter {
        let Some(shard) = &self.guards[self.all.shard(&limit.key)] else {
            return Counter::new(limit.rule, now);
        };
        match shard.by_key.get(&limit.key) {
            Some(counter) if counter.rule() == limit.rule => *counter,
            _ => shard.sweep.new_counter(limit.rule, now),
        }
    }

    fn change<T>(&mut self, limit: &Limit, now: TimestampMs, change: impl FnOnce(&mut Counter) -> T) -> T {
        let Some(shard) = &mut self.guards[self.all.shard(&limit.key)] else {
            return change(&mut Counter::new(limit.rule, now));
        };
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
