//! Looks again and again at connections, places of dead copies and the server's policy.

use std::{num::NonZeroU64, sync::Arc, time::Duration};

use tollgate_store::{Clock, FallbackStore, StoreError};

use crate::{Concern, RedisStore, lives};

/// How often it is looked for what an empty Redis would not know: on one server, and in a cluster, where there are
/// many places to look at.
const LOOK: Duration = Duration::from_millis(500);
const LOOK_IN_CLUSTER: Duration = Duration::from_secs(2);
/// How often the server is asked whether it may evict counters.
const LOOK_AT_POLICY: Duration = Duration::from_secs(5);

/// How often it is looked at.
pub(super) fn look(redis: &RedisStore) -> Duration {
    if redis.is_cluster() { LOOK_IN_CLUSTER } else { LOOK }
}

/// Looks again and again at the connections that other runtimes have.
pub(super) async fn look_after_lines(redis: &RedisStore) {
    loop {
        redis.look_after_lines().await;
        tokio::time::sleep(look(redis)).await;
    }
}

/// Says again and again that this copy lives, and gives back what dead ones held. Where Redis takes that, it is back also
/// without a call that finds out. `copies` is how many the configuration says that there are.
pub(super) async fn look_after_places(
    redis: &RedisStore,
    store: &FallbackStore,
    copy: &Arc<str>,
    copies: NonZeroU64,
    clock: &dyn Clock,
) {
    let (mut was_well, mut crowd, mut twin) = (true, Crowd::default(), Twin::default());
    loop {
        let begun = clock.elapsed();
        let looked = redis.look_after_places(copy).await;
        if let Ok(living) = looked {
            store.seen(begun);
            if let Some(warning) = crowd.note(living.copies, copies) {
                redis.warn(Concern::Copies, warning);
            }
            if let Some(warning) = twin.note(living.is_named_twice) {
                redis.warn(Concern::Name, warning);
            }
        }
        match &looked {
            // An outage has its own lines.
            Err(error) if error.is_transient() || !was_well => {
                tracing::debug!(%error, "places of dead copies are not looked for");
            }
            Err(error) => tracing::warn!(%error, "places of dead copies cannot be given back"),
            Ok(_) => {}
        }
        was_well = looked.as_ref().map_or_else(StoreError::is_transient, |_| true);
        tokio::time::sleep(if looked.is_ok() { lives::EVERY } else { lives::AGAIN }).await;
    }
}

/// Whether more copies live than the configuration says.
#[derive(Default)]
struct Crowd {
    /// For so many looks in a row.
    looks: u32,
    /// How many there were when that was said.
    said: Option<usize>,
}

impl Crowd {
    /// From so many looks on it is said: copies that are replaced one by one are more for a while, and dead ones count for half
    /// a minute.
    const SAID: u32 = 12;

    /// The warning, where it is another than before: `None` in it for none any more.
    fn note(&mut self, living: usize, copies: NonZeroU64) -> Option<Option<String>> {
        let is_crowded = u64::try_from(living).is_ok_and(|living| living > copies.get());
        self.looks = if is_crowded { self.looks.saturating_add(1) } else { 0 };
        let now = (self.looks >= Self::SAID).then_some(living);
        if now == self.said || (now.is_none() && is_crowded) {
            return None;
        }
        self.said = now;
        Some(now.map(|living| {
            format!(
                "{living} copies share this Redis, and store.local_share says {copies}: an emptied Redis decides over hard \
                 budgets before all of them have told it what they spent, and local limits add up to more; set it to {living}"
            )
        }))
    }
}

/// Whether another process has the name of this one.
#[derive(Default)]
struct Twin {
    /// For so many looks in a row.
    looks: u32,
}

impl Twin {
    /// From so many looks on it is said: of a predecessor whose end a server has lost nobody hears for so long.
    const SAID: u32 = 8;

    /// As [`Crowd::note`].
    fn note(&mut self, is_named_twice: bool) -> Option<Option<String>> {
        let before = std::mem::replace(&mut self.looks, 0);
        if !is_named_twice {
            return (before >= Self::SAID).then_some(None);
        }
        self.looks = before.saturating_add(1);
        let warning = || {
            "another copy that shares this Redis has the name of this one: each gives back the places of the other's calls, \
             and an emptied Redis would be told what one of them spent; stop the one whose usage files were copied from the \
             other, move all of them away and start it again"
                .to_owned()
        };
        (self.looks == Self::SAID).then(|| Some(warning()))
    }
}

/// Says again and again where the server may evict counters, and where it does no more.
pub(super) async fn look_after_policy(redis: &RedisStore) {
    let (mut known, mut is_readable) = (None, true);
    loop {
        match redis.evicting_policy().await {
            Ok(policy) => {
                if policy != known {
                    let warning = policy.as_ref().map(|policy| {
                        format!(
                            "maxmemory-policy is {policy}: a full Redis forgets what was spent; set it to noeviction"
                        )
                    });
                    redis.warn(Concern::Eviction, warning);
                }
                (known, is_readable) = (policy, true);
            }
            // An outage has its own lines.
            Err(error)
                if matches!(error, StoreError::Unknown(_))
                    || !redis.0.client().is_connected()
                    || !is_readable =>
            {
                tracing::debug!(%error, "the server's maxmemory-policy cannot be read");
            }
            Err(error) => {
                tracing::warn!(%error, "the server's maxmemory-policy cannot be read");
                is_readable = false;
            }
        }
        tokio::time::sleep(if is_readable { LOOK_AT_POLICY } else { LOOK_AT_POLICY * 10 }).await;
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::{Crowd, Twin};

    #[test]
    fn more_copies_than_the_configuration_says_are_warned_of_while_they_last() {
        let two = NonZeroU64::new(2).unwrap();
        let mut crowd = Crowd::default();
        let mut look = |living| crowd.note(living, two).map(Option::unwrap_or_default);
        for _ in 1..Crowd::SAID {
            assert_eq!((look(2), look(3)), (None, None), "for a moment");
        }
        for _ in 2..Crowd::SAID {
            assert_eq!(look(3), None);
        }
        let warning = look(3).unwrap();
        assert!(warning.starts_with("3 copies share this Redis, and store.local_share says 2"), "{warning}");
        assert_eq!(look(3), None, "once");
        assert!(look(4).unwrap().ends_with("set it to 4"));
        assert_eq!((look(2).as_deref(), look(2)), (Some(""), None), "no more");
    }

    #[test]
    fn a_name_that_another_has_is_warned_of_while_that_lasts() {
        let mut twin = Twin::default();
        for _ in 0..2 {
            for _ in 1..Twin::SAID {
                assert_eq!((twin.note(false), twin.note(true)), (None, None), "for a moment");
            }
            for _ in 2..Twin::SAID {
                assert_eq!(twin.note(true), None);
            }
            let warning = twin.note(true).unwrap().unwrap();
            assert!(warning.starts_with("another copy that shares this Redis has the name"), "{warning}");
            assert_eq!(twin.note(true), None, "once");
            assert_eq!((twin.note(false), twin.note(false)), (Some(None), None), "no more");
        }
    }
}
