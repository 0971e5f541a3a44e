//! What a call has used, read from how it ended.

use crate::Reservation;

/// Settles a call whose inner service has ended.
///
/// Implemented for closures `Fn(Result<Response, Error>, Reservation) -> Result<Response, Error>`. A
/// call that is dropped before its end never comes here: it is settled as reserved.
pub trait Settle<Response, Error> {
    /// The response as it goes on: the inner one, or one that carries the reservation with it.
    type Response;

    /// Takes how the inner service ended, settles the reservation or hands it on, and says how the
    /// call ends.
    ///
    /// # Errors
    ///
    /// The inner service's, as a rule.
    fn settle(
        &self,
        ended: Result<Response, Error>,
        reservation: Reservation,
    ) -> Result<Self::Response, Error>;
}

impl<F, Response, Error, Out> Settle<Response, Error> for F
where
    F: Fn(Result<Response, Error>, Reservation) -> Result<Out, Error>,
{
    type Response = Out;

    fn settle(&self, ended: Result<Response, Error>, reservation: Reservation) -> Result<Out, Error> {
        self(ended, reservation)
    }
}

/// Takes every call to have used what it reserved, however it ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsReserved;

impl<Response, Error> Settle<Response, Error> for AsReserved {
    type Response = Response;

    fn settle(&self, ended: Result<Response, Error>, _reservation: Reservation) -> Result<Response, Error> {
        ended
    }
}
