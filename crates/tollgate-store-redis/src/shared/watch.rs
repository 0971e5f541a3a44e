//! Looks again and again at connections, places of dead copies and the server's policy.

use std::{sync::Arc, time::Duration};

use tollgate_store::{Clock, FallbackStore, StoreError};

use crate::{RedisStore, lives};

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
/// without a call that finds out.
pub(super) async fn look_after_places(
    redis: &RedisStore,
    store: &FallbackStore,
    copy: &Arc<str>,
    clock: &dyn Clock,
) {
    let mut was_well = true;
    loop {
        let begun = clock.elapsed();
        let looked = redis.look_after_places(copy).await;
        if looked.is_ok() {
            store.seen(begun);
        }
        match &looked {
            // An outage has its own lines.
            Err(error) if error.is_transient() || !was_well => {
                tracing::debug!(%error, "places of dead copies are not looked for");
            }
            Err(error) => tracing::warn!(%error, "places of dead copies cannot be given back"),
            Ok(()) => {}
        }
        was_well = looked.as_ref().map_or_else(StoreError::is_transient, |()| true);
        tokio::time::sleep(if looked.is_ok() { lives::EVERY } else { lives::AGAIN }).await;
    }
}

/// Says again and again where the server may evict counters, and where it does no more.
pub(super) async fn look_after_policy(redis: &RedisStore) {
    let (mut known, mut is_readable) = (None, true);
    loop {
        match redis.evicting_policy().await {
            Ok(policy) => {
                if policy != known {
                    redis.warn(policy.as_ref().map(|policy| {
                        format!(
                            "maxmemory-policy is {policy}: a full Redis forgets what was spent; set it to noeviction"
                        )
                    }));
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
