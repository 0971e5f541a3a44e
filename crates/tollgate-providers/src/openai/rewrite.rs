//! Changing a request: asking for usage in a stream, and setting an output limit.
//!
//! OpenAI reports a stream's usage only if it is asked to, and a request without a limit may answer as
//! long as the model can. Where the client said nothing, the request is changed in those places alone;
//! every other byte stays as it is.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};

use crate::{Protocol, RequestFacts};

/// What is to be changed in a request, where it does not say so itself.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Rewrites {
    /// Ask for usage in the stream (`stream_options.include_usage`).
    pub usage_in_stream: bool,
    /// Let each choice have at most so many output tokens (`max_completion_tokens`).
    pub output_limit: Option<u64>,
}

/// The body with `rewrites` in it, or `None` if nothing is to be changed: the request says so already,
/// is not for a stream, or is no Chat Completions request (Anthropic's require a limit and always
/// report usage). `facts` are those that [`crate::inspect`] read from this very body.
pub fn rewrite(body: &Bytes, facts: &RequestFacts, rewrites: Rewrites) -> Option<Bytes> {
    let usage = if rewrites.usage_in_stream && facts.lacks_usage_in_stream() {
        facts.usage_flag.edit()
    } else {
        None
    };
    let limit = rewrites.output_limit.filter(|_| facts.lacks_output_limit());
    let limit = limit.map(|limit| facts.limit_place.edit(limit, body));
    match (usage, limit) {
        (None, None) => None,
        (Some(edit), None) | (None, Some(edit)) => splice(body, &[edit]),
        (Some(a), Some(b)) if a.start <= b.start => splice(body, &[a, b]),
        (Some(a), Some(b)) => splice(body, &[b, a]),
    }
}

/// Where a `max_completion_tokens` can be put. Offsets are bytes from the body's start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum LimitPlace {
    /// There is none: insert it behind the body's opening brace.
    #[default]
    Absent,
    /// It is null here.
    Null { start: usize, end: usize },
}

impl LimitPlace {
    fn edit(self, limit: u64, body: &[u8]) -> Edit {
        match self {
            Self::Absent => {
                let at = behind_brace(body);
                // A field follows always: there is no request without a model.
                Edit { start: at, end: at, text: format!(r#""max_completion_tokens":{limit},"#).into() }
            }
            Self::Null { start, end } => Edit { start, end, text: limit.to_string().into() },
        }
    }
}

impl RequestFacts {
    fn lacks_output_limit(&self) -> bool {
        self.input.protocol == Some(Protocol::OpenAi) && self.output_limit.is_none()
    }
}

/// Bytes that are put in the place of others.
#[derive(Debug)]
pub(super) struct Edit {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) text: Cow<'static, str>,
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
pub(super) fn behind_brace(body: &[u8]) -> usize {
    memchr::memchr(b'{', body).map_or(0, |brace| brace + 1)
}

/// Where `part`, a slice of `body`, begins in it.
pub(super) fn offset(body: &[u8], part: &str) -> usize {
    part.as_ptr().addr().saturating_sub(body.as_ptr().addr())
}
