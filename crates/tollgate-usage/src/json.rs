//! The JSON form of events. The order of the fields is fixed: people read these files, and tools
//! that cut columns exist.

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::event::{Event, ModelUse, RefusalEvent, RefusingLimit, TokenCounts, UsageEvent};
use crate::timestamp::Rfc3339;

/// The version of the line format (`"v"`).
pub(crate) const VERSION: u8 = 1;

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Usage(event) => event.serialize(serializer),
            Self::Refusal(event) => event.serialize(serializer),
        }
    }
}

impl Serialize for UsageEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("v", &VERSION)?;
        map.serialize_entry("type", "usage")?;
        map.serialize_entry("ts", &Rfc3339(self.ts))?;
        map.serialize_entry("request_id", &*self.request_id)?;
        map.serialize_entry("tenant", &*self.tenant)?;
        map.serialize_entry("key", &*self.key)?;
        map.serialize_entry("attributes", &Attributes(&self.attributes))?;
        if let Some(session) = &self.session {
            map.serialize_entry("session", &*session.id)?;
            map.serialize_entry("session_derived", &session.derived)?;
        }
        map.serialize_entry("provider", &*self.provider)?;
        map.serialize_entry("model", &*self.model)?;
        map.serialize_entry("path", &*self.path)?;
        map.serialize_entry("stream", &self.stream)?;
        map.serialize_entry("status", &self.status)?;
        map.serialize_entry("outcome", self.outcome.name())?;
        token_entries(&mut map, &self.tokens)?;
        map.serialize_entry("usage_estimated", &self.usage_estimated)?;
        if let Some(tier) = &self.service_tier {
            map.serialize_entry("service_tier", &**tier)?;
        }
        map.serialize_entry("reserved_micro_usd", &self.reserved.get())?;
        map.serialize_entry("cost_micro_usd", &self.cost.rounded_up().get())?;
        if self.cost.remainder() != 0 {
            map.serialize_entry("cost_pico_usd", &self.cost.as_millionths())?;
        }
        map.serialize_entry("estimated_input_tokens", &self.estimated_input.get())?;
        map.serialize_entry("duration_ms", &self.duration.get())?;
        if let Some(ttfb) = self.ttfb {
            map.serialize_entry("ttfb_ms", &ttfb.get())?;
        }
        if !self.flags.is_empty() {
            map.serialize_entry("flags", &self.flags)?;
        }
        if !self.others.is_empty() {
            map.serialize_entry("others", &self.others)?;
        }
        map.end()
    }
}

impl Serialize for ModelUse {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("model", &*self.model)?;
        token_entries(&mut map, &self.tokens)?;
        map.end()
    }
}

impl Serialize for RefusalEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("v", &VERSION)?;
        map.serialize_entry("type", "refusal")?;
        map.serialize_entry("ts", &Rfc3339(self.ts))?;
        map.serialize_entry("request_id", &*self.request_id)?;
        map.serialize_entry("tenant", &*self.tenant)?;
        map.serialize_entry("key", &*self.key)?;
        map.serialize_entry("attributes", &Attributes(&self.attributes))?;
        if let Some(provider) = &self.provider {
            map.serialize_entry("provider", &**provider)?;
        }
        map.serialize_entry("model", &*self.model)?;
        map.serialize_entry("path", &*self.path)?;
        map.serialize_entry("status", &self.status)?;
        map.serialize_entry("reason", self.reason)?;
        if let Some(limit) = &self.limit {
            map.serialize_entry("limit", limit)?;
        }
        map.serialize_entry("charge", &self.charge)?;
        if let Some(wait) = self.retry_after {
            map.serialize_entry("retry_after_ms", &wait.get())?;
        }
        map.end()
    }
}

impl Serialize for RefusingLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("scope", self.scope)?;
        map.serialize_entry("id", &*self.id)?;
        map.serialize_entry("unit", self.unit)?;
        map.serialize_entry("window", self.window)?;
        map.serialize_entry("limit", &self.limit)?;
        map.serialize_entry("spent", &self.spent)?;
        map.serialize_entry("held", &self.held)?;
        map.end()
    }
}

fn token_entries<M: SerializeMap>(map: &mut M, tokens: &TokenCounts) -> Result<(), M::Error> {
    map.serialize_entry("input_tokens", &tokens.input)?;
    map.serialize_entry("cache_read_tokens", &tokens.cache_read)?;
    map.serialize_entry("cache_write_5m_tokens", &tokens.cache_write_5m)?;
    map.serialize_entry("cache_write_1h_tokens", &tokens.cache_write_1h)?;
    map.serialize_entry("output_tokens", &tokens.output)?;
    map.serialize_entry("reasoning_tokens", &tokens.reasoning)?;
    let optional = [
        ("cache_write_tokens", tokens.cache_write),
        ("audio_input_tokens", tokens.audio_input),
        ("cached_audio_input_tokens", tokens.cached_audio_input),
        ("image_input_tokens", tokens.image_input),
        ("audio_output_tokens", tokens.audio_output),
        ("image_output_tokens", tokens.image_output),
        ("web_search_requests", tokens.web_searches),
        ("web_fetch_requests", tokens.web_fetches),
    ];
    optional
        .iter()
        .filter(|(_, count)| *count != 0)
        .try_for_each(|(name, count)| map.serialize_entry(name, count))
}

/// A map of shared strings: serde's `rc` feature would be a global switch for one field.
struct Attributes<'a>(&'a crate::event::Attributes);

impl Serialize for Attributes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (&**name, &**value)))
    }
}
