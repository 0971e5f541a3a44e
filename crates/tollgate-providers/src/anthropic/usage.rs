//! The usage of a Messages answer.
//!
//! A stream reports it twice and more: `message_start`, then `message_delta`. A later field replaces
//! an earlier one: never add, never take the maximum. With `iterations` the top level is left aside,
//! as it leaves out compaction and other models; each entry is billed at its own model.

use tollgate_pricing::Usage;

use super::report::{Iteration, RawUsage, cache_writes};
use super::request::tier_name;
use crate::RequestFacts;
use crate::count::LatestCount;
use crate::facts::CacheTtls;
use crate::last_word::LastWord;
use crate::meter::{ModelUsage, Report, Seen};
use crate::name;
use crate::scan::{Name, Want};

/// The most other models that are told apart; further ones are priced like the answer's own.
const MAX_OTHER_MODELS: usize = 16;

/// Reads an answer, body or stream.
#[derive(Debug)]
pub(crate) struct Reader {
    ttls: CacheTtls,
    usage: UsageFields,
    /// `message_stop` has come.
    is_stopped: bool,
    /// The reason of the end has come.
    has_reason: bool,
    last_word: LastWord,
}

impl Reader {
    pub(crate) fn new(facts: &RequestFacts) -> Self {
        Self {
            ttls: facts.ttls,
            usage: UsageFields::default(),
            is_stopped: false,
            has_reason: false,
            last_word: LastWord::default(),
        }
    }

    /// An event has ended.
    pub(crate) const fn end_event(&mut self, has_content: bool) {
        self.last_word.end_event(has_content, self.is_finished());
    }

    pub(crate) fn want(&self, path: &[Name]) -> Want {
        use Name::{
            Citations, Content, ContentBlock, Data, Delta, Error, Id, Input, Message, Model, Role,
            StopReason, Type,
        };
        match path {
            [Type | Model | Error | Name::Usage] | [Message, Model | Name::Usage] | [Delta, StopReason] => {
                Want::Keep
            }
            // What a server tool brought in is input; what cites it is not billed.
            [Content | ContentBlock, Content | Citations, ..] | [Delta, Citations, ..] => Want::Skip,
            // A tool's input has names of its own.
            [Content | ContentBlock, Input, ..] => Want::Count,
            [Content | ContentBlock | Delta, .., Type | Id | Role | Data] => Want::Skip,
            [Content | ContentBlock | Delta, _, ..] => Want::Count,
            _ => Want::Skip,
        }
    }

    pub(crate) fn kept(&mut self, path: &[Name], json: &[u8], seen: &mut Seen) {
        match path {
            [Name::Type] => match json {
                br#""message_stop""# => self.is_stopped = true,
                br#""error""# => seen.has_error = true,
                _ => {}
            },
            [.., Name::Model] => seen.model(json),
            [Name::Error] => seen.has_error |= json != b"null",
            // Some compatible servers write an empty reason where Anthropic writes null.
            [Name::Delta, Name::StopReason] => self.has_reason |= !matches!(json, b"null" | b"\"\""),
            [.., Name::Usage] => {
                // The one inside `message_start` is never the last.
                let is_report = self.usage.replace(json);
                seen.reports = seen.reports.saturating_add(1);
                self.last_word.usage(is_report && path.len() == 1);
            }
            _ => {}
        }
    }

    pub(crate) fn report(&self, model: Option<&str>) -> Report {
        self.usage.report(self.ttls, model)
    }

    /// `message_stop` has come.
    pub(crate) const fn is_ended(&self) -> bool {
        self.is_stopped
    }

    /// The reason of the end or the end itself has come.
    pub(crate) const fn is_finished(&self) -> bool {
        self.is_stopped || self.has_reason
    }

    /// A usage has come with the reason of the end, or after it; or the end, with no content after the
    /// usage of a `message_delta`.
    pub(crate) const fn is_usage_final(&self) -> bool {
        self.last_word.is_final(self.is_stopped)
    }

    pub(crate) fn service_tier(&self) -> Option<String> {
        self.usage.service_tier()
    }
}

/// A usage, field by field as the reports replace one another.
#[derive(Debug, Default)]
struct UsageFields {
    is_nonsense: bool,
    /// A report was no object with counts.
    is_unread: bool,
    input: LatestCount,
    cache_read: LatestCount,
    cache_creation: LatestCount,
    split_5m: LatestCount,
    split_1h: LatestCount,
    /// The total came without a split after one that had it: the two need not agree.
    split_is_older: bool,
    output: LatestCount,
    thinking: LatestCount,
    web_searches: LatestCount,
    web_fetches: LatestCount,
    iterations: Vec<Iteration>,
    tier: Option<String>,
    geo: Option<String>,
    speed: Option<String>,
}

impl UsageFields {
    /// Takes over what a report says; what it does not say stays. Returns whether it says what came
    /// out.
    fn replace(&mut self, json: &[u8]) -> bool {
        let raw = match serde_json::from_slice::<Option<RawUsage>>(json) {
            Ok(Some(raw)) => raw,
            Ok(None) => return false,
            Err(_) => {
                self.is_nonsense = true;
                self.is_unread = true;
                return false;
            }
        };
        let mut is_report = raw.output_tokens.get().is_some();
        let split = raw.cache_creation.unwrap_or_default();
        let has_split =
            split.ephemeral_5m_input_tokens.get().or(split.ephemeral_1h_input_tokens.get()).is_some();
        if raw.cache_creation_input_tokens.get().is_some() || has_split {
            self.split_is_older = !has_split;
        }
        let server_tools = raw.server_tool_use.unwrap_or_default();
        let fields = [
            (&mut self.input, raw.input_tokens),
            (&mut self.cache_read, raw.cache_read_input_tokens),
            (&mut self.cache_creation, raw.cache_creation_input_tokens),
            (&mut self.split_5m, split.ephemeral_5m_input_tokens),
            (&mut self.split_1h, split.ephemeral_1h_input_tokens),
            (&mut self.output, raw.output_tokens),
            (&mut self.thinking, raw.output_tokens_details.unwrap_or_default().thinking_tokens),
            (&mut self.web_searches, server_tools.web_search_requests),
            (&mut self.web_fetches, server_tools.web_fetch_requests),
        ];
        for (field, later) in fields {
            self.is_nonsense |= field.replace(later);
        }
        if let Some(iterations) = raw.iterations.filter(|list| !list.is_empty()) {
            is_report = true;
            self.is_nonsense |= iterations.iter().any(|iteration| iteration.model == name::Name::Nonsense);
            self.iterations = iterations;
        }
        for (field, later) in [
            (&mut self.tier, raw.service_tier),
            (&mut self.geo, raw.inference_geo),
            (&mut self.speed, raw.speed),
        ] {
            self.is_nonsense |= later.replace(field);
        }
        is_report
    }

    fn counts(&self) -> [LatestCount; 9] {
        [
            self.input,
            self.cache_read,
            self.cache_creation,
            self.split_5m,
            self.split_1h,
            self.output,
            self.thinking,
            self.web_searches,
            self.web_fetches,
        ]
    }

    /// An object that has none of the counts is no report: not zero, but missing.
    fn is_present(&self) -> bool {
        let counts =
            [self.input, self.output, self.cache_read, self.cache_creation, self.split_5m, self.split_1h];
        !self.iterations.is_empty() || counts.iter().any(|count| count.get().is_some())
    }

    /// The normalised report.
    fn report(&self, ttls: CacheTtls, model: Option<&str>) -> Report {
        let mut report = Report {
            is_present: self.is_present(),
            is_contradictory: self.is_nonsense,
            has_unread_count: self.is_unread || self.counts().into_iter().any(LatestCount::is_unread),
            ..Report::default()
        };
        if self.iterations.is_empty() {
            let writes =
                cache_writes(self.cache_creation.count(), self.split_5m.count(), self.split_1h.count(), ttls);
            report.is_contradictory |= writes.is_contradictory && !self.split_is_older;
            report.usage = Usage {
                input: self.input.or_zero(),
                cache_read: self.cache_read.or_zero(),
                cache_write_5m: writes.five_minutes,
                cache_write_1h: writes.one_hour,
                output: self.output.or_zero(),
                ..Usage::default()
            };
        }
        for iteration in &self.iterations {
            add_iteration(&mut report, iteration, ttls, model);
        }
        let thinking = self.thinking.or_zero();
        report.is_contradictory |= thinking > report.usage.output;
        report.usage.reasoning = thinking.min(report.usage.output);
        report.usage.web_searches = self.web_searches.or_zero();
        report.usage.web_fetches = self.web_fetches.or_zero();
        report
    }

    /// The name of the price set: tier, region and speed.
    pub(crate) fn service_tier(&self) -> Option<String> {
        tier_name(self.tier.as_deref(), self.geo.as_deref(), self.speed.as_deref())
    }
}

/// Adds one pass to the model that made it.
fn add_iteration(report: &mut Report, iteration: &Iteration, ttls: CacheTtls, own_model: Option<&str>) {
    let split = iteration.cache_creation.unwrap_or_default();
    let writes = cache_writes(
        iteration.cache_creation_input_tokens,
        split.ephemeral_5m_input_tokens,
        split.ephemeral_1h_input_tokens,
        ttls,
    );
    report.is_contradictory |= writes.is_contradictory;
    let other = iteration.model.get().filter(|model| Some(*model) != own_model);
    let usage = other.and_then(|model| other_usage(&mut report.others, model)).unwrap_or(&mut report.usage);
    for (sum, part) in [
        (&mut usage.input, iteration.input_tokens.or_zero()),
        (&mut usage.cache_read, iteration.cache_read_input_tokens.or_zero()),
        (&mut usage.cache_write_5m, writes.five_minutes),
        (&mut usage.cache_write_1h, writes.one_hour),
        (&mut usage.output, iteration.output_tokens.or_zero()),
    ] {
        *sum = sum.saturating_add(part);
    }
}

/// The usage of `model` among the others, unless there are too many of them.
fn other_usage<'o>(others: &'o mut Vec<ModelUsage>, model: &str) -> Option<&'o mut Usage> {
    let index = match others.iter().position(|other| other.model == model) {
        Some(index) => index,
        None if others.len() < MAX_OTHER_MODELS => {
            others.push(ModelUsage { model: model.to_owned(), usage: Usage::default() });
            others.len() - 1
        }
        None => return None,
    };
    others.get_mut(index).map(|other| &mut other.usage)
}
