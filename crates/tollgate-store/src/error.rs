//! Why a store did not answer, and whether the call took effect.

use tollgate_limiter::LedgerError;

/// A store call that gave no verdict.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Refused before it ran: nothing changed, the same call may be repeated.
    #[error("the store did not run the call: {0}")]
    NotApplied(String),
    /// It may have run: repeat it with the same id, or release that id.
    #[error("the store gave no answer, the call may have taken effect: {0}")]
    Unknown(String),
    /// The id is taken by another plan, or the call does not fit the reservation: a caller's fault.
    #[error("the call does not fit the reservation: {0}")]
    Mismatch(String),
    /// The store is known to be away, or not to know yet what was spent: it was not asked, and nothing changed.
    #[error("the store cannot decide at the moment: {0}")]
    Unavailable(String),
    /// Of limits that lie in several places some are done, and others cannot be at the moment: repeat it with the same id, or
    /// release that id.
    #[error("the store has done a part of the call, and cannot do the rest at the moment: {0}")]
    Partly(String),
    /// The settlement is kept here and written through when the store is back.
    #[error("the settlement waits for the store")]
    Deferred,
    /// The answer makes no sense.
    #[error("the store's answer cannot be read: {0}")]
    Corrupt(String),
}

impl StoreError {
    /// Whether the same call may succeed if repeated with the same id, soon.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::NotApplied(_) | Self::Unknown(_))
    }

    /// Whether the store answers, and just cannot decide this call.
    pub const fn is_of_this_call(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Partly(_) | Self::Corrupt(_))
    }

    /// Whether the call may have changed the store.
    pub const fn may_have_applied(&self) -> bool {
        matches!(self, Self::Unknown(_) | Self::Partly(_) | Self::Corrupt(_))
    }
}

impl From<LedgerError> for StoreError {
    fn from(error: LedgerError) -> Self {
        Self::Mismatch(error.to_string())
    }
}
