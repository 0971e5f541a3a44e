//! One decision and one request, beside `governor` and `limitador`, in one run.
//!
//!     cargo bench --manifest-path bench/Cargo.toml --bench decision

use std::{collections::HashMap, hint::black_box, num::NonZeroU32, sync::Arc, thread, time::Duration};

use criterion::{Bencher, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use governor::{
    Quota, RateLimiter as Governor,
    clock::{Clock as GovernorClock, QuantaClock as GovernorQuanta, SystemClock as GovernorSystem},
};
use limitador::{
    RateLimiter as Limitador,
    limit::{Context, Limit as LimitadorLimit},
};
use tollgate_bench::{PLENTY, QuantaClock, Tenant, store, store_with};
use tollgate_store::{Clock, MemoryStore, SystemClock};

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .without_plots();
    targets = one_decision, one_request, threads
}
criterion_main!(benches);

/// `charge` is for good, as the others are. `reserve` keeps a record that is settled later: the settle
/// is not part of the decision.
///
/// Each reads a clock once. Beside `governor` there are two pairs, each with one clock on both sides: the
/// system's, which is the default here, and `quanta`'s, which is the default there.
fn one_decision(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decision");
    group.bench_function("governor, system clock", |bencher| check(bencher, GovernorSystem));
    group.bench_function("tollgate charge, system clock", |bencher| charge(bencher, SystemClock::new(), 1));
    group.bench_function("governor, quanta", |bencher| check(bencher, GovernorQuanta::default()));
    group.bench_function("tollgate charge, quanta", |bencher| charge(bencher, QuantaClock::new(), 1));
    group.bench_function("limitador, one limit", |bencher| {
        let (limiter, context) = limitador(1);
        let namespace = "acme".into();
        bencher.iter(|| {
            limiter.check_rate_limited_and_update(&namespace, &context, 1).map(|check| check.limited)
        });
    });
    group.bench_function("tollgate charge, four limits", |bencher| charge(bencher, SystemClock::new(), 4));
    for limits in [1, 4, 6] {
        group.bench_function(BenchmarkId::new("tollgate reserve", limits), |bencher| decide(bencher, limits));
    }
    group.finish();
}

fn check(bencher: &mut Bencher<'_>, clock: impl GovernorClock) {
    let quota = Quota::per_minute(NonZeroU32::MAX);
    let key = "acme/requests/minute".to_owned();
    // The store that `Governor::keyed` takes.
    let limiter = Governor::dashmap_with_clock(quota, clock);
    bencher.iter(|| black_box(limiter.check_key(black_box(&key))).is_ok());
}

fn charge(bencher: &mut Bencher<'_>, clock: impl Clock, limits: usize) {
    let (store, plan) = (store_with(clock), Tenant::new("acme", limits).plan());
    bencher.iter(|| store.charge(black_box(&plan)));
}

fn decide(bencher: &mut Bencher<'_>, limits: usize) {
    const OPEN: u64 = 256;
    let (store, tenant, clock) = (store(), Tenant::new("acme", limits), SystemClock::new());
    let plan = tenant.plan();
    bencher.iter_custom(|calls| {
        let (mut spent, mut left) = (Duration::ZERO, calls);
        let mut open = Vec::with_capacity(OPEN as usize);
        while left > 0 {
            let start = clock.elapsed();
            for _ in 0..left.min(OPEN) {
                open.push(tenant.reserve(&store, Arc::clone(&plan)));
            }
            spent += clock.elapsed() - start;
            left -= left.min(OPEN);
            for held in open.drain(..) {
                tenant.settle(&store, &held);
            }
        }
        spent
    });
}

fn one_request(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("request");
    for limits in [1, 3] {
        group.bench_function(BenchmarkId::new("limitador reserve + commit", limits), |bencher| {
            let (limiter, context) = limitador(limits);
            let namespace = "acme".into();
            bencher.iter(|| {
                let reserved = limiter.reserve(&namespace, &context, 10, None).expect("it is in memory");
                limiter.commit_reservation(&namespace, &context, reserved.reservation_id.as_ref(), 7)
            });
        });
    }
    for limits in [1, 3, 4, 6] {
        group.bench_function(BenchmarkId::new("tollgate plan + reserve + settle", limits), |bencher| {
            let (store, tenant) = (store(), Tenant::new("acme", limits));
            bencher.iter(|| tenant.call(&store));
        });
    }
    group.finish();
}

/// Requests over six limits from one thread and from two, of tenants of their own or all of one.
fn threads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("six limits");
    for threads in [1_u64, 2] {
        group.throughput(Throughput::Elements(threads));
        for (name, tenants) in [("own tenants", threads), ("one tenant", 1)] {
            let store = store();
            let tenants: Vec<_> = (0..tenants).map(|n| Tenant::new(&format!("tenant {n}"), 6)).collect();
            group.bench_function(BenchmarkId::new(name, threads), |bencher| {
                bencher.iter_custom(|calls| together(&store, &tenants, threads, calls));
            });
        }
    }
    group.finish();
}

fn together(store: &MemoryStore, tenants: &[Tenant], threads: u64, calls: u64) -> Duration {
    let clock = SystemClock::new();
    thread::scope(|scope| {
        for tenant in tenants.iter().cycle().take(threads as usize) {
            scope.spawn(move || (0..calls).for_each(|_| tenant.call(store)));
        }
    });
    clock.elapsed()
}

fn limitador(limits: u64) -> (Limitador, Context<'static>) {
    let limiter = Limitador::new(10_000);
    for number in 1..=limits {
        let variables = ["user".try_into().expect("a name is an expression")];
        limiter.add_limit(LimitadorLimit::new("acme", PLENTY, number * 60, Vec::new(), variables));
    }
    let values: HashMap<_, _> = [("user".to_owned(), "u-17".to_owned())].into();
    (limiter, values.into())
}
