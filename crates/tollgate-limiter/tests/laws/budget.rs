//! Calendar budgets: exact sums, and money that stays in its period.

use proptest::prelude::*;
use tollgate_limiter::{Amount, ExactAmount, Outcome, Period, Settled, TimestampMs};

use crate::support::{Desk, budget, plan, rate};

const DAY_MS: u64 = 86_400_000;

/// 10,000 × 0.24 micro-USD: 2,400, not 0 and not 10,000; and C82's 10,000 × 0.0001 = 1.
#[test]
fn c82_small_settles_add_up_exactly() {
    for (millionths, sum) in [(240_000, 2_400), (100, 1)] {
        let mut desk = Desk::default();
        let month = budget("usd", Period::Month, sum + 1);
        let exact = ExactAmount::from_millionths(millionths);
        for _ in 0..10_000 {
            let held = desk.reserve(0, &plan(&[(&month, 1)])).unwrap();
            assert_eq!(desk.ledger.settle(TimestampMs::EPOCH, &held, &[exact]), Ok(Settled::Applied));
        }
        let view = desk.view(0, &month);
        assert_eq!(
            (view.spent, view.held, view.remaining),
            (ExactAmount::whole(sum), Amount::ZERO, Amount::new(1))
        );
    }
}

#[test]
fn a_remainder_below_a_unit_takes_part_in_the_decision() {
    let mut desk = Desk::default();
    let total = budget("usd", Period::Total, 10);
    let held = desk.reserve(0, &plan(&[(&total, 1)])).unwrap();
    desk.ledger.settle(TimestampMs::EPOCH, &held, &[ExactAmount::from_millionths(1)]).unwrap();
    assert_eq!(desk.view(0, &total).remaining, Amount::new(9));
    assert_eq!(desk.outcome(0, &total, 10), Outcome::Never);
    assert!(desk.admits(0, &total, 9));
}

/// Balance 0.01 USD, a request of 0.50: the estimate decides, not that something is left.
#[test]
fn c06_a_balance_above_zero_does_not_admit_what_it_cannot_pay() {
    let mut desk = Desk::default();
    let total = budget("usd", Period::Total, 10_000);
    assert_eq!(desk.outcome(0, &total, 500_000), Outcome::Never);
    assert_eq!(desk.view(0, &total).remaining, Amount::new(10_000));
}

/// §4's case: budget 10,000, each reserves 223 and costs 2,023.
#[test]
fn the_worst_case_overspend_is_the_sum_of_the_excesses() {
    let mut desk = Desk::default();
    let total = budget("usd", Period::Total, 10_000);
    let open: Vec<_> = (0..120).filter_map(|_| desk.reserve(0, &plan(&[(&total, 223)])).ok()).collect();
    assert_eq!(open.len(), 44);
    for held in &open {
        assert_eq!(desk.settle(0, held, &[2_023]), Settled::Applied);
    }
    assert_eq!(desk.view(0, &total).spent, ExactAmount::whole(89_012));
    assert!(!desk.admits(0, &total, 1), "the debt carries");
}

/// Held counters at rest are zero, whatever the hundred requests used.
#[test]
fn c17_c28_nothing_is_held_at_rest() {
    let mut desk = Desk::default();
    let (day, tokens) = (budget("usd", Period::Day, 800), rate("tokens", 60_000, 1_000));
    let open: Vec<_> =
        (0..100).map(|_| desk.reserve(0, &plan(&[(&day, 8), (&tokens, 10)])).unwrap()).collect();
    assert_eq!((desk.view(0, &day).held.get(), desk.view(0, &tokens).held.get()), (800, 1_000));
    for (number, held) in (0..).zip(&open) {
        desk.settle(0, held, &[number % 9, number % 20]);
    }
    for (limit, spent) in
        [(&day, (0..100).map(|n| n % 9).sum()), (&tokens, (0..100).map(|n| n % 20).sum::<u64>())]
    {
        let view = desk.view(0, limit);
        assert_eq!((view.held, view.spent), (Amount::ZERO, ExactAmount::whole(spent)));
    }
    assert_eq!(desk.ledger.open_reservations(), 0);
}

/// A refusal says whether waiting for open requests helps: `budget_held` against `budget_exceeded`.
#[test]
fn c23_a_refusal_tells_holds_from_spend() {
    let mut desk = Desk::default();
    let total = budget("usd", Period::Total, 100);
    let held = desk.reserve(0, &plan(&[(&total, 80)])).unwrap();
    let ask = plan(&[(&total, 50)]);
    let refusal = |desk: &mut Desk| match desk.reserve(0, &ask) {
        Err(refusal) => refusal.binding,
        other => panic!("{other:?}"),
    };
    let by_holds = refusal(&mut desk);
    assert_eq!((by_holds.spent.get(), by_holds.held.get(), by_holds.fits_without_holds()), (0, 80, true));
    desk.settle(0, &held, &[80]);
    let by_spend = refusal(&mut desk);
    assert_eq!((by_spend.spent.get(), by_spend.held.get(), by_spend.fits_without_holds()), (80, 0, false));
}

/// C39, C41: a new period starts at zero, and what was reserved in the old one stays there.
#[test]
fn c39_a_settle_never_touches_a_later_period() {
    let mut desk = Desk::default();
    let day = budget("usd", Period::Day, 100);
    let late = desk.reserve(DAY_MS - 1, &plan(&[(&day, 60)])).unwrap();
    let later = desk.reserve(DAY_MS, &plan(&[(&day, 100)])).unwrap();
    assert_eq!(desk.settle(DAY_MS + 5, &late, &[95]), Settled::Applied);
    let view = desk.view(DAY_MS + 5, &day);
    assert_eq!((view.spent, view.held), (ExactAmount::ZERO, Amount::new(100)));
    desk.settle(DAY_MS + 6, &later, &[30]);
    assert_eq!(desk.view(DAY_MS + 6, &day).spent, ExactAmount::whole(30));
}

#[test]
fn a_settle_after_the_end_of_the_period_is_recorded_before_the_next_begins() {
    let mut desk = Desk::default();
    let day = budget("usd", Period::Day, 100);
    let held = desk.reserve(5, &plan(&[(&day, 60)])).unwrap();
    desk.settle(DAY_MS + 5, &held, &[95]);
    // Set back into the old day, the clock finds what was spent there.
    assert_eq!(desk.view(10, &day).spent, ExactAmount::whole(95));
    assert_eq!(desk.view(DAY_MS + 5, &day).spent, ExactAmount::ZERO);
}

proptest! {
    /// Admission and spend against plain sums in millionths, over clocks that go both ways.
    #[test]
    fn a_budget_is_the_exact_sum_of_its_period(
        limit in 1_u64..200,
        calls in prop::collection::vec((0_u64..4, 0_u64..60, 0_u128..90_000_000), 1..60),
    ) {
        let mut desk = Desk::default();
        let day = budget("usd", Period::Day, limit);
        let (mut today, mut committed) = (0, 0_u128);
        for (clock_day, charge, actual) in calls {
            // A later day begins at nothing, an earlier one is over: the counter stays where it is.
            let before = if clock_day > today { 0 } else { committed };
            let needed = u128::from(charge) * 1_000_000;
            let fits = charge == 0 || before + needed <= u128::from(limit) * 1_000_000;
            let now_ms = clock_day * DAY_MS + 77;
            match desk.reserve(now_ms, &plan(&[(&day, charge)])) {
                Ok(held) => {
                    prop_assert!(fits);
                    (today, committed) = (today.max(clock_day), before + actual);
                    desk.ledger.settle(TimestampMs::new(now_ms), &held, &[ExactAmount::from_millionths(actual)]).unwrap();
                }
                Err(_) => prop_assert!(!fits),
            }
            let view = desk.view(today * DAY_MS, &day);
            prop_assert_eq!(view.spent.as_millionths(), committed);
        }
    }

    #[test]
    fn exact_amounts_add_and_subtract_like_integers(a: u64, b: u64, x in 0_u32..1_000_000, y in 0_u32..1_000_000) {
        let of = |units: u64, millionths: u32| u128::from(units) * 1_000_000 + u128::from(millionths);
        let (p, q) = (ExactAmount::from_millionths(of(a, x)), ExactAmount::from_millionths(of(b, y)));
        prop_assert_eq!((p.as_millionths(), p.units(), p.remainder()), (of(a, x), a, x));
        prop_assert_eq!(p.saturating_add(q), ExactAmount::from_millionths(of(a, x) + of(b, y)));
        prop_assert_eq!(p.saturating_sub(q).as_millionths(), of(a, x).saturating_sub(of(b, y)));
        prop_assert_eq!(p.cmp(&q), of(a, x).cmp(&of(b, y)));
    }
}
