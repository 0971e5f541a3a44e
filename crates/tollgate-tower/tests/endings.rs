//! However a call ends, its reservation is settled, once.

mod common;

use std::{
    convert::Infallible,
    future::{Future, pending, ready},
    panic::AssertUnwindSafe,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use common::{charging, limit, per_day, stands, store};
use tollgate_limiter::{ExactAmount, Limit, Rule};
use tollgate_store::MemoryStore;
use tollgate_tower::{Error, LimitLayer, Reservation};
use tower::{Layer as _, Service as _, ServiceExt as _, service_fn};

fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs `call`, which panics, and says how the store stands afterwards.
fn after_panic(store: &MemoryStore, limit: &Arc<Limit>, call: impl FnOnce()) -> (u64, u64) {
    assert!(std::panic::catch_unwind(AssertUnwindSafe(call)).is_err());
    assert_eq!(store.open_reservations(), 0);
    stands(store, limit)
}

#[tokio::test]
async fn an_inner_error_is_settled_as_reserved_unless_the_hook_knows_better() {
    let (_, store) = store();
    let day = per_day(1_000);
    let failing = service_fn(|_: u64| ready(Err::<u64, &str>("no connection")));
    let layer = LimitLayer::new(store.clone(), charging(&day));
    let error = layer.layer(failing).oneshot(30).await.unwrap_err();
    assert!(matches!(error, Error::Inner("no connection")));
    assert_eq!(stands(&*store, &day), (30, 0));

    let settle = |ended: Result<u64, &'static str>, reservation: Reservation| {
        match &ended {
            Err("no connection") => reservation.release(),
            _ => drop(reservation),
        }
        ended
    };
    assert!(layer.settle_with(settle).layer(failing).oneshot(500).await.is_err());
    assert_eq!(stands(&*store, &day), (30, 0));
    assert_eq!(store.open_reservations(), 0);
}

#[test]
fn a_dropped_response_future_is_settled_as_reserved() {
    let (_, store) = store();
    let day = per_day(1_000);
    let hook =
        |_: Result<(), Infallible>, _: Reservation| -> Result<(), Infallible> { panic!("it has not ended") };
    let mut service = LimitLayer::new(store.clone(), charging(&day))
        .settle_with(hook)
        .layer(service_fn(|_: u64| pending::<Result<(), Infallible>>()));
    // Never polled, and polled once.
    drop(service.call(100));
    assert_eq!(stands(&*store, &day), (100, 0));
    assert!(poll_once(service.call(100)).is_pending());
    assert_eq!(stands(&*store, &day), (200, 0));
    assert_eq!(store.open_reservations(), 0);
}

#[test]
fn a_place_is_free_again_however_its_call_ends() {
    let (_, store) = store();
    let open = limit("open", Rule::Concurrent, 1);
    let mut service = LimitLayer::new(store.clone(), charging(&open))
        .layer(service_fn(|_: u64| pending::<Result<(), Infallible>>()));
    let first = service.call(1);
    assert!(matches!(poll_once(service.call(1)), Poll::Ready(Err(error)) if error.refused().is_some()));
    drop(first);
    assert!(poll_once(service.call(1)).is_pending());
    assert_eq!(stands(&*store, &open), (0, 0));
}

#[test]
fn a_panic_in_the_service_is_settled_as_reserved() {
    let (_, store) = store();
    let day = per_day(1_000);
    let layer = LimitLayer::new(store.clone(), charging(&day));
    let mut at_once =
        layer.layer(service_fn(|_: u64| -> std::future::Ready<Result<(), Infallible>> { panic!("in call") }));
    assert_eq!(after_panic(&store, &day, || drop(at_once.call(10))), (10, 0));
    let mut later = layer.layer(service_fn(|request: u64| async move {
        assert_eq!(request, 0, "in the future");
        Ok::<_, Infallible>(())
    }));
    assert_eq!(after_panic(&store, &day, || _ = poll_once(later.call(10))), (20, 0));
}

#[test]
fn a_panic_in_the_hook_is_settled_as_reserved() {
    let (_, store) = store();
    let day = per_day(1_000);
    let layer = LimitLayer::new(store.clone(), charging(&day));
    let inner = service_fn(|request: u64| ready(Ok::<_, Infallible>(request)));
    let in_hook =
        |_: Result<u64, Infallible>, _: Reservation| -> Result<u64, Infallible> { panic!("in the hook") };
    let mut service = layer.clone().settle_with(in_hook).layer(inner);
    assert_eq!(after_panic(&store, &day, || _ = poll_once(service.call(10))), (10, 0));
    let in_settle = |ended: Result<u64, Infallible>, reservation: Reservation| {
        reservation.settle(|_| panic!("while it says what was used"));
        ended
    };
    let mut service = layer.settle_with(in_settle).layer(inner);
    assert_eq!(after_panic(&store, &day, || _ = poll_once(service.call(10))), (20, 0));
}

/// A response whose parts come later.
struct Body {
    parts: Vec<u64>,
    used: u64,
    reservation: Option<Reservation>,
}

impl Iterator for Body {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let part = self.parts.pop();
        self.used += part.unwrap_or(0);
        if part.is_none()
            && let Some(reservation) = self.reservation.take()
        {
            reservation.settle(|_| ExactAmount::whole(self.used));
        }
        part
    }
}

#[tokio::test]
async fn a_body_settles_when_it_ends_and_as_reserved_when_it_is_dropped() {
    let (_, store) = store();
    let day = per_day(1_000);
    let settle = |ended: Result<Vec<u64>, Infallible>, reservation: Reservation| {
        ended.map(|parts| Body { parts, used: 0, reservation: Some(reservation) })
    };
    let service = LimitLayer::new(store.clone(), charging(&day))
        .settle_with(settle)
        .layer(service_fn(|_: u64| ready(Ok::<_, Infallible>(vec![3, 4]))));
    let body = service.clone().oneshot(100).await.unwrap();
    assert_eq!(stands(&*store, &day), (0, 100));
    assert_eq!(body.sum::<u64>(), 7);
    assert_eq!(stands(&*store, &day), (7, 0));

    let mut body = service.oneshot(100).await.unwrap();
    assert_eq!(body.next(), Some(4));
    drop(body);
    assert_eq!((stands(&*store, &day), store.open_reservations()), ((107, 0), 0));
}
