//! The store as a program uses it: behind the failure policy, on a thread of its own.

mod seeding;
mod watch;

use std::{
    io,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{runtime::Builder, sync::oneshot};
use tollgate_store::{Clock, FailurePolicy, FallbackStore};

use crate::{ConnectError, Guard, RedisStore, Settings};
use seeding::keep_seeded;
use watch::{look_after_lines, look_after_places, look_after_policy};

/// How often settlements that wait are tried again.
const WRITE_THROUGH: Duration = Duration::from_millis(100);
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
            let (time, copies) = (Arc::clone(&clock), policy.local_share);
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
                () = look_after_places(&lines, &seen, &copy, copies, &*time) => {}
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

/// The name of a copy that has none: no other has it.
fn nameless() -> Arc<str> {
    format!("{:016x}", rand::random::<u64>()).into()
}
