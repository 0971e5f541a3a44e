//! What a decision in Redis costs, beside scripts that decide nothing: `cargo bench -p tollgate-store-redis`.
//!
//! Each measurement alternates with the bare one, call by call or round by round, on one server and one connection, and the ratio of their medians
//! is what counts. The server's own part is its CPU time, which tells little of what else the machine does.

#![expect(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a measurement may fail, and its figures are rounded"
)]

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tollgate_limiter::{
    Amount, CounterKey, DurationMs, Enforcement, Entry, ExactAmount, Limit, Period, Plan, ReservationId,
    Rule, Verdict,
};
use tollgate_store::{Attempt, Clock as _, Held, Store as _, SystemClock};
use tollgate_store_redis::{
    RedisStore,
    testing::{BareScript, RedisServer},
};

const ROUNDS: usize = 5;
/// Calls one after the other in a round, to see how long one takes.
const CALLS: usize = 3_000;
/// Tasks that call at the same time, to see what one server takes.
const TASKS: u64 = 64;
const CALLS_EACH: u64 = 200;

/// As small as a script of three keys can be.
const THREE_KEYS: &str = "redis.call('INCRBY', KEYS[1], 1) redis.call('INCRBY', KEYS[2], 1) return redis.call('INCRBY', KEYS[3], 1)";

/// Reads all of its keys and writes each with a time to live, as whatever keeps its state in them must.
const ALL_KEYS: &str = "local old = redis.call('MGET', unpack(KEYS)) for place = 1, #KEYS do \
                        redis.call('SET', KEYS[place], ARGV[place], 'PX', '90000') end return 'A'";

/// As [`ALL_KEYS`], but for times to live, which stay what they are where there are some: as a decision does.
const ALL_KEYS_KEPT: &str = "local old = redis.call('MGET', unpack(KEYS)) \
                             redis.call('SET', KEYS[1], ARGV[1], 'PX', '90000') for place = 2, #KEYS do \
                             redis.call('SET', KEYS[place], ARGV[place], 'KEEPTTL') end return 'A'";

fn six_limits() -> Arc<Plan> {
    let minute = Rule::SlidingWindow { window: DurationMs::new(60_000) };
    let limit = |name: &str, rule, amount, charge| {
        let (key, amount) = (CounterKey::new("acme", name), Amount::new(amount));
        let limit = Arc::new(Limit { key, rule, amount, enforcement: Enforcement::Hard });
        Entry { limit, charge: Amount::new(charge) }
    };
    let entries = vec![
        limit("requests:minute", minute, 1_000_000_000, 1),
        limit("tokens:minute", minute, 9_000_000_000, 500),
        limit("input_tokens:minute", minute, 8_000_000_000, 450),
        limit("micro_usd:month", Rule::Calendar(Period::Month), 1 << 50, 223),
        limit("micro_usd:day", Rule::Calendar(Period::Day), 1 << 50, 223),
        limit("open", Rule::Concurrent, 1 << 50, 1),
    ];
    Arc::new(Plan::new(entries).unwrap())
}

/// What is measured.
#[derive(Clone)]
struct Bench {
    store: RedisStore,
    plan: Arc<Plan>,
    ids: Arc<AtomicU64>,
    three: Arc<BareScript>,
    all: Arc<BareScript>,
    all_kept: Arc<BareScript>,
}

impl Bench {
    fn id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    async fn reserve(self) {
        let id = ReservationId::new(self.id().into());
        let verdict = self.store.reserve(id, Arc::clone(&self.plan), Attempt::First).await.unwrap();
        assert!(matches!(verdict, Verdict::Admitted(_)));
    }

    /// Reserves and settles.
    async fn call(self) {
        let id = ReservationId::new(self.id().into());
        let verdict = self.store.reserve(id, Arc::clone(&self.plan), Attempt::First).await.unwrap();
        let Verdict::Admitted(admission) = verdict else { unreachable!("the limits are large") };
        let held = Held { id, plan: Arc::clone(&self.plan), at: admission.at };
        self.store.settle(&held, &[ExactAmount::whole(1); 6]).await.unwrap();
    }

    async fn bare_three(self) {
        let keys = ["a", "b", "c"].map(|name| format!("tollgate:{{acme}}:{name}"));
        self.store.run_bare(&self.three, &keys, &[]).await.unwrap();
    }

    /// As many keys as a reserve of six limits has, as long and as many of them new.
    async fn bare_all(self, script: Arc<BareScript>) {
        let mut keys = vec![format!("tollgate:{{acme}}:b:{:032x}", self.id())];
        keys.extend((0..6).map(|number| format!("tollgate:{{acme}}:b:counter {number}")));
        let mut values = vec!["b".repeat(150)];
        values.extend((0..6).map(|number| format!("w60000 29933280 1 500 500 {number}")));
        self.store.run_bare(&script, &keys, &values).await.unwrap();
    }
}

/// The medians of how long a call of each takes, made by turns: what else the machine does is the same for both.
async fn medians_us<F: Future<Output = ()>, G: Future<Output = ()>>(
    clock: &SystemClock,
    one: impl Fn() -> F,
    other: impl Fn() -> G,
) -> (f64, f64) {
    let mut took = [Vec::with_capacity(CALLS), Vec::with_capacity(CALLS)];
    for _ in 0..CALLS {
        let begun = clock.elapsed();
        one().await;
        let between = clock.elapsed();
        other().await;
        took[0].push(micros(between.saturating_sub(begun)));
        took[1].push(micros(clock.elapsed().saturating_sub(between)));
    }
    let [one, other] = took.map(median);
    (one, other)
}

/// The server's CPU time for one call, of many that are made together, and how many it answers in a second.
async fn load<F: Future<Output = ()> + Send + 'static>(
    clock: &SystemClock,
    server: &RedisServer,
    call: impl Fn() -> F + Clone + Send + 'static,
) -> (f64, f64) {
    let (cpu, before) = (server_cpu(server), clock.elapsed());
    let task = |_| {
        let call = call.clone();
        tokio::spawn(async move {
            for _ in 0..CALLS_EACH {
                call().await;
            }
        })
    };
    let tasks: Vec<_> = (0..TASKS).map(task).collect();
    for task in tasks {
        task.await.unwrap();
    }
    let (took, calls) = (clock.elapsed().saturating_sub(before), (TASKS * CALLS_EACH) as f64);
    (micros(server_cpu(server).saturating_sub(cpu)) / calls, calls / took.as_secs_f64())
}

/// What the server's main thread has used so far.
fn server_cpu(server: &RedisServer) -> Duration {
    let info = server.command(&["INFO", "cpu"]).unwrap();
    let of =
        |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().parse().unwrap();
    Duration::from_secs_f64(of("used_cpu_user_main_thread:"))
        + Duration::from_secs_f64(of("used_cpu_sys_main_thread:"))
}

fn micros(span: Duration) -> f64 {
    span.as_secs_f64() * 1e6
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// What `redis-benchmark` reaches with the bare script of as many keys, if it is there.
fn redis_benchmark(server: &RedisServer) -> Option<(f64, f64)> {
    const CALLS: u32 = 100_000;
    let sha = server.command(&["SCRIPT", "LOAD", ALL_KEYS]).ok()?;
    let cpu = server_cpu(server);
    let mut command = Command::new("redis-benchmark");
    command.args([
        "-p",
        &server.port().to_string(),
        "-n",
        &CALLS.to_string(),
        "-c",
        "1",
        "-P",
        "64",
        "-r",
        "1000000000",
    ]);
    command.args(["--csv", "EVALSHA", &sha, "7", "tollgate:{acme}:b:__rand_int__"]);
    command.args((0..6).map(|number| format!("tollgate:{{acme}}:b:counter {number}")));
    command.arg("b".repeat(150)).args((0..6).map(|number| format!("w60000 29933280 1 500 500 {number}")));
    let output = String::from_utf8(command.output().ok()?.stdout).ok()?;
    let rate = output.lines().last()?.rsplit("\",\"").nth(6)?.parse().ok()?;
    Some((micros(server_cpu(server).saturating_sub(cpu)) / f64::from(CALLS), rate))
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = RedisServer::start().unwrap();
        let store = RedisStore::connect(&server.settings("tollgate")).unwrap();
        store.connected().await.unwrap();
        let [three, all, all_kept] =
            [THREE_KEYS, ALL_KEYS, ALL_KEYS_KEPT].map(|text| Arc::new(BareScript::new(text)));
        let bench = Bench { store, plan: six_limits(), ids: Arc::default(), three, all, all_kept };
        // In a task, as calls of a server are.
        tokio::spawn(async move { measure(&SystemClock::new(), &server, &bench).await }).await.unwrap();
    });
}

async fn measure(clock: &SystemClock, server: &RedisServer, bench: &Bench) {
    let [mut waits, mut cpus, mut cpus_kept, mut rates] = [(); 4].map(|()| Vec::new());
    bench.clone().call().await;
    for round in 0..ROUNDS {
        let (reserve, bare) =
            medians_us(clock, || bench.clone().reserve(), || bench.clone().bare_three()).await;
        let [of_reserve, of_call, of_bare, of_kept] = [(); 4].map(|()| bench.clone());
        let (reserve_cpu, reserve_rate) = load(clock, server, move || of_reserve.clone().reserve()).await;
        let (call_cpu, _) = load(clock, server, move || of_call.clone().call()).await;
        let all = move || of_bare.clone().bare_all(Arc::clone(&of_bare.all));
        let (all_cpu, all_rate) = load(clock, server, all).await;
        let kept = move || of_kept.clone().bare_all(Arc::clone(&of_kept.all_kept));
        let (kept_cpu, _) = load(clock, server, kept).await;
        println!(
            "round {round}: p50 {reserve:.0} us, bare {bare:.0} us; server {reserve_cpu:.1} us a reserve, \
             {call_cpu:.1} us with its settle, bare {all_cpu:.1} us, without times to live {kept_cpu:.1} us; \
             {reserve_rate:.0} reserves a second, bare {all_rate:.0}"
        );
        waits.push(reserve / bare);
        cpus.push(all_cpu / reserve_cpu);
        cpus_kept.push(kept_cpu / reserve_cpu);
        rates.push(reserve_rate / all_rate);
        server.command(&["FLUSHALL"]).unwrap();
        bench.clone().call().await;
    }
    println!("p50 of a reserve with six limits: {:.2} of a bare script with three keys", median(waits));
    println!("decisions of one core: {:.0} % of a bare script with as many keys", 100.0 * median(cpus));
    println!("and of one that leaves times to live alone: {:.0} %", 100.0 * median(cpus_kept));
    println!("decisions a second by one client: {:.0} %", 100.0 * median(rates));
    if let Some((cpu, rate)) = redis_benchmark(server) {
        println!("redis-benchmark, the same bare script: {cpu:.1} us of the server, {rate:.0} a second");
    }
}
