//! Stores that have to be waited for, and stores that fail.

#![expect(clippy::unwrap_used, reason = "stores beside test functions are no tests to clippy")]

mod common;

use std::{
    convert::Infallible,
    future::{Future, pending, ready},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use common::{charging, per_day, stands, store};
use tokio::sync::Semaphore;
use tollgate_limiter::{Amount, ExactAmount, Limit, Plan, ReservationId, TimestampMs, Verdict};
use tollgate_store::{Attempt, CounterView, Held, MemoryStore, Settled, Store, StoreError, StoreFuture};
use tollgate_tower::{Error, LimitLayer, Rejection, Settling};
use tower::{Layer as _, Service as _, ServiceExt as _, limit::ConcurrencyLimit, service_fn};

/// A store behind a gate: a call waits for a pass, then happens.
struct Gated {
    inner: Arc<MemoryStore>,
    reserves: Semaphore,
    settles: Arc<Semaphore>,
    asked: AtomicU64,
}

impl Gated {
    fn new(reserves: usize, settles: usize) -> Arc<Self> {
        let (_, inner) = store();
        let (reserves, settles) = (Semaphore::new(reserves), Arc::new(Semaphore::new(settles)));
        Arc::new(Self { inner, reserves, settles, asked: AtomicU64::new(0) })
    }
}

impl Store for Gated {
    fn reserve(&self, id: ReservationId, plan: Arc<Plan>, attempt: Attempt) -> StoreFuture<'_, Verdict> {
        StoreFuture::waiting(async move {
            self.asked.fetch_add(1, Ordering::SeqCst);
            // What is sent cannot be called back: it happens although nobody waits for the answer.
            let verdict = self.inner.reserve(id, plan, attempt).await;
            self.reserves.acquire().await.unwrap().forget();
            verdict
        })
    }

    fn extend(&self, _: &Held, _: u32, _: &[Amount]) -> StoreFuture<'_, Verdict> {
        unreachable!("the layer does not extend")
    }

    fn settle(&self, held: &Held, actuals: &[ExactAmount]) -> StoreFuture<'static, Settled> {
        let (inner, settles) = (self.inner.clone(), self.settles.clone());
        let (held, actuals) = (held.clone(), actuals.to_vec());
        StoreFuture::waiting(async move {
            settles.acquire().await.unwrap().forget();
            inner.settle(&held, &actuals).await
        })
    }

    fn inspect(&self, limits: &[Arc<Limit>]) -> StoreFuture<'_, Vec<CounterView>> {
        self.inner.inspect(limits)
    }
}

/// Spawns into a list, whose settles the test runs.
fn list() -> (Arc<Mutex<Vec<Settling>>>, impl Fn(Settling) + Send + Sync + 'static) {
    let settles = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&settles);
    (settles, move |settling| shared.lock().unwrap().push(settling))
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn a_call_waits_for_the_store_and_its_settle_goes_on_without_it() {
    let store = Gated::new(0, 0);
    let (day, (settles, spawn)) = (per_day(100), list());
    let inner = service_fn(|request: u64| ready(Ok::<_, Infallible>(request)));
    let service = LimitLayer::new(store.clone(), charging(&day)).spawn_with(spawn).layer(inner);
    let mut call = pin!(service.clone().oneshot(60));
    assert!(poll(call.as_mut()).is_pending());
    store.reserves.add_permits(1);
    assert_eq!(call.await.unwrap(), 60);
    assert_eq!((store.asked.load(Ordering::SeqCst), stands(&*store, &day)), (1, (0, 60)));

    store.reserves.add_permits(1);
    let refused = service.oneshot(60).await.unwrap_err();
    assert!(refused.refused().is_some());

    store.settles.add_permits(1);
    let settling = settles.lock().unwrap().pop().unwrap();
    assert_eq!(settling.await.unwrap(), Settled::Applied);
    assert_eq!(stands(&*store, &day), (60, 0));
    assert!(settles.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_service_that_was_polled_ready_is_the_one_that_is_called() {
    // It panics if it is called without having been polled ready.
    let inner = ConcurrencyLimit::new(service_fn(|request: u64| ready(Ok::<_, Infallible>(request))), 1);
    let (_, spawn) = list();
    let layer = LimitLayer::new(Gated::new(3, 0), charging(&per_day(100))).spawn_with(spawn);
    let mut service = layer.layer(inner);
    for _ in 0..3 {
        assert_eq!(service.ready().await.unwrap().call(1).await.unwrap(), 1);
    }
}

#[tokio::test]
async fn a_call_dropped_while_the_store_is_asked_is_released() {
    let store = Gated::new(0, 1);
    let (day, (settles, spawn)) = (per_day(100), list());
    let inner = service_fn(|_: u64| -> std::future::Ready<Result<(), Infallible>> {
        panic!("it must not be called")
    });
    let mut service = LimitLayer::new(store.clone(), charging(&day)).spawn_with(spawn).layer(inner);
    {
        let mut call = pin!(service.call(60));
        assert!(poll(call.as_mut()).is_pending());
        assert_eq!(stands(&*store, &day), (0, 60));
    }
    let settling = settles.lock().unwrap().pop().unwrap();
    assert_eq!(settling.await.unwrap(), Settled::Applied);
    assert_eq!((stands(&*store, &day), store.inner.open_reservations()), ((0, 0), 0));
}

#[tokio::test]
async fn a_call_dropped_while_the_service_works_is_settled_as_reserved() {
    let store = Gated::new(1, 1);
    let (day, (settles, spawn)) = (per_day(100), list());
    let inner = service_fn(|_: u64| pending::<Result<(), Infallible>>());
    let mut service = LimitLayer::new(store.clone(), charging(&day)).spawn_with(spawn).layer(inner);
    assert!(poll(pin!(service.call(60)).as_mut()).is_pending());
    let settling = settles.lock().unwrap().pop().unwrap();
    assert_eq!(settling.await.unwrap(), Settled::Applied);
    assert_eq!(stands(&*store, &day), (60, 0));
}

#[tokio::test]
async fn a_store_to_wait_for_is_not_asked_without_a_spawner() {
    let store = Gated::new(1, 1);
    let inner = service_fn(|request: u64| ready(Ok::<_, Infallible>(request)));
    let service = LimitLayer::new(store.clone(), charging(&per_day(100))).layer(inner);
    let error = service.oneshot(60).await.unwrap_err();
    assert!(matches!(error, Error::Rejected(Rejection::NoSpawner)));
    assert_eq!((store.asked.load(Ordering::SeqCst), store.inner.counters()), (0, 0));
}

/// A store that reserves and then says what it was told to, and notes each settle.
struct Failing {
    inner: Arc<MemoryStore>,
    reserve: fn(String) -> StoreError,
    settles: Mutex<Vec<(Held, Vec<ExactAmount>)>>,
}

impl Failing {
    fn new(reserve: fn(String) -> StoreError) -> Arc<Self> {
        let (_, inner) = store();
        Arc::new(Self { inner, reserve, settles: Mutex::default() })
    }
}

impl Store for Failing {
    fn reserve(&self, id: ReservationId, plan: Arc<Plan>, attempt: Attempt) -> StoreFuture<'_, Verdict> {
        let error = (self.reserve)("no answer".to_owned());
        if error.may_have_applied() {
            drop(self.inner.reserve(id, plan, attempt));
        }
        StoreFuture::ready(Err(error))
    }

    fn extend(&self, _: &Held, _: u32, _: &[Amount]) -> StoreFuture<'_, Verdict> {
        unreachable!("the layer does not extend")
    }

    fn settle(&self, held: &Held, actuals: &[ExactAmount]) -> StoreFuture<'static, Settled> {
        self.settles.lock().unwrap().push((held.clone(), actuals.to_vec()));
        self.inner.settle(held, actuals)
    }

    fn inspect(&self, limits: &[Arc<Limit>]) -> StoreFuture<'_, Vec<CounterView>> {
        self.inner.inspect(limits)
    }
}

#[tokio::test]
async fn a_store_that_fails_lets_nothing_pass_and_keeps_nothing() {
    for (reserve, settles) in [(StoreError::NotApplied as fn(String) -> _, 0), (StoreError::Unknown, 1)] {
        let (store, day) = (Failing::new(reserve), per_day(100));
        let inner = service_fn(|_: u64| -> std::future::Ready<Result<(), Infallible>> {
            panic!("it must not be called")
        });
        let service = LimitLayer::new(store.clone(), charging(&day)).layer(inner);
        let error = service.oneshot(60).await.unwrap_err();
        assert!(matches!(error, Error::Rejected(Rejection::Unavailable(_))), "{error}");
        // What may have been charged is given back under its own id.
        let sent = store.settles.lock().unwrap();
        assert!(sent.iter().all(|(_, actuals)| *actuals == [ExactAmount::ZERO]));
        assert_eq!((sent.len(), stands(&*store, &day)), (settles, (0, 0)));
        assert_eq!(store.inner.open_reservations(), 0);
    }
}

/// Admits everything and cannot be settled.
struct Deaf;

impl Store for Deaf {
    fn reserve(&self, _: ReservationId, _: Arc<Plan>, _: Attempt) -> StoreFuture<'_, Verdict> {
        let admission = tollgate_limiter::Admission {
            at: TimestampMs::new(7),
            over_soft: tollgate_limiter::EntrySet::default(),
            tightest: None,
        };
        StoreFuture::ready(Ok(Verdict::Admitted(admission)))
    }

    fn extend(&self, _: &Held, _: u32, _: &[Amount]) -> StoreFuture<'_, Verdict> {
        unreachable!("the layer does not extend")
    }

    fn settle(&self, _: &Held, _: &[ExactAmount]) -> StoreFuture<'static, Settled> {
        StoreFuture::ready(Err(StoreError::NotApplied("away".to_owned())))
    }

    fn inspect(&self, _: &[Arc<Limit>]) -> StoreFuture<'_, Vec<CounterView>> {
        unreachable!("the layer does not look")
    }
}

#[tokio::test]
async fn a_settle_that_failed_is_told_with_all_that_is_needed_to_send_it_again() {
    let (settles, spawn) = list();
    let inner = service_fn(|request: u64| ready(Ok::<_, Infallible>(request)));
    let service = LimitLayer::new(Arc::new(Deaf), charging(&per_day(100))).spawn_with(spawn).layer(inner);
    assert_eq!(service.oneshot(60).await.unwrap(), 60);
    let settling = settles.lock().unwrap().pop().unwrap();
    let unsettled = settling.await.unwrap_err();
    assert_eq!((unsettled.held.at, unsettled.actuals), (TimestampMs::new(7), vec![ExactAmount::whole(60)]));
    assert!(unsettled.error.is_transient());
}
