//! Pricing usage that was recorded elsewhere, for checking a table against bills.

use tollgate_limiter::TimestampMs;

use crate::bill::Bill;
use crate::table::PriceTable;
use crate::usage::Usage;

/// Prices one usage.
///
/// # Errors
/// [`Unpriced`] if the table has no price for the model at that moment.
pub fn price_usage(
    table: &PriceTable,
    model: &str,
    usage: &Usage,
    tier: Option<&str>,
    at: TimestampMs,
) -> Result<Bill, Unpriced> {
    let price = table.lookup(model, at).ok_or_else(|| Unpriced { model: model.to_owned() })?;
    Ok(price.bill(usage, tier))
}

/// The table has no price for a model.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("no price for model `{model}`")]
pub struct Unpriced {
    /// The model as it was asked for.
    pub model: String,
}

/// A usage with the key names of a usage event: what `tollgate price --batch` reads.
///
/// All keys are optional and count 0 when left out; any other key is an error.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UsageFields {
    /// See [`Usage::input`].
    pub input_tokens: u64,
    /// See [`Usage::cache_read`].
    pub cache_read_tokens: u64,
    /// See [`Usage::cache_write_5m`].
    pub cache_write_5m_tokens: u64,
    /// See [`Usage::cache_write_1h`].
    pub cache_write_1h_tokens: u64,
    /// See [`Usage::cache_write`].
    pub cache_write_tokens: u64,
    /// See [`Usage::output`].
    pub output_tokens: u64,
    /// See [`Usage::reasoning`].
    pub reasoning_tokens: u64,
    /// See [`Usage::audio_input`].
    pub audio_input_tokens: u64,
    /// See [`Usage::cached_audio_input`].
    pub cached_audio_input_tokens: u64,
    /// See [`Usage::image_input`].
    pub image_input_tokens: u64,
    /// See [`Usage::audio_output`].
    pub audio_output_tokens: u64,
    /// See [`Usage::image_output`].
    pub image_output_tokens: u64,
    /// See [`Usage::web_searches`].
    pub web_search_requests: u64,
    /// See [`Usage::web_fetches`].
    pub web_fetch_requests: u64,
    /// See [`Usage::images`].
    pub images: u64,
    /// See [`Usage::audio_ms`].
    pub audio_ms: u64,
    /// See [`Usage::characters`].
    pub characters: u64,
}

impl From<UsageFields> for Usage {
    fn from(fields: UsageFields) -> Self {
        Self {
            input: fields.input_tokens,
            cache_read: fields.cache_read_tokens,
            cache_write_5m: fields.cache_write_5m_tokens,
            cache_write_1h: fields.cache_write_1h_tokens,
            cache_write: fields.cache_write_tokens,
            output: fields.output_tokens,
            reasoning: fields.reasoning_tokens,
            audio_input: fields.audio_input_tokens,
            cached_audio_input: fields.cached_audio_input_tokens,
            image_input: fields.image_input_tokens,
            audio_output: fields.audio_output_tokens,
            image_output: fields.image_output_tokens,
            web_searches: fields.web_search_requests,
            web_fetches: fields.web_fetch_requests,
            images: fields.images,
            audio_ms: fields.audio_ms,
            characters: fields.characters,
        }
    }
}
