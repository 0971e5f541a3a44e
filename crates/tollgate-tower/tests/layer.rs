//! What the layer admits, refuses and passes on.

mod common;

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use common::{charging, limit, per_day, per_minute, plan, stands, store};
use tollgate_limiter::{ExactAmount, Plan, Rule};
use tollgate_store::Clock as _;
use tollgate_tower::{Error, LimitLayer, Rejection, Reservation, Retry};
use tower::{Layer as _, Service, ServiceExt as _, service_fn};

/// Counts its calls and answers each with its request.
fn echo(
    calls: &Arc<AtomicU64>,
) -> impl Service<u64, Response = u64, Error = Infallible, Future = Ready<Result<u64, Infallible>>>
+ Clone
+ Send
+ use<> {
    let calls = Arc::clone(calls);
    service_fn(move |request: u64| {
        calls.fetch_add(1, Ordering::SeqCst);
        ready(Ok(request))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_180_parallel_calls_at_limit_50_exactly_50_reach_the_service() {
    let (_, store) = store();
    let (minute, calls) = (per_minute(50), Arc::new(AtomicU64::new(0)));
    let service = LimitLayer::new(store.clone(), charging(&minute)).layer(echo(&calls));
    let tasks: Vec<_> = (0..180).map(|_| tokio::spawn(service.clone().oneshot(1))).collect();
    let mut passed = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(answer) => passed += answer,
            Err(error) => assert!(error.refused().is_some(), "{error}"),
        }
    }
    assert_eq!((passed, calls.load(Ordering::SeqCst), stands(&*store, &minute)), (50, 50, (50, 0)));
}

#[tokio::test]
async fn a_refused_call_changes_no_counter_and_passes_when_it_was_told() {
    let (clock, store) = store();
    let (minute, day) = (per_minute(100), per_day(1_000));
    let plan = {
        let (minute, day) = (minute.clone(), day.clone());
        move |&charge: &u64| Some(plan(&[(&day, charge), (&minute, charge)]))
    };
    let calls = Arc::new(AtomicU64::new(0));
    let service = LimitLayer::new(store.clone(), plan).layer(echo(&calls));
    assert_eq!(service.clone().oneshot(80).await.unwrap(), 80);

    let error = service.clone().oneshot(40).await.unwrap_err();
    let refused = error.refused().unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!((stands(&*store, &day), stands(&*store, &minute)), ((80, 0), (80, 0)));
    assert_eq!(refused.binding().unwrap().limit, minute);
    assert_eq!((refused.plan().entries().len(), refused.refusal().refusing.len()), (2, 1));
    // 80 of the last minute weigh 60 when a quarter of the next one is over.
    assert_eq!(refused.retry(), Retry::After(Duration::from_millis(75_000)));
    assert_eq!(refused.retry_after_s(), Some(75));
    assert_eq!(
        error.to_string(),
        "tokens/minute is limited to 100: 80 used, 0 held by open calls, 40 needed; fits in 75000 ms"
    );

    let started = clock.now();
    clock.set(started.saturating_add(tollgate_limiter::DurationMs::new(74_999)));
    assert!(service.clone().oneshot(40).await.is_err());
    clock.set(started.saturating_add(tollgate_limiter::DurationMs::new(75_000)));
    assert_eq!(service.clone().oneshot(40).await.unwrap(), 40);
}

#[tokio::test]
async fn a_refusal_tells_never_from_wait_for_others() {
    let (_, store) = store();
    let open = limit("open", Rule::Concurrent, 1);
    let service = LimitLayer::new(store, charging(&open))
        .layer(service_fn(|_: u64| std::future::pending::<Result<(), Infallible>>()));
    let waits = tokio::spawn(service.clone().oneshot(1));
    tokio::task::yield_now().await;
    let retry =
        |error: Error<Infallible>| error.refused().map(|refused| (refused.retry(), refused.retry_after_s()));
    assert_eq!(retry(service.clone().oneshot(1).await.unwrap_err()), Some((Retry::WhenOthersEnd, None)));
    assert_eq!(retry(service.clone().oneshot(2).await.unwrap_err()), Some((Retry::Never, None)));
    waits.abort();
}

#[tokio::test]
async fn what_the_hook_says_was_used_is_what_counts() {
    let (_, store) = store();
    let (minute, day) = (per_minute(1_000), per_day(1_000));
    let plan = {
        let (minute, day) = (minute.clone(), day.clone());
        move |&charge: &u64| Some(plan(&[(&minute, charge), (&day, charge)]))
    };
    let settle = |ended: Result<u64, Infallible>, reservation: Reservation| {
        assert!(reservation.admission().is_some_and(|admission| admission.over_soft.is_empty()));
        assert_eq!(reservation.held().unwrap().plan.entries().len(), 2);
        reservation.settle(|entry| match entry.limit.key.name() {
            "tokens/minute" => ExactAmount::whole(7),
            _ => ExactAmount::whole(entry.charge.get() + 500),
        });
        ended.map(|answer| answer.to_string())
    };
    let calls = Arc::new(AtomicU64::new(0));
    let service = LimitLayer::new(store.clone(), plan).settle_with(settle).layer(echo(&calls));
    assert_eq!(service.oneshot(600).await.unwrap(), "600");
    assert_eq!((stands(&*store, &minute), stands(&*store, &day)), ((7, 0), (1_100, 0)));
    assert_eq!(store.open_reservations(), 0);
}

#[tokio::test]
async fn a_call_without_a_plan_passes_and_reserves_nothing() {
    let (_, store) = store();
    let settle = |ended: Result<u64, Infallible>, reservation: Reservation| {
        assert!(reservation.entries().is_empty() && reservation.held().is_none());
        assert!(reservation.admission().is_none());
        reservation.settle(|_| ExactAmount::whole(1));
        ended
    };
    let calls = Arc::new(AtomicU64::new(0));
    let service =
        LimitLayer::new(store.clone(), |_: &u64| None::<Arc<Plan>>).settle_with(settle).layer(echo(&calls));
    assert_eq!(service.oneshot(9).await.unwrap(), 9);
    assert_eq!((store.counters(), store.open_reservations()), (0, 0));
}

#[tokio::test]
async fn a_rejection_can_be_a_response_and_the_error_stays_the_inner_one() {
    let (_, store) = store();
    let calls = Arc::new(AtomicU64::new(0));
    let layer = LimitLayer::new(store, charging(&per_minute(10))).respond_with(|rejection| match rejection {
        Rejection::Refused(_) => 429,
        _ => 503,
    });
    let service = layer.layer(echo(&calls));
    let infallible: Result<u64, Infallible> = service.clone().oneshot(11).await;
    assert_eq!((infallible, service.oneshot(10).await), (Ok(429), Ok(10)));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

/// Ready at every second poll; must be called only when it was.
#[derive(Clone, Default)]
struct Reluctant {
    polls: u32,
}

impl Service<u64> for Reluctant {
    type Response = u64;
    type Error = &'static str;
    type Future = Ready<Result<u64, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        self.polls += 1;
        match self.polls {
            1 => Poll::Pending,
            2 => Poll::Ready(Ok(())),
            _ => Poll::Ready(Err("worn out")),
        }
    }

    fn call(&mut self, request: u64) -> Self::Future {
        ready(if self.polls == 2 { Ok(request) } else { Err("not ready") })
    }
}

#[tokio::test]
async fn readiness_and_its_errors_are_those_of_the_inner_service() {
    let (_, store) = store();
    let mut service = LimitLayer::new(store, charging(&per_minute(10))).layer(Reluctant::default());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut cx).is_pending());
    assert!(matches!(service.poll_ready(&mut cx), Poll::Ready(Ok(()))));
    assert_eq!(service.call(1).await.unwrap(), 1);
    assert!(matches!(service.poll_ready(&mut cx), Poll::Ready(Err(Error::Inner("worn out")))));
    assert_eq!(service.get_ref().polls, 3);
}

#[test]
fn layer_service_and_future_can_be_cloned_and_sent() {
    fn is_ready_to_go<T: Clone + Send + Sync + 'static>(_: &T) {}
    fn can_be_sent<T: Send + 'static>(_: &T) {}
    let (_, store) = store();
    let layer = LimitLayer::new(store, charging(&per_minute(10)));
    is_ready_to_go(&layer);
    let mut service = layer.layer(Reluctant { polls: 2 });
    is_ready_to_go(&service);
    can_be_sent(&service.call(1));
}

#[tokio::test]
async fn an_error_can_be_boxed_whatever_the_inner_one_is() {
    let (_, store) = store();
    let service = LimitLayer::new(store, charging(&per_minute(10)))
        .layer(service_fn(|_: u64| ready(Err::<u64, common::Boxed>("inner".into()))));
    let boxed = service.clone().oneshot(1).await.unwrap_err().into_boxed();
    assert_eq!(boxed.to_string(), "inner");
    let boxed = service.oneshot(11).await.unwrap_err().into_boxed();
    assert!(
        boxed.downcast_ref::<Rejection>().is_some_and(|rejection| matches!(rejection, Rejection::Refused(_)))
    );
}
