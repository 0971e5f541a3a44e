//! The sliding window: debts, and its named bounds.

use std::sync::Arc;

use proptest::prelude::*;
use tollgate_limiter::{Amount, DurationMs, Limit, Outcome, Rule, TimestampMs, oracle::Log};

use crate::support::{Desk, MINUTE_MS, cases, plan, rate};

const MINUTE: DurationMs = DurationMs::new(MINUTE_MS);

fn log() -> Log {
    Log::new(Rule::SlidingWindow { window: MINUTE })
}

/// Asks, and notes what was admitted.
fn admits(desk: &mut Desk, log: &mut Log, limit: &Arc<Limit>, now_ms: u64) -> bool {
    let admitted = desk.admits(now_ms, limit, 1);
    if admitted {
        log.admit(Amount::new(1), TimestampMs::new(now_ms));
    }
    admitted
}

fn in_minute(log: &Log, minute: u64) -> u128 {
    log.between(TimestampMs::new(minute * MINUTE_MS), TimestampMs::new((minute + 1) * MINUTE_MS))
}

proptest! {
    #![proptest_config(cases(5_000))]

    /// The same with debts: settles above the reservation push counts over the limit. Every instant
    /// of the wait is tried.
    #[test]
    fn retry_after_is_exact_under_debt(
        window_ms in 1_u64..120,
        limit in 1_u64..40,
        debts in prop::collection::vec((0_u64..150, 1_u64..120), 1..6),
        charge in 1_u64..40,
    ) {
        let mut desk = Desk::default();
        let limit_rule = rate("r", window_ms, limit);
        let mut now_ms = 1_000;
        for (gap_ms, actual) in debts {
            now_ms += gap_ms;
            if let Ok(held) = desk.reserve(now_ms, &plan(&[(&limit_rule, 1)])) {
                desk.settle(now_ms, &held, &[actual]);
            }
        }
        if let Outcome::Wait(wait) = desk.outcome(now_ms, &limit_rule, charge) {
            for early_ms in 0..wait.get() {
                prop_assert!(!desk.admits(now_ms + early_ms, &limit_rule, charge), "admitted {} early", wait.get() - early_ms);
            }
            prop_assert!(desk.admits(now_ms + wait.get(), &limit_rule, charge));
        }
    }
}

#[test]
fn three_a_second_at_limit_50_admit_50_49_49_49() {
    let (mut desk, mut log) = (Desk::default(), log());
    let limit = rate("r", MINUTE_MS, 50);
    for call in 0..4 * 180 {
        admits(&mut desk, &mut log, &limit, call * 1_000 / 3);
    }
    assert_eq!([0, 1, 2, 3].map(|minute| in_minute(&log, minute)), [50, 49, 49, 49]);
    assert_eq!(log.largest(MINUTE), 50);
}

/// Under steady overload each minute passes at least the limit less one: nine tenths of it from a
/// limit of ten on. (A limit of one passes every other minute: the one before fills the window.)
#[test]
fn steady_overload_gets_all_but_one() {
    for limit in [1_u64, 2, 7, 10, 50, 333] {
        for overload in [2, 3, 5] {
            let (mut desk, mut log) = (Desk::default(), log());
            let rule = rate("r", MINUTE_MS, limit);
            let calls = limit * overload;
            for call in 0..calls * 6 {
                admits(&mut desk, &mut log, &rule, call * MINUTE_MS / calls);
            }
            for minute in 0..6 {
                let passed = in_minute(&log, minute);
                assert!(passed >= u128::from(limit - 1), "{passed} of {limit} in minute {minute}");
                assert!(limit < 10 || passed * 10 >= u128::from(limit) * 9);
            }
        }
    }
}

/// The worst case is real: 2 · limit − 1 in one window's length, never more.
#[test]
fn the_bound_of_any_window_is_reached() {
    for limit in [1_u64, 2, 50, 99] {
        let (mut desk, mut log) = (Desk::default(), log());
        let rule = rate("r", MINUTE_MS, limit);
        for now_ms in MINUTE_MS - 1..2 * MINUTE_MS - 1 {
            while admits(&mut desk, &mut log, &rule, now_ms) {}
        }
        assert_eq!(log.largest(MINUTE), u128::from(2 * limit - 1));
    }
}
