//! The validated configuration, section by section.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tollgate_limiter::Tokens;

use crate::{Alert, ConfigErrors, Environment, Provider, Route, Run, ScopedLimit, Secret, Tenant};

/// A configuration that was checked as a whole.
#[derive(Clone, Debug)]
pub struct Config {
    /// `[server]`
    pub server: Server,
    /// `[store]`
    pub store: Store,
    /// `[usage]`
    pub usage: UsageLog,
    /// `[pricing]`
    pub pricing: Pricing,
    /// `[reservation]`
    pub reservation: Reservation,
    /// `[sessions]`
    pub sessions: Sessions,
    /// `[[providers]]`, at least one, ids distinct.
    pub providers: Vec<Provider>,
    /// `[[routes]]` in the file's order: the first that matches wins.
    pub routes: Vec<Route>,
    /// `[[tenants]]`, ids distinct; key ids and key hashes are distinct over all tenants.
    pub tenants: Vec<Tenant>,
    /// `[[limits]]` in the file's order. No two, and none and a tenant's own, have the same scope, id,
    /// models, unit and window.
    pub limits: Vec<ScopedLimit>,
    /// `[[runs]]` in the file's order, each for another owner.
    pub runs: Vec<Run>,
    /// `[[alerts]]` in the file's order.
    pub alerts: Vec<Alert>,
    /// What is allowed but probably not meant, one sentence each with file and field: to be logged.
    pub warnings: Vec<String>,
}

/// Listeners and their bounds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Server {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Health, metrics and the admin API.
    pub admin_listen: SocketAddr,
    /// The admin API's bearer token, from `admin_token_env`. `None`: the admin API is off.
    pub admin_token: Option<Secret>,
    /// The largest request body that is accepted.
    pub max_body_bytes: usize,
    /// How long a client may take to send a request's headers (`header_timeout_seconds`).
    pub header_timeout: Duration,
    /// The most client connections at a time.
    pub max_connections: usize,
    /// How long open requests may go on after SIGTERM (`drain_seconds`).
    pub drain: Duration,
}

/// Where the counters live.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Store {
    /// In this process; restored from the usage file at start.
    Memory,
    /// In a Redis that any number of copies share.
    Redis(RedisStore),
}

/// Counters in Redis, and what happens while it is away.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RedisStore {
    /// From `url` or `url_env`; may hold a password.
    pub url: Secret,
    /// What key names begin with.
    pub prefix: Arc<str>,
    /// How long one call may take (`timeout_ms`).
    pub timeout: Duration,
    /// How long only local limits are used after an error (`retry_seconds`).
    pub retry: Duration,
    /// By how much local limits are divided: the number of copies.
    pub local_share: NonZeroU64,
    /// Whether nothing passes while Redis is away (`on_failure = "closed"`).
    pub closed: bool,
}

/// Where usage events go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UsageLog {
    /// The file that events are appended to. Relative names are relative to the configuration file.
    pub file: PathBuf,
    /// When the disk is asked to confirm what was written.
    pub fsync: Fsync,
    /// The file is replaced by a new one before it is longer than this.
    pub rotate_bytes: Option<u64>,
    /// The file is replaced by a new one every day.
    pub rotate_daily: bool,
    /// The most files that it was replaced by and that are kept; `None`: all.
    pub keep_files: Option<usize>,
}

/// When the disk is asked to confirm what was written: what a power cut can lose.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fsync {
    /// When the system likes.
    Never,
    /// Once a second.
    Second,
    /// Before each call is sent.
    Always,
}

/// The price table.
#[derive(Clone, Debug)]
pub struct Pricing {
    /// A table that replaces the compiled-in one. Relative names are relative to the configuration file.
    pub file: Option<PathBuf>,
    /// What happens to a model that has no price.
    pub unpriced: Unpriced,
}

/// What happens to a model that has no price. Ordered from lax to strict.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Unpriced {
    /// It passes and costs nothing.
    Ignore,
    /// It passes, costs nothing and is logged.
    Warn,
    /// It is refused before the call.
    Block,
}

/// What a request reserves before the call.
#[derive(Clone, Copy, Debug)]
pub struct Reservation {
    /// How much output is reserved.
    pub output_tokens: OutputReservation,
    /// Whether an output limit that a budget does not afford is lowered in place of refusing the request.
    /// Only with [`OutputReservation::Max`].
    pub fit: bool,
    /// How much output one extension of a running stream reserves.
    pub extend_tokens: Tokens,
    /// Whether a stream that cannot be extended is cut off.
    pub cutoff: bool,
    /// How long the upstream is read on after the client has left (`drain_ms`).
    pub drain: Duration,
}

/// How much output a request reserves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OutputReservation {
    /// The smaller of the request's own limit and this.
    UpTo(Tokens),
    /// `"max"`: the request's whole output limit, or the model's where the request has none.
    Max,
}

/// What tells the session of a call, beside `x-tollgate-session` and the session that an agent names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sessions {
    /// Whether a call that names no session has one by the beginning of its prompt.
    pub derive: bool,
    /// The field of OpenAI's protocol that names the session; `None`: none does.
    pub openai_field: Option<OpenAiSessionField>,
}

/// A field of OpenAI's protocol that clients may use for one value a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OpenAiSessionField {
    /// `prompt_cache_key`
    PromptCacheKey,
    /// `safety_identifier`
    SafetyIdentifier,
}

impl Config {
    /// Reads and checks the file at `path`, with the secrets it names.
    ///
    /// # Errors
    /// All problems that were found: an unreadable file, bad syntax, unknown fields, bad values,
    /// missing secrets.
    pub fn load(path: &Path, environment: &dyn Environment) -> Result<Self, ConfigErrors> {
        let bytes = environment.read_file(path).map_err(|error| ConfigErrors::unreadable(path, error))?;
        let text = str::from_utf8(&bytes).map_err(|error| ConfigErrors::unreadable(path, error))?;
        let base_dir = path.parent().unwrap_or(Path::new(""));
        Self::parse(text, &path.display().to_string(), base_dir, environment)
    }

    /// Checks `text`, which was read from `file_name` (for messages). Relative file names in it are
    /// relative to `base_dir`.
    ///
    /// # Errors
    /// All problems that were found.
    pub fn parse(
        text: &str,
        file_name: &str,
        base_dir: &Path,
        environment: &dyn Environment,
    ) -> Result<Self, ConfigErrors> {
        crate::parse::parse(text, file_name, base_dir, environment)
    }
}
