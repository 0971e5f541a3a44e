//! What fits, what does not, and what a settle leaves.

use std::sync::Arc;

use tollgate_limiter::{Amount, Attempt, Enforcement, ExactAmount, Limit, Outcome, Period, Settled, Verdict};

use super::{
    Harness,
    desk::{Desk, budget, per_minute, plan},
};

pub(super) fn c01_parallel_calls_hold_what_they_may_use(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let tokens = per_minute("tokens", 100);
    let used = [58, 80, 175, 175, 175];
    let open: Vec<_> =
        used.into_iter().filter_map(|charge| desk.reserve(&plan(&[(&tokens, charge)])).ok()).collect();
    assert_eq!(open.len(), 1);
    desk.settle(&open[0], &[58]);
    assert_eq!(desk.stands(&tokens), (58, 0));
}

pub(super) fn c04_one_of_twenty_fits_a_budget_of_one_request(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let cap = budget("usd", Period::Total, 1_000);
    assert_eq!((0..20).filter(|_| desk.admits(&cap, 900)).count(), 1);
}

pub(super) fn c06_a_balance_above_zero_does_not_admit_what_it_cannot_pay(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let balance = budget("usd", Period::Total, 10_000);
    assert_eq!(desk.outcome(&balance, 500_000), Outcome::Never);
    assert_eq!(desk.stands(&balance), (0, 0));
}

pub(super) fn c17_c28_nothing_is_held_at_rest(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let (day, tokens) = (budget("usd", Period::Day, 800), per_minute("tokens", 1_000));
    let open: Vec<_> = (0..100).map(|_| desk.reserve(&plan(&[(&day, 8), (&tokens, 10)])).unwrap()).collect();
    assert_eq!((desk.stands(&day), desk.stands(&tokens)), ((0, 800), (0, 1_000)));
    for (number, held) in (0..).zip(&open) {
        assert_eq!(desk.settle(held, &[number % 9, number % 20]), Settled::Applied);
    }
    let (usd, count) = ((0..100).map(|n| n % 9).sum(), (0..100).map(|n| n % 20).sum());
    assert_eq!((desk.stands(&day), desk.stands(&tokens)), ((usd, 0), (count, 0)));
}

pub(super) fn c26_an_overage_goes_to_every_counter_in_full(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let (small, large) = (per_minute("small", 1_000), budget("large", Period::Day, 1_000_000));
    let held = desk.reserve(&plan(&[(&small, 100), (&large, 100)])).unwrap();
    assert_eq!(desk.settle(&held, &[1_500, 1_500]), Settled::Applied);
    assert_eq!((desk.stands(&small), desk.stands(&large)), ((1_500, 0), (1_500, 0)));
    let left: Vec<_> = desk.views(&[&small, &large]).iter().map(|view| view.remaining.get()).collect();
    assert_eq!(left, [0, 998_500]);
}

pub(super) fn c82_small_settles_add_up_exactly(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let month = budget("usd", Period::Month, 2_401);
    let exact = [ExactAmount::from_millionths(240_000)];
    for _ in 0..10_000 {
        let held = desk.reserve(&plan(&[(&month, 1)])).unwrap();
        assert_eq!(desk.settle_exactly(&held, &exact).unwrap(), Settled::Applied);
    }
    assert_eq!(desk.stands(&month), (2_400, 0));
    assert_eq!(desk.views(&[&month])[0].remaining, Amount::new(1));
}

pub(super) fn c84_a_limit_of_zero_blocks_all_that_costs(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    for limit in [per_minute("r", 0), budget("month", Period::Month, 0), budget("total", Period::Total, 0)] {
        assert_eq!(desk.outcome(&limit, 1), Outcome::Never);
        assert_eq!(desk.outcome(&limit, 0), Outcome::Admit);
    }
}

pub(super) fn c85_a_free_request_passes_an_exhausted_limit(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    for limit in [per_minute("r", 10), budget("month", Period::Month, 10), budget("total", Period::Total, 10)]
    {
        let held = desk.reserve(&plan(&[(&limit, 10)])).unwrap();
        assert!(desk.admits(&limit, 0));
        desk.settle(&held, &[25]);
        assert!(!desk.admits(&limit, 1));
        assert!(desk.admits(&limit, 0));
        assert_eq!(desk.stands(&limit), (25, 0));
    }
}

pub(super) fn c118_a_charge_is_what_it_needs_not_one(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let tokens = per_minute("tokens", 30);
    assert_eq!((0..30).filter(|_| desk.admits(&tokens, 150)).count(), 0);
}

pub(super) fn a_refusal_changes_nothing_and_names_who_refuses(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let (requests, tokens, usd) =
        (per_minute("requests", 3), per_minute("tokens", 100), budget("usd", Period::Total, 50));
    desk.reserve(&plan(&[(&requests, 1), (&tokens, 60), (&usd, 30)])).unwrap();
    let before = desk.views(&[&requests, &tokens, &usd]);
    let refusal = desk.reserve(&plan(&[(&requests, 1), (&tokens, 60), (&usd, 30)])).unwrap_err();
    assert_eq!(desk.views(&[&requests, &tokens, &usd]), before);
    assert_eq!(refusal.refusing.iter().map(|entry| entry.index).collect::<Vec<_>>(), [1, 2]);
    let binding = refusal.binding;
    assert_eq!(binding.index, 1, "the total fits once the open call is over, the minute has a time");
    assert_eq!((binding.spent.get(), binding.held.get(), binding.needed.get()), (0, 60, 60));
    assert_eq!(refusal.refusing[1].outcome, Outcome::Never);
    assert!(refusal.refusing[1].fits_without_holds());
    let tightest = refusal.tightest.unwrap();
    assert_eq!((tightest.index, tightest.remaining.get()), (1, 40));
}

pub(super) fn a_soft_limit_is_charged_and_named(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let (hard, warning) = (per_minute("r", 10), budget("usd", Period::Day, 3));
    let warning = Arc::new(Limit { enforcement: Enforcement::Soft, ..Limit::clone(&warning) });
    let verdict =
        desk.reserve_as(desk.new_id(), &plan(&[(&hard, 1), (&warning, 4)]), Attempt::First).unwrap();
    let Verdict::Admitted(admission) = verdict else { panic!("a soft limit refused") };
    assert_eq!(admission.over_soft.iter().collect::<Vec<_>>(), [1]);
    assert_eq!(desk.stands(&warning), (0, 4));
}

pub(super) fn a_settle_is_never_refused_and_its_debt_carries(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let usd = budget("usd", Period::Total, 10_000);
    let open: Vec<_> = (0..120).filter_map(|_| desk.reserve(&plan(&[(&usd, 223)])).ok()).collect();
    assert_eq!(open.len(), 44);
    for held in &open {
        assert_eq!(desk.settle(held, &[2_023]), Settled::Applied);
    }
    assert_eq!(desk.stands(&usd), (89_012, 0));
    assert!(!desk.admits(&usd, 1));
}

pub(super) fn a_changed_limit_keeps_the_count(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    assert!(desk.admits(&budget("usd", Period::Month, 10), 10));
    assert!(!desk.admits(&budget("usd", Period::Month, 14), 5));
    assert!(desk.admits(&budget("usd", Period::Month, 15), 5));
    assert!(!desk.admits(&budget("usd", Period::Month, 5), 1));
}
