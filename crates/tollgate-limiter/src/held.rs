//! What a caller and a ledger say to each other about one reservation.

use alloc::sync::Arc;

use crate::{Amount, CounterKey, ExactAmount, Plan, ReservationId, TimestampMs};

/// What a caller keeps of an admitted reservation. Enough to settle it even where the ledger has
/// forgotten it.
#[derive(Clone, Debug)]
pub struct Held {
    /// The reservation's id.
    pub id: ReservationId,
    /// The plan it was admitted with.
    pub plan: Arc<Plan>,
    /// The moment its charges were booked at ([`Admission::at`](crate::Admission::at)).
    pub at: TimestampMs,
}

/// Which call of a reserve this is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Attempt {
    /// The first one for this id.
    First,
    /// A repetition after an unknown outcome. Its refusal is kept, so that a late duplicate of an
    /// earlier attempt cannot succeed.
    Retry,
}

/// What a settle did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Settled {
    /// The reservation is now what was really used.
    Applied,
    /// It was settled before, with the same amounts. Nothing changed.
    Already,
    /// It was settled before with other amounts. Nothing changed.
    Conflict,
    /// The reservation was not known, or had been refused: the amounts were charged as they are, to
    /// the windows and periods of [`Held::at`]. The id is spent: a reserve that comes late is refused.
    WithoutReservation,
}

/// One counter as it stands.
#[derive(Clone, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CounterView {
    /// The counter.
    pub key: CounterKey,
    /// What settled requests used, in the current window or period. A window's part is rounded up.
    pub spent: ExactAmount,
    /// What open reservations hold, as far as the rule still counts it.
    pub held: Amount,
    /// The largest charge that would fit now.
    pub remaining: Amount,
    /// When the current window or period ends; `None` for a rule without end.
    pub resets_at: Option<TimestampMs>,
}
