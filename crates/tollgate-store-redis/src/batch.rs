//! Calls of one script that are ready together go together: one command has the server run the script for each.
//!
//! A command of its own costs the client more than most decisions cost the server. A reserve never waits for
//! company: what is ready when the runtime comes to it goes at once, and that is the more the busier it is.
//! Settlements wait until those before them are answered. Each call is decided by itself, and one that fails leaves
//! the others alone.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use tokio::{
    sync::{Notify, oneshot},
    task::JoinHandle,
};
use tollgate_store::StoreError;

use crate::{
    client::{self, Client, Script},
    keys::Tag,
    steps::all,
};

/// The most calls of one command: the server does nothing else meanwhile.
const CALLS_MAX: usize = 32;

/// How an answer begins that says why its call failed.
const FAILED: u8 = b'!';

/// When calls are sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Pace {
    /// When the runtime comes to it.
    AtOnce,
    /// When those before them are answered.
    OneByOne,
}

/// A script, and the calls of it that wait.
#[derive(Debug)]
pub(crate) struct Batch {
    /// For one call.
    pub(crate) script: Script,
    /// For several.
    each: Script,
    pace: Pace,
    /// `None`: nobody sends any more.
    waiting: Mutex<Option<Vec<Call>>>,
    more: Notify,
}

/// What a script is called with.
#[derive(Debug)]
struct Call {
    /// All its keys have this one.
    tag: Tag,
    keys: Vec<Bytes>,
    arguments: Vec<Bytes>,
    answer: oneshot::Sender<Result<Bytes, StoreError>>,
}

/// Sends calls. Dropping it ends that.
#[derive(Debug)]
pub(crate) struct Sender(JoinHandle<()>);

impl Batch {
    /// For the first script, which the second one runs once for each of several calls.
    pub(crate) fn new((script, each): (Script, Script), pace: Pace) -> Self {
        Self { script, each, pace, waiting: Mutex::new(Some(Vec::new())), more: Notify::new() }
    }

    /// Sends what waits, on the runtime of the caller.
    pub(crate) fn start(self: &Arc<Self>, client: &Arc<Client>) -> Sender {
        let open = Open { batch: Arc::clone(self), client: Arc::clone(client) };
        Sender(tokio::spawn(async move {
            loop {
                open.batch.more.notified().await;
                open.send().await;
            }
        }))
    }

    /// Whether nobody sends any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.waiting().is_none()
    }

    /// What the script answers to a call whose keys have `tag`.
    ///
    /// # Errors
    ///
    /// As of [`Client::run`]; also [`StoreError::Unknown`] where the call failed beside others, so that it has to be
    /// repeated by itself to know why.
    pub(crate) async fn call(
        &self,
        tag: Tag,
        keys: Vec<Bytes>,
        arguments: Vec<Bytes>,
    ) -> Result<Bytes, StoreError> {
        let (answer, answered) = oneshot::channel();
        match &mut *self.waiting() {
            Some(waiting) => waiting.push(Call { tag, keys, arguments, answer }),
            None => return Err(StoreError::NotApplied(ENDED.to_owned())),
        }
        self.more.notify_one();
        answered.await.unwrap_or_else(|_| Err(StoreError::Unknown(ENDED.to_owned())))
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Vec<Call>>> {
        // Every change is complete before the lock is given back.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the server run the script for `calls`, whose keys have one tag.
    async fn run(&self, client: &Client, mut calls: Vec<Call>) {
        if calls.len() > 1 {
            return self.run_each(client, calls).await;
        }
        let Some(Call { keys, arguments, answer, .. }) = calls.pop() else { return };
        // Who has gone does not wait for it.
        let _ = answer.send(client.run(&self.script, &keys, || arguments.clone()).await);
    }

    async fn run_each(&self, client: &Client, calls: Vec<Call>) {
        // A plan has few enough entries.
        let number = |count| u8::try_from(count).unwrap_or(u8::MAX);
        let shapes = calls.iter().flat_map(|call| [number(call.keys.len()), number(call.arguments.len())]);
        let mut words = vec![shapes.collect::<Bytes>()];
        let (mut all_keys, mut answers) = (Vec::new(), Vec::with_capacity(calls.len()));
        for Call { keys, arguments, answer, .. } in calls {
            all_keys.extend(keys);
            words.extend(arguments);
            answers.push(answer);
        }
        let replies = client.run::<Vec<Bytes>>(&self.each, &all_keys, || words.clone()).await;
        let replies = replies.and_then(|replies| {
            let missing =
                || StoreError::Corrupt(format!("{} answers to {} calls", replies.len(), answers.len()));
            if replies.len() == answers.len() { Ok(replies) } else { Err(missing()) }
        });
        let replies: Vec<_> = match replies {
            Ok(replies) => replies.into_iter().map(own_reply).collect(),
            Err(error) => vec![Err(error); answers.len()],
        };
        for (answer, reply) in answers.into_iter().zip(replies) {
            let _ = answer.send(reply);
        }
    }
}

const ENDED: &str = "the connection to Redis has ended";

/// What one of several calls was answered.
fn own_reply(reply: Bytes) -> Result<Bytes, StoreError> {
    match reply.strip_prefix(&[FAILED]) {
        None => Ok(reply),
        Some(reason) => Err(client::reason(&String::from_utf8_lossy(reason))),
    }
}

/// The end of a batch that sends. When it is gone, calls that wait have their answer.
struct Open {
    batch: Arc<Batch>,
    client: Arc<Client>,
}

impl Open {
    /// Sends all that waits.
    async fn send(&self) {
        let waiting = self.batch.waiting().as_mut().map(mem::take).unwrap_or_default();
        // A settlement counts, whoever waits for it.
        let counts = |call: &Call| self.batch.pace == Pace::OneByOne || !call.answer.is_closed();
        let mut by_tag = BTreeMap::<Tag, Vec<Call>>::new();
        for call in waiting.into_iter().filter(counts) {
            by_tag.entry(call.tag).or_default().push(call);
        }
        let mut commands = Vec::new();
        for mut calls in by_tag.into_values() {
            while !calls.is_empty() {
                let rest = calls.split_off(calls.len().min(CALLS_MAX));
                commands.push(mem::replace(&mut calls, rest));
            }
        }
        match self.batch.pace {
            Pace::AtOnce => commands.into_iter().for_each(|calls| {
                let (batch, client) = (Arc::clone(&self.batch), Arc::clone(&self.client));
                tokio::spawn(async move { batch.run(&client, calls).await });
            }),
            Pace::OneByOne => {
                all(commands.into_iter().map(|calls| self.batch.run(&self.client, calls))).await;
            }
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        *self.batch.waiting() = None;
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.abort();
    }
}
