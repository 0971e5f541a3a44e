//! What a ledger promises a caller: once per id, in any order of calls that can arrive.

use std::sync::Arc;

use tollgate_limiter::{
    Amount, Attempt, DurationMs, EXTENSIONS_MAX, ExactAmount, Held, Ledger, LedgerError, Limit, Outcome,
    Period, ReservationId, Rule, Settled, TimestampMs, Verdict,
};

use crate::support::{Desk, MINUTE_MS, bucketed, budget, limit, plan, rate, token_bucket, whole};

const ID: ReservationId = ReservationId::new(99);
const NOW: TimestampMs = TimestampMs::new(1_000);

#[test]
fn c01_parallel_calls_hold_what_they_may_use() {
    let mut desk = Desk::default();
    let tokens = rate("tokens", MINUTE_MS, 100);
    let used = [58, 80, 175, 175, 175];
    let admitted: Vec<_> =
        used.into_iter().filter_map(|charge| desk.reserve(0, &plan(&[(&tokens, charge)])).ok()).collect();
    assert_eq!(admitted.len(), 1);
    desk.settle(0, &admitted[0], &[58]);
    assert_eq!(desk.view(0, &tokens).spent, ExactAmount::whole(58));
}

#[test]
fn c04_one_of_twenty_fits_a_budget_of_one_request() {
    let mut desk = Desk::default();
    let cap = budget("usd", Period::Total, 1_000);
    assert_eq!((0..20).filter(|_| desk.admits(0, &cap, 900)).count(), 1);
}

/// Hold 100 of 1,000, really used 1,500: both counters take the whole excess, one into debt.
#[test]
fn c26_an_overage_goes_to_every_counter_in_full() {
    let mut desk = Desk::default();
    let (small, large) = (rate("small", MINUTE_MS, 1_000), budget("large", Period::Day, 1_000_000));
    let held = desk.reserve(0, &plan(&[(&small, 100), (&large, 100)])).unwrap();
    assert_eq!(desk.settle(0, &held, &[1_500, 1_500]), Settled::Applied);
    for limit in [&small, &large] {
        assert_eq!(desk.view(0, limit).spent, ExactAmount::whole(1_500));
    }
    assert_eq!(desk.view(0, &small).remaining, Amount::ZERO);
    assert_eq!(desk.view(0, &large).remaining, Amount::new(998_500));
}

/// A debt of 200 over 1,000 is in sight of the next window and leaves it as the window slides.
#[test]
fn c27_a_debt_carries_into_the_next_window() {
    let mut desk = Desk::default();
    let tokens = rate("tokens", MINUTE_MS, 1_000);
    let held = desk.reserve(0, &plan(&[(&tokens, 1_000)])).unwrap();
    desk.settle(0, &held, &[1_200]);
    assert!(!desk.admits(MINUTE_MS, &tokens, 1));
    assert!(!desk.admits(MINUTE_MS + 10_000, &tokens, 1), "a sixth of 1,200 has left: full");
    assert!(desk.admits(MINUTE_MS + 10_050, &tokens, 1));
}

#[test]
fn c118_a_charge_is_what_it_needs_not_one() {
    let mut desk = Desk::default();
    let tokens = rate("tokens", 3_600_000, 30);
    assert_eq!((0..30).filter(|_| desk.admits(0, &tokens, 150)).count(), 0);
}

#[test]
fn a_repeated_reserve_charges_once_and_answers_the_same() {
    let mut ledger = Ledger::new();
    let limit = rate("r", MINUTE_MS, 10);
    let entries = plan(&[(&limit, 6)]);
    let first = ledger.reserve(NOW, ID, Arc::clone(&entries), Attempt::First).unwrap();
    for later_ms in [1_000, 5_000, 500_000] {
        let equal = plan(&[(&limit, 6)]);
        let again = ledger.reserve(TimestampMs::new(later_ms), ID, equal, Attempt::Retry);
        assert_eq!(again.as_ref(), Ok(&first));
    }
    assert_eq!(ledger.inspect(NOW, &[Arc::clone(&limit)])[0].held, Amount::new(6));
    let other = ledger.reserve(NOW, ID, plan(&[(&limit, 5)]), Attempt::Retry);
    assert_eq!(other, Err(LedgerError::OtherPlan));
    // Also after the end: a duplicate that arrives late gets the old answer and charges nothing.
    let held = Held { id: ID, plan: Arc::clone(&entries), at: NOW };
    assert_eq!(ledger.settle(NOW, &held, &whole(&[2])), Ok(Settled::Applied));
    assert_eq!(ledger.reserve(NOW, ID, entries, Attempt::Retry).as_ref(), Ok(&first));
    assert_eq!(ledger.inspect(NOW, &[limit])[0].spent, ExactAmount::whole(2));
}

#[test]
fn a_refused_retry_stays_refused_and_a_first_refusal_is_forgotten() {
    let mut desk = Desk::default();
    let limit = rate("r", 1_000, 10);
    let full = desk.reserve(1_000, &plan(&[(&limit, 10)])).unwrap();
    let ask = plan(&[(&limit, 4)]);
    let reserve = |desk: &mut Desk, id, attempt| {
        let verdict = desk.ledger.reserve(NOW, ReservationId::new(id), Arc::clone(&ask), attempt).unwrap();
        matches!(verdict, Verdict::Admitted(_))
    };
    assert!(!reserve(&mut desk, 1_001, Attempt::First));
    assert!(!reserve(&mut desk, 1_002, Attempt::Retry));
    desk.settle(1_000, &full, &[0]);
    assert!(reserve(&mut desk, 1_001, Attempt::First), "a first refusal leaves nothing behind");
    assert!(!reserve(&mut desk, 1_002, Attempt::First), "a late duplicate of a refused retry");
    assert_eq!(desk.view(1_000, &limit).held, Amount::new(4));
}

#[test]
fn a_release_before_its_reserve_wins() {
    let mut ledger = Ledger::new();
    let limit = budget("usd", Period::Day, 10);
    let held = Held { id: ID, plan: plan(&[(&limit, 6)]), at: NOW };
    assert_eq!(ledger.settle(NOW, &held, &whole(&[0])), Ok(Settled::WithoutReservation));
    assert_eq!(ledger.settle(NOW, &held, &whole(&[0])), Ok(Settled::Already));
    let late = ledger.reserve(NOW, ID, Arc::clone(&held.plan), Attempt::First);
    assert_eq!(late, Err(LedgerError::AlreadyEnded));
    assert_eq!((ledger.counters(), ledger.open_reservations()), (0, 0));
}

#[test]
fn a_settle_happens_once() {
    let mut desk = Desk::default();
    let limit = budget("usd", Period::Day, 100);
    let held = desk.reserve(0, &plan(&[(&limit, 60)])).unwrap();
    assert_eq!(desk.settle(1, &held, &[20]), Settled::Applied);
    assert_eq!(desk.settle(2, &held, &[20]), Settled::Already);
    assert_eq!(desk.settle(3, &held, &[21]), Settled::Conflict);
    assert_eq!(desk.view(3, &limit).spent, ExactAmount::whole(20));
}

/// Money that was spent is recorded where it belongs, whoever forgot the reservation.
#[test]
fn as_many_ended_reservations_are_remembered_as_announced() {
    let mut desk = Desk::default();
    let ask = plan(&[(&budget("usd", Period::Total, 1_000_000), 1)]);
    let mut ended = (0..=Ledger::FINISHED_MAX).map(|_| {
        let held = desk.reserve(0, &ask).unwrap();
        desk.settle(0, &held, &[1]);
        held
    });
    let (first, second) = (ended.next().unwrap(), ended.next().unwrap());
    assert_eq!(ended.count(), Ledger::FINISHED_MAX - 1);
    assert_eq!(desk.settle(0, &second, &[1]), Settled::Already);
    assert_eq!(desk.settle(0, &first, &[1]), Settled::WithoutReservation);
}

#[test]
fn a_settle_without_a_reservation_charges_where_the_request_was_admitted() {
    let (minute, day) = (rate("r", MINUTE_MS, 10), budget("usd", Period::Day, 10));
    let entries = plan(&[(&minute, 1), (&day, 1)]);
    for (at_ms, in_minute, in_day) in [(1_000_000, 7, 7), (930_000, 7, 7), (600_000, 0, 7)] {
        let mut ledger = Ledger::new();
        let held = Held { id: ID, plan: Arc::clone(&entries), at: TimestampMs::new(at_ms) };
        let now = TimestampMs::new(960_000);
        assert_eq!(ledger.settle(now, &held, &whole(&[7, 7])), Ok(Settled::WithoutReservation));
        let views = ledger.inspect(now, &[Arc::clone(&minute), Arc::clone(&day)]);
        assert_eq!((views[0].spent.units(), views[1].spent.units()), (in_minute, in_day), "at {at_ms}");
    }
}

/// What was not used goes back to the latest booking first, what was used beyond to the current window.
#[test]
fn amounts_go_back_where_they_were_booked() {
    let window = |used: [u64; 2], settle_ms: u64, actual: u64| {
        let mut desk = Desk::default();
        let limit = rate("r", MINUTE_MS, 100);
        let held = desk.reserve(0, &plan(&[(&limit, 40)])).unwrap();
        desk.ledger.extend(TimestampMs::new(MINUTE_MS), &held, 1, &[Amount::new(30)]).unwrap();
        desk.settle(settle_ms, &held, &[actual]);
        // At its start a window sees the whole previous one.
        let seen = desk.view(MINUTE_MS, &limit).spent.units();
        assert_eq!(seen, used[0] + used[1], "settled at {settle_ms} for {actual}");
        // At the start of the next one, the first booking has gone.
        assert_eq!(desk.view(2 * MINUTE_MS, &limit).spent.units(), used[1]);
    };
    window([40, 30], MINUTE_MS, 70);
    window([40, 5], MINUTE_MS, 45);
    window([40, 0], MINUTE_MS, 40);
    window([15, 0], MINUTE_MS, 15);
    window([0, 0], MINUTE_MS, 0);
    window([40, 45], MINUTE_MS, 85);

    // Of several extensions, the latest gives first.
    let mut desk = Desk::default();
    let limit = rate("r", MINUTE_MS, 100);
    let held = desk.reserve(0, &plan(&[(&limit, 10)])).unwrap();
    desk.ledger.extend(TimestampMs::new(MINUTE_MS), &held, 1, &[Amount::new(20)]).unwrap();
    desk.ledger.extend(TimestampMs::new(2 * MINUTE_MS), &held, 2, &[Amount::new(30)]).unwrap();
    desk.settle(2 * MINUTE_MS, &held, &[35]);
    let seen = [2, 3].map(|minute| desk.view(minute * MINUTE_MS, &limit).spent.units());
    assert_eq!(seen, [25, 5]);

    // Two windows on, the first booking counts no more: what it did not use is in no later one.
    let mut desk = Desk::default();
    let limit = rate("r", MINUTE_MS, 100);
    let held = desk.reserve(0, &plan(&[(&limit, 40)])).unwrap();
    assert!(desk.admits(2 * MINUTE_MS, &limit, 10));
    desk.settle(2 * MINUTE_MS, &held, &[0]);
    assert_eq!(desk.view(2 * MINUTE_MS, &limit).held, Amount::new(10));
}

#[test]
fn an_extension_charges_once_per_step_and_only_grows() {
    let mut desk = Desk::default();
    let limit = budget("usd", Period::Day, 100);
    let held = desk.reserve(0, &plan(&[(&limit, 50)])).unwrap();
    let mut extend = |step, charge| {
        let verdict = desk.ledger.extend(NOW, &held, step, &[Amount::new(charge)]);
        let held_now = desk.ledger.inspect(NOW, &[Arc::clone(&limit)])[0].held.get();
        (verdict.map(|verdict| matches!(verdict, Verdict::Admitted(_))), held_now)
    };
    assert_eq!(extend(0, 10), (Err(LedgerError::StaleStep { step: 0 }), 50), "steps count from 1");
    assert_eq!(extend(1, 10), (Ok(true), 60));
    assert_eq!(extend(1, 10), (Ok(true), 60));
    assert_eq!(extend(1, 11), (Err(LedgerError::OtherCharges { step: 1 }), 60));
    assert_eq!(extend(3, 41), (Ok(false), 60), "all of it or nothing");
    assert_eq!(extend(3, 40), (Ok(true), 100), "a refused step may be asked again");
    assert_eq!(extend(2, 0), (Err(LedgerError::StaleStep { step: 2 }), 100));
    assert_eq!(extend(4, 1), (Ok(false), 100));
    desk.settle(1_000, &held, &[7]);
    assert_eq!(desk.view(1_000, &limit).spent, ExactAmount::whole(7));
    let late = desk.ledger.extend(NOW, &held, 5, &[Amount::new(1)]);
    assert_eq!(late, Err(LedgerError::NotHeld));
}

#[test]
fn an_extension_leaves_a_period_alone_that_has_ended() {
    let mut desk = Desk::default();
    let (minute, hour) = (budget("minute", Period::Minute, 10), budget("hour", Period::Hour, 100));
    let held = desk.reserve(0, &plan(&[(&minute, 10), (&hour, 10)])).unwrap();
    let more = [Amount::new(50), Amount::new(50)];
    let verdict = desk.ledger.extend(TimestampMs::new(MINUTE_MS), &held, 1, &more).unwrap();
    assert!(matches!(verdict, Verdict::Admitted(_)), "fifty would not fit the minute, which is over");
    assert_eq!(desk.view(MINUTE_MS, &minute).held, Amount::ZERO);
    assert_eq!(desk.view(MINUTE_MS, &hour).held, Amount::new(60));
    desk.settle(MINUTE_MS, &held, &[30, 30]);
    assert_eq!(desk.view(MINUTE_MS, &minute).spent, ExactAmount::ZERO);
    assert_eq!(desk.view(0, &minute).spent, ExactAmount::whole(30), "the old minute has what it cost");
    assert_eq!(desk.view(MINUTE_MS, &hour).spent, ExactAmount::whole(30));
}

/// Booked while the clock was back, settled when it is right again: in the window that was charged.
#[test]
fn a_charge_booked_under_a_clock_set_back_is_found_again() {
    let mut desk = Desk::default();
    let limit = rate("r", MINUTE_MS, 100);
    assert!(desk.admits(10 * MINUTE_MS, &limit, 50));
    let held = desk.reserve(3 * MINUTE_MS, &plan(&[(&limit, 30)])).unwrap();
    assert_eq!(held.at, TimestampMs::new(3 * MINUTE_MS));
    assert_eq!(desk.view(3 * MINUTE_MS, &limit).held, Amount::new(80));
    desk.settle(3 * MINUTE_MS, &held, &[10]);
    let view = desk.view(10 * MINUTE_MS, &limit);
    assert_eq!((view.held, view.spent), (Amount::new(50), ExactAmount::whole(10)));
}

#[test]
fn the_number_of_amounts_is_the_plans() {
    let mut desk = Desk::default();
    let limit = rate("r", MINUTE_MS, 100);
    let held = desk.reserve(0, &plan(&[(&limit, 30)])).unwrap();
    let wrong = LedgerError::WrongLength { entries: 1, given: 2 };
    assert_eq!(desk.ledger.settle(NOW, &held, &whole(&[1, 2])), Err(wrong));
    assert_eq!(desk.ledger.extend(NOW, &held, 1, &[Amount::ZERO; 2]), Err(wrong));
    let unknown = Held { id: ID, ..held };
    assert_eq!(desk.ledger.settle(NOW, &unknown, &whole(&[1, 2])), Err(wrong));
    assert_eq!(desk.view(0, &limit).held, Amount::new(30));
}

#[test]
fn extensions_are_bounded() {
    let mut desk = Desk::default();
    let held = desk.reserve(0, &plan(&[(&rate("r", MINUTE_MS, 100), 1)])).unwrap();
    let mut extend = |step| desk.ledger.extend(NOW, &held, step, &[Amount::ZERO]);
    for step in 1..=u32::try_from(EXTENSIONS_MAX).unwrap() {
        assert!(extend(step).is_ok());
    }
    assert_eq!(extend(u32::MAX), Err(LedgerError::TooManyExtensions));
}

/// The three ways to count one window.
fn ways(amount: u64) -> [Arc<Limit>; 3] {
    let of = |make: fn(&str, u64, u64) -> Arc<Limit>| make("same name", MINUTE_MS, amount);
    [of(rate), of(bucketed), of(token_bucket)]
}

#[test]
fn a_limit_that_counts_another_way_keeps_what_was_counted() {
    for (before, after) in ways(5).iter().flat_map(|before| ways(5).map(|after| (before.clone(), after))) {
        let mut desk = Desk::default();
        let held = desk.reserve(0, &plan(&[(&before, 3)])).unwrap();
        assert!(desk.admits(0, &before, 1));
        assert_eq!(desk.view(0, &after).remaining, Amount::new(1), "{before:?} {after:?}");
        assert!(!desk.admits(0, &after, 2), "{before:?} {after:?}");
        assert!(desk.admits(0, &after, 1) && !desk.admits(0, &after, 1) && !desk.admits(0, &before, 1));
        assert_eq!(desk.ledger.counters(), 1);
        assert_eq!(desk.settle(0, &held, &[3]), Settled::Applied);
        assert_eq!(desk.view(0, &after).remaining, Amount::ZERO);
    }
}

/// What a day has counted is waited for by the minute from now on, also before anything is booked so.
#[test]
fn a_limit_that_counts_another_way_waits_by_its_own_rule() {
    let mut desk = Desk::default();
    assert!(desk.admits(0, &budget("r", Period::Day, 10), 10));
    let minute = rate("r", MINUTE_MS, 10);
    assert_eq!(desk.outcome(0, &minute, 10), Outcome::Wait(DurationMs::new(2 * MINUTE_MS)));
    assert_eq!(desk.view(0, &minute).resets_at, Some(TimestampMs::new(MINUTE_MS)));
}

/// A stream outlasts a change of its limit's rule: what it used beyond its reservation is charged, and
/// nothing that others have used is forgotten.
#[test]
fn a_settle_of_what_another_rule_booked_takes_nothing_back_and_forgets_nothing() {
    for (before, after) in
        ways(1_000).iter().flat_map(|before| ways(1_000).map(|after| (before.clone(), after)))
    {
        if before.rule == after.rule {
            continue;
        }
        let mut desk = Desk::default();
        let stream = desk.reserve(0, &plan(&[(&before, 10)])).unwrap();
        let short = desk.reserve(0, &plan(&[(&before, 10)])).unwrap();
        assert!(desk.admits(0, &after, 900));
        let extended = desk.ledger.extend(TimestampMs::EPOCH, &stream, 1, &[Amount::new(20)]);
        assert!(matches!(extended, Ok(Verdict::Admitted(_))));
        assert_eq!(desk.view(0, &after).remaining, Amount::new(60));
        assert_eq!(desk.settle(0, &stream, &[40]), Settled::Applied);
        assert_eq!(desk.view(0, &after).remaining, Amount::new(50), "ten beyond the thirty");
        assert_eq!(desk.settle(0, &short, &[0]), Settled::Applied);
        assert_eq!(desk.view(0, &after).remaining, Amount::new(50), "nothing goes back");
    }
}

#[test]
fn memory_is_bounded_by_what_still_counts() {
    let mut desk = Desk::default();
    let total = budget("total", Period::Total, u64::MAX);
    for number in 0..40_000_u64 {
        let second = rate(&format!("second {number}"), 1_000, 10);
        let day = budget(&format!("day {number}"), Period::Day, 10);
        let held = desk.reserve(number * 3_000, &plan(&[(&second, 1), (&day, 1), (&total, 1)])).unwrap();
        desk.settle(number * 3_000, &held, &[1, u64::from(number % 2 == 0), 1]);
    }
    // A day's worth of calls, half of them with a budget that was used; doubled between two sweeps.
    assert!(desk.ledger.counters() <= 2 * (86_400 / 3 / 2) + 1_000, "{}", desk.ledger.counters());
    assert_eq!(desk.view(40_000 * 3_000, &total).spent, ExactAmount::whole(40_000));
    // The oldest reservations are forgotten, the latest are not.
    let settle = |desk: &mut Desk, id: u128| {
        let entries = plan(&[(&total, 1)]);
        let held = Held { id: ReservationId::new(id), plan: entries, at: NOW };
        desk.ledger.settle(NOW, &held, &whole(&[1]))
    };
    assert_eq!(settle(&mut desk, 40_000), Err(LedgerError::OtherPlan));
    assert_eq!(settle(&mut desk, 1), Ok(Settled::WithoutReservation));
}

/// Every rule's counter stays through sweeps as long as it counts, and goes when it does not.
#[test]
fn a_sweep_drops_what_no_longer_counts_and_nothing_else() {
    let minute = DurationMs::new(MINUTE_MS);
    let rules = [
        Rule::SlidingWindow { window: minute },
        Rule::BucketedWindow { window: minute },
        Rule::TokenBucket { window: minute },
        Rule::Calendar(Period::Hour),
        Rule::Idle { after: minute },
        Rule::Concurrent,
    ];
    let sweep = |desk: &mut Desk, now_ms| {
        let other = limit("other", Rule::Calendar(Period::Total), u64::MAX);
        (0..600).for_each(|_| assert!(desk.admits(now_ms, &other, 1)));
    };
    for rule in rules {
        let mut desk = Desk::default();
        let counted = limit("counted", rule, 10);
        let held = desk.reserve(0, &plan(&[(&counted, 5)])).unwrap();
        sweep(&mut desk, 1);
        let (_, still_held, _) = desk.stands(1, &counted);
        assert_eq!((still_held, desk.ledger.counters()), (5, 2), "{rule:?}");
        desk.settle(1, &held, &[5]);
        sweep(&mut desk, 2);
        let spent = if rule == Rule::Concurrent { 0 } else { 5 };
        assert_eq!(desk.stands(2, &counted).0, spent, "{rule:?}");
        // An hour and a half: longer than any of them remembers.
        sweep(&mut desk, 90 * MINUTE_MS);
        assert_eq!(desk.ledger.counters(), 1, "{rule:?}");
    }
    // What gave everything back holds nothing any more, whatever the time.
    for rule in [rules[0], rules[1], rules[3], rules[5]] {
        let mut desk = Desk::default();
        let counted = limit("counted", rule, 10);
        let held = desk.reserve(0, &plan(&[(&counted, 5)])).unwrap();
        desk.settle(0, &held, &[0]);
        sweep(&mut desk, 1);
        assert_eq!(desk.ledger.counters(), 1, "{rule:?}");
    }
}

/// A settle within its reservation moves no window on: a clock that steps back finds what it left.
#[test]
fn a_settle_within_its_reservation_does_not_look_at_the_clock() {
    for limit in [rate("r", MINUTE_MS, 10), bucketed("b", MINUTE_MS, 10)] {
        let mut desk = Desk::default();
        let held = desk.reserve(0, &plan(&[(&limit, 10)])).unwrap();
        desk.settle(5 * MINUTE_MS, &held, &[10]);
        assert_eq!(desk.stands(30_000, &limit), (10, 0, 0), "{:?}", limit.rule);
    }
}

/// Plans with many counters each make them faster than calls are counted.
#[test]
fn new_counters_hasten_the_sweep() {
    let mut desk = Desk::default();
    for call in 0..200_u64 {
        let limits: Vec<_> = (0..60).map(|entry| rate(&format!("{call}/{entry}"), 1_000, 10)).collect();
        let entries: Vec<_> = limits.iter().map(|limit| (limit, 1)).collect();
        assert!(desk.reserve(call * 3_000, &plan(&entries)).is_ok());
        assert!(desk.ledger.counters() <= 2 * 256 + 60, "{}", desk.ledger.counters());
    }
}

/// A counter that was dropped begins again where it would have been: no step back makes it younger.
#[test]
fn forgetting_an_idle_counter_is_no_reset() {
    let other = rate("other", MINUTE_MS, u64::MAX);
    for limit in [
        budget("usd", Period::Minute, 10),
        rate("rpm", MINUTE_MS, 10),
        bucketed("rpm", MINUTE_MS, 10),
        token_bucket("rpm", MINUTE_MS, 10),
    ] {
        let mut desk = Desk::default();
        assert!(desk.admits(0, &limit, 10));
        for _ in 0..1_000 {
            assert!(desk.admits(10 * MINUTE_MS, &other, 1));
        }
        assert_eq!(desk.ledger.counters(), 1);
        assert!(desk.admits(0, &limit, 10), "of the tenth minute, which the ledger has seen");
        assert!(!desk.admits(0, &limit, 1), "{:?}", limit.rule);
        assert!(!desk.admits(10 * MINUTE_MS, &limit, 1), "{:?}", limit.rule);
    }
}
