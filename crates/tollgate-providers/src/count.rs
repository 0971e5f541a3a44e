//! Counts in a usage report, which may be absent, null or nonsense.

use serde::Deserialize;
use serde::de::{MapAccess, SeqAccess};

use crate::json::{Into, Scalar, Sink, Skip};

/// A count as reported. Null says nothing; anything but a whole number, however it is written, is nonsense.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Count {
    #[default]
    Unsaid,
    Is(u64),
    Nonsense,
}

/// A count that later reports replace. What it was before nonsense came stays, until a number comes again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LatestCount {
    count: Count,
    /// Nonsense came after it.
    is_unread: bool,
}

impl LatestCount {
    /// Takes over a later report, if it says anything. Returns whether it was nonsense.
    pub(crate) fn replace(&mut self, later: Count) -> bool {
        match later {
            Count::Unsaid => {}
            Count::Is(_) => *self = Self { count: later, is_unread: false },
            Count::Nonsense => self.is_unread = true,
        }
        later == Count::Nonsense
    }

    /// What counts of it.
    pub(crate) const fn count(self) -> Count {
        self.count
    }

    pub(crate) const fn is_unread(self) -> bool {
        self.is_unread
    }

    /// The number, if there is one.
    pub(crate) const fn get(self) -> Option<u64> {
        self.count.get()
    }

    /// The number, or zero.
    pub(crate) fn or_zero(self) -> u64 {
        self.count.or_zero()
    }
}

impl Count {
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

/// A number that is whole, though it is written as a fraction or with an exponent.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "exact within the bounds"
)]
fn whole(number: f64) -> Option<u64> {
    let is_whole = number.fract() == 0.0 && (0.0..=COUNT_MAX as f64).contains(&number);
    is_whole.then_some(number as u64)
}

impl<'de> Sink<'de> for CountSink {
    type Out = Count;

    fn scalar(self, value: Scalar) -> Count {
        match value {
            Scalar::Null => Count::Unsaid,
            Scalar::Count(count) if count > COUNT_MAX => Count::Nonsense,
            Scalar::Count(count) => Count::Is(count),
            Scalar::OtherNumber(number) => whole(number).map_or(Count::Nonsense, Count::Is),
            Scalar::Bool(_) => Count::Nonsense,
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
