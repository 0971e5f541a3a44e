//! Sessions: all since they began, and nothing of the one before.

use tollgate_limiter::{DurationMs, ExactAmount, Held, Outcome, Settled, TimestampMs};

use crate::support::{Desk, MINUTE_MS, plan, rate, session};

const AFTER_MS: u64 = 1_000;

fn wait(ms: u64) -> Outcome {
    Outcome::Wait(DurationMs::new(ms))
}

#[test]
fn each_use_keeps_a_session_and_a_refusal_does_not() {
    let mut desk = Desk::default();
    let limit = session("s", AFTER_MS, 10);
    let held = desk.reserve(0, &plan(&[(&limit, 4)])).unwrap();
    assert!(desk.extend(900, &held, 1, &[4]));
    assert_eq!(desk.outcome(1_899, &limit, 3), wait(1));
    desk.settle(1_800, &held, &[7]);
    assert_eq!(desk.outcome(1_900, &limit, 4), wait(900));
    assert_eq!(desk.outcome(2_799, &limit, 4), wait(1));
    assert_eq!(desk.outcome(2_799, &limit, 11), Outcome::Never);
    assert_eq!(desk.stands(2_799, &limit), (7, 0, 3));
    assert_eq!(desk.view(2_799, &limit).resets_at, Some(TimestampMs::new(2_800)));
    assert_eq!((desk.stands(2_800, &limit), desk.view(2_800, &limit).resets_at), ((0, 0, 10), None));
    assert_eq!(desk.outcome(2_800, &limit, 10), Outcome::Admit);
}

/// What was reserved in a session that is forgotten changes nothing of the next one.
#[test]
fn a_late_settle_changes_nothing_of_a_new_session() {
    let mut desk = Desk::default();
    let limit = session("s", AFTER_MS, 10);
    let late = desk.reserve(0, &plan(&[(&limit, 6)])).unwrap();
    let next = desk.reserve(1_000, &plan(&[(&limit, 9)])).unwrap();
    assert_eq!(desk.settle(1_001, &late, &[100]), Settled::Applied);
    assert_eq!(desk.stands(1_001, &limit), (0, 9, 1));
    assert!(desk.extend(1_001, &next, 1, &[1]));
    // It is no use either: only the reservation and its extension keep the session.
    assert_eq!(desk.view(1_001, &limit).resets_at, Some(TimestampMs::new(2_001)));
    desk.settle(1_002, &next, &[3]);
    assert_eq!(desk.stands(1_002, &limit), (3, 0, 7));
}

#[test]
fn a_late_settle_does_not_bring_a_session_back() {
    let mut desk = Desk::default();
    let limit = session("s", AFTER_MS, 10);
    let late = desk.reserve(0, &plan(&[(&limit, 6)])).unwrap();
    assert_eq!(desk.settle(1_000, &late, &[6]), Settled::Applied);
    assert_eq!(desk.stands(1_000, &limit), (0, 0, 10));
    // Where the counter itself is gone, it makes no new one.
    let other = rate("other", MINUTE_MS, u64::MAX);
    let late = desk.reserve(2_000, &plan(&[(&limit, 6)])).unwrap();
    for _ in 0..1_000 {
        assert!(desk.admits(10_000, &other, 1));
    }
    assert_eq!(desk.ledger.counters(), 1);
    desk.settle(10_000, &late, &[6]);
    assert_eq!(desk.ledger.counters(), 1);
}

/// An extension belongs to the session of its admission: neither checked nor charged after its end.
#[test]
fn an_extension_leaves_a_new_session_alone() {
    let mut desk = Desk::default();
    let limit = session("s", AFTER_MS, 10);
    let held = desk.reserve(0, &plan(&[(&limit, 1)])).unwrap();
    assert!(desk.admits(1_500, &limit, 9));
    assert!(desk.extend(1_600, &held, 1, &[50]));
    assert_eq!(desk.stands(1_600, &limit), (0, 9, 1));
    desk.settle(1_600, &held, &[50]);
    assert_eq!(desk.stands(1_600, &limit), (0, 9, 1));
}

/// At the very moment it is forgotten, a session is over.
#[test]
fn an_extension_comes_too_late_at_the_moment_of_forgetting() {
    for (now_ms, held_then) in [(AFTER_MS - 1, 3), (AFTER_MS, 0)] {
        let mut desk = Desk::default();
        let limit = session("s", AFTER_MS, 10);
        let held = desk.reserve(0, &plan(&[(&limit, 1)])).unwrap();
        assert!(desk.extend(now_ms, &held, 1, &[2]));
        assert_eq!(desk.stands(now_ms, &limit).1, held_then, "at {now_ms}");
    }
}

/// A cap of 0.10 USD, two parallel requests of 0.08 each: one is admitted.
#[test]
fn c02_parallel_requests_of_one_session_share_its_cap() {
    let mut desk = Desk::default();
    let cap = session("s", 86_400_000, 100_000);
    let admitted: Vec<_> = (0..2).filter_map(|_| desk.reserve(0, &plan(&[(&cap, 80_000)])).ok()).collect();
    assert_eq!(admitted.len(), 1);
    desk.settle(3_000, &admitted[0], &[80_000]);
    assert_eq!(desk.stands(3_000, &cap), (80_000, 0, 20_000));
}

#[test]
fn settled_amounts_are_exact_to_the_millionth() {
    let mut desk = Desk::default();
    let limit = session("s", AFTER_MS, 2_401);
    for _ in 0..10_000 {
        let held = desk.reserve(0, &plan(&[(&limit, 1)])).unwrap();
        desk.ledger.settle(TimestampMs::EPOCH, &held, &[ExactAmount::from_millionths(240_000)]).unwrap();
    }
    assert_eq!(desk.view(0, &limit).spent, ExactAmount::whole(2_400));
}

/// What was used without a reservation belongs to the session of its time.
#[test]
fn an_unseen_use_is_charged_to_the_session_of_its_time() {
    let limit = session("s", AFTER_MS, 100);
    // (when it was admitted, what the session of 2,000 to 3,500 stands at afterwards)
    for (at_ms, spent) in [(500, 5), (1_000, 5), (1_001, 12), (2_400, 12), (3_499, 12)] {
        let mut desk = Desk::default();
        for now_ms in [2_000, 2_500] {
            let held = desk.reserve(now_ms, &plan(&[(&limit, 3)])).unwrap();
            desk.settle(now_ms, &held, &[if now_ms == 2_000 { 2 } else { 3 }]);
        }
        let at = TimestampMs::new(at_ms);
        let unseen = Held { id: tollgate_limiter::ReservationId::new(77), plan: plan(&[(&limit, 1)]), at };
        assert_eq!(desk.settle(3_000, &unseen, &[7]), Settled::WithoutReservation);
        assert_eq!(desk.stands(3_000, &limit).0, spent, "admitted at {at_ms}");
    }
    // With no counter at all, it counts until it is forgotten.
    let mut desk = Desk::default();
    let unseen = Held {
        id: tollgate_limiter::ReservationId::new(77),
        plan: plan(&[(&limit, 1)]),
        at: TimestampMs::new(5_000),
    };
    desk.settle(5_600, &unseen, &[7]);
    assert_eq!(desk.stands(5_999, &limit).0, 7);
    assert_eq!(desk.stands(6_000, &limit).0, 0);
}
