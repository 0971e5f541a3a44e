//! Calls that are ready together, and calls of several runtimes.

#![expect(
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

use std::{
    future::Future as _,
    pin::pin,
    sync::Arc,
    task::{Context, Waker},
    thread,
};

use tokio::{runtime::Builder, task::JoinHandle};
use tollgate_limiter::{
    Amount, CounterKey, Enforcement, Entry, ExactAmount, Limit, Period, Plan, ReservationId, Rule,
    TimestampMs, Verdict,
};
use tollgate_store::{Attempt, Held, Settled, Store as _, StoreError};
use tollgate_store_redis::{RedisStore, testing::RedisServer};

fn day(partition: &str, amount: u64) -> Arc<Limit> {
    let key = CounterKey::new(partition, "day");
    let rule = Rule::Calendar(Period::Day);
    Arc::new(Limit { key, rule, amount: Amount::new(amount), enforcement: Enforcement::Hard })
}

fn plan(limit: &Arc<Limit>, charge: u64) -> Arc<Plan> {
    let entry = Entry { limit: Arc::clone(limit), charge: Amount::new(charge) };
    Arc::new(Plan::new(vec![entry]).unwrap())
}

async fn connect(server: &RedisServer) -> RedisStore {
    let store = RedisStore::connect(&server.settings("tollgate")).unwrap();
    store.connected().await.unwrap();
    store
}

/// A reserve that begins with the runtime's next turn.
fn reserve(store: &RedisStore, id: u128, plan: &Arc<Plan>) -> JoinHandle<Result<Verdict, StoreError>> {
    let (store, id, plan) = (store.clone(), ReservationId::new(id), Arc::clone(plan));
    tokio::spawn(async move { store.reserve(id, plan, Attempt::First).await })
}

async fn admitted(calls: Vec<JoinHandle<Result<Verdict, StoreError>>>) -> Vec<bool> {
    let mut admitted = Vec::new();
    for call in calls {
        admitted.push(matches!(call.await.unwrap(), Ok(Verdict::Admitted(_))));
    }
    admitted
}

/// How many scripts the server has run.
fn scripts(server: &RedisServer) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]).unwrap();
    let of = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
    };
    of("evalsha") + of("eval")
}

#[tokio::test]
async fn calls_that_are_ready_together_are_one_command_and_each_is_decided_by_itself() {
    let server = RedisServer::start().unwrap();
    let (store, limit) = (connect(&server).await, day("acme", 10));
    // From here on the server knows both scripts.
    admitted((100..102).map(|id| reserve(&store, id, &plan(&limit, 0))).collect()).await;
    let before = scripts(&server);
    let calls = (0..20).map(|id| reserve(&store, id, &plan(&limit, 1))).collect();
    let first_ten: Vec<_> = (0..20).map(|place| place < 10).collect();
    assert_eq!(admitted(calls).await, first_ten);
    assert_eq!(scripts(&server) - before, 1);
}

#[tokio::test]
async fn settlements_wait_for_those_before_them_and_each_has_its_own_answer() {
    let server = RedisServer::start().unwrap();
    let (store, limit) = (connect(&server).await, day("acme", 1_000));
    let plan = plan(&limit, 10);
    admitted((0..20).map(|id| reserve(&store, id, &plan)).collect()).await;
    let settle = |id: u128| {
        let held = Held { id: ReservationId::new(id), plan: Arc::clone(&plan), at: TimestampMs::new(0) };
        tokio::spawn(store.settle(&held, &[ExactAmount::whole(3)]))
    };
    settle(0).await.unwrap().unwrap();
    let calls: Vec<_> = [0, 1, 2, 77].map(settle).into_iter().collect();
    let mut settled = Vec::new();
    for call in calls {
        settled.push(call.await.unwrap().unwrap());
    }
    assert_eq!(settled, [Settled::Already, Settled::Applied, Settled::Applied, Settled::WithoutReservation]);
}

#[tokio::test]
async fn a_call_that_fails_leaves_those_beside_it_alone() {
    let server = RedisServer::start().unwrap();
    let store = connect(&server).await;
    let (good, bad) = (plan(&day("acme", 10), 1), plan(&day("broken", 10), 1));
    server.command(&["SET", "tollgate:{broken}:c:day", "something else"]).unwrap();
    let calls: Vec<_> =
        [(1, &good), (2, &bad), (3, &good)].map(|(id, plan)| reserve(&store, id, plan)).into();
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.unwrap());
    }
    assert!(
        matches!(
            &answers[..],
            [Ok(Verdict::Admitted(_)), Err(StoreError::Corrupt(_)), Ok(Verdict::Admitted(_))]
        ),
        "{answers:?}"
    );
    let views = store.inspect(&[day("acme", 10)]).await.unwrap();
    assert_eq!(views[0].held, Amount::new(2));
}

#[tokio::test]
async fn scripts_that_the_server_has_forgotten_are_sent_again_for_all() {
    let server = RedisServer::start().unwrap();
    let (store, limit) = (connect(&server).await, day("acme", 10));
    for round in 0..3 {
        server.command(&["SCRIPT", "FLUSH"]).unwrap();
        let calls = (0..3).map(|id| reserve(&store, 10 * round + id, &plan(&limit, 1))).collect();
        assert_eq!(admitted(calls).await, [true; 3]);
    }
    assert_eq!(store.inspect(&[limit]).await.unwrap()[0].held, Amount::new(9));
}

#[tokio::test]
async fn a_reserve_that_nobody_waits_for_any_more_is_not_sent() {
    let server = RedisServer::start().unwrap();
    let (store, limit) = (connect(&server).await, day("acme", 10));
    {
        let mut call = pin!(store.reserve(ReservationId::new(1), plan(&limit, 1), Attempt::First));
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    assert_eq!(admitted(vec![reserve(&store, 2, &plan(&limit, 1))]).await, [true]);
    assert_eq!(store.inspect(&[limit]).await.unwrap()[0].held, Amount::new(1));
}

/// Reserves on a runtime of its own, again and again until that has a connection beside the main one, which stands
/// in for it before. How often that was.
fn on_own_runtime(store: &RedisStore, server: &RedisServer, first_id: u128) -> u128 {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (limit, mut id) = (day("acme", 1_000_000), first_id);
    loop {
        let calls = runtime.block_on(async { admitted(vec![reserve(store, id, &plan(&limit, 1))]).await });
        assert_eq!(calls, [true]);
        id += 1;
        let clients = server.command(&["CLIENT", "LIST"]).unwrap();
        if clients.lines().filter(|client| client.contains("cmd=eval")).count() == 2 {
            return id - first_id;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn each_runtime_has_a_connection_of_its_own_and_all_share_one_count() {
    let server = RedisServer::start().unwrap();
    let store = connect(&server).await;
    let mut made = 0;
    // The second and third may have the number of the runtime before them, which has ended.
    for round in 0..3 {
        made += thread::scope(|scope| {
            scope.spawn(|| on_own_runtime(&store, &server, 1_000_000 * round)).join().unwrap()
        });
    }
    let held = store.inspect(&[day("acme", 1_000_000)]).await.unwrap()[0].held;
    assert_eq!(u128::from(held.get()), made);
}

#[test]
fn a_store_whose_runtime_has_ended_says_so_to_runtimes_without_a_connection() {
    let server = RedisServer::start().unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let store = runtime.block_on(connect(&server));
    drop(runtime);
    let call = store.reserve(ReservationId::new(1), plan(&day("acme", 10), 1), Attempt::First);
    // Outside of any runtime.
    let waker = Waker::noop();
    match pin!(call).poll(&mut Context::from_waker(waker)) {
        std::task::Poll::Ready(answer) => assert!(matches!(answer, Err(StoreError::NotApplied(_)))),
        std::task::Poll::Pending => unreachable!("nobody would answer"),
    }
}
