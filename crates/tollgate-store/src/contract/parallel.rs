//! Exact counts, whoever comes first.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use tollgate_limiter::{Attempt, DurationMs, Limit, Period, Rule, Settled};

use super::{
    Harness,
    desk::{Desk, MINUTE_MS, admitted, budget, limit, per_minute, plan},
};

/// Runs `work` with the numbers of `threads` threads, which start together.
fn together(threads: usize, work: impl Fn(usize) + Sync) {
    let (start, work) = (Barrier::new(threads), &work);
    thread::scope(|scope| {
        for number in 0..threads {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                work(number);
            });
        }
    });
}

pub(super) fn one_hundred_and_eighty_parallel_requests_at_limit_50_admit_50(harness: &dyn Harness) {
    let desks = [Desk::on_monday(harness), Desk::open(harness), Desk::open(harness)];
    let (requests, usd) = (per_minute("requests", 50), budget("usd", Period::Month, 1_000_000));
    let passed = AtomicUsize::new(0);
    together(180, |thread| {
        if desks[thread % 3].reserve(&plan(&[(&requests, 1), (&usd, 3)])).is_ok() {
            passed.fetch_add(1, Ordering::SeqCst);
        }
    });
    assert_eq!(passed.into_inner(), 50);
    for desk in &desks {
        assert_eq!((desk.stands(&requests), desk.stands(&usd)), ((0, 50), (0, 150)));
    }
}

pub(super) fn c05_three_handles_share_one_limit(harness: &dyn Harness) {
    let desks = [Desk::on_monday(harness), Desk::open(harness), Desk::open(harness)];
    let limit = per_minute("requests", 10);
    let passed = (0..30).filter(|call| desks[call % 3].admits(&limit, 1)).count();
    assert_eq!(passed, 10);
    for desk in &desks {
        assert_eq!(desk.stands(&limit), (0, 10));
    }
}

/// Eight threads, each plan over three of six partitions in another order; what settles is what
/// counts.
pub(super) fn plans_over_many_partitions_neither_deadlock_nor_lose_a_unit(harness: &dyn Harness) {
    const THREADS: usize = 8;
    const CALLS: usize = 150;
    let desk = Desk::on_monday(harness);
    let rule = |number| match number % 2 {
        0 => Rule::Calendar(Period::Day),
        _ => Rule::SlidingWindow { window: DurationMs::new(MINUTE_MS) },
    };
    let limits: Vec<Arc<Limit>> = (0..6)
        .map(|number| limit(&format!("partition {number}"), "units", rule(number), 1_000_000))
        .collect();
    let spent: Vec<_> = limits.iter().map(|_| AtomicUsize::new(0)).collect();
    together(THREADS, |thread| {
        for call in 0..CALLS {
            let places = [0, 1, 2].map(|entry| (thread * 5 + call + entry * (1 + call % 2)) % 6);
            let held = desk.reserve(&plan(&places.map(|place| (&limits[place], 7)))).unwrap();
            let used = places.map(|place| (thread + call + place) % 15);
            if call % 3 == 0 {
                assert!(admitted(&desk.extend(&held, 1, &[2, 2, 2]).unwrap()));
            }
            assert_eq!(desk.settle(&held, &used.map(|used| used as u64)), Settled::Applied);
            for (place, used) in places.into_iter().zip(used) {
                spent[place].fetch_add(used, Ordering::SeqCst);
            }
        }
    });
    for (limit, spent) in limits.iter().zip(spent) {
        assert_eq!(desk.stands(limit), (spent.into_inner() as u64, 0));
    }
}

pub(super) fn one_id_from_many_threads_charges_once(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let limit = budget("usd", Period::Day, 1_000);
    for _ in 0..20 {
        let (id, entries) = (desk.new_id(), plan(&[(&limit, 10)]));
        together(4, |_| assert!(admitted(&desk.reserve_as(id, &entries, Attempt::Retry).unwrap())));
        let held = tollgate_limiter::Held { id, plan: entries, at: super::desk::MONDAY };
        let applied = AtomicUsize::new(0);
        together(4, |_| match desk.settle(&held, &[3]) {
            Settled::Applied => _ = applied.fetch_add(1, Ordering::SeqCst),
            other => assert_eq!(other, Settled::Already),
        });
        assert_eq!(applied.into_inner(), 1);
    }
    assert_eq!(desk.stands(&limit), (60, 0));
}
