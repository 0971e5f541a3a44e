//! Looks after an empty Redis, and after what another one than before may lack.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tollgate_limiter::ReservationId;
use tollgate_store::{Clock, FallbackStore, SentAgain, StoreError};

use super::watch::look;
use crate::{
    Guard, RedisStore,
    guard::{Ending, Settlements},
};

/// How long before a look a settlement may have begun that Redis has taken after it.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// Looks again and again whether Redis knows what this copy had spent, and whether it is another than before: one
/// that was a replica, or has begun anew from what was on its disk, may lack the latest settlements.
pub(super) async fn keep_seeded(
    redis: RedisStore,
    store: FallbackStore,
    guard: Guard,
    clock: Arc<dyn Clock>,
) {
    let (mut before, mut seen_at, mut telling) = (None, Duration::ZERO, None);
    let (mut repaired, mut is_late) = (0, false);
    let mut sight = Sight::default();
    loop {
        let begun = clock.elapsed();
        let ending = EndingIn { store: &store, since: seen_at.saturating_sub(ON_ITS_WAY) };
        let looked = redis.keep_seeded(&guard, &clock, before.as_ref(), &mut telling, &ending).await;
        sight.note(&redis, &store, looked.as_ref().err());
        if let Ok(seen) = looked {
            if std::mem::take(&mut is_late) {
                store.send_again();
            }
            if seen.lacks_latest {
                redis.close_lines();
                let SentAgain { settlements, too_old } = store.send_again();
                // What was answered just now is noted a moment later.
                is_late = true;
                tracing::warn!(
                    settlements,
                    too_old,
                    "another Redis answers: the latest settlements are sent again, of those that are too old only what is still held"
                );
            } else {
                store.forget_old();
            }
            (before, seen_at) = (Some(seen), begun);
        }
        let all = store.repaired();
        if all > repaired && store.waiting() == 0 {
            tracing::warn!(settlements = all - repaired, "Redis had lost settlements, and has them again");
            repaired = all;
        }
        tokio::time::sleep(look(&redis)).await;
    }
}

/// The calls that end, by the store that they are settled in.
struct EndingIn<'a> {
    store: &'a FallbackStore,
    /// From when on Redis may have taken settlements, and forgotten everything else.
    since: Duration,
}

impl Ending for EndingIn<'_> {
    fn begin_telling(&self) {
        self.store.begin_telling();
    }

    fn told(&self, is_told: &dyn Fn(ReservationId) -> bool) -> Settlements {
        self.store.told(is_told, self.since)
    }
}

/// How often in a row it was looked in vain.
#[derive(Default)]
struct Sight(u32);

impl Sight {
    /// From so many looks in vain on the store is said to be away, also where no call has found out.
    const AWAY: u32 = 2;
    /// From so many on the reason is said, unless there is an outage, which has its own lines.
    const SAID: u32 = 8;

    fn note(&mut self, redis: &RedisStore, store: &FallbackStore, error: Option<&StoreError>) {
        self.0 = error.map_or(0, |_| self.0.saturating_add(1));
        redis.0.is_out_of_sight.store(self.0 >= Self::AWAY, Ordering::SeqCst);
        let Some(error) = error else { return };
        tracing::debug!(%error, "it cannot be seen what Redis knows");
        if self.0 == Self::SAID && !store.is_away() {
            tracing::error!(
                %error,
                "it cannot be seen whether Redis knows what was spent: a Redis that is new or empty refuses hard budgets"
            );
        }
    }
}
