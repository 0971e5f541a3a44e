//! The sliding window against a log of every event.

use proptest::prelude::*;
use tollgate_limiter::Outcome;

use crate::support::{Desk, MINUTE_MS, plan, rate};

/// Every admitted charge with its moment.
#[derive(Default)]
struct Log(Vec<(u64, u64)>);

impl Log {
    fn between(&self, start_ms: u64, end_ms: u64) -> u128 {
        self.0
            .iter()
            .filter(|(at, _)| (start_ms..end_ms).contains(at))
            .map(|(_, charge)| u128::from(*charge))
            .sum()
    }

    /// The most in any span of `window_ms`. Such a span can be moved right until it starts at an event.
    fn largest(&self, window_ms: u64) -> u128 {
        self.0.iter().map(|(at, _)| self.between(*at, at + window_ms)).max().unwrap_or(0)
    }

    /// The rule, word for word: how much of the previous window is in sight, in exact fractions.
    fn fits(&self, now_ms: u64, window_ms: u64, limit: u64, charge: u64) -> bool {
        let start = now_ms / window_ms * window_ms;
        let parts = window_ms.min(60_000);
        let passed = u128::from(now_ms - start) * u128::from(parts) / u128::from(window_ms);
        let previous = self.between(start.saturating_sub(window_ms), start);
        let current = self.between(start, start + window_ms);
        let parts = u128::from(parts);
        charge == 0
            || previous * (parts - passed) + (current + u128::from(charge)) * parts
                <= u128::from(limit) * parts
    }
}

/// Gaps and charges that lean to the edges: bursts, whole windows, nothing, all of the limit.
fn events(window_ms: u64, limit: u64) -> impl Strategy<Value = Vec<(u64, u64)>> {
    let gap = prop_oneof![
        4 => Just(0),
        4 => 0..=window_ms / 7 + 1,
        2 => 0..=window_ms * 3,
        1 => Just(window_ms - 1),
        1 => Just(window_ms),
        1 => Just(window_ms * 2),
    ];
    let charge = prop_oneof![
        4 => 1..=limit / 5 + 1,
        2 => 0..=limit + 1,
        1 => Just(1),
        1 => Just(limit),
        1 => Just(limit + 1),
    ];
    prop::collection::vec((gap, charge), 1..60)
}

fn histories() -> impl Strategy<Value = (u64, u64, u64, Vec<(u64, u64)>)> {
    let window = prop_oneof![
        Just(MINUTE_MS),
        Just(1_000),
        1_u64..200,
        Just(3_600_000),
        Just(86_400_000),
        Just(90_001)
    ];
    let limit = prop_oneof![Just(1_u64), 1_u64..100, Just(10_000_000_000), 1_u64..10_000_000_000];
    (window, limit, 0_u64..2_000_000_000_000).prop_flat_map(|(window, limit, start)| {
        (Just(window), Just(limit), Just(start), events(window, limit))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Each decision is the rule's, no window holds more than the limit, and no span of a window's
    /// length as much as twice the limit.
    #[test]
    fn decisions_and_bounds_are_those_of_a_log((window_ms, limit, start_ms, events) in histories()) {
        let (mut desk, mut log) = (Desk::default(), Log::default());
        let limit_rule = rate("r", window_ms, limit);
        let mut now_ms = start_ms;
        for (gap_ms, charge) in events {
            now_ms += gap_ms;
            let fits = log.fits(now_ms, window_ms, limit, charge);
            prop_assert_eq!(desk.admits(now_ms, &limit_rule, charge), fits, "{} at {}", charge, now_ms);
            if fits {
                log.0.push((now_ms, charge));
            }
            let window_start = now_ms / window_ms * window_ms;
            prop_assert!(log.between(window_start, window_start + window_ms) <= u128::from(limit));
        }
        // Cutting a long window into 60,000 parts only ever counts more of the previous one.
        prop_assert!(log.largest(window_ms) < 2 * u128::from(limit));
    }

    /// The announced wait: refused one instant before and at instants on the way, admitted at it.
    #[test]
    fn retry_after_is_exact((window_ms, limit, start_ms, events) in histories(), on_the_way: u64) {
        let mut desk = Desk::default();
        let limit_rule = rate("r", window_ms, limit);
        let mut now_ms = start_ms;
        for (gap_ms, charge) in events {
            now_ms += gap_ms;
            match desk.outcome(now_ms, &limit_rule, charge) {
                Outcome::Wait(wait) => {
                    let wait_ms = wait.get();
                    prop_assert!(wait_ms > 0);
                    let some_ms = on_the_way % wait_ms;
                    for early_ms in [0, wait_ms / 2, some_ms, wait_ms - 1] {
                        let left_ms = match desk.outcome(now_ms + early_ms, &limit_rule, charge) {
                            Outcome::Wait(left) => left.get(),
                            other => return Err(TestCaseError::fail(format!("{other:?} after {early_ms} of {wait_ms}"))),
                        };
                        prop_assert_eq!(left_ms, wait_ms - early_ms, "the end moved");
                    }
                    now_ms += wait_ms;
                    prop_assert!(desk.admits(now_ms, &limit_rule, charge), "still refused after {}", wait_ms);
                }
                Outcome::Never => prop_assert!(charge > limit),
                Outcome::Admit => prop_assert!(charge <= limit || charge == 0),
            }
        }
    }

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

    /// The clock goes both ways: no step back makes room that was not there.
    #[test]
    fn a_clock_that_steps_back_never_resets(
        limit in 1_u64..50,
        moments in prop::collection::vec(0_u64..5 * MINUTE_MS, 1..60),
    ) {
        let mut desk = Desk::default();
        let limit_rule = rate("r", MINUTE_MS, limit);
        let (mut latest_ms, mut log) = (0, Log::default());
        for now_ms in moments {
            // Before the window it has seen, the counter stands at that window's start.
            let seen_ms = now_ms.max(latest_ms / MINUTE_MS * MINUTE_MS);
            let fits = log.fits(seen_ms, MINUTE_MS, limit, 1);
            prop_assert_eq!(desk.admits(now_ms, &limit_rule, 1), fits);
            if fits {
                log.0.push((seen_ms, 1));
                latest_ms = latest_ms.max(now_ms);
            }
        }
    }
}

#[test]
fn three_a_second_at_limit_50_admit_50_49_49_49() {
    let (mut desk, mut log) = (Desk::default(), Log::default());
    let limit_rule = rate("r", MINUTE_MS, 50);
    for call in 0..4 * 180 {
        let now_ms = call * 1_000 / 3;
        if desk.admits(now_ms, &limit_rule, 1) {
            log.0.push((now_ms, 1));
        }
    }
    let minutes = [0, 1, 2, 3].map(|minute| log.between(minute * MINUTE_MS, (minute + 1) * MINUTE_MS));
    assert_eq!(minutes, [50, 49, 49, 49]);
    assert_eq!(log.largest(MINUTE_MS), 50);
}

/// Under steady overload each minute passes at least the limit less one: nine tenths of it from a
/// limit of ten on. (A limit of one passes every other minute: the one before fills the window.)
#[test]
fn steady_overload_gets_all_but_one() {
    for limit in [1_u64, 2, 7, 10, 50, 333, 1_000] {
        for overload in [2, 3, 5] {
            let (mut desk, mut log) = (Desk::default(), Log::default());
            let limit_rule = rate("r", MINUTE_MS, limit);
            let calls = limit * overload;
            for call in 0..calls * 6 {
                let now_ms = call * MINUTE_MS / calls;
                if desk.admits(now_ms, &limit_rule, 1) {
                    log.0.push((now_ms, 1));
                }
            }
            for minute in 0..6 {
                let passed = log.between(minute * MINUTE_MS, (minute + 1) * MINUTE_MS);
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
        let (mut desk, mut log) = (Desk::default(), Log::default());
        let limit_rule = rate("r", MINUTE_MS, limit);
        for now_ms in (MINUTE_MS - 1..2 * MINUTE_MS - 1).step_by(1) {
            while desk.admits(now_ms, &limit_rule, 1) {
                log.0.push((now_ms, 1));
            }
        }
        assert_eq!(log.largest(MINUTE_MS), u128::from(2 * limit - 1));
    }
}
