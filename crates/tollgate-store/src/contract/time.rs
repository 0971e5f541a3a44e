//! Windows, periods, and clocks that step.

use tollgate_limiter::{DurationMs, Held, Outcome, Period, Rule, Settled, TimestampMs};

use super::{
    Harness,
    desk::{DAY_MS, Desk, MINUTE_MS, MONDAY, admitted, budget, limit, per_minute, plan},
};
use crate::Clock;

pub(super) fn three_a_second_at_limit_50_admit_50_49_49_49(harness: &dyn Harness) {
    let desks = [Desk::on_monday(harness), Desk::open(harness), Desk::open(harness)];
    let limit = per_minute("r", 50);
    let mut admitted_ms = Vec::new();
    for (at_ms, desk) in (0..4 * 180).map(|call| call * 1_000 / 3).zip(desks.iter().cycle()) {
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

/// At no moment is the counter at nothing while the old period is still said to be open.
pub(super) fn c41_a_counter_and_its_end_change_together(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let day = budget("usd", Period::Day, 10);
    assert!(desk.admits(&day, 10));
    let [today, tomorrow] = [1, 2].map(|days| Some(MONDAY.saturating_add(DurationMs::new(days * DAY_MS))));
    for (at_ms, spent, end) in
        [(0, 10, today), (DAY_MS - 1, 10, today), (DAY_MS, 0, tomorrow), (2 * DAY_MS - 1, 0, tomorrow)]
    {
        harness.clock().set(MONDAY.saturating_add(DurationMs::new(at_ms)));
        let view = desk.views(&[&day]).remove(0);
        assert_eq!((view.held.get(), view.remaining.get(), view.resets_at), (spent, 10 - spent, end));
    }
}

/// Of several windows over the same calls, each begins anew at its own end, and no other with it.
pub(super) fn c42_each_window_resets_by_itself(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let limits = [Period::Minute, Period::Hour, Period::Day, Period::Week, Period::Month]
        .map(|period| budget(&format!("{period:?}"), period, 10));
    let entries: Vec<_> = limits.iter().map(|limit| (limit, 7)).collect();
    let held = desk.reserve(&plan(&entries)).unwrap();
    desk.settle(&held, &[7; 5]);
    // MONDAY is 30 November: the month ends before the week does.
    let ends_ms = [MINUTE_MS, 60 * MINUTE_MS, DAY_MS, 7 * DAY_MS, DAY_MS];
    for now_ms in ends_ms.iter().flat_map(|end_ms| [end_ms - 1, *end_ms]) {
        harness.clock().set(MONDAY.saturating_add(DurationMs::new(now_ms)));
        for (limit, end_ms) in limits.iter().zip(ends_ms) {
            let spent = if now_ms < end_ms { 7 } else { 0 };
            assert_eq!(desk.stands(limit), (spent, 0), "{:?} after {now_ms} ms", limit.key);
        }
    }
}

/// A counter that nobody touches any more refuses nobody for ever, however it came to be.
pub(super) fn c49_no_counter_refuses_for_ever(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let window = DurationMs::new(MINUTE_MS);
    let rules = [
        Rule::SlidingWindow { window },
        Rule::BucketedWindow { window },
        Rule::TokenBucket { window },
        Rule::Calendar(Period::Minute),
        Rule::Idle { after: window },
    ];
    for rule in rules {
        let limit = limit("acme", &format!("{rule:?}"), rule, 10);
        // A settle that nothing was reserved for makes the counter.
        let lost = Held { id: desk.new_id(), plan: plan(&[(&limit, 1)]), at: harness.clock().now() };
        assert_eq!(desk.settle(&lost, &[10]), Settled::WithoutReservation);
        let Outcome::Wait(wait) = desk.outcome(&limit, 1) else {
            panic!("{rule:?} is full, and not for ever")
        };
        desk.advance(wait.get());
        assert_eq!(desk.outcome(&limit, 1), Outcome::Admit, "{rule:?}");
    }
}
