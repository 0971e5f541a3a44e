//! The JSON form of events. The order of the fields is fixed: people read these files, and tools
//! that cut columns exist.

use std::io::Write;

use tollgate_limiter::{Enforcement, ExactAmount, Limit, TimestampMs};

use crate::event::{Attributes, Event, ModelUse, RefusalEvent, RefusingLimit, TokenCounts, UsageEvent};
use crate::settlement::Settlement;
use crate::timestamp;

/// The version of the line format (`"v"`).
pub(crate) const VERSION: u8 = 1;

/// A key as it is written: behind a comma, with its colon. It needs no escapes.
macro_rules! key {
    ($name:literal) => {
        Key(concat!(",\"", $name, "\":"))
    };
}

#[derive(Clone, Copy)]
struct Key(&'static str);

impl Event {
    /// Appends the event as one JSON object in one line, without the line's end.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Self::Usage(event) => usage(out, event),
            Self::Refusal(event) => refusal(out, event),
        }
    }
}

impl UsageEvent {
    /// Appends the event as [`Event::write_json`] does.
    pub(crate) fn write_json(&self, out: &mut Vec<u8>) {
        usage(out, self);
    }
}

fn usage(out: &mut Vec<u8>, event: &UsageEvent) {
    let mut object = Object::open(out);
    object.number(key!("v"), VERSION);
    object.text(key!("type"), "usage");
    timestamp::write(object.key(key!("ts")), event.ts);
    object.text(key!("request_id"), &event.request_id);
    object.text(key!("tenant"), &event.tenant);
    object.text(key!("key"), &event.key);
    attributes(object.key(key!("attributes")), &event.attributes);
    if !event.caller_attributes.is_empty() {
        list(object.key(key!("caller_attributes")), &event.caller_attributes, |out, name| text(out, name));
    }
    if let Some(session) = &event.session {
        object.text(key!("session"), &session.id);
        object.flag(key!("session_derived"), session.derived);
    }
    object.text(key!("provider"), &event.provider);
    object.text(key!("model"), &event.model);
    if let Some(requested) = &event.requested_model {
        object.text(key!("requested_model"), requested);
    }
    object.text(key!("path"), &event.path);
    object.flag(key!("stream"), event.stream);
    object.number(key!("status"), event.status);
    object.text(key!("outcome"), event.outcome.name());
    token_counts(&mut object, &event.tokens);
    object.flag(key!("usage_estimated"), event.usage_estimated);
    if let Some(tier) = &event.service_tier {
        object.text(key!("service_tier"), tier);
    }
    object.number(key!("reserved_micro_usd"), event.reserved.get());
    object.number(key!("reserved_output_tokens"), event.reserved_output.get());
    if let Some(first) = &event.first_reserved {
        object.number(key!("first_reserved_micro_usd"), first.cost.get());
        object.number(key!("first_reserved_output_tokens"), first.output.get());
    }
    object.number(key!("cost_micro_usd"), event.cost.rounded_up().get());
    if event.cost.remainder() != 0 {
        object.number(key!("cost_pico_usd"), event.cost.as_millionths());
    }
    object.number(key!("estimated_input_tokens"), event.estimated_input.get());
    if let Some(uncorrected) = event.uncorrected_input {
        object.number(key!("uncorrected_input_tokens"), uncorrected.get());
    }
    object.number(key!("duration_ms"), event.duration.get());
    if let Some(ttfb) = event.ttfb {
        object.number(key!("ttfb_ms"), ttfb.get());
    }
    if !event.flags.is_empty() {
        list(object.key(key!("flags")), &event.flags, |out, flag| text(out, flag));
    }
    if !event.others.is_empty() {
        list(object.key(key!("others")), &event.others, model_use);
    }
    object.close();
}

fn refusal(out: &mut Vec<u8>, event: &RefusalEvent) {
    let mut object = Object::open(out);
    object.number(key!("v"), VERSION);
    object.text(key!("type"), "refusal");
    timestamp::write(object.key(key!("ts")), event.ts);
    object.text(key!("request_id"), &event.request_id);
    object.text(key!("tenant"), &event.tenant);
    object.text(key!("key"), &event.key);
    attributes(object.key(key!("attributes")), &event.attributes);
    if let Some(provider) = &event.provider {
        object.text(key!("provider"), provider);
    }
    object.text(key!("model"), &event.model);
    object.text(key!("path"), &event.path);
    object.number(key!("status"), event.status);
    object.text(key!("reason"), event.reason);
    if let Some(limit) = &event.limit {
        refusing_limit(object.key(key!("limit")), limit);
    }
    object.number(key!("charge"), event.charge);
    if let Some(wait) = event.retry_after {
        object.number(key!("retry_after_ms"), wait.get());
    }
    object.close();
}

fn refusing_limit(out: &mut Vec<u8>, limit: &RefusingLimit) {
    let mut object = Object::open(out);
    object.text(key!("scope"), limit.scope);
    object.text(key!("id"), &limit.id);
    object.text(key!("unit"), limit.unit);
    object.text(key!("window"), limit.window);
    object.number(key!("limit"), limit.limit);
    object.number(key!("spent"), limit.spent);
    object.number(key!("held"), limit.held);
    object.close();
}

fn model_use(out: &mut Vec<u8>, other: &ModelUse) {
    let mut object = Object::open(out);
    object.text(key!("model"), &other.model);
    token_counts(&mut object, &other.tokens);
    object.close();
}

fn token_counts(object: &mut Object<'_>, tokens: &TokenCounts) {
    object.number(key!("input_tokens"), tokens.input);
    object.number(key!("cache_read_tokens"), tokens.cache_read);
    object.number(key!("cache_write_5m_tokens"), tokens.cache_write_5m);
    object.number(key!("cache_write_1h_tokens"), tokens.cache_write_1h);
    object.number(key!("output_tokens"), tokens.output);
    object.number(key!("reasoning_tokens"), tokens.reasoning);
    let optional = [
        (key!("cache_write_tokens"), tokens.cache_write),
        (key!("audio_input_tokens"), tokens.audio_input),
        (key!("cached_audio_input_tokens"), tokens.cached_audio_input),
        (key!("image_input_tokens"), tokens.image_input),
        (key!("audio_output_tokens"), tokens.audio_output),
        (key!("image_output_tokens"), tokens.image_output),
        (key!("web_search_requests"), tokens.web_searches),
        (key!("web_fetch_requests"), tokens.web_fetches),
    ];
    for (key, count) in optional.into_iter().filter(|(_, count)| *count != 0) {
        object.number(key, count);
    }
}

fn attributes(out: &mut Vec<u8>, attributes: &Attributes) {
    write_attributes(out, attributes.iter().map(|(name, value)| (&**name, &**value)));
}

/// What a call was settled to, as one JSON object without the line's end.
pub(crate) fn write_settlement(out: &mut Vec<u8>, settlement: &Settlement) {
    let Settlement { held, actuals, ended } = settlement;
    let mut object = Object::open(out);
    object.key(key!("id")).push(b'"');
    // A vector takes it.
    let _ = write!(object.out, "{}\"", held.id);
    object.number(key!("at"), held.at.get());
    object.number(key!("ended"), ended.get());
    let entries: Vec<_> = held.plan.entries().iter().zip(actuals).collect();
    list(object.key(key!("entries")), &entries, |out, (entry, actual)| {
        let mut object = Object::open(out);
        write_limit(object.key(key!("limit")), &entry.limit);
        object.number(key!("charge"), entry.charge.get());
        object.number(key!("units"), actual.units());
        object.number(key!("millionths"), actual.remainder());
        object.close();
    });
    object.close();
}

/// As serde would, without a copy of the key.
fn write_limit(out: &mut Vec<u8>, limit: &Limit) {
    let mut object = Object::open(out);
    let mut key = Object::open(object.key(key!("key")));
    key.text(key!("partition"), limit.key.partition());
    key.text(key!("name"), limit.key.name());
    key.close();
    // A rule has a JSON form, and a vector takes it.
    let _ = serde_json::to_writer(object.key(key!("rule")), &limit.rule);
    object.number(key!("amount"), limit.amount.get());
    let is_hard = limit.enforcement == Enforcement::Hard;
    object.text(key!("enforcement"), if is_hard { "hard" } else { "soft" });
    object.close();
}

/// An object that is being written. serde would call for every key what is here one copy: these
/// lines are formed on the way of every request.
struct Object<'o> {
    out: &'o mut Vec<u8>,
    is_empty: bool,
}

impl<'o> Object<'o> {
    fn open(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, is_empty: true }
    }

    fn close(self) {
        self.out.push(b'}');
    }

    fn begin(&mut self) {
        if !std::mem::take(&mut self.is_empty) {
            self.out.push(b',');
        }
    }

    /// Writes a key. Its value is to follow.
    fn key(&mut self, Key(key): Key) -> &mut Vec<u8> {
        let is_first = std::mem::take(&mut self.is_empty);
        self.out.extend_from_slice(key.as_bytes().get(usize::from(is_first)..).unwrap_or_default());
        self.out
    }

    fn text(&mut self, key: Key, value: &str) {
        text(self.key(key), value);
    }

    fn number(&mut self, key: Key, value: impl itoa::Integer) {
        self.key(key).extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    fn flag(&mut self, key: Key, value: bool) {
        self.key(key).extend_from_slice(if value { b"true" } else { b"false" });
    }
}

fn text(out: &mut Vec<u8>, value: &str) {
    let is_plain = |byte: u8| (byte >= b' ') & (byte != b'"') & (byte != b'\\');
    // Names and ids, nearly always: as they are. Without a way out the loop takes many bytes at a time.
    if value.bytes().fold(true, |plain, byte| plain & is_plain(byte)) {
        out.push(b'"');
        out.extend_from_slice(value.as_bytes());
        out.push(b'"');
    } else {
        // A string has a JSON form, and a vector takes it.
        let _ = serde_json::to_writer(out, value);
    }
}

fn list<T>(out: &mut Vec<u8>, items: &[T], mut write: impl FnMut(&mut Vec<u8>, &T)) {
    out.push(b'[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(b']');
}

/// A line of a checkpoint: calls that differ in nothing that a counter asks for.
pub(crate) struct SumLine<'a> {
    pub(crate) first: TimestampMs,
    pub(crate) last: TimestampMs,
    pub(crate) tenant: &'a str,
    pub(crate) key: &'a str,
    /// As JSON, like `caller_attributes`.
    pub(crate) attributes: &'a str,
    pub(crate) caller_attributes: &'a str,
    pub(crate) session: Option<&'a str>,
    pub(crate) provider: &'a str,
    pub(crate) model: &'a str,
    /// Empty: the same.
    pub(crate) requested_model: &'a str,
    pub(crate) path: &'a str,
    pub(crate) cost: ExactAmount,
    pub(crate) calls: u64,
    pub(crate) tokens: u64,
}

pub(crate) fn write_sum(out: &mut Vec<u8>, sum: &SumLine<'_>) {
    let mut object = Object::open(out);
    object.number(key!("v"), VERSION);
    object.text(key!("type"), "sum");
    timestamp::write(object.key(key!("ts")), sum.first);
    timestamp::write(object.key(key!("last")), sum.last);
    object.text(key!("request_id"), "");
    object.text(key!("tenant"), sum.tenant);
    object.text(key!("key"), sum.key);
    object.key(key!("attributes")).extend_from_slice(sum.attributes.as_bytes());
    object.key(key!("caller_attributes")).extend_from_slice(sum.caller_attributes.as_bytes());
    if let Some(session) = sum.session {
        object.text(key!("session"), session);
    }
    object.text(key!("provider"), sum.provider);
    object.text(key!("model"), sum.model);
    if !sum.requested_model.is_empty() {
        object.text(key!("requested_model"), sum.requested_model);
    }
    object.text(key!("path"), sum.path);
    object.number(key!("cost_micro_usd"), sum.cost.rounded_up().get());
    if sum.cost.remainder() != 0 {
        object.number(key!("cost_pico_usd"), sum.cost.as_millionths());
    }
    object.number(key!("calls"), sum.calls);
    object.number(key!("tokens"), sum.tokens);
    object.close();
}

/// The line of a checkpoint that tells of a model's latest estimates and what was reported then.
pub(crate) fn write_estimates<'a>(
    out: &mut Vec<u8>,
    at: TimestampMs,
    [tenant, path, model]: [&str; 3],
    pairs: impl Iterator<Item = &'a (u64, u64)>,
) {
    let mut object = Object::open(out);
    object.number(key!("v"), VERSION);
    object.text(key!("type"), "estimates");
    timestamp::write(object.key(key!("ts")), at);
    object.text(key!("request_id"), "");
    object.text(key!("tenant"), tenant);
    object.text(key!("model"), model);
    object.text(key!("path"), path);
    object.number(key!("cost_micro_usd"), 0);
    let pairs: Vec<_> = pairs.collect();
    list(object.key(key!("estimates")), &pairs, |out, (estimated, reported)| {
        list(out, &[*estimated, *reported], |out, tokens| {
            out.extend_from_slice(itoa::Buffer::new().format(*tokens).as_bytes());
        });
    });
    object.close();
}

pub(crate) fn write_attributes<'a>(out: &mut Vec<u8>, attributes: impl Iterator<Item = (&'a str, &'a str)>) {
    let mut object = Object::open(out);
    for (name, value) in attributes {
        object.begin();
        text(object.out, name);
        object.out.push(b':');
        text(object.out, value);
    }
    object.close();
}

pub(crate) fn write_names<'a>(out: &mut Vec<u8>, names: impl Iterator<Item = &'a str>) {
    let names: Vec<_> = names.collect();
    list(out, &names, |out, name| text(out, name));
}
