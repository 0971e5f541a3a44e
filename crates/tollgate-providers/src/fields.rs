//! The top level of a request: which fields there are, each at most once, and what their values may be.

use crate::RequestError;
use crate::json::{Field, Scalar};

/// Remembers which fields of a request were there, and the first fault.
///
/// A field that stands twice is a fault: the provider might take the one, we the other. So is one
/// that differs from a known name only in case, which some servers read as the same.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    fields: u64,
    pub(crate) fault: Option<RequestError>,
}

impl Seen {
    /// The index in `known` of the field `key`, or `None` if it is not known or may not be.
    pub(crate) fn field(&mut self, known: &'static [&'static str], key: KnownKey) -> Option<usize> {
        match key {
            KnownKey::Exact(index) => {
                let bit = 1_u64.checked_shl(u32::try_from(index).unwrap_or(u32::MAX)).unwrap_or(0);
                if self.fields & bit != 0 {
                    let name = known.get(index).copied().unwrap_or_default();
                    self.fail(Some(name), format!("`{name}` occurs more than once; send it once."));
                }
                self.fields |= bit;
                Some(index)
            }
            KnownKey::OtherCase(index) => {
                let name = known.get(index).copied().unwrap_or_default();
                self.fail(
                    Some(name),
                    format!("a field is named like `{name}` but for its case; write `{name}`."),
                );
                None
            }
            KnownKey::Unknown => None,
        }
    }

    /// Remembers a fault, unless there was one before.
    pub(crate) fn fail(&mut self, param: Option<&'static str>, message: impl Into<String>) {
        if self.fault.is_none() {
            self.fault = Some(RequestError::new(param, message));
        }
    }
}

/// How a key compares with the known ones.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KnownKey {
    Exact(usize),
    OtherCase(usize),
    Unknown,
}

impl KnownKey {
    pub(crate) fn of(known: &[&str], key: &str) -> Self {
        if let Some(index) = known.iter().position(|name| *name == key) {
            return Self::Exact(index);
        }
        match known.iter().position(|name| name.eq_ignore_ascii_case(key)) {
            Some(index) => Self::OtherCase(index),
            None => Self::Unknown,
        }
    }
}

/// A model name: required, not empty, printable.
pub(crate) fn model(field: Field) -> Result<String, RequestError> {
    let message = match field {
        Field::Text(name) if name.is_empty() => "`model` is empty; name a model.",
        Field::Text(name) if name.chars().any(char::is_control) => {
            "`model` holds control characters; name a model."
        }
        Field::Text(name) => return Ok(name),
        Field::Absent => "`model` is missing; name a model.",
        Field::LongText => "`model` is longer than 512 bytes; name a model.",
        Field::Scalar(_) | Field::Container => "`model` must be a string.",
    };
    Err(RequestError::new(Some("model"), message))
}

/// A whole number from 1 on; absent and null are `None`.
pub(crate) fn positive(name: &'static str, field: &Field) -> Result<Option<u64>, RequestError> {
    match field {
        Field::Absent | Field::Scalar(Scalar::Null) => Ok(None),
        Field::Scalar(Scalar::Count(count)) if *count > 0 => Ok(Some(*count)),
        _ => Err(RequestError::new(Some(name), format!("`{name}` must be a whole number, at least 1."))),
    }
}

/// A boolean; absent and null are `None`.
pub(crate) fn boolean(name: &'static str, field: &Field) -> Result<Option<bool>, RequestError> {
    match field {
        Field::Absent | Field::Scalar(Scalar::Null) => Ok(None),
        Field::Scalar(Scalar::Bool(value)) => Ok(Some(*value)),
        _ => Err(RequestError::new(Some(name), format!("`{name}` must be true or false."))),
    }
}

/// A short string; absent and null are `None`.
pub(crate) fn short_text(name: &'static str, field: Field) -> Result<Option<String>, RequestError> {
    match field {
        Field::Absent | Field::Scalar(Scalar::Null) => Ok(None),
        Field::Text(text) if text.len() <= 64 && !text.chars().any(char::is_control) => Ok(Some(text)),
        _ => Err(RequestError::new(Some(name), format!("`{name}` must be a string of at most 64 bytes."))),
    }
}

/// Whom a request is made for, where it says so. Any other type is for the provider to refuse.
pub(crate) fn user(field: Field) -> Option<String> {
    match field {
        Field::Text(user) => Some(user).filter(|user| !user.is_empty()),
        Field::LongText => Some(String::new()),
        Field::Absent | Field::Scalar(_) | Field::Container => None,
    }
}

/// Joins what decides a price set: `priority+us`. Parts that change nothing are left out.
pub(crate) fn join_tier<'t>(parts: impl IntoIterator<Item = Option<&'t str>>) -> Option<String> {
    let mut joined: Option<String> = None;
    for part in parts.into_iter().flatten().filter(|part| !part.is_empty()) {
        match &mut joined {
            Some(tier) => {
                tier.push('+');
                tier.push_str(part);
            }
            None => joined = Some(part.to_owned()),
        }
    }
    joined
}
