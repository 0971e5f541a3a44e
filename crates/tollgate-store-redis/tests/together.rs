//! Calls that are ready together, and calls of several runtimes.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

use std::{
    future::Future as _,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    num::NonZeroU64,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Waker},
    thread,
    time::Duration,
};

use tokio::{runtime::Builder, task::JoinHandle};
use tollgate_limiter::{
    Amount, CounterKey, Enforcement, Entry, ExactAmount, Limit, Period, Plan, ReservationId, Rule,
    TimestampMs, Verdict,
};
use tollgate_store::{Attempt, FailurePolicy, Held, Settled, Store as _, StoreError, SystemClock};
use tollgate_store_redis::{RedisStore, Settings, SharedStore, testing::RedisServer};

const PATIENCE: Duration = Duration::from_secs(30);

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
    // So that the server knows the script for several.
    for call in [10, 11].map(settle) {
        call.await.unwrap().unwrap();
    }
    let before = scripts(&server);
    server.freeze().unwrap();
    let mut calls = Vec::new();
    for id in [0, 1, 2, 77] {
        calls.push(settle(id));
        // So that it would be on its way, if it did not wait.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
    server.thaw().unwrap();
    let mut settled = Vec::new();
    for call in calls {
        settled.push(call.await.unwrap().unwrap());
    }
    assert_eq!(settled, [Settled::Already, Settled::Applied, Settled::Applied, Settled::WithoutReservation]);
    assert_eq!(scripts(&server) - before, 2, "the first, and those that waited for it");
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

#[tokio::test]
async fn a_reserve_that_goes_away_leaves_those_that_have_joined_it_their_answers() {
    let server = RedisServer::start().unwrap();
    let (store, plan) = (connect(&server).await, plan(&day("acme", 10), 1));
    let ask = |id| store.reserve(ReservationId::new(id), Arc::clone(&plan), Attempt::First);
    let mut nobodys = Context::from_waker(Waker::noop());
    let (mut second, mut third) = (pin!(ask(2)), pin!(ask(3)));
    {
        let mut first = pin!(ask(1));
        assert!(first.as_mut().poll(&mut nobodys).is_pending());
        assert!(second.as_mut().poll(&mut nobodys).is_pending());
        assert!(third.as_mut().poll(&mut nobodys).is_pending());
    }
    for joined in [second, third] {
        let verdict = tokio::time::timeout(PATIENCE, joined).await.expect("an answer");
        assert!(matches!(verdict, Ok(Verdict::Admitted(_))), "{verdict:?}");
    }
    assert_eq!(store.inspect(&[day("acme", 10)]).await.unwrap()[0].held, Amount::new(2));
}

#[tokio::test]
async fn a_store_whose_runtime_nobody_drives_is_not_waited_for_without_end() {
    let server = RedisServer::start().unwrap();
    let undriven = Builder::new_current_thread().enable_all().build().unwrap();
    let connecting = server.settings("tollgate");
    let (undriven, store) = tokio::task::spawn_blocking(move || {
        let store = undriven.block_on(async {
            let store = RedisStore::connect(&connecting).unwrap();
            store.connected().await.unwrap();
            store
        });
        (undriven, store)
    })
    .await
    .unwrap();
    let limit = day("acme", 10);
    let asked = store.reserve(ReservationId::new(1), plan(&limit, 1), Attempt::First);
    let verdict = tokio::time::timeout(PATIENCE, asked).await.expect("an answer");
    assert!(verdict.is_err(), "{verdict:?}");
    undriven.shutdown_background();
}

fn shared(url: String, server: &RedisServer) -> SharedStore {
    let settings = Settings { url, timeout: Duration::from_secs(1), ..server.settings("tollgate") };
    let policy = FailurePolicy {
        retry: Duration::from_millis(300),
        local_share: NonZeroU64::MIN,
        closed: false,
        remembered: Duration::from_secs(540),
    };
    SharedStore::start(&settings, policy, None, Arc::new(SystemClock::new())).unwrap()
}

/// Waits for a connection of this runtime's own, which is asked for by calls.
async fn own_connection(shared: &SharedStore) {
    let own = async {
        while !shared.has_own_connection() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, own).await.expect("a connection");
}

/// Reserves on the main connection and on one of its own.
fn on_own_runtime(shared: &SharedStore, first_id: u128) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (store, plan) = (shared.store(), plan(&day("acme", 1_000_000), 1));
        let call = async |id| {
            let verdict = store.reserve(ReservationId::new(id), Arc::clone(&plan), Attempt::First).await;
            assert!(matches!(verdict, Ok(Verdict::Admitted(_))), "{verdict:?}");
        };
        call(first_id).await;
        own_connection(shared).await;
        call(first_id + 1).await;
        assert!(shared.has_own_connection());
    });
}

/// On so many runtimes, one after the other.
fn on_own_runtimes(shared: &SharedStore, count: u128) {
    for number in 0..count {
        thread::scope(|scope| scope.spawn(|| on_own_runtime(shared, 10 * number)).join().unwrap());
    }
}

async fn held(shared: &SharedStore) -> u64 {
    shared.store().inspect(&[day("acme", 1_000_000)]).await.unwrap()[0].held.get()
}

#[tokio::test]
async fn each_runtime_has_a_connection_of_its_own_and_all_share_one_count() {
    let server = RedisServer::start().unwrap();
    let shared = shared(format!("redis://127.0.0.1:{}", server.port()), &server);
    on_own_runtimes(&shared, 3);
    assert_eq!(held(&shared).await, 6);
}

#[tokio::test]
async fn runtimes_that_have_ended_leave_no_connections_behind() {
    let server = RedisServer::start().unwrap();
    let shared = shared(format!("redis://127.0.0.1:{}", server.port()), &server);
    on_own_runtimes(&shared, 6);
    assert_eq!(shared.connections_of_runtimes(), 1, "that of the latest, until another one asks");
    // The store's own, that of the runtime that ended last, and the one that asks.
    let are_gone = async {
        while server.command(&["CLIENT", "LIST"]).unwrap().lines().count() > 3 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, are_gone).await.expect("connections end with their runtimes");
}

/// Reserves 1 of a million.
async fn reserve_one(shared: &SharedStore, id: u128) -> Result<Verdict, StoreError> {
    let plan = plan(&day("acme", 1_000_000), 1);
    shared.store().reserve(ReservationId::new(id), plan, Attempt::First).await
}

/// A store behind a relay, of which 1 is reserved and this runtime has a connection.
async fn behind_relay(server: &RedisServer) -> (Relay, SharedStore) {
    let relay = Relay::start(server.port());
    let shared = shared(format!("redis://127.0.0.1:{}", relay.port), server);
    reserve_one(&shared, 1).await.unwrap();
    own_connection(&shared).await;
    (relay, shared)
}

/// What a firewall does that forgets a connection: whatever is sent on it is lost, and nobody is told.
#[tokio::test]
async fn a_connection_that_has_died_in_silence_costs_no_call_and_is_made_anew() {
    let server = RedisServer::start().unwrap();
    let (relay, shared) = behind_relay(&server).await;
    // All but the first: that of the store's own thread.
    relay.dead.store(true, Ordering::SeqCst);
    for id in 2..20 {
        assert!(matches!(reserve_one(&shared, id).await, Ok(Verdict::Admitted(_))));
        assert!(shared.store().status().available, "the main connection answers");
    }
    assert_eq!(held(&shared).await, 19);
    relay.dead.store(false, Ordering::SeqCst);
    own_connection(&shared).await;
    reserve_one(&shared, 20).await.unwrap();
    assert_eq!(held(&shared).await, 20);
}

/// What a network does that comes back without its connections.
#[tokio::test]
async fn connections_that_have_all_died_in_silence_are_made_anew() {
    let server = RedisServer::start().unwrap();
    let (relay, shared) = behind_relay(&server).await;
    relay.all_dead.store(true, Ordering::SeqCst);
    assert!(reserve_one(&shared, 2).await.is_err());
    let back = async {
        // From here on new connections live.
        relay.all_dead.store(false, Ordering::SeqCst);
        while shared.store().inspect(&[day("acme", 1_000_000)]).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, back).await.expect("the store is back");
}

/// Passes connections on to a server.
struct Relay {
    port: u16,
    /// What comes on connections after the first is lost, without an end.
    dead: Arc<AtomicBool>,
    /// From then on what comes on connections that are there is lost for ever.
    all_dead: Arc<AtomicBool>,
}

impl Relay {
    fn start(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (port, dead) = (listener.local_addr().unwrap().port(), Arc::new(AtomicBool::new(false)));
        let (is_dead, all_dead) = (Arc::clone(&dead), Arc::new(AtomicBool::new(false)));
        let all = Arc::clone(&all_dead);
        thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                let client = client.unwrap();
                let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).unwrap();
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let is_dead = if number == 0 { Arc::default() } else { Arc::clone(&is_dead) };
                    let all = Arc::clone(&all);
                    thread::spawn(move || pass(from, to, &is_dead, &all));
                }
            }
        });
        Self { port, dead, all_dead }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, is_dead: &AtomicBool, all_dead: &AtomicBool) {
    let (mut buffer, mut has_died) = ([0; 4096], false);
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        has_died |= all_dead.load(Ordering::SeqCst);
        if has_died {
            continue;
        }
        if !is_dead.load(Ordering::SeqCst) && to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // The other side learns of an end.
    let _ = to.shutdown(Shutdown::Both);
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
