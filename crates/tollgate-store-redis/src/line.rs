//! Connections, one for each runtime that asks, so that no answer has to cross from one thread to another.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::runtime::{Handle, Id};

use crate::{
    ConnectError, Settings,
    batch::{Batch, Pace, Sender},
    client::{Client, Script},
    script,
};

/// A connection, with the calls that wait for it.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) client: Arc<Client>,
    pub(crate) reserves: Arc<Batch>,
    pub(crate) settlements: Arc<Batch>,
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
}

impl Line {
    /// Begins to connect, on the runtime of the caller.
    fn open(settings: &Settings, scripts: &Scripts) -> Result<Arc<Self>, ConnectError> {
        let client = Arc::new(Client::connect(settings)?);
        let (reserves, sender) = Batch::start(Arc::clone(&client), scripts.reserve.clone(), Pace::AtOnce);
        // What is still held meanwhile errs towards refusing.
        let (settlements, other) = Batch::start(Arc::clone(&client), scripts.settle.clone(), Pace::OneByOne);
        Ok(Arc::new(Self { client, reserves, settlements, _senders: [sender, other] }))
    }
}

impl Lines {
    /// Begins to connect, on the runtime of the caller.
    pub(crate) fn open(settings: &Settings) -> Result<Self, ConnectError> {
        let scripts = Scripts {
            reserve: (Script::new(script::RESERVE), Script::new(script::RESERVE_EACH)),
            settle: (Script::new(script::SETTLE), Script::new(script::SETTLE_EACH)),
        };
        let main = Line::open(settings, &scripts)?;
        let main_runtime = Handle::try_current().ok().map(|runtime| runtime.id());
        Ok(Self { settings: settings.clone(), scripts, main, main_runtime, others: Mutex::default() })
    }

    /// That of the runtime that the store was made on.
    pub(crate) fn main(&self) -> &Line {
        &self.main
    }

    /// That of the caller's runtime. The main one stands in for it until it is connected.
    pub(crate) fn here(&self) -> Arc<Line> {
        let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
        let Some(runtime) = runtime.filter(|_| runtime != self.main_runtime) else {
            return self.main.clone();
        };
        let own = self.of(runtime).filter(|line| line.client.is_connected());
        own.unwrap_or_else(|| self.main.clone())
    }

    fn of(&self, runtime: Id) -> Option<Arc<Line>> {
        // A line is complete before it is put in.
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        // Another runtime may have the number of one that has ended.
        if let Some(line) = others.get(&runtime).filter(|line| !line.reserves.has_ended()) {
            return Some(line.clone());
        }
        let line = Line::open(&self.settings, &self.scripts).ok()?;
        others.insert(runtime, line.clone());
        Some(line)
    }
}
