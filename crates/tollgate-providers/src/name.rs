//! Names in an answer (models, tiers, regions), which reach events: bounded.

use serde::Deserialize;
use serde::de::{MapAccess, SeqAccess};

use crate::json::{Into, Scalar, Sink, Skip};

/// No model's name is longer, in bytes.
pub(crate) const MAX_MODEL_BYTES: usize = 512;
/// No name of a tier, a region or a speed is longer, in bytes.
pub(crate) const MAX_TIER_BYTES: usize = 64;

/// A name of at most `MAX` bytes, as reported.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum Name<const MAX: usize> {
    #[default]
    Unsaid,
    Is(String),
    /// Longer than any such name, or no string.
    Nonsense,
}

impl<const MAX: usize> Name<MAX> {
    /// The name, if there is one.
    pub(crate) fn get(&self) -> Option<&str> {
        match self {
            Self::Is(name) => Some(name),
            Self::Unsaid | Self::Nonsense => None,
        }
    }

    /// Puts it in the place of an `earlier` one, if it says anything. Returns whether it is nonsense.
    pub(crate) fn replace(self, earlier: &mut Option<String>) -> bool {
        match self {
            Self::Is(name) => *earlier = Some(name),
            Self::Unsaid => {}
            Self::Nonsense => return true,
        }
        false
    }
}

/// Puts the name that stands in `json` in the place of an `earlier` one, if it says anything. Returns
/// whether it is nonsense.
pub(crate) fn replace<const MAX: usize>(earlier: &mut Option<String>, json: &[u8]) -> bool {
    // Most names are said again and again: those are not read anew.
    let inner = json.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    if inner.is_some() && inner == earlier.as_ref().map(String::as_bytes) {
        return false;
    }
    serde_json::from_slice::<Name<MAX>>(json).unwrap_or(Name::Nonsense).replace(earlier)
}

impl<'de, const MAX: usize> Deserialize<'de> for Name<MAX> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Into(NameSink))
    }
}

struct NameSink<const MAX: usize>;

impl<'de, const MAX: usize> Sink<'de> for NameSink<MAX> {
    type Out = Name<MAX>;

    fn scalar(self, value: Scalar) -> Name<MAX> {
        if value == Scalar::Null { Name::Unsaid } else { Name::Nonsense }
    }

    fn text(self, value: &str) -> Name<MAX> {
        if value.len() <= MAX { Name::Is(value.to_owned()) } else { Name::Nonsense }
    }

    fn array<A: SeqAccess<'de>>(self, items: A) -> Result<Name<MAX>, A::Error> {
        Skip.array(items).map(|()| Name::Nonsense)
    }

    fn object<A: MapAccess<'de>>(self, fields: A) -> Result<Name<MAX>, A::Error> {
        Skip.object(fields).map(|()| Name::Nonsense)
    }
}
