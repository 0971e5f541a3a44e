//! What calls can be grouped by.

use std::fmt;

use tollgate_limiter::TimestampMs;

use crate::reader::Past;
use crate::timestamp;

/// A property of calls.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Dimension {
    /// The tenant's id.
    Tenant,
    /// The key's id.
    Key,
    /// The model that answered; of a refusal, the one that was asked for.
    Model,
    /// The model that was asked for.
    RequestedModel,
    /// The provider's id.
    Provider,
    /// The session's id.
    Session,
    /// The path.
    Path,
    /// The service tier.
    ServiceTier,
    /// Whether the answer was a stream.
    Stream,
    /// The status the client got.
    Status,
    /// How the call ended, or `refused`.
    Outcome,
    /// Why it was refused.
    Reason,
    /// The hour of admission in UTC, `2026-11-30T10:00Z`.
    Hour,
    /// The day in UTC, `2026-11-30`.
    Day,
    /// The month in UTC, `2026-11`.
    Month,
    /// A named value that a key or a call carries.
    Attribute(&'static str),
}

/// No dimension has the name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{name}` is nothing to group by: there are {known}")]
pub struct UnknownDimension {
    name: String,
    known: String,
}

impl Dimension {
    /// Those that every call has, attributes aside.
    const FIXED: [Self; 15] = [
        Self::Tenant,
        Self::Key,
        Self::Model,
        Self::RequestedModel,
        Self::Provider,
        Self::Session,
        Self::Path,
        Self::ServiceTier,
        Self::Stream,
        Self::Status,
        Self::Outcome,
        Self::Reason,
        Self::Hour,
        Self::Day,
        Self::Month,
    ];

    /// The dimension called `name`; `attributes` are the names of the attributes there are.
    ///
    /// # Errors
    /// There is none: the message lists all.
    pub fn parse(name: &str, attributes: &[&'static str]) -> Result<Self, UnknownDimension> {
        let all = || Self::FIXED.into_iter().chain(attributes.iter().copied().map(Self::Attribute));
        all().find(|dimension| dimension.name() == name).ok_or_else(|| UnknownDimension {
            name: name.to_owned(),
            known: all().map(Self::name).collect::<Vec<_>>().join(", "),
        })
    }

    /// The name on the command line and in what is printed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Key => "key",
            Self::Model => "model",
            Self::RequestedModel => "requested_model",
            Self::Provider => "provider",
            Self::Session => "session",
            Self::Path => "path",
            Self::ServiceTier => "service_tier",
            Self::Stream => "stream",
            Self::Status => "status",
            Self::Outcome => "outcome",
            Self::Reason => "reason",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
            Self::Attribute(name) => name,
        }
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// When a call was admitted or refused.
pub(super) fn moment(past: &Past<'_>) -> TimestampMs {
    match past {
        Past::Usage(event) => event.ts,
        Past::Refusal(refusal) => refusal.ts,
    }
}

/// Ends a value. No text in UTF-8 has this byte, so that no two lists of values are alike.
const END: u8 = 0xff;

/// Stands for no value.
const ABSENT: u8 = 0xfe;

/// Forms the values of one call after another as one string of bytes.
#[derive(Debug, Default)]
pub(super) struct Values {
    bytes: Vec<u8>,
    /// The latest hour and its text, `2026-11-30T10:00Z`.
    hour: (u64, Vec<u8>),
}

impl Values {
    /// The values of `past`, each behind the other.
    pub(super) fn of(&mut self, by: &[Dimension], past: &Past<'_>) -> &[u8] {
        self.bytes.clear();
        for dimension in by {
            match dimension {
                Dimension::Hour => self.push_time(past, "2026-11-30T10:00Z".len()),
                Dimension::Day => self.push_time(past, "2026-11-30".len()),
                Dimension::Month => self.push_time(past, "2026-11".len()),
                Dimension::Status => {
                    let mut text = itoa::Buffer::new();
                    self.push(Some(text.format(status(past))).filter(|text| *text != "0"));
                }
                dimension => self.push(text(*dimension, past)),
            }
        }
        &self.bytes
    }

    /// The values that [`Values::of`] has put together.
    pub(super) fn split(bytes: &[u8], count: usize) -> Vec<Option<String>> {
        let value = |bytes: &[u8]| (bytes != [ABSENT]).then(|| String::from_utf8_lossy(bytes).into_owned());
        bytes.split(|byte| *byte == END).take(count).map(value).collect()
    }

    fn push(&mut self, value: Option<&str>) {
        match value {
            Some(value) => self.bytes.extend_from_slice(value.as_bytes()),
            None => self.bytes.push(ABSENT),
        }
        self.bytes.push(END);
    }

    /// The first `length` bytes of the hour.
    fn push_time(&mut self, past: &Past<'_>, length: usize) {
        let hour = moment(past).get() / 3_600_000;
        if self.hour.0 != hour || self.hour.1.is_empty() {
            let mut text = Vec::new();
            timestamp::write(&mut text, TimestampMs::new(hour * 3_600_000));
            // `"2026-11-30T10:00:00.000Z"`, without the quotes, the seconds and what is below.
            self.hour = (hour, text.get(1..17).unwrap_or_default().to_vec());
            self.hour.1.push(b'Z');
        }
        self.bytes.extend_from_slice(self.hour.1.get(..length).unwrap_or(&self.hour.1));
        self.bytes.push(END);
    }
}

fn status(past: &Past<'_>) -> u16 {
    match past {
        Past::Usage(event) => event.status,
        Past::Refusal(refusal) => refusal.status,
    }
}

/// The value of a dimension that is a text. Empty ones say nothing.
fn text<'a>(dimension: Dimension, past: &Past<'a>) -> Option<&'a str> {
    let value = match past {
        Past::Usage(event) => match dimension {
            Dimension::Tenant => Some(event.tenant),
            Dimension::Key => Some(event.key),
            Dimension::Model => Some(event.model),
            Dimension::RequestedModel => event.requested_model.or(Some(event.model)),
            Dimension::Provider => Some(event.provider),
            Dimension::Session => event.session,
            Dimension::Path => Some(event.path),
            Dimension::ServiceTier => event.service_tier,
            Dimension::Stream => Some(if event.stream { "true" } else { "false" }),
            Dimension::Outcome => Some(event.outcome),
            Dimension::Attribute(name) => named(event.attributes(), name),
            _ => None,
        },
        Past::Refusal(refusal) => match dimension {
            Dimension::Tenant => Some(refusal.tenant),
            Dimension::Key => Some(refusal.key),
            Dimension::Model | Dimension::RequestedModel => Some(refusal.model),
            Dimension::Provider => refusal.provider,
            Dimension::Session => refusal.session,
            Dimension::Path => Some(refusal.path),
            Dimension::Outcome => Some("refused"),
            Dimension::Reason => Some(refusal.reason),
            Dimension::Attribute(name) => named(refusal.attributes(), name),
            _ => None,
        },
    };
    value.filter(|value| !value.is_empty())
}

fn named<'a>(mut attributes: impl Iterator<Item = (&'a str, &'a str)>, name: &str) -> Option<&'a str> {
    attributes.find(|(own, _)| *own == name).map(|(_, value)| value)
}
