//! Concurrency, and the largest request.

use tollgate_limiter::{Amount, ExactAmount, Held, Outcome, ReservationId, Rule, Settled, TimestampMs};

use crate::support::{Desk, MINUTE_MS, budget, limit, plan, rate, whole};

#[test]
fn what_is_open_counts_until_it_is_settled() {
    let mut desk = Desk::default();
    let open = limit("open", Rule::Concurrent, 2);
    let first = desk.reserve(0, &plan(&[(&open, 1)])).unwrap();
    assert!(desk.admits(0, &open, 1));
    assert_eq!(desk.stands(0, &open), (0, 2, 0));
    // No time makes it fit, a settle does, whatever was used.
    assert_eq!(desk.outcome(u64::MAX, &open, 1), Outcome::Never);
    desk.settle(5, &first, &[7]);
    assert_eq!(desk.stands(0, &open), (0, 1, 1));
    assert_eq!(desk.outcome(0, &open, 1), Outcome::Admit);
    assert_eq!(desk.outcome(0, &open, 3), Outcome::Never);
    assert!(desk.admits(0, &open, 0), "what is free passes");
}

#[test]
fn a_refusal_for_what_is_open_says_so() {
    let mut desk = Desk::default();
    let open = limit("open", Rule::Concurrent, 1);
    let ask = plan(&[(&open, 1)]);
    desk.reserve(0, &ask).unwrap();
    let refusal = desk.reserve(0, &ask).unwrap_err();
    let binding = refusal.binding;
    assert_eq!(
        (binding.outcome, binding.spent, binding.held),
        (Outcome::Never, Amount::ZERO, Amount::new(1))
    );
    assert!(binding.fits_without_holds());
    assert_eq!((binding.resets_at, refusal.tightest), (None, None), "it is no rate");
}

#[test]
fn a_settle_without_a_reservation_opens_nothing() {
    let mut desk = Desk::default();
    let (open, size) = (limit("open", Rule::Concurrent, 1), limit("size", Rule::PerRequest, 10));
    let entries = plan(&[(&open, 1), (&size, 5)]);
    let held = Held { id: ReservationId::new(99), plan: entries, at: TimestampMs::EPOCH };
    let settled = desk.ledger.settle(TimestampMs::EPOCH, &held, &whole(&[1, 5]));
    assert_eq!(settled, Ok(Settled::WithoutReservation));
    assert_eq!(desk.ledger.counters(), 0);
}

#[test]
fn a_request_is_as_large_as_all_its_charges() {
    let mut desk = Desk::default();
    let size = limit("size", Rule::PerRequest, 100);
    assert_eq!(desk.outcome(0, &size, 101), Outcome::Never);
    assert_eq!(desk.outcome(0, &size, 100), Outcome::Admit);
    assert_eq!(desk.outcome(0, &size, 100), Outcome::Admit, "each by itself");
    let held = desk.reserve(0, &plan(&[(&size, 60)])).unwrap();
    assert!(!desk.extend(0, &held, 1, &[41]));
    assert!(desk.extend(0, &held, 1, &[30]));
    assert!(!desk.extend(0, &held, 2, &[11]));
    assert!(desk.extend(0, &held, 2, &[10]));
    desk.settle(0, &held, &[500]);
    assert_eq!(desk.stands(0, &size), (0, 0, 100));
    assert_eq!(desk.ledger.counters(), 0, "nothing is kept");
}

#[test]
fn what_never_fits_binds_before_a_wait_and_a_wait_before_what_is_open() {
    let mut desk = Desk::default();
    let open = limit("open", Rule::Concurrent, 1);
    let (requests, size) = (rate("requests", MINUTE_MS, 1), limit("size", Rule::PerRequest, 10));
    desk.reserve(0, &plan(&[(&open, 1), (&requests, 1)])).unwrap();
    let mut binding = |charge| {
        let ask = plan(&[(&open, 1), (&requests, 1), (&size, charge)]);
        desk.reserve(0, &ask).unwrap_err().binding.index
    };
    assert_eq!(binding(10), 1);
    assert_eq!(binding(11), 2);
    // Of equals the first: both wait for the same open reservation.
    let total = budget("usd", tollgate_limiter::Period::Total, 5);
    let held = desk.reserve(0, &plan(&[(&total, 5)])).unwrap();
    let ask = plan(&[(&open, 1), (&total, 1)]);
    assert_eq!(desk.reserve(0, &ask).unwrap_err().binding.index, 0);
    // What is spent comes back for nobody.
    desk.ledger.settle(TimestampMs::EPOCH, &held, &[ExactAmount::whole(5)]).unwrap();
    assert_eq!(desk.reserve(0, &ask).unwrap_err().binding.index, 1);
}
