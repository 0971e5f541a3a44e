//! The one place that names fred: a connection that reconnects by itself, and what its errors mean.
//!
//! What fred would do by itself and must not: send a command again whose connection closed
//! (`max_command_attempts`), follow a node of a cluster that sends it to another (`max_redirections`: after `ASK` it finds that
//! the command has no attempt left, and ends all connections; [`is_elsewhere`]), end for good ([`keep`]), wait for an
//! answer without end (`default_command_timeout`; options of a single call are ignored for scripts), queue without end
//! (`max_command_buffer_len`), work off each wish for a new connection that has come together while there was none
//! (`force_reconnection`; [`Client::renew`]), and take a server that says nothing for one that is there (`unresponsive`: for fred that
//! begins anew with each write, so that a connection that has died in silence would live on as long as it is used;
//! [`Silence`] ends that).

mod meaning;
mod silence;
mod troubles;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use fred::{
    clients::Client as Fred,
    error::{Error, ErrorKind},
    interfaces::{
        ClientLike as _, ClusterInterface as _, EventInterface as _, KeysInterface as _, LuaInterface as _,
    },
    types::{
        Builder, ClusterHash, ConnectHandle, CustomCommand, FromValue, Value,
        config::{Config, ReconnectPolicy, Server},
        scripts::Script as FredScript,
    },
};
use tokio::{runtime::Handle, task::JoinHandle};
use tollgate_store::StoreError;

use crate::{ConnectError, Settings, address};
use meaning::{is_elsewhere, meaning};
pub(crate) use meaning::{is_of_moved_cluster, reason};
use silence::Silence;
pub(crate) use troubles::{Reconnections, Trouble, Troubles, Why};

/// What can be connected to.
const SCHEMES: &[&str] =
    &["redis", "rediss", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster"];
/// Commands that may wait for the connection at once.
const QUEUE_MAX: usize = 65_536;
/// The target of the client library's own log lines: one for each attempt to connect, for as long as an outage takes. This
/// crate's lines say what matters of them.
pub const LOG_TARGET: &str = "fred";
/// Between two attempts to connect: from the first, doubling, to the second.
const RECONNECT_MS: (u32, u32) = (100, 5_000);
/// So much a pause may be longer, so that copies do not come back all at once.
const JITTER_MS: u32 = 50;
/// To connect, and to introduce oneself.
const CONNECT: Duration = Duration::from_secs(1);
/// How often a connection is looked at whether it still answers.
const CHECK: Duration = Duration::from_millis(100);

/// A connection to one Redis. It ends with its owner.
pub(crate) struct Client {
    fred: Fred,
    keeper: JoinHandle<()>,
    is_cluster: bool,
    silence: Silence,
    /// Whether it is on its way to be made anew, because it has said nothing for too long.
    is_renewed: Arc<AtomicBool>,
    why: Why,
}

/// A script with its hash.
#[derive(Clone, Debug)]
pub(crate) struct Script(FredScript);

impl Script {
    pub(crate) fn new(text: &'static str) -> Self {
        Self(FredScript::from_lua(text))
    }
}

impl Client {
    /// Begins to connect, on the runtime of the caller.
    pub(crate) fn connect(settings: &Settings) -> Result<Self, ConnectError> {
        let config = config(&settings.url)?;
        let is_cluster = config.server.is_clustered();
        let mut builder = Builder::from_config(config);
        builder.set_policy(reconnect_policy());
        builder
            .with_performance_config(|performance| performance.default_command_timeout = settings.attempt());
        builder.with_connection_config(|connection| {
            connection.connection_timeout = CONNECT;
            connection.internal_command_timeout = CONNECT;
            connection.max_command_attempts = 1;
            connection.max_redirections = 0;
            connection.max_command_buffer_len = QUEUE_MAX;
            connection.unresponsive.max_timeout = Some(silence_max(settings));
            connection.unresponsive.interval = CHECK;
        });
        let fred = builder.build().map_err(of_url)?;
        let made = Reconnections(fred.reconnect_rx());
        let keeper = tokio::spawn(keep(fred.clone(), Running(fred.connect()), made));
        let silence = Silence::new(silence_max(settings));
        Ok(Self { fred, keeper, is_cluster, silence, is_renewed: Arc::default(), why: Why::default() })
    }

    /// Whether keys lie on several servers.
    pub(crate) const fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    /// Whether there is a connection, as far as is known.
    pub(crate) fn is_connected(&self) -> bool {
        self.fred.is_connected()
    }

    /// Tells why there is no connection.
    pub(crate) fn troubles(&self) -> Troubles {
        Troubles { errors: self.fred.error_rx(), is_tls: self.fred.client_config().tls.is_some() }
    }

    /// Where to say why there is none.
    pub(crate) fn why(&self) -> Why {
        self.why.clone()
    }

    /// Tells of each time that a connection was made anew.
    pub(crate) fn reconnections(&self) -> Reconnections {
        Reconnections(self.fred.reconnect_rx())
    }

    /// Ends the connection for good. What is on its way has no answer.
    pub(crate) fn end(&self) {
        self.keeper.abort();
    }

    /// Waits until there is a connection.
    pub(crate) async fn connected(&self) -> Result<(), StoreError> {
        self.fred.wait_for_connect().await.map_err(|error| meaning(&error))
    }

    /// Runs a script that answers with a string, or with a list of them.
    ///
    /// Where the server does not know the script it is sent in full: then it has not run, so that
    /// nothing runs twice.
    pub(crate) async fn run<T: FromValue>(
        &self,
        script: &Script,
        keys: &[Bytes],
        arguments: impl Fn() -> Vec<Bytes>,
    ) -> Result<T, StoreError> {
        self.has_connection()?;
        let mut answer = self.ask_script(script, keys, &arguments).await;
        if is_elsewhere(&answer) {
            // In a box, as it is rare: what a call takes in memory is moved with each.
            answer = Box::pin(self.ask_script(script, keys, &arguments)).await;
        }
        self.heard(answer)
    }

    async fn ask_script<T: FromValue>(
        &self,
        script: &Script,
        keys: &[Bytes],
        arguments: &impl Fn() -> Vec<Bytes>,
    ) -> Result<T, Error> {
        let hash = script.0.sha1().clone();
        let answer: Result<T, Error> = self.fred.evalsha(hash, keys.to_vec(), values(arguments())).await;
        match (answer, script.0.lua()) {
            (Err(error), Some(text)) if error.details().starts_with("NOSCRIPT") => {
                // In a box, as above.
                Box::pin(self.fred.eval(text.clone(), keys.to_vec(), values(arguments()))).await
            }
            (answer, _) => answer,
        }
    }

    /// An error where there is no connection: what is sent then waits for one, and for nobody when it is sent at last.
    fn has_connection(&self) -> Result<(), StoreError> {
        let absent = || {
            let why = self.why.get().map_or_else(String::new, |reason| format!(": {reason}"));
            StoreError::NotApplied(format!("there is no connection to Redis{why}"))
        };
        self.is_connected().then_some(()).ok_or_else(absent)
    }

    /// What came of a command, for the caller. Where nothing came of any for too long, the connection is made anew.
    fn heard<T>(&self, answer: Result<T, Error>) -> Result<T, StoreError> {
        let has_timed_out = answer.as_ref().is_err_and(|error| *error.kind() == ErrorKind::Timeout);
        // A time-out from before is nothing that the next connection has to answer for.
        if self.silence.lasts(has_timed_out && self.is_connected()) {
            self.renew();
        }
        answer.map_err(|error| meaning(&error))
    }

    /// Has the connection made anew, once: fred works off wishes for that one by one when it has a connection again, and
    /// each of them ends the one that is there by then.
    fn renew(&self) {
        let Ok(runtime) = Handle::try_current() else { return };
        if self.is_renewed.swap(true, Ordering::SeqCst) {
            return;
        }
        let (fred, renewal) = (self.fred.clone(), Renewal(Arc::clone(&self.is_renewed)));
        runtime.spawn(async move {
            let _renewal = renewal;
            fred.force_reconnection().await
        });
    }

    /// What `INFO` says in a section, of every server.
    pub(crate) async fn info(&self, section: &str) -> Result<Vec<String>, StoreError> {
        let ask = || {
            let command = CustomCommand::new_static("INFO", ClusterHash::FirstKey, false);
            (command, vec![Value::from(section.to_owned())])
        };
        let mut answers = Vec::new();
        for server in self.servers()? {
            let (command, words) = ask();
            answers.push(self.ask(server.as_ref(), command, words).await?);
        }
        Ok(answers)
    }

    /// Every server of a cluster; `None` for the one there is otherwise.
    fn servers(&self) -> Result<Vec<Option<Server>>, StoreError> {
        if !self.is_cluster {
            return Ok(vec![None]);
        }
        let state = self.fred.cached_cluster_state();
        let servers = state.map(|state| state.unique_primary_nodes()).filter(|servers| !servers.is_empty());
        let unknown = || StoreError::NotApplied("the nodes of the cluster are not known".to_owned());
        Ok(servers.ok_or_else(unknown)?.into_iter().map(Some).collect())
    }

    /// Sends a command that is not about a key.
    async fn ask<T: FromValue>(
        &self,
        server: Option<&Server>,
        command: CustomCommand,
        words: Vec<Value>,
    ) -> Result<T, StoreError> {
        self.has_connection()?;
        self.heard(match server {
            Some(server) => self.fred.with_cluster_node(server).custom(command, words).await,
            None => self.fred.custom(command, words).await,
        })
    }

    /// The keys whose names are like `pattern`, of every server.
    pub(crate) fn scan(&self, pattern: String) -> Result<Scan<'_>, StoreError> {
        Ok(Scan { client: self, pattern, servers: self.servers()?, cursor: START.to_owned() })
    }

    /// What lies under `keys`, which one server has.
    pub(crate) async fn get_all(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>, StoreError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        self.has_connection()?;
        let mut answer = self.fred.mget(keys.to_vec()).await;
        if is_elsewhere(&answer) {
            answer = self.fred.mget(keys.to_vec()).await;
        }
        self.heard(answer)
    }
}

/// A connection on its way to be made anew. Dropped when that is over, also where it ended with its runtime.
struct Renewal(Arc<AtomicBool>);

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// What reads and writes for a connection. Dropping it ends that.
struct Running(ConnectHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Begins again where fred ends by itself, as it does after some errors: calls would go on to queue for nobody. Pauses
/// double, and reasons are said once, until there has been a connection.
async fn keep(fred: Fred, mut running: Running, mut made: Reconnections) {
    let (first_ms, longest_ms) = RECONNECT_MS;
    let (mut pause_ms, mut said) = (first_ms, None);
    loop {
        let ended = format!("{:?}", (&mut running.0).await);
        if made.was_any() {
            (pause_ms, said) = (first_ms, None);
        }
        if said.as_ref() == Some(&ended) {
            tracing::debug!(ended, "the connection to Redis has ended again");
        } else {
            tracing::warn!(ended, "the connection to Redis has ended, and is begun again");
        }
        said = Some(ended);
        tokio::time::sleep(Duration::from_millis(pause_ms.into())).await;
        pause_ms = pause_ms.saturating_mul(2).min(longest_ms);
        running = Running(fred.connect());
    }
}

/// Goes through the keys of servers, one after the other.
pub(crate) struct Scan<'a> {
    client: &'a Client,
    pattern: String,
    /// Those that are left, the last one first.
    servers: Vec<Option<Server>>,
    cursor: String,
}

/// The cursor with which `SCAN` begins, and ends.
const START: &str = "0";

impl Scan<'_> {
    /// Some more keys, or none of many that were looked at; `None`: there are no more.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Bytes>>, StoreError> {
        /// How many keys the server looks at before it does something else.
        const KEYS_LOOKED_AT: &str = "500";
        let Some(server) = self.servers.last() else { return Ok(None) };
        let command = CustomCommand::new_static("SCAN", ClusterHash::FirstKey, false);
        let words = [&self.cursor, "MATCH", &self.pattern, "COUNT", KEYS_LOOKED_AT];
        let words = words.map(|word| Value::from(word.to_owned())).to_vec();
        let (cursor, keys): (String, Vec<Bytes>) = self.client.ask(server.as_ref(), command, words).await?;
        if cursor == START {
            self.servers.pop();
        }
        self.cursor = cursor;
        Ok(Some(keys))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("is_connected", &self.is_connected()).finish_non_exhaustive()
    }
}

/// What a URL says, for a connection that goes on when there is no server at first.
fn config(url: &str) -> Result<Config, ConnectError> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    if !SCHEMES.contains(&scheme) {
        return Err(ConnectError::Url(format!("it has to begin with one of {}", SCHEMES.join(", "))));
    }
    if let Some(reason) = address::contradiction(url) {
        return Err(ConnectError::Url(reason));
    }
    let mut config = Config::from_url(url).map_err(of_url)?;
    config.fail_fast = false;
    Ok(config)
}

/// Whether there may be a connection to a URL.
pub(crate) fn check(url: &str) -> Result<(), ConnectError> {
    config(url).map(drop)
}

/// What is wrong, but not in fred's words for a URL, which may have a password among them.
fn of_url(error: Error) -> ConnectError {
    if *error.kind() == ErrorKind::Tls {
        return ConnectError::Certificates(error.details().to_owned());
    }
    let form = "it is `redis://user:password@host:port/database`, where `@`, `:`, `/`, `?`, `#`, `%` and spaces of user and \
                password are percent-encoded (`@` is `%40`)";
    ConnectError::Url(form.to_owned())
}

/// How long a connection may say nothing to what it is asked.
fn silence_max(settings: &Settings) -> Duration {
    settings.timeout.saturating_mul(2).max(CHECK * 4)
}

fn reconnect_policy() -> ReconnectPolicy {
    const WITHOUT_END: u32 = 0;
    let (first_ms, longest_ms) = RECONNECT_MS;
    let mut policy = ReconnectPolicy::new_exponential(WITHOUT_END, first_ms, longest_ms, 2);
    policy.set_jitter(JITTER_MS);
    policy
}

fn values(arguments: Vec<Bytes>) -> Vec<Value> {
    arguments.into_iter().map(Value::from).collect()
}
