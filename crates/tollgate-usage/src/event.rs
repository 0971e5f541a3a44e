//! What an event says. The JSON form is in `json.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_limiter::{DurationMs, ExactAmount, MicroUsd, TimestampMs, Tokens};

/// Named values of a key, such as `team` = `ml`. Shared with the configuration.
pub type Attributes = Arc<BTreeMap<Arc<str>, Arc<str>>>;

/// One line of a usage file.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A call that was forwarded, and what it cost.
    Usage(UsageEvent),
    /// A call that was refused by a limit.
    Refusal(RefusalEvent),
}

/// A call that was forwarded.
#[derive(Clone, Debug, PartialEq)]
pub struct UsageEvent {
    /// The moment of admission: the period the cost belongs to.
    pub ts: TimestampMs,
    /// Names the call; an event that repeats an id is the same call.
    pub request_id: Arc<str>,
    /// The tenant's id.
    pub tenant: Arc<str>,
    /// The key's id.
    pub key: Arc<str>,
    /// The call's attributes: what the key fixes and the caller has set.
    pub attributes: Attributes,
    /// The names of those that the caller has set (left out when there are none).
    pub caller_attributes: Vec<&'static str>,
    /// The session, if the call had one.
    pub session: Option<Session>,
    /// The provider's id.
    pub provider: Arc<str>,
    /// The model that answered, by its own name for itself; the one that was asked for where the answer
    /// names none.
    pub model: Arc<str>,
    /// The model that was asked for, where the answer names another.
    pub requested_model: Option<Arc<str>>,
    /// The request's path, without a query.
    pub path: Arc<str>,
    /// Whether the answer was a stream.
    pub stream: bool,
    /// The status the client got.
    pub status: u16,
    /// How the call ended.
    pub outcome: Outcome,
    /// What was used, in billing classes.
    pub tokens: TokenCounts,
    /// Whether `tokens` or `cost` rest on an estimate instead of the provider's report.
    pub usage_estimated: bool,
    /// The service tier the cost was computed for.
    pub service_tier: Option<Arc<str>>,
    /// What was reserved in the end: money.
    pub reserved: MicroUsd,
    /// What was reserved in the end: output. The input reserved is `estimated_input`.
    pub reserved_output: Tokens,
    /// What was reserved at admission, where the reservation has grown since
    /// (`first_reserved_micro_usd`, `first_reserved_output_tokens`, left out otherwise).
    pub first_reserved: Option<Box<FirstReserved>>,
    /// What the call cost, `others` included, in micro-USD and millionths of one.
    pub cost: ExactAmount,
    /// The estimate of the input.
    pub estimated_input: Tokens,
    /// The same before it was corrected by earlier estimates' errors, where the reported input can be
    /// compared with it (`uncorrected_input_tokens`, left out otherwise).
    pub uncorrected_input: Option<Tokens>,
    /// From the request's arrival to the end of the answer.
    pub duration: DurationMs,
    /// From the request's arrival to the answer's first byte; `None`: there was none.
    pub ttfb: Option<DurationMs>,
    /// Remarks on how the cost came about, such as `price_fallback`.
    pub flags: Flags,
    /// Usage of other models within the same call; their cost is part of `cost`.
    pub others: Vec<ModelUse>,
}

/// The reservation of a stream at its admission, before it grew.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FirstReserved {
    /// Money.
    pub cost: MicroUsd,
    /// Output.
    pub output: Tokens,
}

/// Remarks of an event, each a fixed word.
pub type Flags = Vec<&'static str>;

/// The session a call belongs to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Session {
    /// Its id.
    pub id: Arc<str>,
    /// Whether the id was derived from the prompt instead of sent by the client.
    pub derived: bool,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Outcome {
    /// The answer was finished.
    Complete,
    /// The provider answered with an error, or not at all.
    UpstreamError,
    /// The provider's answer broke off.
    UpstreamBroken,
    /// The client left.
    ClientGone,
    /// The answer was cut off because its budget was used up.
    CutOff,
}

impl Outcome {
    /// The word the file has.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::UpstreamError => "upstream_error",
            Self::UpstreamBroken => "upstream_broken",
            Self::ClientGone => "client_gone",
            Self::CutOff => "cut_off",
        }
    }
}

/// Tokens and billable events of one call. Which of them are disjoint and which are parts of
/// others is the price table's business: here they are columns.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TokenCounts {
    /// Input that was neither read from nor written to a cache (`input_tokens`).
    pub input: u64,
    /// Input read from a cache (`cache_read_tokens`).
    pub cache_read: u64,
    /// Input written to a cache for five minutes (`cache_write_5m_tokens`).
    pub cache_write_5m: u64,
    /// Input written to a cache for one hour (`cache_write_1h_tokens`).
    pub cache_write_1h: u64,
    /// Input written to a cache for an unknown time (`cache_write_tokens`, left out when zero).
    pub cache_write: u64,
    /// All output (`output_tokens`).
    pub output: u64,
    /// Part of the output: reasoning (`reasoning_tokens`).
    pub reasoning: u64,
    /// Part of the input: audio (`audio_input_tokens`, left out when zero).
    pub audio_input: u64,
    /// Part of the cache reads: audio (`cached_audio_input_tokens`, left out when zero).
    pub cached_audio_input: u64,
    /// Part of the input: images (`image_input_tokens`, left out when zero).
    pub image_input: u64,
    /// Part of the output: audio (`audio_output_tokens`, left out when zero).
    pub audio_output: u64,
    /// Part of the output: images (`image_output_tokens`, left out when zero).
    pub image_output: u64,
    /// Web searches (`web_search_requests`, left out when zero).
    pub web_searches: u64,
    /// Web fetches (`web_fetch_requests`, left out when zero).
    pub web_fetches: u64,
}

impl TokenCounts {
    /// All input and all output.
    pub const fn total(&self) -> u64 {
        self.input_total().saturating_add(self.output)
    }

    /// All input, whichever class it is billed in.
    pub const fn input_total(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write_total())
    }

    /// All input that was written to a cache, for whatever time.
    pub const fn cache_write_total(&self) -> u64 {
        self.cache_write_5m.saturating_add(self.cache_write_1h).saturating_add(self.cache_write)
    }

    /// The sums, class by class, each at its largest value instead of beyond.
    #[must_use]
    pub const fn saturating_add(&self, other: &Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write_5m: self.cache_write_5m.saturating_add(other.cache_write_5m),
            cache_write_1h: self.cache_write_1h.saturating_add(other.cache_write_1h),
            cache_write: self.cache_write.saturating_add(other.cache_write),
            output: self.output.saturating_add(other.output),
            reasoning: self.reasoning.saturating_add(other.reasoning),
            audio_input: self.audio_input.saturating_add(other.audio_input),
            cached_audio_input: self.cached_audio_input.saturating_add(other.cached_audio_input),
            image_input: self.image_input.saturating_add(other.image_input),
            audio_output: self.audio_output.saturating_add(other.audio_output),
            image_output: self.image_output.saturating_add(other.image_output),
            web_searches: self.web_searches.saturating_add(other.web_searches),
            web_fetches: self.web_fetches.saturating_add(other.web_fetches),
        }
    }
}

/// What another model used within a call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ModelUse {
    /// The model.
    pub model: Arc<str>,
    /// What it used.
    pub tokens: TokenCounts,
}

/// A call that was refused by a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusalEvent {
    /// The moment of the refusal.
    pub ts: TimestampMs,
    /// Names the call.
    pub request_id: Arc<str>,
    /// The tenant's id.
    pub tenant: Arc<str>,
    /// The key's id.
    pub key: Arc<str>,
    /// The key's attributes.
    pub attributes: Attributes,
    /// The provider the call would have gone to, if that was known.
    pub provider: Option<Arc<str>>,
    /// The model that was asked for.
    pub model: Arc<str>,
    /// The request's path, without a query.
    pub path: Arc<str>,
    /// The status the client got.
    pub status: u16,
    /// What the client was told, as in `x-tollgate-reason`.
    pub reason: &'static str,
    /// The limit that refused; `None` where no limit did (a model without a price).
    pub limit: Option<RefusingLimit>,
    /// What the call would have added to the limit, in the limit's unit.
    pub charge: u64,
    /// When the call would fit; `None`: that is not known, or never.
    pub retry_after: Option<DurationMs>,
}

/// The limit that refused, as it stood then. Numbers are in its unit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RefusingLimit {
    /// What the limit is about, such as `tenant`.
    pub scope: &'static str,
    /// Whose limit it is.
    pub id: Arc<str>,
    /// What it counts: `requests`, `tokens`, `micro_usd`, …
    pub unit: &'static str,
    /// Its window, such as `minute`.
    pub window: &'static str,
    /// The amount allowed.
    pub limit: u64,
    /// What settled calls used of it.
    pub spent: u64,
    /// What open calls hold of it.
    pub held: u64,
}
