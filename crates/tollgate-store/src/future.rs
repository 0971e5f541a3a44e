//! The future every store method returns: an answer that is there, or one to wait for.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use crate::StoreError;

/// A store's answer. A store in memory answers at once and allocates nothing for it.
pub struct StoreFuture<'a, T>(State<'a, T>);

enum State<'a, T> {
    Ready(Option<Result<T, StoreError>>),
    Waiting(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>),
}

impl<'a, T> StoreFuture<'a, T> {
    /// An answer that is there.
    pub const fn ready(answer: Result<T, StoreError>) -> Self {
        Self(State::Ready(Some(answer)))
    }

    /// An answer to wait for.
    pub fn waiting(future: impl Future<Output = Result<T, StoreError>> + Send + 'a) -> Self {
        Self(State::Waiting(Box::pin(future)))
    }

    /// The answer if it is there, or else the future back.
    ///
    /// # Errors
    ///
    /// The future itself, when it has to be waited for.
    pub fn now_or_later(self) -> Result<Result<T, StoreError>, Self> {
        match self.0 {
            State::Ready(Some(answer)) => Ok(answer),
            state => Err(Self(state)),
        }
    }
}

impl<T: Unpin> Future for StoreFuture<'_, T> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.get_mut().0 {
            State::Ready(answer) => match answer.take() {
                Some(answer) => Poll::Ready(answer),
                None => Poll::Pending,
            },
            State::Waiting(future) => future.as_mut().poll(cx),
        }
    }
}

impl<T> fmt::Debug for StoreFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreFuture").finish_non_exhaustive()
    }
}
