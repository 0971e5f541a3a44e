//! What becomes of a call that is not made.

use crate::{Error, Rejection};

/// Answers a call that is not made: with an [error](AsError), or with a [response](WithResponse).
pub trait Answer<Response, Inner> {
    /// The error of the limited service.
    type Error;

    /// The answer to a call that is not made.
    ///
    /// # Errors
    ///
    /// The rejection, if it is told as an error.
    fn reject(&self, rejection: Rejection) -> Result<Response, Self::Error>;

    /// The inner service's error as it goes on.
    fn pass(&self, error: Inner) -> Self::Error;
}

/// Rejections are [errors](Error) beside those of the inner service.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsError;

impl<Response, Inner> Answer<Response, Inner> for AsError {
    type Error = Error<Inner>;

    fn reject(&self, rejection: Rejection) -> Result<Response, Error<Inner>> {
        Err(Error::Rejected(rejection))
    }

    fn pass(&self, error: Inner) -> Error<Inner> {
        Error::Inner(error)
    }
}

/// Rejections are responses that a closure makes; the error stays that of the inner service.
#[derive(Clone, Copy, Debug)]
pub struct WithResponse<F>(F);

impl<F> WithResponse<F> {
    /// Answers with what `respond` makes of a rejection.
    pub const fn new(respond: F) -> Self {
        Self(respond)
    }
}

impl<Response, Inner, F: Fn(Rejection) -> Response> Answer<Response, Inner> for WithResponse<F> {
    type Error = Inner;

    fn reject(&self, rejection: Rejection) -> Result<Response, Inner> {
        Ok((self.0)(rejection))
    }

    fn pass(&self, error: Inner) -> Inner {
        error
    }
}
