//! Runs: so long since the first use, and nothing of the one before.

use tollgate_limiter::{DurationMs, Held, Outcome, ReservationId, Settled, TimestampMs};

use crate::support::{Desk, plan, run};

const AFTER_MS: u64 = 1_000;

#[test]
fn a_run_ends_so_long_after_its_first_use_and_begins_anew_when_it_is_forgotten() {
    let mut desk = Desk::default();
    let limit = run("r", AFTER_MS, 1_500);
    let first = desk.reserve(100, &plan(&[(&limit, 1)])).unwrap();
    assert_eq!(desk.stands(900, &limit), (800, 0, 700));
    assert!(desk.admits(900, &limit, 1));
    // The last millisecond, and a charge that needs more than that.
    assert!(desk.admits(1_599, &limit, 1));
    assert_eq!(desk.outcome(1_599, &limit, 2), Outcome::Wait(DurationMs::new(1_000)));
    assert_eq!(desk.outcome(1_600, &limit, 1), Outcome::Wait(DurationMs::new(999)));
    assert_eq!(desk.outcome(1_600, &limit, 1_501), Outcome::Never);
    // A refusal keeps nothing alive, and neither does the end of a call of an earlier run.
    assert!(desk.admits(2_599, &limit, 1));
    assert_eq!(desk.stands(2_599, &limit), (0, 0, 1_500));
    assert_eq!(desk.settle(2_700, &first, &[1]), Settled::Applied);
    assert_eq!(desk.view(2_700, &limit).resets_at, Some(TimestampMs::new(3_599)));
}

#[test]
fn a_clock_set_back_begins_no_other_run() {
    let mut desk = Desk::default();
    let limit = run("r", AFTER_MS, 500);
    assert!(desk.admits(1_000, &limit, 1) && desk.admits(400, &limit, 1));
    assert_eq!(desk.outcome(1_500, &limit, 1), Outcome::Wait(DurationMs::new(500)));
}

/// What was used without a reservation says when a run began.
#[test]
fn an_unseen_use_moves_the_beginning_if_the_run_lasted_since() {
    let limit = run("r", AFTER_MS, 10_000);
    for (at_ms, elapsed) in [(500, 600), (1_000, 600), (1_001, 1_599), (1_900, 700), (2_100, 600)] {
        let mut desk = Desk::default();
        assert!(desk.admits(2_000, &limit, 1));
        let at = TimestampMs::new(at_ms);
        let unseen = Held { id: ReservationId::new(77), plan: plan(&[(&limit, 1)]), at };
        assert_eq!(desk.settle(2_500, &unseen, &[1]), Settled::WithoutReservation);
        assert_eq!(desk.stands(2_600, &limit).0, elapsed, "used at {at_ms}");
    }
}

/// The end of a call keeps its run alive up to the last millisecond before it is forgotten.
#[test]
fn a_call_that_ends_when_its_run_is_forgotten_does_not_bring_it_back() {
    let limit = run("r", AFTER_MS, 1_500);
    for (settled_ms, elapsed) in [(1_099, 1_100), (1_100, 0)] {
        let mut desk = Desk::default();
        let call = desk.reserve(100, &plan(&[(&limit, 1)])).unwrap();
        assert_eq!(desk.settle(settled_ms, &call, &[1]), Settled::Applied);
        assert_eq!(desk.stands(1_200, &limit).0, elapsed, "settled at {settled_ms}");
    }
}
