//! The service: plans, reserves, and calls what it wraps.

use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
};

use tollgate_limiter::Plan;
use tower_service::Service;

use crate::{
    Answer, Planner, Rejection, Reservation, ResponseFuture, Settle, claim::Claim, desk::Desk, future::State,
};

/// A service whose calls are limited. Made by a [`LimitLayer`](crate::LimitLayer).
#[derive(Clone)]
pub struct Limited<S, P, T, A> {
    inner: S,
    desk: Arc<Desk>,
    planner: P,
    settle: T,
    answer: A,
}

impl<S, P, T, A> Limited<S, P, T, A> {
    pub(crate) const fn new(inner: S, desk: Arc<Desk>, planner: P, settle: T, answer: A) -> Self {
        Self { inner, desk, planner, settle, answer }
    }

    /// The service inside.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service inside, to change it.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The service inside, alone.
    pub fn into_inner(self) -> S {
        self.inner
    }

    /// Asks the store, and makes the call if it admits it at once.
    fn reserve<Request>(&mut self, plan: Arc<Plan>, request: Request) -> State<S, Request>
    where
        S: Service<Request> + Clone,
    {
        let claim = Claim::new(Arc::clone(&self.desk), plan);
        // A future that was never polled has done nothing: one that has to be waited for is made
        // again where it can own what it borrows.
        let at_once = claim.reserve().now_or_later().ok();
        match at_once {
            Some(verdict) => match claim.answered(verdict) {
                Ok(reservation) => State::running(self.inner.call(request), reservation),
                Err(rejection) => State::rejected(rejection),
            },
            None if self.desk.can_spawn() => {
                // The one that was polled ready is the one that is called.
                let next = self.inner.clone();
                let ready = mem::replace(&mut self.inner, next);
                State::asking(claim, ready, request)
            }
            None => {
                claim.forget();
                State::rejected(Rejection::NoSpawner)
            }
        }
    }
}

impl<S, P, T, A, Request> Service<Request> for Limited<S, P, T, A>
where
    S: Service<Request> + Clone,
    P: Planner<Request>,
    T: Settle<S::Response, S::Error> + Clone,
    A: Answer<T::Response, S::Error> + Clone,
{
    type Response = T::Response;
    type Error = A::Error;
    type Future = ResponseFuture<S, Request, T, A>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(|error| self.answer.pass(error))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let state = match self.planner.plan(&request) {
            Some(plan) => self.reserve(plan, request),
            None => State::running(self.inner.call(request), Reservation::of_nothing()),
        };
        ResponseFuture::new(state, self.settle.clone(), self.answer.clone())
    }
}

impl<S: fmt::Debug, P, T, A> fmt::Debug for Limited<S, P, T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limited").field("inner", &self.inner).finish_non_exhaustive()
    }
}
