//! The store trait: where counters live and decisions are made.
//!
//! A store decides over a whole [`Plan`] in one atomic step and keeps one record per reservation.
//! It knows nothing of providers, prices or HTTP.

mod clock;
#[cfg(feature = "testing")]
pub mod contract;
mod error;
mod fallback;
#[cfg(feature = "testing")]
mod faulty;
mod future;
#[cfg(feature = "testing")]
mod manual_clock;
mod memory;
mod status;
mod sync;

use std::sync::Arc;

use tollgate_limiter::{Amount, ExactAmount, Limit, Plan, ReservationId, Verdict};

pub use clock::{Clock, SystemClock};
pub use error::StoreError;
pub use fallback::{Backlog, FailurePolicy, FallbackStore, Left, SentAgain, is_hard_budget};
#[cfg(feature = "testing")]
pub use faulty::{Fault, FaultyStore};
pub use future::StoreFuture;
#[cfg(feature = "testing")]
pub use manual_clock::ManualClock;
pub use memory::MemoryStore;
pub use status::StoreStatus;
pub use tollgate_limiter::{Attempt, CounterView, Held, Settled};

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
    /// the calendar period of the admission. The answer may be waited for by another task than the call's.
    fn settle(&self, held: &Held, actuals: &[ExactAmount]) -> StoreFuture<'static, Settled>;

    /// As [`settle`](Self::settle), but only where the reservation is still held: for a settlement that the store may have
    /// had so long ago that it does not know of it any more. Otherwise nothing changes.
    ///
    /// A store that cannot tell does nothing, as this does: the reservation stays charged.
    fn settle_held(&self, held: &Held, actuals: &[ExactAmount]) -> StoreFuture<'static, Settled> {
        let _ = (held, actuals);
        StoreFuture::ready(Ok(Settled::Already))
    }

    /// Whether the reservation may still be held, as far as the store knows without asking anybody: not where it has forgotten
    /// everything since the admission.
    fn may_hold(&self, held: &Held) -> bool {
        let _ = held;
        true
    }

    /// How the counters of `limits` stand.
    fn inspect(&self, limits: &[Arc<Limit>]) -> StoreFuture<'_, Vec<CounterView>>;

    /// How the store itself is, as far as it knows without asking anybody.
    fn status(&self) -> StoreStatus {
        StoreStatus::default()
    }
}
