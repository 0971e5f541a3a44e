//! The token bucket: bursts, debts, and what goes back.

use tollgate_limiter::{DurationMs, Outcome};

use crate::support::{Desk, MINUTE_MS, plan, token_bucket};

fn wait(ms: u64) -> Outcome {
    Outcome::Wait(DurationMs::new(ms))
}

#[test]
fn a_burst_passes_and_the_bucket_fills_continuously() {
    // Ten at once, then one every two seconds.
    let limit = token_bucket("r", 20_000, 10);
    let mut desk = Desk::default();
    assert_eq!(desk.outcome(5, &limit, 10), Outcome::Admit);
    assert_eq!(desk.outcome(5, &limit, 1), wait(2_000));
    assert_eq!(desk.outcome(2_004, &limit, 1), wait(1));
    assert_eq!(desk.outcome(2_005, &limit, 1), Outcome::Admit);
    assert_eq!(desk.outcome(2_005, &limit, 10), wait(20_000));
    assert_eq!(desk.outcome(2_005, &limit, 11), Outcome::Never);
    assert_eq!(desk.stands(12_005, &limit), (0, 5, 5));
    assert_eq!(desk.stands(12_004, &limit), (0, 6, 4), "a part of a unit is rounded up");
    assert_eq!(desk.view(2_005, &limit).resets_at.map(tollgate_limiter::TimestampMs::get), Some(22_005));
}

#[test]
fn a_refill_that_is_no_whole_number_is_not_rounded() {
    // Three in seven milliseconds: after one unit, 7/3 ms.
    let limit = token_bucket("r", 7, 3);
    let mut desk = Desk::default();
    let mut admitted = Vec::new();
    for now_ms in 0..700 {
        while desk.admits(now_ms, &limit, 1) {
            admitted.push(now_ms);
        }
    }
    // The burst, then everything that 699 ms refill: 3 · 699 / 7 = 299.57.
    assert_eq!(admitted.len(), 3 + 299);
    assert_eq!(admitted[3..6], [3, 5, 7]);
}

/// Bucket 1,000, an answer of 1,200: the 200 are paid off by the next refill.
#[test]
fn c27_a_bucket_goes_negative_and_its_debt_carries() {
    let limit = token_bucket("tokens", MINUTE_MS, 1_000);
    let mut desk = Desk::default();
    let held = desk.reserve(0, &plan(&[(&limit, 1_000)])).unwrap();
    desk.settle(0, &held, &[1_200]);
    assert_eq!(desk.stands(0, &limit), (1_200, 0, 0));
    assert_eq!(desk.outcome(0, &limit, 1), wait(12_060));
    assert_eq!(desk.stands(12_000, &limit), (1_000, 0, 0));
    assert_eq!(desk.outcome(12_060, &limit, 1), Outcome::Admit);
    assert_eq!(desk.stands(MINUTE_MS, &limit).2, 1_000 - 201);
}

#[test]
fn what_was_not_used_goes_back() {
    let limit = token_bucket("tokens", MINUTE_MS, 1_000);
    let mut desk = Desk::default();
    let held = desk.reserve(0, &plan(&[(&limit, 800)])).unwrap();
    // 600 ms refill 10; then 700 come back.
    assert_eq!(desk.stands(600, &limit), (0, 790, 210));
    desk.settle(600, &held, &[100]);
    assert_eq!(desk.stands(600, &limit), (90, 0, 910));
    // An extension gives first.
    let held = desk.reserve(600, &plan(&[(&limit, 400)])).unwrap();
    assert!(desk.extend(600, &held, 1, &[300]));
    assert!(!desk.extend(600, &held, 2, &[300]));
    desk.settle(600, &held, &[450]);
    assert_eq!(desk.stands(600, &limit), (540, 0, 460));
}

/// What has drained is not there to be given back: it would be taken from what others used.
#[test]
fn what_has_drained_is_not_given_back_again() {
    let limit = token_bucket("tokens", MINUTE_MS, 1_000);
    let mut desk = Desk::default();
    let slow = desk.reserve(0, &plan(&[(&limit, 800)])).unwrap();
    // 48 s refill 800. What is charged then stays charged.
    assert_eq!(desk.stands(48_000, &limit).2, 1_000);
    let other = desk.reserve(48_000, &plan(&[(&limit, 900)])).unwrap();
    desk.settle(48_000, &slow, &[0]);
    assert_eq!(desk.stands(48_000, &limit), (0, 900, 100));
    desk.settle(48_000, &other, &[900]);
    assert_eq!(desk.outcome(48_000, &limit, 101), wait(60));
    // Longer than a window ago: nothing goes back, and nothing is lost.
    let slow = desk.reserve(200_000, &plan(&[(&limit, 1_000)])).unwrap();
    assert!(desk.admits(300_000, &limit, 1_000));
    desk.settle(300_000, &slow, &[0]);
    assert_eq!(desk.stands(300_000, &limit), (0, 1_000, 0));
}

#[test]
fn a_clock_set_back_finds_the_bucket_as_it_was() {
    let limit = token_bucket("tokens", MINUTE_MS, 60);
    let mut desk = Desk::default();
    assert!(desk.admits(500_000, &limit, 60));
    assert_eq!(desk.outcome(400_000, &limit, 1), wait(101_000));
    assert!(desk.admits(501_000, &limit, 1));
    assert!(!desk.admits(100_000, &limit, 1));
    assert_eq!(desk.stands(501_000, &limit), (0, 60, 0));
}

#[test]
fn a_changed_limit_keeps_the_level_and_refills_at_its_own_pace() {
    let mut desk = Desk::default();
    assert!(desk.admits(0, &token_bucket("r", MINUTE_MS, 60), 60));
    let raised = token_bucket("r", MINUTE_MS, 120);
    assert_eq!(desk.stands(0, &raised), (0, 60, 60));
    assert_eq!(desk.outcome(0, &raised, 61), wait(500));
    let lowered = token_bucket("r", MINUTE_MS, 30);
    assert_eq!(desk.stands(10_000, &lowered), (0, 55, 0));
    assert_eq!(desk.outcome(10_000, &lowered, 1), wait(52_000));
    // Under a limit of zero nothing drains, and nothing passes.
    let closed = token_bucket("r", MINUTE_MS, 0);
    assert_eq!(desk.outcome(10_000, &closed, 1), Outcome::Never);
    assert_eq!(desk.stands(10_000, &closed), (0, 60, 0));
}
