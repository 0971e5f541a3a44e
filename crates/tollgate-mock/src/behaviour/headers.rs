//! `x-mock-*` headers into a [`Behaviour`].

use std::time::Duration;

use http::HeaderMap;

use super::{Behaviour, BehaviourError, Encoding, End, Framing, Start, UsageReport};

const PREFIX: &str = "x-mock-";
const TEXT_BYTES_MAX: u64 = 256 << 20;
const EVENTS_MAX: u64 = 1_000_000;
const WAIT_MS_MAX: u64 = 3_600_000;

impl Behaviour {
    /// This behaviour with what the request's headers change.
    ///
    /// # Errors
    /// A `x-mock-*` header that is unknown or has a value outside its range.
    pub fn with_headers(&self, headers: &HeaderMap) -> Result<Self, BehaviourError> {
        let mut behaviour = self.clone();
        for (name, value) in headers {
            let Some(field) = name.as_str().strip_prefix(PREFIX) else { continue };
            let problem = match value.to_str() {
                Ok(value) => behaviour.set(field, value.trim()),
                Err(_) => Err("is not text".to_owned()),
            };
            problem.map_err(|problem| BehaviourError { header: name.as_str().to_owned(), problem })?;
        }
        Ok(behaviour)
    }

    fn set(&mut self, field: &str, value: &str) -> Result<(), String> {
        let usage = &mut self.usage;
        let pace = &mut self.pace;
        match field {
            "input-tokens" => usage.input_tokens = Some(number(value, 0, u64::MAX)?),
            "output-tokens" => usage.output_tokens = Some(number(value, 0, u64::MAX)?),
            "cache-read-tokens" => usage.cache_read_tokens = number(value, 0, u64::MAX)?,
            "cache-write-5m-tokens" => usage.cache_write_5m_tokens = number(value, 0, u64::MAX)?,
            "cache-write-1h-tokens" => usage.cache_write_1h_tokens = number(value, 0, u64::MAX)?,
            "reasoning-tokens" => usage.reasoning_tokens = number(value, 0, u64::MAX)?,
            "web-searches" => usage.web_searches = number(value, 0, u64::MAX)?,
            "usage" => self.report = word(value, &USAGE_REPORTS)?,
            "status" => self.status = Some(number(value, 400, 599)?),
            "retry-after" => self.retry_after_s = Some(number(value, 0, u64::MAX)?),
            "start" => self.start = word(value, &STARTS)?,
            "hang-after" => self.end = End::Hang(number(value, 0, EVENTS_MAX)?),
            "reset-after" => self.end = End::Reset(number(value, 0, EVENTS_MAX)?),
            "close-after" => self.end = End::Close(number(value, 0, EVENTS_MAX)?),
            "cut-after" => self.end = End::Cut(number(value, 0, EVENTS_MAX)?),
            "error-after" => self.end = End::ErrorEvent(number(value, 0, EVENTS_MAX)?),
            "events" => pace.events = Some(number(value, 0, EVENTS_MAX)?),
            "interval-ms" => pace.interval = milliseconds(value)?,
            "first-byte-delay-ms" => pace.first_byte_delay = milliseconds(value)?,
            "pieces" => pace.pieces = Some(number(value, 1, EVENTS_MAX)?),
            "split-bytes" => pace.split_bytes = Some(number(value, 1, u64::from(u32::MAX))?),
            "model" => self.model = Some(value.to_owned()),
            "service-tier" => self.service_tier = Some(value.to_owned()),
            "encoding" => self.encoding = word(value, &ENCODINGS)?,
            "framing" => self.framing = word(value, &FRAMINGS)?,
            "text-bytes" => self.text_bytes = Some(number(value, 0, TEXT_BYTES_MAX)?),
            "tool-use" => self.tool_use = word(value, &YES_NO)?,
            "label" => self.label = Some(value.to_owned()),
            "rejects-stream-options" => self.rejects_stream_options = word(value, &YES_NO)?,
            _ => return Err("is unknown".to_owned()),
        }
        Ok(())
    }
}

const USAGE_REPORTS: [(&str, UsageReport); 5] = [
    ("report", UsageReport::Report),
    ("missing", UsageReport::Missing),
    ("zero", UsageReport::Zero),
    ("every-chunk", UsageReport::EveryChunk),
    ("bare", UsageReport::Bare),
];
const STARTS: [(&str, Start); 4] =
    [("answer", Start::Answer), ("hang", Start::Hang), ("reset", Start::Reset), ("close", Start::Close)];
const ENCODINGS: [(&str, Encoding); 3] =
    [("identity", Encoding::Identity), ("gzip", Encoding::Gzip), ("br", Encoding::Brotli)];
const FRAMINGS: [(&str, Framing); 4] =
    [("lf", Framing::Lf), ("crlf", Framing::CrLf), ("cr", Framing::Cr), ("no-space", Framing::NoSpace)];
const YES_NO: [(&str, bool); 2] = [("yes", true), ("no", false)];

fn number<T: TryFrom<u64>>(value: &str, least: u64, most: u64) -> Result<T, String> {
    value
        .parse::<u64>()
        .ok()
        .filter(|number| (least..=most).contains(number))
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("`{value}` is not a whole number from {least} to {most}"))
}

fn milliseconds(value: &str) -> Result<Duration, String> {
    number(value, 0, WAIT_MS_MAX).map(Duration::from_millis)
}

fn word<T: Copy>(value: &str, words: &[(&str, T)]) -> Result<T, String> {
    words.iter().find(|(word, _)| *word == value).map(|(_, meaning)| *meaning).ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("`{value}` is none of: {}", known.join(", "))
    })
}
