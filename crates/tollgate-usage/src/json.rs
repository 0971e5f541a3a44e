//! The JSON form of events. The order of the fields is fixed: people read these files, and tools
//! that cut columns exist.

use tollgate_limiter::{ExactAmount, TimestampMs};

use crate::event::{Attributes, Event, ModelUse, RefusalEvent, RefusingLimit, TokenCounts, UsageEvent};
use crate::timestamp;

/// The version of the line format (`"v"`).
pub(crate) const VERSION: u8 = 1;

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
    object.number("v", VERSION);
    object.text("type", "usage");
    timestamp::write(object.key("ts"), event.ts);
    object.text("request_id", &event.request_id);
    object.text("tenant", &event.tenant);
    object.text("key", &event.key);
    attributes(object.key("attributes"), &event.attributes);
    if !event.caller_attributes.is_empty() {
        list(object.key("caller_attributes"), &event.caller_attributes, |out, name| text(out, name));
    }
    if let Some(session) = &event.session {
        object.text("session", &session.id);
        object.flag("session_derived", session.derived);
    }
    object.text("provider", &event.provider);
    object.text("model", &event.model);
    if let Some(requested) = &event.requested_model {
        object.text("requested_model", requested);
    }
    object.text("path", &event.path);
    object.flag("stream", event.stream);
    object.number("status", event.status);
    object.text("outcome", event.outcome.name());
    token_counts(&mut object, &event.tokens);
    object.flag("usage_estimated", event.usage_estimated);
    if let Some(tier) = &event.service_tier {
        object.text("service_tier", tier);
    }
    object.number("reserved_micro_usd", event.reserved.get());
    object.number("reserved_output_tokens", event.reserved_output.get());
    if let Some(first) = &event.first_reserved {
        object.number("first_reserved_micro_usd", first.cost.get());
        object.number("first_reserved_output_tokens", first.output.get());
    }
    object.number("cost_micro_usd", event.cost.rounded_up().get());
    if event.cost.remainder() != 0 {
        object.number("cost_pico_usd", event.cost.as_millionths());
    }
    object.number("estimated_input_tokens", event.estimated_input.get());
    if let Some(uncorrected) = event.uncorrected_input {
        object.number("uncorrected_input_tokens", uncorrected.get());
    }
    object.number("duration_ms", event.duration.get());
    if let Some(ttfb) = event.ttfb {
        object.number("ttfb_ms", ttfb.get());
    }
    if !event.flags.is_empty() {
        list(object.key("flags"), &event.flags, |out, flag| text(out, flag));
    }
    if !event.others.is_empty() {
        list(object.key("others"), &event.others, model_use);
    }
    object.close();
}

fn refusal(out: &mut Vec<u8>, event: &RefusalEvent) {
    let mut object = Object::open(out);
    object.number("v", VERSION);
    object.text("type", "refusal");
    timestamp::write(object.key("ts"), event.ts);
    object.text("request_id", &event.request_id);
    object.text("tenant", &event.tenant);
    object.text("key", &event.key);
    attributes(object.key("attributes"), &event.attributes);
    if let Some(provider) = &event.provider {
        object.text("provider", provider);
    }
    object.text("model", &event.model);
    object.text("path", &event.path);
    object.number("status", event.status);
    object.text("reason", event.reason);
    if let Some(limit) = &event.limit {
        refusing_limit(object.key("limit"), limit);
    }
    object.number("charge", event.charge);
    if let Some(wait) = event.retry_after {
        object.number("retry_after_ms", wait.get());
    }
    object.close();
}

fn refusing_limit(out: &mut Vec<u8>, limit: &RefusingLimit) {
    let mut object = Object::open(out);
    object.text("scope", limit.scope);
    object.text("id", &limit.id);
    object.text("unit", limit.unit);
    object.text("window", limit.window);
    object.number("limit", limit.limit);
    object.number("spent", limit.spent);
    object.number("held", limit.held);
    object.close();
}

fn model_use(out: &mut Vec<u8>, other: &ModelUse) {
    let mut object = Object::open(out);
    object.text("model", &other.model);
    token_counts(&mut object, &other.tokens);
    object.close();
}

fn token_counts(object: &mut Object<'_>, tokens: &TokenCounts) {
    object.number("input_tokens", tokens.input);
    object.number("cache_read_tokens", tokens.cache_read);
    object.number("cache_write_5m_tokens", tokens.cache_write_5m);
    object.number("cache_write_1h_tokens", tokens.cache_write_1h);
    object.number("output_tokens", tokens.output);
    object.number("reasoning_tokens", tokens.reasoning);
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
    for (name, count) in optional.into_iter().filter(|(_, count)| *count != 0) {
        object.number(name, count);
    }
}

fn attributes(out: &mut Vec<u8>, attributes: &Attributes) {
    write_attributes(out, attributes.iter().map(|(name, value)| (&**name, &**value)));
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

    /// Writes a key, which must be one that needs no escapes. Its value is to follow.
    fn key(&mut self, name: &'static str) -> &mut Vec<u8> {
        self.begin();
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    fn text(&mut self, name: &'static str, value: &str) {
        text(self.key(name), value);
    }

    fn number(&mut self, name: &'static str, value: impl itoa::Integer) {
        self.key(name).extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    fn flag(&mut self, name: &'static str, value: bool) {
        self.key(name).extend_from_slice(if value { b"true" } else { b"false" });
    }
}

fn text(out: &mut Vec<u8>, value: &str) {
    let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    // Names and ids, nearly always: as they are.
    if value.bytes().all(is_plain) {
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
    object.number("v", VERSION);
    object.text("type", "sum");
    timestamp::write(object.key("ts"), sum.first);
    timestamp::write(object.key("last"), sum.last);
    object.text("request_id", "");
    object.text("tenant", sum.tenant);
    object.text("key", sum.key);
    object.key("attributes").extend_from_slice(sum.attributes.as_bytes());
    object.key("caller_attributes").extend_from_slice(sum.caller_attributes.as_bytes());
    if let Some(session) = sum.session {
        object.text("session", session);
    }
    object.text("provider", sum.provider);
    object.text("model", sum.model);
    if !sum.requested_model.is_empty() {
        object.text("requested_model", sum.requested_model);
    }
    object.text("path", sum.path);
    object.number("cost_micro_usd", sum.cost.rounded_up().get());
    if sum.cost.remainder() != 0 {
        object.number("cost_pico_usd", sum.cost.as_millionths());
    }
    object.number("calls", sum.calls);
    object.number("tokens", sum.tokens);
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
    object.number("v", VERSION);
    object.text("type", "estimates");
    timestamp::write(object.key("ts"), at);
    object.text("request_id", "");
    object.text("tenant", tenant);
    object.text("model", model);
    object.text("path", path);
    object.number("cost_micro_usd", 0);
    let pairs: Vec<_> = pairs.collect();
    list(object.key("estimates"), &pairs, |out, (estimated, reported)| {
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
