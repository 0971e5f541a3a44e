//! Changing a request: asking for usage in a stream, and setting an output limit.
//!
//! OpenAI reports a stream's usage only if it is asked to, and a request without a limit may answer as
//! long as the model can. A limit may also be more than a budget affords. The request is changed in those
//! places alone; every other byte stays as it is.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::value::RawValue;

use crate::json::{Field, Scalar};
use crate::{Protocol, RequestFacts};

/// What is to be changed in a request.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Rewrites {
    /// Ask for usage in the stream (`stream_options.include_usage`), where the request does not.
    pub usage_in_stream: bool,
    /// Let each choice have at most so many output tokens: lowers the request's own limit, or puts one in
    /// where a Chat Completions request has none (`max_completion_tokens`).
    pub output_limit: Option<u64>,
}

/// The body with `rewrites` in it, or `None` if nothing is to be changed: the request says so already, or
/// is not for a stream of Chat Completions (Anthropic's always report usage). `facts` are those that
/// [`crate::inspect`] read from this very body.
pub fn rewrite(body: &Bytes, facts: &RequestFacts, rewrites: Rewrites) -> Option<Bytes> {
    let usage = if rewrites.usage_in_stream && facts.lacks_usage_in_stream() {
        facts.usage_flag.edit()
    } else {
        None
    };
    let limits = rewrites.output_limit.map(|limit| facts.limit_places.edits(limit, facts, body));
    let mut edits: Vec<Edit> = usage.into_iter().chain(limits.into_iter().flatten().flatten()).collect();
    // What is put in at one place keeps its order.
    edits.sort_by_key(|edit| edit.start);
    if edits.is_empty() { None } else { splice(body, &edits) }
}

/// Where a request's output limits stand.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct LimitPlaces {
    /// `max_tokens`
    pub(crate) max_tokens: LimitPlace,
    /// `max_completion_tokens`
    pub(crate) max_completion_tokens: LimitPlace,
}

/// Where one output limit stands. Offsets are bytes from the body's start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum LimitPlace {
    /// Nowhere.
    #[default]
    Absent,
    /// It is null, or no number, here.
    Null { start: usize, end: usize },
    /// It is a number here.
    Number { start: usize, end: usize, limit: u64 },
}

impl LimitPlaces {
    /// What lowers to `limit` what is above it, and puts it in where no limit is.
    fn edits(self, limit: u64, facts: &RequestFacts, body: &[u8]) -> [Option<Edit>; 2] {
        if facts.output_limit.is_some() {
            return [self.max_tokens, self.max_completion_tokens].map(|place| place.lowered(limit));
        }
        if facts.input.protocol != Some(Protocol::OpenAi) {
            return [None, None];
        }
        let put_in = match self.max_completion_tokens {
            LimitPlace::Null { start, end } | LimitPlace::Number { start, end, .. } => {
                Edit { start, end, text: limit.to_string().into() }
            }
            LimitPlace::Absent => {
                let at = behind_brace(body);
                // A field follows always: there is no request without a model.
                Edit { start: at, end: at, text: format!(r#""max_completion_tokens":{limit},"#).into() }
            }
        };
        [Some(put_in), None]
    }
}

impl LimitPlace {
    /// Where the value `raw` of a limit stands in `body`.
    pub(crate) fn of(body: &[u8], raw: &RawValue, value: &Field) -> Self {
        let start = offset(body, raw.get());
        let end = start.saturating_add(raw.get().len());
        match value {
            Field::Scalar(Scalar::Count(limit)) => Self::Number { start, end, limit: *limit },
            _ => Self::Null { start, end },
        }
    }

    fn lowered(self, to: u64) -> Option<Edit> {
        match self {
            Self::Number { start, end, limit } if limit > to => {
                Some(Edit { start, end, text: to.to_string().into() })
            }
            _ => None,
        }
    }
}

/// Bytes that are put in the place of others.
#[derive(Debug)]
pub(crate) struct Edit {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) text: Cow<'static, str>,
}

/// The body with `edits`, which are in order and apart.
fn splice(body: &Bytes, edits: &[Edit]) -> Option<Bytes> {
    let more: usize = edits.iter().map(|edit| edit.text.len()).sum();
    let mut changed = BytesMut::with_capacity(body.len() + more);
    let mut at = 0;
    for edit in edits {
        changed.put_slice(body.get(at..edit.start)?);
        changed.put_slice(edit.text.as_bytes());
        at = edit.end;
    }
    changed.put_slice(body.get(at..)?);
    Some(changed.freeze())
}

/// Where the fields of the object that `body` is begin.
pub(crate) fn behind_brace(body: &[u8]) -> usize {
    memchr::memchr(b'{', body).map_or(0, |brace| brace + 1)
}

/// Where `part`, a slice of `body`, begins in it.
pub(crate) fn offset(body: &[u8], part: &str) -> usize {
    part.as_ptr().addr().saturating_sub(body.as_ptr().addr())
}
