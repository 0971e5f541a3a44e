//! The rules beside the sliding window and the calendar budget.

use std::sync::Arc;

use tollgate_limiter::{DurationMs, ExactAmount, Limit, Outcome, Period, Rule, Settled};

use super::{
    Harness,
    desk::{Desk, MINUTE_MS, MONDAY, admitted, budget, limit, per_minute, plan},
};

const MINUTE: DurationMs = DurationMs::new(MINUTE_MS);

fn wait(ms: u64) -> Outcome {
    Outcome::Wait(DurationMs::new(ms))
}

fn bucketed(amount: u64) -> Arc<Limit> {
    limit("acme", "bucketed", Rule::BucketedWindow { window: MINUTE }, amount)
}

fn token_bucket(amount: u64) -> Arc<Limit> {
    limit("acme", "token bucket", Rule::TokenBucket { window: MINUTE }, amount)
}

fn session(name: &str, amount: u64) -> Arc<Limit> {
    limit("acme", name, Rule::Idle { after: MINUTE }, amount)
}

pub(super) fn a_bucketed_window_holds_its_limit_wherever_it_starts(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let limit = bucketed(50);
    let mut admitted_ms = Vec::new();
    for at_ms in (0..4 * MINUTE_MS).step_by(333) {
        harness.clock().set(MONDAY.saturating_add(DurationMs::new(at_ms)));
        if desk.admits(&limit, 1) {
            admitted_ms.push(at_ms);
        }
    }
    let in_span =
        |start: u64| admitted_ms.iter().filter(|at| (start..start + MINUTE_MS).contains(at)).count();
    assert_eq!(admitted_ms.iter().map(|start| in_span(*start)).max(), Some(50));
    assert_eq!(admitted_ms.len(), 200, "four times sixty seconds and one");
}

pub(super) fn a_bucketed_window_announces_when_a_bucket_leaves(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let limit = bucketed(10);
    for charge in [3, 3, 4] {
        assert!(desk.admits(&limit, charge));
        desk.advance(2_500);
    }
    assert_eq!([1, 4, 7].map(|charge| desk.outcome(&limit, charge)), [53_500, 55_500, 58_500].map(wait));
    desk.advance(53_499);
    assert_eq!(desk.outcome(&limit, 3), wait(1));
    desk.advance(1);
    assert_eq!(desk.outcome(&limit, 3), Outcome::Admit);
    assert_eq!(desk.stands(&limit), (0, 10));
}

pub(super) fn a_token_bucket_takes_a_burst_and_fills_continuously(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let limit = token_bucket(7);
    assert!(desk.admits(&limit, 7));
    // 60,000 / 7 = 8,571.4 ms a unit.
    assert_eq!([1, 2, 7].map(|charge| desk.outcome(&limit, charge)), [8_572, 17_143, 60_000].map(wait));
    assert_eq!(desk.outcome(&limit, 8), Outcome::Never);
    desk.advance(8_571);
    assert_eq!(desk.outcome(&limit, 1), wait(1));
    desk.advance(1);
    assert!(desk.admits(&limit, 1));
    desk.advance(8_570);
    assert_eq!(desk.outcome(&limit, 1), wait(1), "the part of a unit that was over is not lost");
    desk.advance(1);
    assert!(desk.admits(&limit, 1));
}

pub(super) fn c27_a_token_bucket_goes_negative_and_gives_back(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let limit = token_bucket(1_000);
    let held = desk.reserve(&plan(&[(&limit, 1_000)])).unwrap();
    assert_eq!(desk.settle(&held, &[1_200]), Settled::Applied);
    assert_eq!(desk.stands(&limit), (1_200, 0));
    assert_eq!(desk.outcome(&limit, 1), wait(12_060));
    desk.advance(MINUTE_MS);
    let held = desk.reserve(&plan(&[(&limit, 800)])).unwrap();
    assert_eq!(desk.stands(&limit), (200, 800));
    assert_eq!(desk.settle(&held, &[100]), Settled::Applied);
    assert_eq!(desk.stands(&limit), (300, 0));
}

pub(super) fn what_has_drained_from_a_token_bucket_is_not_given_back(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let limit = token_bucket(1_000);
    let slow = desk.reserve(&plan(&[(&limit, 800)])).unwrap();
    desk.advance(48_000);
    assert!(desk.admits(&limit, 900));
    assert_eq!(desk.settle(&slow, &[0]), Settled::Applied);
    assert_eq!(desk.stands(&limit), (0, 900));
}

pub(super) fn what_is_open_counts_until_it_is_settled(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let open = limit("acme", "open", Rule::Concurrent, 2);
    let first = desk.reserve(&plan(&[(&open, 1)])).unwrap();
    let second = desk.reserve(&plan(&[(&open, 1)])).unwrap();
    let refusal = desk.reserve(&plan(&[(&open, 1)])).unwrap_err();
    assert_eq!((refusal.binding.outcome, refusal.binding.held.get()), (Outcome::Never, 2));
    assert!(refusal.binding.fits_without_holds());
    desk.advance(100 * MINUTE_MS);
    assert!(!desk.admits(&open, 1));
    assert_eq!(desk.settle(&first, &[0]), Settled::Applied);
    assert_eq!(desk.settle(&first, &[0]), Settled::Already);
    assert_eq!(desk.stands(&open), (0, 1));
    assert_eq!(desk.settle(&second, &[9]), Settled::Applied);
    assert_eq!(desk.stands(&open), (0, 0));
    assert_eq!(desk.outcome(&open, 2), Outcome::Admit);
}

pub(super) fn a_request_is_as_large_as_all_its_charges(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let size = limit("acme", "size", Rule::PerRequest, 100);
    assert_eq!([100, 100, 101].map(|charge| desk.admits(&size, charge)), [true, true, false]);
    let held = desk.reserve(&plan(&[(&size, 60)])).unwrap();
    assert!(!admitted(&desk.extend(&held, 1, &[41]).unwrap()));
    assert!(admitted(&desk.extend(&held, 1, &[40]).unwrap()));
    assert!(!admitted(&desk.extend(&held, 2, &[1]).unwrap()));
    assert_eq!(desk.settle(&held, &[500]), Settled::Applied);
    assert_eq!(desk.stands(&size), (0, 0));
}

pub(super) fn c02_a_session_is_forgotten_after_its_last_use(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let cap = session("session/1", 100_000);
    let open: Vec<_> = (0..2).filter_map(|_| desk.reserve(&plan(&[(&cap, 80_000)])).ok()).collect();
    assert_eq!(open.len(), 1, "parallel requests share the cap");
    desk.advance(MINUTE_MS - 1);
    assert_eq!(desk.settle_exactly(&open[0], &[ExactAmount::from_millionths(1)]).unwrap(), Settled::Applied);
    assert_eq!(desk.views(&[&cap])[0].spent, ExactAmount::from_millionths(1));
    assert_eq!(desk.outcome(&cap, 100_000), wait(MINUTE_MS), "the settle was a use, refusals are none");
    desk.advance(MINUTE_MS - 1);
    assert_eq!(desk.outcome(&cap, 100_000), wait(1));
    desk.advance(1);
    assert_eq!(desk.outcome(&cap, 100_000), Outcome::Admit);
}

pub(super) fn a_settle_never_touches_a_later_session(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let (cap, day) = (session("session/1", 10), budget("usd", Period::Day, 100));
    let late = desk.reserve(&plan(&[(&cap, 6), (&day, 6)])).unwrap();
    desk.advance(MINUTE_MS);
    let next = desk.reserve(&plan(&[(&cap, 9)])).unwrap();
    // Neither checked nor charged where the session is over.
    assert!(admitted(&desk.extend(&late, 1, &[50, 1]).unwrap()));
    assert_eq!(desk.settle(&late, &[40, 40]), Settled::Applied);
    assert_eq!((desk.stands(&cap), desk.stands(&day)), ((0, 9), (40, 0)));
    assert_eq!(desk.settle(&next, &[3]), Settled::Applied);
    assert_eq!(desk.stands(&cap), (3, 0));
}

pub(super) fn a_run_ends_so_long_after_its_first_use(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let run = limit("acme", "run/1", Rule::Elapsed { after: MINUTE }, 90_000);
    let held = desk.reserve(&plan(&[(&run, 1)])).unwrap();
    desk.advance(45_000);
    assert!(desk.admits(&run, 1));
    assert_eq!(desk.stands(&run), (45_000, 0));
    desk.advance(44_999);
    assert_eq!(desk.settle(&held, &[1]), Settled::Applied);
    assert!(desk.admits(&run, 1));
    desk.advance(1);
    assert_eq!(desk.outcome(&run, 1), wait(MINUTE_MS - 1));
    desk.advance(MINUTE_MS - 1);
    assert!(desk.admits(&run, 1));
    assert_eq!(desk.stands(&run), (0, 0));
}

pub(super) fn never_binds_before_a_wait_and_a_wait_before_what_is_open(harness: &dyn Harness) {
    let desk = Desk::on_monday(harness);
    let open = limit("acme", "open", Rule::Concurrent, 1);
    let size = limit("acme", "size", Rule::PerRequest, 10);
    let (requests, bucket) = (per_minute("requests", 1), token_bucket(1));
    desk.reserve(&plan(&[(&open, 1), (&bucket, 1), (&requests, 1)])).unwrap();
    let binding = |charge| {
        let ask = plan(&[(&open, 1), (&bucket, 1), (&size, charge), (&requests, 1)]);
        desk.reserve(&ask).unwrap_err().binding.index
    };
    assert_eq!(binding(10), 3, "two minutes are longer than one");
    assert_eq!(binding(11), 2);
    let refusal = desk.reserve(&plan(&[(&open, 1)])).unwrap_err();
    assert_eq!((refusal.binding.index, refusal.tightest), (0, None));
}
