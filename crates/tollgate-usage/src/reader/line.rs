//! One line: the fields a reader wants, borrowed from the text where it has no escapes.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use tollgate_limiter::{Amount, DurationMs, ExactAmount, MicroUsd, TimestampMs, Tokens};

use super::{Replayed, ReplayedRefusal, StandsFor};
use crate::event::{FirstReserved, TokenCounts};
use crate::timestamp::Rfc3339Reader;

/// The line as it stands. Other fields are skipped.
#[derive(Debug, Default, Deserialize)]
pub(super) struct RawEvent<'a> {
    pub(super) v: u8,
    #[serde(rename = "type", borrow)]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) ts: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) request_id: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) tenant: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) key: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) attributes: Attributes<'a>,
    #[serde(borrow, default)]
    pub(super) caller_attributes: Vec<Text<'a>>,
    #[serde(borrow)]
    pub(super) session: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) provider: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) model: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) requested_model: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) path: Cow<'a, str>,
    #[serde(default)]
    pub(super) stream: bool,
    #[serde(default)]
    pub(super) status: u16,
    #[serde(borrow, default)]
    pub(super) outcome: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) service_tier: Option<Text<'a>>,
    #[serde(default)]
    pub(super) input_tokens: u64,
    #[serde(default)]
    pub(super) cache_read_tokens: u64,
    #[serde(default)]
    pub(super) cache_write_5m_tokens: u64,
    #[serde(default)]
    pub(super) cache_write_1h_tokens: u64,
    #[serde(default)]
    pub(super) cache_write_tokens: u64,
    #[serde(default)]
    pub(super) output_tokens: u64,
    #[serde(default)]
    pub(super) reasoning_tokens: u64,
    #[serde(default)]
    pub(super) audio_input_tokens: u64,
    #[serde(default)]
    pub(super) cached_audio_input_tokens: u64,
    #[serde(default)]
    pub(super) image_input_tokens: u64,
    #[serde(default)]
    pub(super) audio_output_tokens: u64,
    #[serde(default)]
    pub(super) image_output_tokens: u64,
    #[serde(default)]
    pub(super) web_search_requests: u64,
    #[serde(default)]
    pub(super) web_fetch_requests: u64,
    #[serde(default)]
    pub(super) usage_estimated: bool,
    #[serde(default)]
    pub(super) reserved_micro_usd: u64,
    pub(super) reserved_output_tokens: Option<u64>,
    pub(super) first_reserved_micro_usd: Option<u64>,
    pub(super) first_reserved_output_tokens: Option<u64>,
    pub(super) cost_micro_usd: u64,
    pub(super) cost_pico_usd: Option<u128>,
    #[serde(default)]
    pub(super) estimated_input_tokens: u64,
    pub(super) uncorrected_input_tokens: Option<u64>,
    #[serde(default)]
    pub(super) duration_ms: u64,
    /// Of lines of checkpoints only, like all that follow.
    #[serde(borrow)]
    last: Option<Text<'a>>,
    #[serde(default)]
    calls: u64,
    #[serde(default)]
    tokens: u64,
    #[serde(default)]
    estimates: Vec<(u64, u64)>,
}

impl RawEvent<'_> {
    /// What a checkpoint's line stands for; `None`: it is none.
    pub(super) fn stands_for(&self, timestamps: &mut Rfc3339Reader) -> Option<StandsFor<'_>> {
        match &*self.kind {
            "sum" => {
                let last = timestamps.read(text(self.last.as_ref())?)?;
                Some(StandsFor::Calls { last, calls: self.calls, tokens: self.tokens })
            }
            "estimates" => Some(StandsFor::Estimates(&self.estimates)),
            _ => None,
        }
    }

    pub(super) fn replayed<'a>(&'a self, ts: TimestampMs, stands_for: StandsFor<'a>) -> Replayed<'a> {
        Replayed {
            ts,
            stands_for,
            request_id: &self.request_id,
            tenant: &self.tenant,
            key: &self.key,
            session: text(self.session.as_ref()),
            provider: &self.provider,
            model: &self.model,
            requested_model: text(self.requested_model.as_ref()),
            path: &self.path,
            stream: self.stream,
            status: self.status,
            outcome: &self.outcome,
            service_tier: text(self.service_tier.as_ref()),
            tokens: self.tokens(),
            usage_estimated: self.usage_estimated,
            cost: match self.cost_pico_usd {
                Some(pico_usd) => ExactAmount::from_millionths(pico_usd),
                None => Amount::new(self.cost_micro_usd).into(),
            },
            reserved: MicroUsd::new(self.reserved_micro_usd),
            reserved_output: self.reserved_output_tokens.map(Tokens::new),
            first_reserved: self.first_reserved(),
            estimated_input: Tokens::new(self.estimated_input_tokens),
            uncorrected_input: self.uncorrected_input_tokens.map(Tokens::new),
            duration: DurationMs::new(self.duration_ms),
            attributes: &self.attributes,
            caller_attributes: &self.caller_attributes,
        }
    }

    fn first_reserved(&self) -> Option<FirstReserved> {
        let (cost, output) = self.first_reserved_micro_usd.zip(self.first_reserved_output_tokens)?;
        Some(FirstReserved { cost: MicroUsd::new(cost), output: Tokens::new(output) })
    }

    fn tokens(&self) -> TokenCounts {
        TokenCounts {
            input: self.input_tokens,
            cache_read: self.cache_read_tokens,
            cache_write_5m: self.cache_write_5m_tokens,
            cache_write_1h: self.cache_write_1h_tokens,
            cache_write: self.cache_write_tokens,
            output: self.output_tokens,
            reasoning: self.reasoning_tokens,
            audio_input: self.audio_input_tokens,
            cached_audio_input: self.cached_audio_input_tokens,
            image_input: self.image_input_tokens,
            audio_output: self.audio_output_tokens,
            image_output: self.image_output_tokens,
            web_searches: self.web_search_requests,
            web_fetches: self.web_fetch_requests,
        }
    }
}

/// A refusal's line. Other fields are skipped.
#[derive(Deserialize)]
pub(super) struct RawRefusal<'a> {
    pub(super) v: u8,
    #[serde(borrow)]
    pub(super) ts: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) request_id: Cow<'a, str>,
    #[serde(borrow)]
    tenant: Cow<'a, str>,
    #[serde(borrow, default)]
    key: Cow<'a, str>,
    #[serde(borrow, default)]
    attributes: Attributes<'a>,
    #[serde(borrow)]
    session: Option<Text<'a>>,
    #[serde(borrow)]
    provider: Option<Text<'a>>,
    #[serde(borrow, default)]
    model: Cow<'a, str>,
    #[serde(borrow, default)]
    path: Cow<'a, str>,
    #[serde(default)]
    status: u16,
    #[serde(borrow, default)]
    reason: Cow<'a, str>,
}

impl RawRefusal<'_> {
    pub(super) fn replayed(&self, ts: TimestampMs) -> ReplayedRefusal<'_> {
        ReplayedRefusal {
            ts,
            request_id: &self.request_id,
            tenant: &self.tenant,
            key: &self.key,
            session: text(self.session.as_ref()),
            provider: text(self.provider.as_ref()),
            model: &self.model,
            path: &self.path,
            status: self.status,
            reason: &self.reason,
            attributes: &self.attributes,
        }
    }
}

fn text<'a>(text: Option<&'a Text<'_>>) -> Option<&'a str> {
    text.map(|text| &*text.0)
}

/// What is wrong with a line, without any of its text.
pub(super) fn describe(error: &serde_json::Error) -> Cow<'static, str> {
    match error.classify() {
        serde_json::error::Category::Data => "a field is missing or of the wrong type".into(),
        _ => format!("it is not JSON (column {})", error.column()).into(),
    }
}

/// Borrowed where possible: inside an `Option` serde's own `Cow` always copies.
#[derive(Debug, Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// Names and values in the line's order.
#[derive(Debug, Default)]
pub(super) struct Attributes<'a>(pub(super) Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl Attributes<'_> {
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Attributes<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AttributesVisitor)
    }
}

struct AttributesVisitor;

impl<'de> Visitor<'de> for AttributesVisitor {
    type Value = Attributes<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut attributes = Vec::new();
        while let Some((name, value)) = map.next_entry::<Text<'de>, Text<'de>>()? {
            attributes.push((name.0, value.0));
        }
        Ok(Attributes(attributes))
    }
}
