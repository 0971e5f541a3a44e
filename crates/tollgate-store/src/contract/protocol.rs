//! Once per id, whatever is repeated or late.

use std::sync::Arc;

use tollgate_limiter::{Attempt, Held, Period, Settled};

use super::{
    Harness,
    desk::{DAY_MS, Desk, MONDAY, admitted, budget, per_minute, plan, whole},
};
use crate::StoreError;

pub(super) fn a_repeated_reserve_charges_once_and_answers_the_same(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let limit = budget("usd", Period::Month, 10);
    let (id, entries) = (desk.new_id(), plan(&[(&limit, 6)]));
    let first = desk.reserve_as(id, &entries, Attempt::First).unwrap();
    assert!(admitted(&first));
    for _ in 0..3 {
        desk.advance(7_000);
        let again = desk.reserve_as(id, &plan(&[(&limit, 6)]), Attempt::Retry).unwrap();
        assert_eq!(again, first);
    }
    assert_eq!(desk.stands(&limit), (0, 6));
    desk.settle(&Held { id, plan: Arc::clone(&entries), at: MONDAY }, &[2]);
    assert_eq!(desk.reserve_as(id, &entries, Attempt::Retry).unwrap(), first);
    assert_eq!(desk.stands(&limit), (2, 0));
}

pub(super) fn another_plan_under_the_same_id_is_a_mismatch(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let limit = budget("usd", Period::Day, 10);
    let (id, other) = (desk.new_id(), plan(&[(&limit, 5)]));
    desk.reserve_as(id, &plan(&[(&limit, 6)]), Attempt::First).unwrap();
    let held = Held { id, plan: Arc::clone(&other), at: MONDAY };
    assert!(matches!(desk.reserve_as(id, &other, Attempt::Retry), Err(StoreError::Mismatch(_))));
    assert!(matches!(desk.extend(&held, 1, &[1]), Err(StoreError::Mismatch(_))));
    assert!(matches!(desk.settle_exactly(&held, &whole(&[1])), Err(StoreError::Mismatch(_))));
    assert_eq!(desk.stands(&limit), (0, 6));
}

pub(super) fn a_refused_retry_stays_refused_and_a_first_refusal_is_forgotten(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let limit = per_minute("r", 10);
    let full = desk.reserve(&plan(&[(&limit, 10)])).unwrap();
    let (first, retry, ask) = (desk.new_id(), desk.new_id(), plan(&[(&limit, 4)]));
    assert!(!admitted(&desk.reserve_as(first, &ask, Attempt::First).unwrap()));
    let refused = desk.reserve_as(retry, &ask, Attempt::Retry).unwrap();
    assert!(!admitted(&refused));
    desk.settle(&full, &[0]);
    assert!(admitted(&desk.reserve_as(first, &ask, Attempt::First).unwrap()));
    assert_eq!(desk.reserve_as(retry, &ask, Attempt::First).unwrap(), refused);
    assert_eq!(desk.stands(&limit), (0, 4));
}

pub(super) fn a_release_before_its_reserve_wins(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let limit = budget("usd", Period::Day, 10);
    let held = Held { id: desk.new_id(), plan: plan(&[(&limit, 6)]), at: MONDAY };
    assert_eq!(desk.settle(&held, &[0]), Settled::WithoutReservation);
    assert_eq!(desk.settle(&held, &[0]), Settled::Already);
    let late = desk.reserve_as(held.id, &held.plan, Attempt::First);
    assert!(!late.is_ok_and(|verdict| admitted(&verdict)));
    assert_eq!(desk.stands(&limit), (0, 0));
}

pub(super) fn a_settle_happens_once(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let limit = budget("usd", Period::Day, 100);
    let held = desk.reserve(&plan(&[(&limit, 60)])).unwrap();
    assert_eq!(desk.settle(&held, &[20]), Settled::Applied);
    assert_eq!(desk.settle(&held, &[20]), Settled::Already);
    assert_eq!(desk.settle(&held, &[21]), Settled::Conflict);
    assert_eq!(desk.stands(&limit), (20, 0));
}

pub(super) fn a_settle_without_a_reservation_charges_the_admission(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let (requests, day) = (per_minute("r", 10), budget("usd", Period::Day, 10));
    let entries = plan(&[(&requests, 1), (&day, 1)]);
    let lost = Held { id: desk.new_id(), plan: Arc::clone(&entries), at: MONDAY };
    desk.advance(59_000);
    assert_eq!(desk.settle(&lost, &[3, 4]), Settled::WithoutReservation);
    assert_eq!((desk.stands(&requests), desk.stands(&day)), ((3, 0), (4, 0)));
    // What was admitted on a day that is over counts no more today.
    desk.advance(DAY_MS);
    let older = Held { id: desk.new_id(), ..lost };
    assert!(desk.admits(&day, 1));
    assert_eq!(desk.settle(&older, &[3, 4]), Settled::WithoutReservation);
    assert_eq!((desk.stands(&requests), desk.stands(&day)), ((0, 0), (0, 1)));
}

pub(super) fn a_settle_of_what_is_held_charges_nothing_else(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let limit = budget("usd", Period::Day, 100);
    let entries = plan(&[(&limit, 20)]);
    let [held, ended] = [(); 2].map(|()| desk.reserve(&entries).unwrap());
    desk.settle(&ended, &[7]);
    let unknown = Held { id: desk.new_id(), ..ended.clone() };
    assert_eq!([&ended, &unknown].map(|held| desk.settle_held(held, &[9])), [Settled::Already; 2]);
    assert_eq!(desk.stands(&limit), (7, 20));
    // A store may be unable to tell, and leaves it charged.
    let (settled, stands) = (desk.settle_held(&held, &[9]), desk.stands(&limit));
    assert!(matches!((settled, stands), (Settled::Applied, (16, 0)) | (Settled::Already, (7, 20))));
}

pub(super) fn an_extension_charges_once_per_step(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let limit = budget("usd", Period::Day, 100);
    let held = desk.reserve(&plan(&[(&limit, 50)])).unwrap();
    let first = desk.extend(&held, 1, &[10]).unwrap();
    assert!(admitted(&first));
    assert_eq!(desk.extend(&held, 1, &[10]).unwrap(), first);
    assert!(matches!(desk.extend(&held, 1, &[11]), Err(StoreError::Mismatch(_))));
    assert!(admitted(&desk.extend(&held, 3, &[15]).unwrap()));
    assert!(matches!(desk.extend(&held, 2, &[15]), Err(StoreError::Mismatch(_))), "late");
    assert_eq!(desk.stands(&limit), (0, 75));
    assert_eq!(desk.settle(&held, &[7]), Settled::Applied);
    assert_eq!(desk.stands(&limit), (7, 0));
    assert!(matches!(desk.extend(&held, 4, &[1]), Err(StoreError::Mismatch(_))), "it is over");
}

pub(super) fn an_extension_is_all_or_nothing(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let (tokens, usd) = (per_minute("tokens", 1_000), budget("usd", Period::Day, 100));
    let held = desk.reserve(&plan(&[(&tokens, 10), (&usd, 90)])).unwrap();
    assert!(!admitted(&desk.extend(&held, 1, &[10, 11]).unwrap()));
    assert_eq!((desk.stands(&tokens), desk.stands(&usd)), ((0, 10), (0, 90)));
    assert!(admitted(&desk.extend(&held, 1, &[10, 10]).unwrap()));
    assert_eq!((desk.stands(&tokens), desk.stands(&usd)), ((0, 20), (0, 100)));
}

pub(super) fn the_number_of_amounts_is_the_plans(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let limit = per_minute("r", 10);
    let held = desk.reserve(&plan(&[(&limit, 5)])).unwrap();
    assert!(matches!(desk.settle_exactly(&held, &whole(&[1, 2])), Err(StoreError::Mismatch(_))));
    assert!(matches!(desk.extend(&held, 1, &[]), Err(StoreError::Mismatch(_))));
    assert_eq!(desk.stands(&limit), (0, 5));
}

pub(super) fn a_plan_without_limits_passes_and_ends_once(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let (id, entries) = (desk.new_id(), plan(&[]));
    let first = desk.reserve_as(id, &entries, Attempt::First).unwrap();
    assert!(admitted(&first));
    assert_eq!(desk.reserve_as(id, &entries, Attempt::Retry).unwrap(), first);
    let held = Held { id, plan: entries, at: MONDAY };
    assert!(admitted(&desk.extend(&held, 1, &[]).unwrap()));
    let ends = [(); 2].map(|()| desk.settle_exactly(&held, &[]).unwrap());
    assert_eq!(ends, [Settled::Applied, Settled::Already]);
}
