//! A tower layer that reserves before a service is called and settles when it has answered.
//!
//! What some calls cost is known only when they are over. This layer charges what a call may use
//! before the inner service sees it, against every limit that applies and in one step, and replaces
//! it by what the response says was used. It decides by [`tollgate_limiter`] and keeps counters in any
//! [`Store`](tollgate_store::Store).
//!
//! ```
//! use std::{convert::Infallible, sync::Arc, time::Duration};
//! use tollgate_limiter::{Amount, CounterKey, DurationMs, Enforcement, Entry, ExactAmount, Limit, Plan, Rule};
//! use tollgate_store::{MemoryStore, SystemClock};
//! use tollgate_tower::{LimitLayer, Reservation, Retry};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! /// Asks for up to `max_tokens`.
//! struct Request { max_tokens: u64 }
//! struct Response { tokens: u64 }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Made once: 1,000 tokens in whatever minute, for all callers together.
//! let limit = Arc::new(Limit {
//!     key: CounterKey::new("everybody", "tokens/minute"),
//!     rule: Rule::BucketedWindow { window: DurationMs::new(60_000) },
//!     amount: Amount::new(1_000),
//!     enforcement: Enforcement::Hard,
//! });
//!
//! // What a request may use. `None` lets it pass without a limit.
//! let planner = move |request: &Request| {
//!     let entry = Entry { limit: Arc::clone(&limit), charge: Amount::new(request.max_tokens) };
//!     Plan::new(vec![entry]).ok().map(Arc::new)
//! };
//! // What it has used.
//! let settle = |ended: Result<Response, Infallible>, reservation: Reservation| {
//!     match &ended {
//!         Ok(response) => reservation.settle(|_entry| ExactAmount::whole(response.tokens)),
//!         Err(_) => reservation.release(),
//!     }
//!     ended
//! };
//!
//! let store = Arc::new(MemoryStore::new(Arc::new(SystemClock::new())));
//! let service = ServiceBuilder::new()
//!     .layer(LimitLayer::new(store, planner).settle_with(settle))
//!     .service(service_fn(|_: Request| async { Ok::<_, Infallible>(Response { tokens: 100 }) }));
//!
//! // 800 are reserved, 100 are used: the other 700 are back when the response is.
//! for _ in 0..3 {
//!     let response = service.clone().oneshot(Request { max_tokens: 800 }).await?;
//!     assert_eq!(response.tokens, 100);
//! }
//! // 300 are used. What does not fit never reaches the service, and is told when it would fit.
//! let Err(error) = service.clone().oneshot(Request { max_tokens: 800 }).await else { panic!("1,100 fit") };
//! let refused = error.refused().ok_or("a limit refused it")?;
//! assert_eq!(refused.binding().map(|entry| entry.limit.key.name()), Some("tokens/minute"));
//! assert!(matches!(refused.retry(), Retry::After(wait) if wait <= Duration::from_secs(61)));
//! # Ok(())
//! # }
//! ```
//!
//! # What it promises
//!
//! - **A call is made only under a held reservation.** A refused one never reaches the inner service
//!   and changes no counter.
//! - **A reservation is settled once, whatever ends the call.** When the inner service answers or
//!   fails, by the [`Settle`] hook. When the response future is dropped, or the service or the hook
//!   panics, as reserved: the service may have done its work. When it is dropped while the store is
//!   still asked, or the store leaves open whether it has charged: with zeros, under the same id.
//! - **Backpressure passes.** The layer is ready when the inner service is, and calls the very service
//!   that was polled ready.
//! - **It adds little.** With a store that answers at once, the inner service is called inside
//!   `call`, nothing is cloned but `Arc`s and hooks, and a call allocates only what its plan and its
//!   record in the store need.
//!
//! # Refusals
//!
//! A call that is not made is an [`Error::Rejected`] beside the inner service's own errors. Where an
//! error would end the connection, as under an HTTP server, turn it into a response; the error type
//! stays that of the inner service then:
//!
//! ```
//! # use std::sync::Arc;
//! # use tollgate_limiter::Plan;
//! # use tollgate_store::{MemoryStore, SystemClock};
//! use tollgate_tower::{LimitLayer, Rejection};
//!
//! # let planner = |_: &()| None::<Arc<Plan>>;
//! # let store = Arc::new(MemoryStore::new(Arc::new(SystemClock::new())));
//! let layer = LimitLayer::new(store, planner).respond_with(|rejection| match rejection {
//!     Rejection::Refused(refused) => (429, refused.retry_after_s(), refused.to_string()),
//!     unavailable => (503, None, unavailable.to_string()),
//! });
//! ```
//!
//! # Bodies that go on after the head
//!
//! A [`Settle`] hook gets the [`Reservation`] by value. If what was used is known only at the end of a
//! body, the hook moves the reservation into the body, and the body settles it; a body that is dropped
//! half-way has used what was reserved. The hook may change the response's type for that:
//!
//! ```
//! use tollgate_limiter::ExactAmount;
//! use tollgate_tower::Reservation;
//!
//! /// A body of lines, which pays for the lines it has given away.
//! struct Paying<B> {
//!     lines: B,
//!     given: u64,
//!     reservation: Option<Reservation>,
//! }
//!
//! impl<B: Iterator<Item = String>> Iterator for Paying<B> {
//!     type Item = String;
//!
//!     fn next(&mut self) -> Option<String> {
//!         let line = self.lines.next();
//!         match (&line, self.reservation.take_if(|_| line.is_none())) {
//!             (Some(_), _) => self.given += 1,
//!             (None, Some(reservation)) => reservation.settle(|_entry| ExactAmount::whole(self.given)),
//!             (None, None) => {}
//!         }
//!         line
//!     }
//! }
//!
//! fn settle<B, E>(ended: Result<B, E>, reservation: Reservation) -> Result<Paying<B>, E> {
//!     ended.map(|lines| Paying { lines, given: 0, reservation: Some(reservation) })
//! }
//! ```
//!
//! # Stores that have to be waited for
//!
//! A store in memory answers at once. One behind a socket does not, and where a response future is
//! dropped nobody is left to wait. So such a store needs [`LimitLayer::spawn_with`], which gets every
//! settle that is still to be made, and every one that failed: with what is needed to send it again
//! ([`Unsettled`]). The store's futures must do nothing before they are polled, as futures do.

mod answer;
mod claim;
mod desk;
mod error;
mod future;
mod layer;
mod planner;
mod reservation;
mod service;
mod settle;

pub use answer::{Answer, AsError, WithResponse};
pub use desk::{Settling, Unsettled};
pub use error::{Error, Refused, Rejection, Retry};
pub use future::ResponseFuture;
pub use layer::LimitLayer;
pub use planner::Planner;
pub use reservation::Reservation;
pub use service::Limited;
pub use settle::{AsReserved, Settle};
