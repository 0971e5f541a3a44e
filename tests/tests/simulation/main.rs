//! Whole lives of a deployment, drawn at random and lived on virtual time: tenants with budgets, clients
//! that leave, providers that lie, hang, break and overrun, processes that stop and start again. After
//! each life the books are checked.
//!
//! `TOLLGATE_SIM_SEEDS` sets how many lives are tried (default: 400), `TOLLGATE_SIM_SEED` lives one of them
//! again and prints what happened.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

mod books;
mod clock;
mod life;
mod plan;
mod slow_reader;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

const SEEDS: u64 = 400;

#[test]
fn whatever_happens_the_books_hold() {
    if let Some(seed) = number("TOLLGATE_SIM_SEED") {
        println!("{:#?}", life::live(seed));
        return;
    }
    let seeds = number("TOLLGATE_SIM_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(0);
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let told = thread::scope(|scope| {
        let tries = || {
            let mut told = books::Told::default();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds {
                    return told;
                }
                match catch_unwind(AssertUnwindSafe(|| life::live(seed))) {
                    Ok(life) => told.add(&life),
                    Err(panic) => {
                        eprintln!("seed {seed} failed; again: TOLLGATE_SIM_SEED={seed}");
                        std::panic::resume_unwind(panic);
                    }
                }
            }
        };
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(tries)).collect();
        handles.into_iter().map(|handle| handle.join().expect("no life fails")).fold(
            books::Told::default(),
            |mut sum, told| {
                sum.add(&told);
                sum
            },
        )
    });
    println!("{seeds} lives: {told:?}");
    told.expect_variety();
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a whole number"))
}
