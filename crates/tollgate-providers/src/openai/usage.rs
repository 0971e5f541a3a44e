//! The usage of a Chat Completions answer.
//!
//! A stream reports it in its last chunk, on the last chunk with content, or again and again with
//! growing numbers, with or without `choices` beside it. The last that is not null counts.

use serde::Deserialize;
use tollgate_pricing::Usage;

use crate::RequestFacts;
use crate::count::{Count, LatestCount};
use crate::last_word::LastWord;
use crate::meter::{Report, Seen};
use crate::name::{self, MAX_TIER_BYTES};
use crate::scan::{Name, Want};

/// Reads an answer, body or stream.
#[derive(Debug)]
pub(crate) struct Reader {
    usage: UsageFields,
    service_tier: Option<String>,
    /// How many choices must finish.
    choices: u64,
    finished: u64,
    is_done: bool,
    last_word: LastWord,
    /// The most web searches that the request allows.
    web_searches: u64,
}

impl Reader {
    pub(crate) fn new(facts: &RequestFacts) -> Self {
        Self {
            usage: UsageFields::default(),
            service_tier: None,
            choices: facts.choices.max(1),
            finished: 0,
            is_done: false,
            last_word: LastWord::default(),
            web_searches: facts.web_searches_max.unwrap_or(0),
        }
    }

    /// `[DONE]` has come.
    pub(crate) fn done(&mut self) {
        self.is_done = true;
    }

    /// A chunk has ended.
    pub(crate) const fn end_event(&mut self, has_content: bool) {
        self.last_word.end_event(has_content, self.is_finished());
    }

    pub(crate) fn want(&self, path: &[Name]) -> Want {
        use Name::{
            Choices, Citations, Data, Delta, Error, FinishReason, Id, Logprobs, Message, Model, Role, Type,
        };
        match path {
            [Model | Error | Name::Usage | Name::ServiceTier] | [Choices, FinishReason] => Want::Keep,
            [Choices, Delta | Message, .., Type | Id | Role | Data | Logprobs]
            | [Choices, Delta | Message, Citations, ..] => Want::Skip,
            [Choices, Delta | Message, _, ..] => Want::Count,
            _ => Want::Skip,
        }
    }

    pub(crate) fn kept(&mut self, path: &[Name], json: &[u8], seen: &mut Seen) {
        match path {
            [Name::Model] => seen.model(json),
            [Name::ServiceTier] => {
                seen.has_unread_name |= name::replace::<MAX_TIER_BYTES>(&mut self.service_tier, json);
            }
            [Name::Error] => seen.has_error |= json != b"null",
            [Name::Usage] => {
                let is_report = self.usage.replace(json);
                if is_report {
                    seen.reports = seen.reports.saturating_add(1);
                }
                self.last_word.usage(is_report);
            }
            // Some compatible servers write an empty reason where OpenAI writes null.
            [Name::Choices, Name::FinishReason] if !matches!(json, b"null" | b"\"\"") => {
                self.finished = self.finished.saturating_add(1);
            }
            _ => {}
        }
    }

    /// The usage, with as many searches as the request allows: an answer does not count them, so each
    /// is taken to have been made.
    pub(crate) fn report(&self) -> Report {
        let mut report = self.usage.report();
        if report.usage.total() > 0 {
            report.usage.web_searches = self.web_searches;
        }
        report
    }

    /// `[DONE]` has come. Not every server sends it: a usage does as well, once every choice has
    /// finished. Without either, a usage that was asked for may have been on its way.
    pub(crate) const fn is_ended(&self) -> bool {
        self.is_done || self.is_usage_final()
    }

    /// Every choice has said why it ended, or `[DONE]` has come.
    pub(crate) const fn is_finished(&self) -> bool {
        self.is_done || self.finished >= self.choices
    }

    /// A usage that came in or after the chunk in which the last choice finished is the last; one
    /// before may still grow, unless `[DONE]` came with no content after it.
    pub(crate) const fn is_usage_final(&self) -> bool {
        self.usage.is_present() && self.last_word.is_final(self.is_done)
    }

    pub(crate) fn service_tier(&self) -> Option<String> {
        self.service_tier.clone()
    }
}

/// A usage, field by field as the reports replace one another.
#[derive(Debug, Default)]
pub(crate) struct UsageFields {
    is_nonsense: bool,
    /// A report was no object with counts.
    is_unread: bool,
    prompt: LatestCount,
    cached: LatestCount,
    cache_write: LatestCount,
    audio_input: LatestCount,
    image_input: LatestCount,
    completion: LatestCount,
    reasoning: LatestCount,
    audio_output: LatestCount,
    image_output: LatestCount,
}

/// `usage`, as in `openai-python`'s `CompletionUsage`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawUsage {
    prompt_tokens: Count,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens: Count,
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Count,
    cache_write_tokens: Count,
    audio_tokens: Count,
    image_tokens: Count,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CompletionDetails {
    reasoning_tokens: Count,
    audio_tokens: Count,
    image_tokens: Count,
}

impl UsageFields {
    /// Takes over what a report says; what it does not say stays. Returns whether it is a report.
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
        let is_report = raw.completion_tokens.get().or(raw.prompt_tokens.get()).is_some();
        let prompt = raw.prompt_tokens_details.unwrap_or_default();
        let completion = raw.completion_tokens_details.unwrap_or_default();
        for (field, later) in [
            (&mut self.prompt, raw.prompt_tokens),
            (&mut self.cached, prompt.cached_tokens),
            (&mut self.cache_write, prompt.cache_write_tokens),
            (&mut self.audio_input, prompt.audio_tokens),
            (&mut self.image_input, prompt.image_tokens),
            (&mut self.completion, raw.completion_tokens),
            (&mut self.reasoning, completion.reasoning_tokens),
            (&mut self.audio_output, completion.audio_tokens),
            (&mut self.image_output, completion.image_tokens),
        ] {
            self.is_nonsense |= field.replace(later);
        }
        is_report
    }

    const fn counts(&self) -> [LatestCount; 9] {
        [
            self.prompt,
            self.cached,
            self.cache_write,
            self.audio_input,
            self.image_input,
            self.completion,
            self.reasoning,
            self.audio_output,
            self.image_output,
        ]
    }

    /// An object that says neither what went in nor what came out is no report: not zero, but missing.
    const fn is_present(&self) -> bool {
        self.prompt.get().is_some() || self.completion.get().is_some()
    }

    /// The normalised report: the prompt's count includes what was cached and written, the
    /// completion's includes reasoning. A part larger than its whole is cut down to it.
    fn report(&self) -> Report {
        let mut is_contradictory = self.is_nonsense;
        let mut part = |part: LatestCount, whole: u64| {
            is_contradictory |= part.or_zero() > whole;
            part.or_zero().min(whole)
        };
        let (prompt, output) = (self.prompt.or_zero(), self.completion.or_zero());
        let cache_read = part(self.cached, prompt);
        let cache_write = part(self.cache_write, prompt - cache_read);
        let input = prompt - cache_read - cache_write;
        let usage = Usage {
            input,
            cache_read,
            cache_write,
            output,
            reasoning: part(self.reasoning, output),
            // Audio and images may lie in the cached part: nobody says which.
            audio_input: part(self.audio_input, prompt).min(input),
            image_input: part(self.image_input, prompt).min(input),
            audio_output: part(self.audio_output, output),
            image_output: part(self.image_output, output),
            ..Usage::default()
        };
        Report {
            usage,
            others: Vec::new(),
            is_present: self.is_present(),
            is_contradictory,
            has_unread_count: self.is_unread || self.counts().into_iter().any(LatestCount::is_unread),
        }
    }
}
