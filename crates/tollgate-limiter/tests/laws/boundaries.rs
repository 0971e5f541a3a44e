//! Tables of the edges: limit 1, charge = limit, limit + 1, first and last instant, largest amounts.

use tollgate_limiter::{
    Amount, DurationMs, Enforcement, ExactAmount, Outcome, Period, Standing, TimestampMs, Verdict,
    WINDOW_AMOUNT_MAX,
};

use crate::support::{Desk, MINUTE_MS, budget, plan, rate, soft};

fn wait(ms: u64) -> Outcome {
    Outcome::Wait(DurationMs::new(ms))
}

/// (limit, charge in the previous window, charge in this one, elapsed, asked, answer)
const TABLE: &[(u64, u64, u64, u64, u64, Outcome)] = &[
    // Nothing before.
    (1, 0, 0, 0, 1, Outcome::Admit),
    (1, 0, 0, 0, 2, Outcome::Never),
    (50, 0, 0, MINUTE_MS - 1, 50, Outcome::Admit),
    (50, 0, 0, MINUTE_MS - 1, 51, Outcome::Never),
    (0, 0, 0, 0, 0, Outcome::Admit),
    (0, 0, 0, 0, 1, Outcome::Never),
    // A limit of one: the previous window is out of sight only when this one is over.
    (1, 1, 0, 0, 1, Outcome::Wait(DurationMs::new(MINUTE_MS))),
    (1, 1, 0, MINUTE_MS - 1, 1, Outcome::Wait(DurationMs::new(1))),
    (1, 0, 1, 0, 1, Outcome::Wait(DurationMs::new(2 * MINUTE_MS))),
    (1, 0, 1, MINUTE_MS - 1, 1, Outcome::Wait(DurationMs::new(MINUTE_MS + 1))),
    // The previous window was full.
    (50, 50, 0, 0, 1, Outcome::Wait(DurationMs::new(1_200))),
    (50, 50, 0, 1_199, 1, Outcome::Wait(DurationMs::new(1))),
    (50, 50, 0, 1_200, 1, Outcome::Admit),
    (50, 50, 0, MINUTE_MS - 1, 50, Outcome::Wait(DurationMs::new(1))),
    (50, 50, 0, MINUTE_MS - 1, 49, Outcome::Admit),
    // This window is full.
    (50, 0, 50, 0, 1, Outcome::Wait(DurationMs::new(MINUTE_MS + 1_200))),
    (50, 0, 50, 30_000, 50, Outcome::Wait(DurationMs::new(30_000 + MINUTE_MS))),
    // The largest limit.
    (10_000_000_000, 10_000_000_000, 0, 0, 1, Outcome::Wait(DurationMs::new(1))),
    (10_000_000_000, 10_000_000_000, 0, 1, 166_666, Outcome::Admit),
    (10_000_000_000, 10_000_000_000, 0, 1, 166_667, Outcome::Wait(DurationMs::new(1))),
    (10_000_000_000, 0, 10_000_000_000, 59_999, 10_000_000_000, Outcome::Wait(DurationMs::new(60_001))),
];

#[test]
fn the_window_answers_its_table() {
    for &(limit, previous, current, elapsed_ms, asked, answer) in TABLE {
        let mut desk = Desk::default();
        let rule = rate("r", MINUTE_MS, limit);
        let start_ms = 10 * MINUTE_MS;
        if previous > 0 {
            assert!(desk.admits(start_ms - MINUTE_MS, &rule, previous));
        }
        if current > 0 {
            // Booked under a limit that lets it: a changed limit keeps the count.
            assert!(desk.admits(start_ms, &rate("r", MINUTE_MS, u64::MAX), current));
        }
        let row = (limit, previous, current, elapsed_ms, asked);
        assert_eq!(desk.outcome(start_ms + elapsed_ms, &rule, asked), answer, "{row:?}");
    }
}

#[test]
fn a_long_window_counts_a_part_when_it_is_over() {
    // A window of an hour has parts of 60 ms.
    let hour_ms = 3_600_000;
    let rule = rate("r", hour_ms, 60_000);
    let mut desk = Desk::default();
    assert!(desk.admits(0, &rule, 60_000));
    assert_eq!(desk.outcome(hour_ms, &rule, 1), wait(60));
    assert_eq!(desk.outcome(hour_ms + 59, &rule, 1), wait(1));
    assert_eq!(desk.outcome(hour_ms + 60, &rule, 1), Outcome::Admit);
    // 90,001 ms are no whole number of milliseconds a part: the first one is over after two.
    let odd = rate("odd", 90_001, 60_000);
    assert!(desk.admits(0, &odd, 60_000));
    assert_eq!(desk.outcome(90_001, &odd, 1), wait(2));
    assert_eq!(desk.outcome(90_002, &odd, 1), wait(1));
    assert_eq!(desk.outcome(90_003, &odd, 1), Outcome::Admit);
}

#[test]
fn amounts_at_the_end_of_the_numbers_saturate() {
    let mut desk = Desk::default();
    let rule = rate("r", MINUTE_MS, u64::MAX);
    let money = budget("b", Period::Day, u64::MAX);
    for limit in [&rule, &money] {
        assert!(desk.admits(0, limit, u64::MAX));
        assert!(matches!(desk.outcome(1, limit, 1), Outcome::Wait(_)));
        assert_eq!(desk.view(1, limit).remaining, Amount::ZERO);
    }
    let end = Desk::default().outcome(u64::MAX, &rule, u64::MAX);
    assert_eq!(end, Outcome::Admit);
}

/// The last period there is ends with the numbers: it never begins anew.
#[test]
fn the_last_moment_there_is_belongs_to_a_period() {
    let mut desk = Desk::default();
    let day = budget("b", Period::Day, 10);
    assert!(desk.admits(u64::MAX, &day, 10));
    assert!(!desk.admits(u64::MAX, &day, 1));
}

#[test]
fn a_window_without_length_is_one_of_a_millisecond() {
    let mut desk = Desk::default();
    let rule = rate("r", 0, 1);
    assert!(desk.admits(5, &rule, 1));
    assert_eq!(desk.outcome(5, &rule, 1), wait(2));
    assert!(desk.admits(7, &rule, 1));
}

#[test]
fn c84_a_limit_of_zero_blocks_all_that_costs() {
    for limit in [rate("r", MINUTE_MS, 0), budget("b", Period::Month, 0), budget("t", Period::Total, 0)] {
        let mut desk = Desk::default();
        assert_eq!(desk.outcome(0, &limit, 1), Outcome::Never);
        assert_eq!(desk.outcome(0, &limit, 0), Outcome::Admit);
    }
}

/// A charge of nothing passes whatever stands: exhausted, overdrawn, or a limit lowered below the count.
#[test]
fn c85_a_free_request_passes_an_exhausted_limit() {
    for limit in [rate("r", MINUTE_MS, 10), budget("b", Period::Month, 10), budget("t", Period::Total, 10)] {
        let mut desk = Desk::default();
        let held = desk.reserve(0, &plan(&[(&limit, 10)])).unwrap();
        assert_eq!(desk.outcome(0, &limit, 0), Outcome::Admit);
        desk.settle(0, &held, &[25]);
        assert_ne!(desk.outcome(0, &limit, 1), Outcome::Admit);
        assert_eq!(desk.outcome(0, &limit, 0), Outcome::Admit);
        assert_eq!(desk.view(0, &limit).spent, ExactAmount::whole(25));
    }
}

#[test]
fn a_calendar_budget_waits_for_its_period_and_a_total_never() {
    let mut desk = Desk::default();
    let (hour, total) = (budget("h", Period::Hour, 10), budget("t", Period::Total, 10));
    assert!(desk.admits(600_000, &hour, 6) && desk.admits(600_000, &total, 6));
    assert_eq!(desk.outcome(600_000, &hour, 5), wait(3_000_000));
    assert_eq!(desk.outcome(600_000, &hour, 11), Outcome::Never);
    assert_eq!(desk.outcome(600_000, &total, 5), Outcome::Never);
    // The clock was set back behind the period: it ends when it ends.
    assert!(desk.admits(4_000_000, &hour, 6));
    assert_eq!(desk.outcome(1_000_000, &hour, 5), wait(6_200_000));
}

#[test]
fn the_entry_that_binds_is_never_first_then_the_longest_wait() {
    let mut desk = Desk::default();
    let (second, minute) = (rate("s", 1_000, 5), rate("m", MINUTE_MS, 5));
    let (small, warning) = (rate("small", MINUTE_MS, 3), soft(&budget("soft", Period::Day, 1)));
    let all = [(&second, 5), (&warning, 5), (&minute, 5)];
    let admitted = desk.reserve(0, &plan(&all)).unwrap();
    assert_eq!(admitted.at, TimestampMs::EPOCH);

    let Err(refusal) = desk.reserve(0, &plan(&all)) else { panic!("five of five are used") };
    let waits: Vec<_> = refusal.refusing.iter().map(|entry| (entry.index, entry.outcome)).collect();
    assert_eq!(waits, [(0, wait(2_000)), (2, wait(2 * MINUTE_MS))], "soft limits do not refuse");
    assert_eq!(refusal.binding, refusal.refusing[1]);

    let never = plan(&[(&second, 5), (&minute, 5), (&small, 4)]);
    let Err(refusal) = desk.reserve(0, &never) else { panic!("four of three cannot fit") };
    assert_eq!((refusal.binding.index, refusal.binding.outcome), (2, Outcome::Never));
    assert_eq!(refusal.refusing.len(), 3);
    assert_eq!(refusal.binding.needed, Amount::new(4));
}

/// A budget whose spend leaves room is worth another try soon, whenever its period ends: the window says
/// when the call fits.
#[test]
fn a_window_that_is_full_binds_before_a_budget_that_waits_for_holds() {
    for period in [Period::Month, Period::Total] {
        let mut desk = Desk::default();
        let (hour, money) = (rate("h", 60 * MINUTE_MS, 1), budget("usd", period, 1_200));
        let held = desk.reserve(0, &plan(&[(&money, 1_000), (&hour, 1)])).unwrap();
        let Err(refusal) = desk.reserve(0, &plan(&[(&money, 1_000), (&hour, 1)])) else {
            panic!("both full")
        };
        assert_eq!((refusal.binding.index, refusal.refusing.len()), (1, 2), "{period:?}");
        desk.settle(0, &held, &[1_000, 1]);
        let Err(refusal) = desk.reserve(0, &plan(&[(&money, 1_000), (&hour, 1)])) else {
            panic!("both full")
        };
        assert_eq!(refusal.binding.index, 0, "spent, and for longer than the hour: {period:?}");
    }
}

#[test]
fn the_tightest_rate_has_the_smallest_part_left() {
    let mut desk = Desk::default();
    let (a, b, money) = (rate("a", MINUTE_MS, 100), rate("b", 1_000, 10), budget("usd", Period::Day, 100));
    let of = |desk: &mut Desk, entries: &[_]| {
        let held = plan(entries);
        let id = tollgate_limiter::ReservationId::new(u128::MAX);
        let mut probe = Desk::default();
        std::mem::swap(&mut probe, desk);
        let verdict = probe.ledger.reserve(TimestampMs::new(400), id, held, tollgate_limiter::Attempt::First);
        match verdict.unwrap() {
            Verdict::Admitted(admission) => admission.tightest,
            Verdict::Refused(refusal) => refusal.tightest,
        }
    };
    // 89 of 100 against 9 of 10, after the charge; budgets take no part.
    let tightest = of(&mut desk, &[(&money, 100), (&a, 11), (&b, 1)]).unwrap();
    assert_eq!((tightest.index, tightest.remaining, tightest.resets_in.get()), (1, Amount::new(89), 59_600));
    // Equal parts: the first.
    let tightest = of(&mut desk, &[(&a, 10), (&b, 1)]).unwrap();
    assert_eq!((tightest.index, tightest.limit), (0, Amount::new(100)));
    // Refused: as it stands, without the charge.
    let tightest = of(&mut desk, &[(&a, 10), (&b, 11)]).unwrap();
    assert_eq!((tightest.index, tightest.remaining), (0, Amount::new(100)));
    // Nothing of nothing is nothing.
    let closed = rate("closed", MINUTE_MS, 0);
    let tightest = of(&mut desk, &[(&b, 9), (&closed, 0)]).unwrap();
    assert_eq!((tightest.index, tightest.resets_in.get()), (1, 59_600));
    // No rate, no tightest.
    assert_eq!(of(&mut desk, &[(&money, 1)]), None);
}

#[test]
fn soft_entries_that_do_not_fit_are_charged_and_named() {
    let mut desk = Desk::default();
    let (hard, warning) = (rate("r", MINUTE_MS, 10), soft(&budget("b", Period::Day, 3)));
    let entries = plan(&[(&hard, 1), (&warning, 4)]);
    let id = tollgate_limiter::ReservationId::new(7);
    let verdict = desk.ledger.reserve(TimestampMs::EPOCH, id, entries, tollgate_limiter::Attempt::First);
    let Ok(Verdict::Admitted(admission)) = verdict else { panic!("a soft limit refused") };
    assert_eq!(admission.over_soft.iter().collect::<Vec<_>>(), [1]);
    assert_eq!(desk.view(0, &warning).held, Amount::new(4));
    assert_eq!(warning.enforcement, Enforcement::Soft);
}

/// The products of the largest limit stay exact in a double, for stores that compute in those.
#[test]
fn the_largest_window_amount_stays_below_two_to_the_53() {
    let terms = 3 * u128::from(WINDOW_AMOUNT_MAX.get()) * 60_000;
    assert!(terms < 1 << 53);
}

/// By parts of the amounts, exactly: what is left of two limits is not compared by its size.
#[test]
fn the_tighter_of_two_limits_is_the_one_with_the_smaller_part_left() {
    let standing = |(remaining, limit)| Standing {
        index: 0,
        limit: Amount::new(limit),
        remaining: Amount::new(remaining),
        resets_in: DurationMs::ZERO,
    };
    let largest = WINDOW_AMOUNT_MAX.get();
    for (tighter, wider) in [
        ((1, 3), (1, 2)),
        ((10, 100), (2, 10)),
        ((0, 1), (1, largest)),
        ((largest - 2, largest - 1), (largest - 1, largest)),
    ] {
        assert!(standing(tighter).is_tighter_than(standing(wider)), "{tighter:?} {wider:?}");
        assert!(!standing(wider).is_tighter_than(standing(tighter)), "{tighter:?} {wider:?}");
    }
    for (one, other) in [((1, 2), (2, 4)), ((0, 5), (0, 7)), ((largest, largest), (1, 1))] {
        assert!(!standing(one).is_tighter_than(standing(other)), "{one:?} {other:?}");
        assert!(!standing(other).is_tighter_than(standing(one)), "{one:?} {other:?}");
    }
}
