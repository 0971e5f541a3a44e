//! `stream_options.include_usage`: read it, say how it is put in, and tell when a provider refuses it.

use memchr::memmem;
use serde::de::MapAccess;
use serde_json::value::RawValue;

use crate::RequestError;
use crate::json::{self, KeySeed, ReadFields, Skip};
use crate::rewrite::{Edit, offset};

/// Where and how `include_usage` can be put into a body. Offsets are bytes from the body's start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum UsageFlag {
    /// Usage is asked for already, or there is nowhere to ask.
    #[default]
    Settled,
    /// No `stream_options`: insert them here, behind the body's opening brace.
    NoOptions { at: usize },
    /// `"stream_options": null` stands here.
    NullOptions { start: usize, end: usize },
    /// `stream_options` without the flag: insert it here, behind their opening brace.
    NoFlag { at: usize, is_empty: bool },
    /// The flag is false or null here.
    Off { start: usize, end: usize },
}

impl UsageFlag {
    /// What puts the flag in.
    pub(crate) fn edit(self) -> Option<Edit> {
        let edit = |start, end, text: &'static str| Edit { start, end, text: text.into() };
        Some(match self {
            Self::Settled => return None,
            Self::NoOptions { at } => edit(at, at, r#""stream_options":{"include_usage":true},"#),
            Self::NullOptions { start, end } => edit(start, end, r#"{"include_usage":true}"#),
            Self::NoFlag { at, is_empty: true } => edit(at, at, r#""include_usage":true"#),
            Self::NoFlag { at, is_empty: false } => edit(at, at, r#""include_usage":true,"#),
            Self::Off { start, end } => edit(start, end, "true"),
        })
    }
}

/// Reads `stream_options`, which lie in `body`: where the flag goes.
pub(super) fn read(body: &[u8], raw: &RawValue) -> Result<UsageFlag, RequestError> {
    let fault = |message: &str| Err(RequestError::new(Some("stream_options"), message));
    let start = offset(body, raw.get());
    let end = start + raw.get().len();
    if raw.get() == "null" {
        return Ok(UsageFlag::NullOptions { start, end });
    }
    if !raw.get().starts_with('{') {
        return fault("`stream_options` must be an object.");
    }
    let mut options = Options { body, flags: 0, is_empty: true, value: None };
    json::read_object(raw.get().as_bytes(), &mut options)?;
    match options {
        Options { flags: 2.., .. } => {
            fault("`stream_options.include_usage` occurs more than once; send it once.")
        }
        Options { value: None, is_empty, .. } => Ok(UsageFlag::NoFlag { at: start + 1, is_empty }),
        Options { value: Some((_, _, "true")), .. } => Ok(UsageFlag::Settled),
        Options { value: Some((start, end, "false" | "null")), .. } => Ok(UsageFlag::Off { start, end }),
        Options { .. } => fault("`stream_options.include_usage` must be true or false."),
    }
}

struct Options<'b> {
    body: &'b [u8],
    flags: u32,
    is_empty: bool,
    /// Start, end and the JSON of the flag, where it is a word.
    value: Option<(usize, usize, &'static str)>,
}

impl ReadFields for Options<'_> {
    fn read_fields<'de, A: MapAccess<'de>>(&mut self, mut fields: A) -> Result<(), A::Error> {
        while let Some(is_flag) = fields.next_key_seed(KeySeed(|key: &str| key == "include_usage"))? {
            self.is_empty = false;
            if !is_flag {
                fields.next_value_seed(json::Into(Skip))?;
                continue;
            }
            let raw = fields.next_value::<&'de RawValue>()?.get();
            let start = offset(self.body, raw);
            let word = ["true", "false", "null"].into_iter().find(|word| *word == raw).unwrap_or("other");
            self.flags = self.flags.saturating_add(1);
            self.value = Some((start, start + raw.len(), word));
        }
        Ok(())
    }
}

/// How much of an error's body is looked at.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// Whether an answer is the provider's refusal of `stream_options`: a 400 or 422 that names the field.
/// Then the request may be sent once more as the client wrote it.
pub fn is_stream_options_rejection(status: u16, body: &[u8]) -> bool {
    let seen = &body[..body.len().min(MAX_ERROR_BYTES)];
    matches!(status, 400 | 422)
        && (memmem::find(seen, b"stream_options").is_some() || memmem::find(seen, b"include_usage").is_some())
}
