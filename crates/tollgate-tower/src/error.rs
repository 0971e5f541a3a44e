//! Why a call was not made, or how it failed.

use std::{fmt, sync::Arc, time::Duration};

use tollgate_limiter::{Entry, Outcome, Plan, Refusal};
use tollgate_store::StoreError;

/// How a limited call fails.
#[derive(Debug, thiserror::Error)]
pub enum Error<E> {
    /// The inner service was not called.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The inner service's own error.
    #[error("{0}")]
    Inner(#[source] E),
}

impl<E> Error<E> {
    /// The refusal, if a limit is the reason.
    pub const fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Rejected(Rejection::Refused(refused)) => Some(refused),
            _ => None,
        }
    }

    /// The same as a boxed error, where the inner error is one already.
    pub fn into_boxed(self) -> Box<dyn std::error::Error + Send + Sync>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        match self {
            Self::Rejected(rejection) => rejection.into(),
            Self::Inner(error) => error.into(),
        }
    }
}

/// Why the inner service was not called.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// A limit refused. Nothing is charged.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The store gave no verdict. What it may have charged is released.
    #[error("the limits could not be checked: {0}")]
    Unavailable(#[source] StoreError),
    /// The store has to be waited for, and nobody would be there to settle in it what is dropped:
    /// see [`LimitLayer::spawn_with`](crate::LimitLayer::spawn_with). Nothing was asked or charged.
    #[error("the store has to be waited for: the layer needs `spawn_with`")]
    NoSpawner,
}

/// When the same call may be admitted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Retry {
    /// After exactly this time, if nothing else comes.
    After(Duration),
    /// When calls that are open now have ended, and not before.
    WhenOthersEnd,
    /// Never: no time makes it fit.
    Never,
}

/// A call that does not fit its limits.
#[derive(Clone, Debug, thiserror::Error)]
pub struct Refused {
    refusal: Box<Refusal>,
    plan: Arc<Plan>,
}

impl Refused {
    pub(crate) fn new(refusal: Refusal, plan: Arc<Plan>) -> Self {
        Self { refusal: Box::new(refusal), plan }
    }

    /// The limiter's answer: every limit that refuses, with how it stands.
    pub const fn refusal(&self) -> &Refusal {
        &self.refusal
    }

    /// What was asked for. A refusal names places in it.
    pub const fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The limit to answer for, with what the call would have charged.
    pub fn binding(&self) -> Option<&Entry> {
        self.plan.entries().get(self.refusal.binding.index)
    }

    /// When the same call may be admitted.
    pub fn retry(&self) -> Retry {
        match self.refusal.binding.outcome {
            Outcome::Wait(wait) => Retry::After(Duration::from_millis(wait.get())),
            _ if self.refusal.binding.fits_without_holds() => Retry::WhenOthersEnd,
            _ => Retry::Never,
        }
    }

    /// The seconds for a `retry-after` header, rounded up; `None` where waiting is not known to help.
    pub fn retry_after_s(&self) -> Option<u64> {
        match self.retry() {
            Retry::After(wait) => Some(wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0))),
            Retry::WhenOthersEnd | Retry::Never => None,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refusal = &self.refusal.binding;
        let name = self.binding().map_or("", |entry| entry.limit.key.name());
        write!(
            f,
            "{name} is limited to {}: {} used, {} held by open calls, {} needed; ",
            refusal.limit, refusal.spent, refusal.held, refusal.needed
        )?;
        match self.retry() {
            Retry::After(wait) => write!(f, "fits in {} ms", wait.as_millis()),
            Retry::WhenOthersEnd => f.write_str("fits when others have ended"),
            Retry::Never => f.write_str("can never fit"),
        }
    }
}
