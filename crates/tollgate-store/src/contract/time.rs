//! Windows, periods, and clocks that step.

use tollgate_limiter::{DurationMs, Outcome, Period, TimestampMs};

use super::{
    Harness,
    desk::{DAY_MS, Desk, MINUTE_MS, MONDAY, admitted, budget, per_minute, plan},
};

pub(super) fn three_a_second_at_limit_50_admit_50_49_49_49(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let limit = per_minute("r", 50);
    let mut admitted_ms = Vec::new();
    for call in 0..4 * 180 {
        let at_ms = call * 1_000 / 3;
        harness.clock().set(MONDAY.saturating_add(DurationMs::new(at_ms)));
        if desk.admits(&limit, 1) {
            admitted_ms.push(at_ms);
        }
    }
    let in_span =
        |start: u64| admitted_ms.iter().filter(|at| (start..start + MINUTE_MS).contains(at)).count();
    assert_eq!([0, 1, 2, 3].map(|minute| in_span(minute * MINUTE_MS)), [50, 49, 49, 49]);
    assert_eq!(admitted_ms.iter().map(|start| in_span(*start)).max(), Some(50));
}

pub(super) fn the_announced_wait_is_exact(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let limit = per_minute("r", 50);
    assert!(desk.admits(&limit, 50));
    for charge in [1, 7, 30] {
        let Outcome::Wait(wait) = desk.outcome(&limit, charge) else { panic!("{charge} more than 50 fit") };
        desk.advance(wait.get() - 1);
        assert_eq!(desk.outcome(&limit, charge), Outcome::Wait(DurationMs::new(1)));
        desk.advance(1);
        assert_eq!(desk.outcome(&limit, charge), Outcome::Admit);
    }
    let day = budget("usd", Period::Day, 10);
    harness.clock().set(MONDAY.saturating_add(DurationMs::new(DAY_MS - 5)));
    assert!(desk.admits(&day, 10));
    assert_eq!(desk.outcome(&day, 10), Outcome::Wait(DurationMs::new(5)));
    desk.advance(5);
    assert_eq!(desk.outcome(&day, 10), Outcome::Admit);
}

pub(super) fn a_window_keeps_what_a_clock_set_back_would_lose(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let (minute, day) = (per_minute("r", 10), budget("usd", Period::Day, 10));
    let held = desk.reserve(&plan(&[(&minute, 6), (&day, 6)])).unwrap();
    harness.clock().set(TimestampMs::new(MONDAY.get() - 3 * DAY_MS));
    assert!(!desk.admits(&minute, 5));
    assert!(!desk.admits(&day, 5));
    let back = desk.reserve(&plan(&[(&minute, 4), (&day, 4)])).unwrap();
    assert_eq!((desk.stands(&minute), desk.stands(&day)), ((0, 10), (0, 10)));
    desk.settle(&back, &[1, 1]);
    harness.clock().set(MONDAY);
    desk.settle(&held, &[2, 2]);
    assert_eq!((desk.stands(&minute), desk.stands(&day)), ((3, 0), (3, 0)));
}

pub(super) fn a_settle_never_touches_a_later_period(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let day = budget("usd", Period::Day, 100);
    desk.advance(DAY_MS - 1);
    let late = desk.reserve(&plan(&[(&day, 60)])).unwrap();
    desk.advance(1);
    let next = desk.reserve(&plan(&[(&day, 100)])).unwrap();
    desk.settle(&late, &[95]);
    assert_eq!(desk.stands(&day), (0, 100));
    desk.settle(&next, &[30]);
    assert_eq!(desk.stands(&day), (30, 0));
}

pub(super) fn an_extension_leaves_an_ended_period_alone(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let (minute, hour) = (budget("minute", Period::Minute, 10), budget("hour", Period::Hour, 100));
    let held = desk.reserve(&plan(&[(&minute, 10), (&hour, 10)])).unwrap();
    desk.advance(MINUTE_MS);
    assert!(admitted(&desk.extend(&held, 1, &[50, 50]).unwrap()));
    assert_eq!((desk.stands(&minute), desk.stands(&hour)), ((0, 0), (0, 60)));
    desk.settle(&held, &[30, 30]);
    assert_eq!((desk.stands(&minute), desk.stands(&hour)), ((0, 0), (30, 0)));
}

pub(super) fn unused_amounts_go_back_to_their_window(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let limit = per_minute("r", 100);
    let held = desk.reserve(&plan(&[(&limit, 40)])).unwrap();
    desk.advance(MINUTE_MS);
    assert!(admitted(&desk.extend(&held, 1, &[30]).unwrap()));
    assert_eq!(desk.stands(&limit), (0, 70));
    // 45 used: the first booking in full, five of the second one.
    desk.settle(&held, &[45]);
    assert_eq!(desk.stands(&limit), (45, 0));
    desk.advance(MINUTE_MS);
    assert_eq!(desk.stands(&limit), (5, 0));
}
