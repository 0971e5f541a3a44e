//! Connections, one for each runtime that asks, so that no answer has to cross from one thread to another.
//!
//! All of them have to speak to the same server: while a primary is being replaced, two may answer. What is watched is
//! the main connection. Another one is used as long as its server was seen to be the main one's since that was last
//! made, the main one answers, and no call on it has failed; until then, and where nobody looks, the main one stands in.

use std::{
    collections::HashMap,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::{Handle, Id},
    task::JoinHandle,
};

use crate::{
    ConnectError, Settings,
    batch::{Batch, Pace, Sender},
    client::{Client, Reconnections, Script, Trouble, Troubles, Why},
    script,
};

/// How often in a row a connection may be looked at in vain before another one is made in its place.
const SILENCES_MAX: u32 = 6;

/// A connection, with the calls that wait for it.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) client: Arc<Client>,
    pub(crate) reserves: Arc<Batch>,
    pub(crate) settlements: Arc<Batch>,
    /// The epoch in which its server was seen to be the main one's; 0: in none.
    trusted_in: AtomicU64,
    /// How often in a row it did not answer when it was looked at.
    silences: AtomicU32,
    _senders: [Sender; 2],
}

/// The scripts that calls are batched of: for one call, and for each of several.
#[derive(Debug)]
struct Scripts {
    reserve: (Script, Script),
    settle: (Script, Script),
}

/// The connections of a store.
#[derive(Debug)]
pub(crate) struct Lines {
    settings: Settings,
    scripts: Scripts,
    /// Of the runtime that the store was made on.
    main: Arc<Line>,
    main_runtime: Option<Id>,
    others: Mutex<HashMap<Id, Arc<Line>>>,
    /// Counted from 1. A new one begins when the main connection is made anew, or does not answer.
    epoch: Arc<AtomicU64>,
    /// Whether somebody looks after them. Otherwise there are no others.
    is_watched: AtomicBool,
    _watch: Watch,
}

/// Begins new epochs, and says why there is no connection. Dropping it ends that.
#[derive(Debug)]
struct Watch(JoinHandle<()>);

impl Line {
    /// Begins to connect, on the runtime of the caller.
    fn open(settings: &Settings, scripts: &Scripts) -> Result<Arc<Self>, ConnectError> {
        let client = Arc::new(Client::connect(settings)?);
        let start = |script: &(Script, Script), pace| {
            Batch::start(Arc::clone(&client), script.clone(), pace, settings.timeout)
        };
        let (reserves, sender) = start(&scripts.reserve, Pace::AtOnce);
        // What is still held meanwhile errs towards refusing.
        let (settlements, other) = start(&scripts.settle, Pace::OneByOne);
        let (trusted_in, silences) = (AtomicU64::new(0), AtomicU32::new(0));
        let _senders = [sender, other];
        Ok(Arc::new(Self { client, reserves, settlements, trusted_in, silences, _senders }))
    }

    /// A call on it has failed: it is not used until its server was seen again.
    pub(crate) fn doubt(&self) {
        self.trusted_in.store(0, Ordering::SeqCst);
    }
}

impl Lines {
    /// How long one call may take, repetitions included.
    pub(crate) const fn timeout(&self) -> Duration {
        self.settings.timeout
    }

    /// Begins to connect, on the runtime of the caller.
    pub(crate) fn open(settings: &Settings) -> Result<Self, ConnectError> {
        let scripts = Scripts {
            reserve: (Script::new(script::RESERVE), Script::new(script::RESERVE_EACH)),
            settle: (Script::new(script::SETTLE), Script::new(script::SETTLE_EACH)),
        };
        let main = Line::open(settings, &scripts)?;
        let main_runtime = Handle::try_current().ok().map(|runtime| runtime.id());
        let epoch = Arc::new(AtomicU64::new(1));
        let (reconnections, troubles) = (main.client.reconnections(), main.client.troubles());
        let watch = watch(reconnections, troubles, Arc::clone(&epoch), main.client.why());
        let watch = Watch(tokio::spawn(watch));
        Ok(Self {
            settings: settings.clone(),
            scripts,
            main,
            main_runtime,
            others: Mutex::default(),
            epoch,
            is_watched: AtomicBool::new(false),
            _watch: watch,
        })
    }

    /// How long one attempt of a call may take.
    pub(crate) fn attempt(&self) -> Duration {
        self.settings.attempt()
    }

    /// That of the runtime that the store was made on.
    pub(crate) fn main(&self) -> &Line {
        &self.main
    }

    /// That of the caller's runtime, or the main one, which stands in for it.
    pub(crate) fn here(&self) -> Arc<Line> {
        self.own().unwrap_or_else(|| self.main.clone())
    }

    /// That of the caller's runtime, if it has one of its own that can be used.
    pub(crate) fn own(&self) -> Option<Arc<Line>> {
        if !self.is_watched.load(Ordering::SeqCst) {
            return None;
        }
        let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
        let line = self.of(runtime.filter(|_| runtime != self.main_runtime)?)?;
        let is_trusted = line.trusted_in.load(Ordering::SeqCst) == self.epoch.load(Ordering::SeqCst);
        (is_trusted && line.client.is_connected()).then_some(line)
    }

    fn of(&self, runtime: Id) -> Option<Arc<Line>> {
        let mut others = self.others();
        if let Some(line) = others.get(&runtime).filter(|line| !line.reserves.has_ended()) {
            return Some(line.clone());
        }
        // Those of runtimes that have ended.
        others.retain(|_, line| !line.reserves.has_ended());
        let line = Line::open(&self.settings, &self.scripts).ok()?;
        others.insert(runtime, line.clone());
        Some(line)
    }

    /// How many connections there are beside the main one.
    #[cfg(feature = "testing")]
    pub(crate) fn count_of_others(&self) -> usize {
        self.others().len()
    }

    /// Looks at each connection but the main one whether it answers, and whose server it is.
    pub(crate) async fn look_after<S: PartialEq>(&self, servers: impl AsyncFn(&Client) -> Option<S>) {
        self.is_watched.store(true, Ordering::SeqCst);
        let lines: Vec<_> = self.others().values().cloned().collect();
        if lines.is_empty() {
            return;
        }
        let epoch = self.epoch.load(Ordering::SeqCst);
        let Some(main) = servers(&self.main.client).await else {
            // Nobody knows whether their server still is the one that counts.
            self.epoch.fetch_add(1, Ordering::SeqCst);
            return;
        };
        for line in lines {
            let own = servers(&line.client).await;
            let silences =
                if own.is_some() { 0 } else { line.silences.load(Ordering::SeqCst).saturating_add(1) };
            line.silences.store(silences, Ordering::SeqCst);
            line.trusted_in.store(if own.as_ref() == Some(&main) { epoch } else { 0 }, Ordering::SeqCst);
        }
        // Another one is made when it is asked for.
        self.others().retain(|_, line| line.silences.load(Ordering::SeqCst) < SILENCES_MAX);
    }

    /// Ends all connections but the main one. What is on its way on them has no answer.
    pub(crate) fn close_others(&self) {
        let lines = mem::take(&mut *self.others());
        lines.values().for_each(|line| {
            line.doubt();
            line.client.end();
        });
    }

    fn others(&self) -> MutexGuard<'_, HashMap<Id, Arc<Line>>> {
        // A line is complete before it is put in.
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins an epoch with each connection that is made, and says why there is none: a reason once, and that nobody answers
/// only until somebody has. An outage has its own lines.
async fn watch(mut reconnections: Reconnections, mut troubles: Troubles, epoch: Arc<AtomicU64>, why: Why) {
    let (mut said, mut was_any) = (None, false);
    loop {
        tokio::select! {
            is_made = reconnections.next() => {
                if !is_made {
                    return;
                }
                epoch.fetch_add(1, Ordering::SeqCst);
                (said, was_any) = (None, true);
                why.set(None);
            }
            Some(Trouble { reason, is_of_network }) = troubles.next() => {
                let is_old = if is_of_network { was_any || said.is_some() } else { said.as_ref() == Some(&reason) };
                if !is_old {
                    tracing::error!(reason, "there is no connection to Redis");
                    why.set(Some(reason.clone()));
                    said = Some(reason);
                }
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}
