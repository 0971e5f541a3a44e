//! Calls of one script that are ready together go together: one command has the server run the script for each.
//!
//! A command of its own costs the client more than most decisions cost the server. A reserve never waits for
//! company: what is ready when the runtime comes to it goes at once, and that is the more the busier it is.
//! Settlements wait until those before them are answered. Each call is decided by itself, and one that fails leaves
//! the others alone.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    runtime::Handle,
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

/// The most keys of one that runs several.
const KEYS_MAX: usize = 256;

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
    client: Arc<Client>,
    /// That of the client.
    runtime: Handle,
    /// For one call.
    pub(crate) script: Script,
    /// For several.
    each: Script,
    pace: Pace,
    /// How long an answer is waited for that another runtime has to send for.
    patience: Duration,
    /// `None`: nobody sends any more.
    waiting: Mutex<Option<Waiting>>,
    more: Notify,
}

/// Calls that wait to be sent.
#[derive(Debug, Default)]
struct Waiting {
    calls: Vec<Call>,
    /// Somebody sees to it that they are.
    is_led: bool,
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

type Answered = oneshot::Receiver<Result<Bytes, StoreError>>;

/// Sends calls. Dropping it ends that.
#[derive(Debug)]
pub(crate) struct Sender(JoinHandle<()>);

impl Batch {
    /// For the first script, which the second one runs once for each of several calls. Calls are sent on the runtime
    /// of the caller, to the end of the second value.
    pub(crate) fn start(
        client: Arc<Client>,
        (script, each): (Script, Script),
        pace: Pace,
        patience: Duration,
    ) -> (Arc<Self>, Sender) {
        let (waiting, more) = (Mutex::new(Some(Waiting::default())), Notify::new());
        let batch = Arc::new(Self {
            client,
            runtime: Handle::current(),
            script,
            each,
            pace,
            patience,
            waiting,
            more,
        });
        let open = Open(Arc::clone(&batch));
        let sender = tokio::spawn(async move {
            loop {
                open.0.more.notified().await;
                open.0.send(open.0.take()).await;
            }
        });
        (batch, Sender(sender))
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
        self: &Arc<Self>,
        tag: Tag,
        keys: Vec<Bytes>,
        arguments: Vec<Bytes>,
    ) -> Result<Bytes, StoreError> {
        let is_here = Handle::try_current().is_ok_and(|runtime| runtime.id() == self.runtime.id());
        let Some(lead) = self.lead(is_here) else {
            let answered = self.wait(tag, keys, arguments)?;
            return self.answer(answered, is_here).await;
        };
        what_is_ready().await;
        let others = lead.end();
        if others.is_empty() {
            // In a box: otherwise every call would be moved with the room for it, which is twenty times its own.
            return Box::pin(self.client.run(&self.script, &keys, || arguments.clone())).await;
        }
        let (answer, answered) = oneshot::channel();
        let own = Call { tag, keys, arguments, answer };
        self.spawn(std::iter::once(own).chain(others).collect());
        self.answer(answered, is_here).await
    }

    /// Whoever leads sends for all who wait, once the runtime has come to it.
    fn lead(self: &Arc<Self>, is_here: bool) -> Option<Lead<'_>> {
        let mut waiting = self.waiting();
        let waiting =
            waiting.as_mut().filter(|waiting| self.pace == Pace::AtOnce && is_here && !waiting.is_led)?;
        waiting.is_led = true;
        Some(Lead(Some(self)))
    }

    fn wait(
        self: &Arc<Self>,
        tag: Tag,
        keys: Vec<Bytes>,
        arguments: Vec<Bytes>,
    ) -> Result<Answered, StoreError> {
        let (answer, answered) = oneshot::channel();
        let is_led = match &mut *self.waiting() {
            Some(waiting) => {
                waiting.calls.push(Call { tag, keys, arguments, answer });
                mem::replace(&mut waiting.is_led, true)
            }
            None => return Err(StoreError::NotApplied(ENDED.to_owned())),
        };
        match self.pace {
            Pace::AtOnce if !is_led => self.spawn_taking(),
            Pace::AtOnce => {}
            Pace::OneByOne => self.more.notify_one(),
        }
        Ok(answered)
    }

    async fn answer(&self, answered: Answered, is_here: bool) -> Result<Bytes, StoreError> {
        let answer = match is_here {
            true => Ok(answered.await),
            // Nobody knows whether the other runtime is run.
            false => tokio::time::timeout(self.patience, answered).await,
        };
        let unknown = |reason: &str| Err(StoreError::Unknown(reason.to_owned()));
        answer.map_or_else(|_| unknown("no answer in time"), |sent| sent.unwrap_or_else(|_| unknown(ENDED)))
    }

    /// Takes all that wait. Whoever comes next leads.
    fn take(&self) -> Vec<Call> {
        let mut waiting = self.waiting();
        let Some(waiting) = &mut *waiting else { return Vec::new() };
        waiting.is_led = false;
        mem::take(&mut waiting.calls)
    }

    fn spawn(self: &Arc<Self>, calls: Vec<Call>) {
        let batch = Arc::clone(self);
        self.runtime.spawn(async move { batch.send(calls).await });
    }

    /// Sends what waits by then.
    fn spawn_taking(self: &Arc<Self>) {
        let batch = Arc::clone(self);
        self.runtime.spawn(async move { batch.send(batch.take()).await });
    }

    async fn send(&self, calls: Vec<Call>) {
        all(self.commands(calls).into_iter().map(|calls| self.run(calls))).await;
    }

    /// The commands that run `waiting`.
    fn commands(&self, waiting: Vec<Call>) -> Vec<Vec<Call>> {
        // A settlement counts, whoever waits for it.
        let counts = |call: &Call| self.pace == Pace::OneByOne || !call.answer.is_closed();
        let mut by_tag = BTreeMap::<Tag, Vec<Call>>::new();
        for call in waiting.into_iter().filter(counts) {
            by_tag.entry(call.tag).or_default().push(call);
        }
        let mut commands = Vec::new();
        for mut calls in by_tag.into_values() {
            while !calls.is_empty() {
                let rest = calls.split_off(fitting(&calls));
                commands.push(mem::replace(&mut calls, rest));
            }
        }
        commands
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Waiting>> {
        // Every change is complete before the lock is given back.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the server run the script for `calls`, whose keys have one tag.
    async fn run(&self, mut calls: Vec<Call>) {
        if calls.len() > 1 {
            return self.run_each(calls).await;
        }
        let Some(Call { keys, arguments, answer, .. }) = calls.pop() else { return };
        // Who has gone does not wait for it.
        let _ = answer.send(self.client.run(&self.script, &keys, || arguments.clone()).await);
    }

    async fn run_each(&self, calls: Vec<Call>) {
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
        let replies = self.client.run::<Vec<Bytes>>(&self.each, &all_keys, || words.clone()).await;
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

/// Whoever sends next. Where it goes away before, others send what waits.
struct Lead<'a>(Option<&'a Arc<Batch>>);

impl Lead<'_> {
    /// What has joined it.
    fn end(mut self) -> Vec<Call> {
        self.0.take().map_or_else(Vec::new, |batch| batch.take())
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if let Some(batch) = self.0.take() {
            let calls = batch.take();
            if !calls.is_empty() {
                batch.spawn(calls);
            }
        }
    }
}

/// Lets everything have its turn that is ready.
async fn what_is_ready() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// How many of `calls` one command may run: at least one.
fn fitting(calls: &[Call]) -> usize {
    let keys = calls.iter().scan(0, |keys, call| {
        *keys += call.keys.len();
        Some(*keys)
    });
    keys.take(CALLS_MAX).take_while(|keys| *keys <= KEYS_MAX).count().max(1)
}

const ENDED: &str = "the connection to Redis has ended";

/// What one of several calls was answered.
fn own_reply(reply: Bytes) -> Result<Bytes, StoreError> {
    match reply.strip_prefix(&[FAILED]) {
        None => Ok(reply),
        Some(reason) => Err(client::reason(&String::from_utf8_lossy(reason))),
    }
}

/// A batch that sends. When it does no more, calls that wait have their answer.
struct Open(Arc<Batch>);

impl Drop for Open {
    fn drop(&mut self) {
        *self.0.waiting() = None;
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.abort();
    }
}
