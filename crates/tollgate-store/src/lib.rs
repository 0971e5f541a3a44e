//! The store trait: where counters live and decisions are made.
//!
//! A store decides over a whole [`Plan`] in one atomic step and keeps one record per reservation.
//! It knows nothing of providers, prices or HTTP.

mod clock;
mod error;
mod future;

use std::sync::Arc;

use tollgate_limiter::{
    Amount, CounterKey, ExactAmount, Limit, Plan, ReservationId, TimestampMs, Verdict,
};

pub use clock::{Clock, SystemClock};
pub use error::StoreError;
pub use future::StoreFuture;

/// What a caller keeps of an admitted reservation. Enough to settle it even where the store has
/// forgotten it.
#[derive(Clone, Debug)]
pub struct Held {
    /// The reservation's id.
    pub id: ReservationId,
    /// The plan it was admitted with.
    pub plan: Arc<Plan>,
    /// The moment its charges were booked at ([`Admission::at`](tollgate_limiter::Admission::at)).
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
    /// The store did not know the reservation: the amounts were charged as they are.
    WithoutReservation,
}

/// One counter as it stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CounterView {
    /// The counter.
    pub key: CounterKey,
    /// What settled requests used, in the current window or period.
    pub spent: ExactAmount,
    /// What open reservations hold.
    pub held: Amount,
    /// The largest charge that would fit now.
    pub remaining: Amount,
    /// When the current window or period ends; `None` for a rule without end.
    pub resets_at: Option<TimestampMs>,
}

/// Where counters live. Every method is one atomic step.
pub trait Store: Send + Sync + 'static {
    /// Charges the whole plan under `id`, or nothing.
    ///
    /// Repeating it with the same id and an equal plan gives the same verdict and charges once.
    fn reserve(&self, id: ReservationId, plan: Arc<Plan>, attempt: Attempt) -> StoreFuture<'_, Verdict>;

    /// Asks for more under an admitted reservation: `charges[i]` on top of entry `i` of its plan.
    /// All of it, or nothing.
    ///
    /// `step` counts the extensions of a reservation from 1; repeating a step charges once. An
    /// entry whose calendar period has ended since the admission is neither checked nor charged.
    fn extend(&self, held: &Held, step: u32, charges: &[Amount]) -> StoreFuture<'_, Verdict>;

    /// Replaces what the reservation holds by what was really used: `actuals[i]` for entry `i`.
    ///
    /// Never refused. What was not used goes back to the window or period it was booked in, if that
    /// still counts; what was used beyond the reservation is charged to the current window, or to
    /// the calendar period of the admission.
    fn settle(&self, held: &Held, actuals: &[ExactAmount]) -> StoreFuture<'_, Settled>;

    /// How the counters of `limits` stand.
    fn inspect(&self, limits: &[Arc<Limit>]) -> StoreFuture<'_, Vec<CounterView>>;
}
