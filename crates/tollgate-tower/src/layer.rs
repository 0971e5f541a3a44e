//! The layer: what is decided once for all services it wraps.

use std::{fmt, sync::Arc};

use tollgate_store::Store;
use tower_layer::Layer;

use crate::{AsError, AsReserved, Limited, Settling, WithResponse, desk::Desk};

/// Wraps services so that each call is reserved before it is made and settled when it is over.
///
/// `P` [plans](crate::Planner), `T` [settles](crate::Settle), `A` [answers](crate::Answer) a call that
/// is not made.
#[derive(Clone)]
pub struct LimitLayer<P, T = AsReserved, A = AsError> {
    desk: Arc<Desk>,
    planner: P,
    settle: T,
    answer: A,
}

impl<P> LimitLayer<P> {
    /// A layer that reserves in `store` what `planner` says of a request.
    ///
    /// Until it is told otherwise, calls are settled as reserved, and one that is not made is an
    /// [`Error`](crate::Error).
    pub fn new(store: Arc<dyn Store>, planner: P) -> Self {
        let desk = Arc::new(Desk::new(store, None));
        Self { desk, planner, settle: AsReserved, answer: AsError }
    }
}

impl<P, T, A> LimitLayer<P, T, A> {
    /// Settles calls by `settle`: a [`Settle`](crate::Settle), or a closure that takes how the inner
    /// service ended and the [`Reservation`](crate::Reservation).
    pub fn settle_with<U>(self, settle: U) -> LimitLayer<P, U, A> {
        LimitLayer { desk: self.desk, planner: self.planner, settle, answer: self.answer }
    }

    /// Answers a call that is not made with a response, where an error would end a connection.
    /// The service's error stays that of the inner one.
    pub fn respond_with<F>(self, respond: F) -> LimitLayer<P, T, WithResponse<F>> {
        let answer = WithResponse::new(respond);
        LimitLayer { desk: self.desk, planner: self.planner, settle: self.settle, answer }
    }

    /// Runs with `spawn` what cannot be waited for where a call ends: the settle in a store that does
    /// not answer at once, and the report of one that failed. Without it, such a store is not asked
    /// at all ([`Rejection::NoSpawner`](crate::Rejection::NoSpawner)).
    ///
    /// It is called wherever a response future is dropped, also during a panic: it must not panic
    /// itself. With tokio take the runtime's `Handle`; `tokio::spawn` panics outside of it.
    #[must_use]
    pub fn spawn_with(self, spawn: impl Fn(Settling) + Send + Sync + 'static) -> Self {
        let desk = Arc::new(Desk::new(Arc::clone(self.desk.store()), Some(Box::new(spawn))));
        Self { desk, ..self }
    }
}

impl<S, P: Clone, T: Clone, A: Clone> Layer<S> for LimitLayer<P, T, A> {
    type Service = Limited<S, P, T, A>;

    fn layer(&self, inner: S) -> Self::Service {
        let (settle, answer) = (self.settle.clone(), self.answer.clone());
        Limited::new(inner, Arc::clone(&self.desk), self.planner.clone(), settle, answer)
    }
}

impl<P, T, A> fmt::Debug for LimitLayer<P, T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitLayer").finish_non_exhaustive()
    }
}
