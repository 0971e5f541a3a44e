//! The future of a limited call: asks, calls, settles.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use crate::{Answer, Rejection, Reservation, Settle, claim::Claim, desk::Asking};

pin_project! {
    /// The answer of a [`Limited`](crate::Limited) service.
    ///
    /// Dropped before its end, it releases a reservation that the store has not answered yet, and
    /// settles one that was admitted as reserved.
    pub struct ResponseFuture<S, Request, T, A>
    where
        S: Service<Request>,
    {
        #[pin]
        state: State<S, Request>,
        settle: T,
        answer: A,
    }
}

pin_project! {
    /// How far a call has come.
    #[project = Step]
    pub(crate) enum State<S, Request>
    where
        S: Service<Request>,
    {
        /// It is not made.
        Rejected { rejection: Option<Rejection> },
        /// The store is asked. Afterwards the service is called with the request.
        Asking { asking: Asking, next: Option<(Claim, S, Request)> },
        /// The service works. Dropped first: what it holds is gone before its place is free.
        Running { #[pin] call: S::Future, reservation: Option<Reservation> },
        Over,
    }
}

impl<S: Service<Request>, Request> State<S, Request> {
    pub(crate) const fn rejected(rejection: Rejection) -> Self {
        Self::Rejected { rejection: Some(rejection) }
    }

    pub(crate) fn asking(claim: Claim, service: S, request: Request) -> Self {
        Self::Asking { asking: claim.reserve_apart(), next: Some((claim, service, request)) }
    }

    pub(crate) const fn running(call: S::Future, reservation: Reservation) -> Self {
        Self::Running { call, reservation: Some(reservation) }
    }
}

impl<S: Service<Request>, Request, T, A> ResponseFuture<S, Request, T, A> {
    pub(crate) const fn new(state: State<S, Request>, settle: T, answer: A) -> Self {
        Self { state, settle, answer }
    }
}

impl<S, Request, T, A> Future for ResponseFuture<S, Request, T, A>
where
    S: Service<Request>,
    T: Settle<S::Response, S::Error>,
    A: Answer<T::Response, S::Error>,
{
    type Output = Result<T::Response, A::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        // Each state is left at most once.
        loop {
            let next = match this.state.as_mut().project() {
                Step::Rejected { rejection } => {
                    let Some(rejection) = rejection.take() else { return Poll::Pending };
                    this.state.set(State::Over);
                    return Poll::Ready(this.answer.reject(rejection));
                }
                Step::Asking { asking, next } => {
                    let verdict = ready!(asking.as_mut().poll(cx));
                    let Some((claim, mut service, request)) = next.take() else { return Poll::Pending };
                    match claim.answered(verdict) {
                        Ok(reservation) => State::running(service.call(request), reservation),
                        Err(rejection) => State::rejected(rejection),
                    }
                }
                Step::Running { call, reservation } => {
                    let ended = ready!(call.poll(cx));
                    let Some(reservation) = reservation.take() else { return Poll::Pending };
                    this.state.set(State::Over);
                    let settled = this.settle.settle(ended, reservation);
                    return Poll::Ready(settled.map_err(|error| this.answer.pass(error)));
                }
                Step::Over => return Poll::Pending,
            };
            this.state.set(next);
        }
    }
}

impl<S: Service<Request>, Request, T, A> fmt::Debug for ResponseFuture<S, Request, T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
