//! The bucketed window: what any period of its length holds, and when a refused charge fits.

use tollgate_limiter::{DurationMs, Outcome};

use crate::support::{Desk, MINUTE_MS, bucketed, plan};

fn wait(ms: u64) -> Outcome {
    Outcome::Wait(DurationMs::new(ms))
}

#[test]
fn the_oldest_bucket_is_counted_whole() {
    let mut desk = Desk::default();
    let limit = bucketed("r", MINUTE_MS, 50);
    assert_eq!(desk.outcome(999, &limit, 50), Outcome::Admit);
    // The bucket of the first second is in sight until the 61st second is over.
    assert_eq!(desk.outcome(999, &limit, 1), wait(61_000 - 999));
    assert_eq!(desk.outcome(60_999, &limit, 1), wait(1));
    assert_eq!(desk.outcome(61_000, &limit, 51), Outcome::Never);
    assert_eq!(desk.outcome(61_000, &limit, 50), Outcome::Admit);
}

#[test]
fn a_charge_waits_for_as_many_buckets_as_it_needs() {
    let limit = bucketed("r", MINUTE_MS, 10);
    let charged = || {
        let mut desk = Desk::default();
        for (at_ms, charge) in [(0, 3), (5_500, 3), (20_000, 4)] {
            assert!(desk.admits(at_ms, &limit, charge));
        }
        desk
    };
    let ask = |charge| charged().outcome(30_000, &limit, charge);
    assert_eq!([1, 3, 4, 6, 7, 10].map(ask), [31_000, 31_000, 36_000, 36_000, 51_000, 51_000].map(wait));
    let desk = charged();
    assert_eq!(desk.stands(30_000, &limit), (0, 10, 0));
    assert_eq!(desk.stands(61_000, &limit), (0, 7, 3));
    let view = desk.view(30_000, &limit);
    assert_eq!(view.resets_at.map(tollgate_limiter::TimestampMs::get), Some(81_000));
}

#[test]
fn buckets_need_not_be_whole_milliseconds() {
    // 90 ms in 60 buckets of 1.5 ms: the one of 0 and 1 ms leaves when bucket 61 begins, at 91.5.
    let mut desk = Desk::default();
    let limit = bucketed("odd", 90, 1);
    assert!(desk.admits(1, &limit, 1));
    assert_eq!(desk.outcome(1, &limit, 1), wait(91));
    assert_eq!(desk.outcome(91, &limit, 1), wait(1));
    assert!(desk.admits(92, &limit, 1));
    // Seven milliseconds in 60 buckets: most of them begin and end between two.
    let mut desk = Desk::default();
    let limit = bucketed("short", 7, 1);
    assert!(desk.admits(0, &limit, 1));
    assert_eq!(desk.outcome(0, &limit, 1), wait(8));
    assert!(desk.admits(8, &limit, 1));
}

/// The limit in each 61 buckets, when there is always somebody who wants more.
#[test]
fn steady_overload_gets_sixty_of_sixty_one_parts() {
    for limit in [1_u64, 7, 50, 600] {
        let (mut desk, mut passed) = (Desk::default(), 0_u64);
        let rule = bucketed("r", MINUTE_MS, limit);
        let spans = 20;
        for at_ms in (0..spans * 61_000).step_by(100) {
            while desk.admits(at_ms, &rule, 1) {
                passed += 1;
            }
        }
        assert_eq!(passed, spans * limit);
    }
}

#[test]
fn unused_amounts_go_back_to_the_buckets_they_were_booked_in() {
    let mut desk = Desk::default();
    let limit = bucketed("r", MINUTE_MS, 100);
    let held = desk.reserve(0, &plan(&[(&limit, 40)])).unwrap();
    assert!(desk.extend(30_000, &held, 1, &[30]));
    assert_eq!(desk.stands(30_000, &limit), (0, 70, 30));
    desk.settle(40_000, &held, &[45]);
    assert_eq!(desk.stands(40_000, &limit), (45, 0, 55));
    assert_eq!(desk.stands(61_000, &limit), (5, 0, 95), "the first booking was used in full");
    // What comes too late for its bucket changes nothing; what was used beyond is charged now.
    let late = desk.reserve(61_000, &plan(&[(&limit, 20)])).unwrap();
    desk.settle(61_000 + 61_000, &late, &[0]);
    assert_eq!(desk.stands(61_000 + 61_000, &limit), (0, 0, 100));
    let over = desk.reserve(200_000, &plan(&[(&limit, 1)])).unwrap();
    desk.settle(230_000, &over, &[150]);
    assert_eq!(desk.stands(230_000, &limit), (150, 0, 0));
    assert_eq!(desk.stands(261_000, &limit), (149, 0, 0));
    assert_eq!(desk.stands(291_000, &limit), (0, 0, 100));
}
