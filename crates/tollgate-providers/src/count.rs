//! Counts in a usage report, which may be absent, null or nonsense.

use serde::Deserialize;
use serde::de::{MapAccess, SeqAccess};

use crate::json::{Into, Scalar, Sink, Skip};

/// A count as reported. Null says nothing; anything but a whole number is nonsense.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Count {
    #[default]
    Unsaid,
    Is(u64),
    Nonsense,
}

impl Count {
    /// Takes over a later report, if it says anything. Returns whether it was nonsense.
    pub(crate) fn replace(&mut self, later: Self) -> bool {
        if let Self::Is(_) = later {
            *self = later;
        }
        later == Self::Nonsense
    }

    /// The number, if there is one.
    pub(crate) const fn get(self) -> Option<u64> {
        match self {
            Self::Is(count) => Some(count),
            Self::Unsaid | Self::Nonsense => None,
        }
    }

    /// The number, or zero.
    pub(crate) fn or_zero(self) -> u64 {
        self.get().unwrap_or(0)
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Into(CountSink))
    }
}

/// No answer uses more. Beyond it a report is a fault or an attack, and sums could overflow.
const COUNT_MAX: u64 = 1_000_000_000_000;

struct CountSink;

impl<'de> Sink<'de> for CountSink {
    type Out = Count;

    fn scalar(self, value: Scalar) -> Count {
        match value {
            Scalar::Null => Count::Unsaid,
            Scalar::Count(count) if count > COUNT_MAX => Count::Nonsense,
            Scalar::Count(count) => Count::Is(count),
            Scalar::Bool(_) | Scalar::OtherNumber => Count::Nonsense,
        }
    }

    fn text(self, _: &str) -> Count {
        Count::Nonsense
    }

    fn array<A: SeqAccess<'de>>(self, items: A) -> Result<Count, A::Error> {
        Skip.array(items).map(|()| Count::Nonsense)
    }

    fn object<A: MapAccess<'de>>(self, fields: A) -> Result<Count, A::Error> {
        Skip.object(fields).map(|()| Count::Nonsense)
    }
}
