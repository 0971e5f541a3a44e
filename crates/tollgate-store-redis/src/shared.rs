//! The store as a program uses it: behind the failure policy, on a thread of its own.

use std::{
    io,
    sync::{Arc, atomic::Ordering, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{runtime::Builder, sync::oneshot};
use tollgate_limiter::ReservationId;
use tollgate_store::{Clock, FailurePolicy, FallbackStore, SentAgain, StoreError};

use crate::{
    ConnectError, Guard, RedisStore, Settings,
    guard::{Ending, Settlements},
    lives,
};

/// How often settlements that wait are tried again.
const WRITE_THROUGH: Duration = Duration::from_millis(100);
/// How often it is looked for what an empty Redis would not know: on one server, and in a cluster, where there are
/// many places to look at.
const LOOK: Duration = Duration::from_millis(500);
const LOOK_IN_CLUSTER: Duration = Duration::from_secs(2);
/// How often the server is asked whether it may evict counters.
const LOOK_AT_POLICY: Duration = Duration::from_secs(5);
/// How long before a look a settlement may have begun that Redis has taken after it.
const ON_ITS_WAY: Duration = Duration::from_secs(1);
/// How long a start waits for the first connection before it goes on without.
const FIRST_CONNECTION: Duration = Duration::from_secs(2);
/// How long an end waits for settlements to be written through.
const LAST_SETTLEMENTS: Duration = Duration::from_secs(5);

/// A Redis that any number of copies share, and what stands in for it while it is away.
///
/// A thread of its own keeps a connection, looks after an empty Redis, and writes settlements through that wait;
/// runtimes that ask have further ones. Dropping it ends its own connection, after what waits is written or five
/// seconds have passed.
#[derive(Debug)]
pub struct SharedStore {
    store: FallbackStore,
    #[cfg(feature = "testing")]
    redis: RedisStore,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl SharedStore {
    /// Connects, and waits up to two seconds for it: without a Redis the program runs under its failure
    /// policy until there is one. With a `guard` hard budgets are refused in a Redis that does not know what
    /// was spent.
    ///
    /// # Errors
    ///
    /// The URL cannot be used, or there is no thread.
    pub fn start(
        settings: &Settings,
        policy: FailurePolicy,
        guard: Option<Guard>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ConnectError> {
        let settings = settings.clone();
        Self::run(policy, guard, clock, move || RedisStore::connect(&settings))
    }

    /// As [`start`](Self::start), with decisions at the time of a test's clock.
    ///
    /// # Errors
    ///
    /// As there.
    #[cfg(feature = "testing")]
    pub fn start_with_clock(
        settings: &Settings,
        policy: FailurePolicy,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ConnectError> {
        let (settings, time) = (settings.clone(), Arc::clone(&clock));
        Self::run(policy, None, clock, move || RedisStore::connect_with_clock(&settings, time))
    }

    fn run(
        policy: FailurePolicy,
        guard: Option<Guard>,
        clock: Arc<dyn Clock>,
        connect: impl FnOnce() -> Result<RedisStore, ConnectError> + Send + 'static,
    ) -> Result<Self, ConnectError> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(ConnectError::Thread)?;
        let (started, start) = mpsc::sync_channel(1);
        let (stop, stopped) = oneshot::channel();
        let live = async move {
            let redis = match connect() {
                Ok(redis) => redis,
                Err(error) => return drop(started.send(Err(error))),
            };
            redis.guard(guard.is_some());
            redis.0.lives.begin();
            first_connection(&redis).await;
            let store = FallbackStore::new(Arc::new(redis.clone()), Arc::clone(&clock), policy);
            // Whoever starts it waits for this.
            let _ = started.send(Ok((store.clone(), redis.clone())));
            let (seeded, seen, lines) = (store.clone(), store.clone(), redis.clone());
            let time = Arc::clone(&clock);
            let copy = guard.as_ref().map_or_else(nameless, |guard| Arc::clone(&guard.copy));
            let seeds = async {
                match guard {
                    Some(guard) => keep_seeded(redis, seeded, guard, clock).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = keep(store, &lines, stopped) => {}
                () = seeds => {}
                () = look_after_lines(&lines) => {}
                () = look_after_places(&lines, &seen, &copy, &*time) => {}
                () = look_after_policy(&lines) => {}
            }
        };
        let thread = thread::Builder::new().name("store".to_owned());
        let run = move || {
            runtime.block_on(live);
            // Usage files that are being read for a Redis that was emptied keep nobody waiting.
            runtime.shutdown_background();
        };
        let thread = thread.spawn(run).map_err(ConnectError::Thread)?;
        let gone = |_| ConnectError::Thread(io::Error::other("it ended"));
        let (store, _redis) = start.recv().map_err(gone)??;
        Ok(Self {
            store,
            #[cfg(feature = "testing")]
            redis: _redis,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The store.
    pub fn store(&self) -> FallbackStore {
        self.store.clone()
    }

    /// Whether the caller's runtime has a connection of its own that calls go over.
    #[cfg(feature = "testing")]
    pub fn has_own_connection(&self) -> bool {
        self.redis.0.lines.own().is_some()
    }

    /// How many connections are kept for runtimes that asked.
    #[cfg(feature = "testing")]
    pub fn connections_of_runtimes(&self) -> usize {
        self.redis.0.lines.count_of_others()
    }
}

impl Drop for SharedStore {
    fn drop(&mut self) {
        drop(self.stop.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of the store ended with a panic");
        }
    }
}

/// Writes through until told to stop, and a last time then. A connection that was made anew is not kept waiting for the
/// next attempt of a call: what waits finds out whether the store is back.
async fn keep(store: FallbackStore, redis: &RedisStore, mut stopped: oneshot::Receiver<()>) {
    let mut is_tried = true;
    loop {
        // Told to stop is also whoever told nothing and is gone.
        let pause = tokio::time::timeout(WRITE_THROUGH, &mut stopped);
        if pause.await.is_ok() {
            break;
        }
        let is_connected = redis.0.client().is_connected();
        if is_connected && !is_tried && store.waiting() > 0 {
            is_tried = true;
            store.write_through_now().await;
        } else {
            is_tried &= is_connected;
            store.write_through().await;
        }
    }
    let last = async {
        while store.waiting() > 0 {
            store.write_through_now().await;
            tokio::time::sleep(WRITE_THROUGH).await;
        }
    };
    if tokio::time::timeout(LAST_SETTLEMENTS, last).await.is_err() {
        let settlements = store.waiting();
        tracing::error!(settlements, "the store stayed away: settlements are left to the next process");
    }
}

/// Waits for the first connection, for a while.
async fn first_connection(redis: &RedisStore) {
    match tokio::time::timeout(FIRST_CONNECTION, redis.connected()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "there is no Redis"),
        Err(_) => tracing::warn!("there is no Redis yet: the failure policy holds until there is one"),
    }
}

/// Looks again and again at the connections that other runtimes have.
async fn look_after_lines(redis: &RedisStore) {
    loop {
        redis.look_after_lines().await;
        tokio::time::sleep(look(redis)).await;
    }
}

/// Says again and again that this copy lives, and gives back what dead ones held. Where Redis takes that, it is back also
/// without a call that finds out.
async fn look_after_places(redis: &RedisStore, store: &FallbackStore, copy: &Arc<str>, clock: &dyn Clock) {
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

/// The name of a copy that has none: no other has it.
fn nameless() -> Arc<str> {
    format!("{:016x}", rand::random::<u64>()).into()
}

fn look(redis: &RedisStore) -> Duration {
    if redis.is_cluster() { LOOK_IN_CLUSTER } else { LOOK }
}

/// Looks again and again whether Redis knows what this copy had spent, and whether it is another than before: one
/// that was a replica, or has begun anew from what was on its disk, may lack the latest settlements.
async fn keep_seeded(redis: RedisStore, store: FallbackStore, guard: Guard, clock: Arc<dyn Clock>) {
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

/// Says again and again where the server may evict counters, and where it does no more.
async fn look_after_policy(redis: &RedisStore) {
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
