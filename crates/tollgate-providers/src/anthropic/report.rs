//! The wire form of a usage object (`usage` in `anthropic-sdk-python`'s types, plus beta fields).

use serde::Deserialize;

use crate::count::Count;
use crate::facts::CacheTtls;
use crate::name::{MAX_MODEL_BYTES, MAX_TIER_BYTES, Name};

/// `usage`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawUsage {
    pub(super) input_tokens: Count,
    pub(super) cache_read_input_tokens: Count,
    pub(super) cache_creation_input_tokens: Count,
    pub(super) cache_creation: Option<CacheCreation>,
    pub(super) output_tokens: Count,
    pub(super) output_tokens_details: Option<OutputDetails>,
    pub(super) server_tool_use: Option<ServerToolUse>,
    pub(super) iterations: Option<Vec<Iteration>>,
    pub(super) service_tier: Name<MAX_TIER_BYTES>,
    pub(super) inference_geo: Name<MAX_TIER_BYTES>,
    pub(super) speed: Name<MAX_TIER_BYTES>,
}

/// The split of cache writes by lifetime.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CacheCreation {
    pub(super) ephemeral_5m_input_tokens: Count,
    pub(super) ephemeral_1h_input_tokens: Count,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OutputDetails {
    pub(super) thinking_tokens: Count,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ServerToolUse {
    pub(super) web_search_requests: Count,
    pub(super) web_fetch_requests: Count,
}

/// One pass of a model inside an answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Iteration {
    pub(super) model: Name<MAX_MODEL_BYTES>,
    pub(super) input_tokens: Count,
    pub(super) cache_read_input_tokens: Count,
    pub(super) cache_creation_input_tokens: Count,
    pub(super) cache_creation: Option<CacheCreation>,
    pub(super) output_tokens: Count,
}

/// Cache writes by lifetime, adding up to the reported total.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct CacheWrites {
    pub(super) five_minutes: u64,
    pub(super) one_hour: u64,
    /// The split is larger than the total.
    pub(super) is_contradictory: bool,
}

/// Attributes cache writes. The split holds where it matches the total. What the total has beyond it
/// goes to the lifetime the request asked for: the dearer, if it asked for both, and five minutes,
/// Anthropic's default, if it did not say.
pub(super) fn cache_writes(total: Count, split_5m: Count, split_1h: Count, ttls: CacheTtls) -> CacheWrites {
    let (five_minutes, one_hour) = (split_5m.or_zero(), split_1h.or_zero());
    let split = five_minutes.saturating_add(one_hour);
    let total = total.get().unwrap_or(split);
    if total < split {
        let one_hour = one_hour.min(total);
        return CacheWrites { five_minutes: total - one_hour, one_hour, is_contradictory: true };
    }
    let beyond = total - split;
    if ttls.one_hour {
        CacheWrites { five_minutes, one_hour: one_hour.saturating_add(beyond), is_contradictory: false }
    } else {
        CacheWrites { five_minutes: five_minutes.saturating_add(beyond), one_hour, is_contradictory: false }
    }
}
