//! What passes while the store is away, and what does not.

use super::*;

#[test]
fn while_the_store_is_away_hard_budgets_are_refused_and_others_pass_under_local_limits() {
    for fault in [Fault::Refused, Fault::CallLost, Fault::AnswerLost] {
        let world = World::new();
        let (rate, usd) = (hard("rate", MINUTE, 30), hard("usd", Rule::Calendar(Period::Day), 1_000));
        world.faulty.set(fault);
        let verdict = world.reserve(1, &plan(&[(&rate, 1), (&usd, 1)]));
        assert!(verdict.is_err_and(|error| error.is_transient()), "{fault:?}");
        let of_rate = plan(&[(&rate, 1)]);
        let admitted = (2..30).filter(|id| is_admitted(&world.reserve(*id, &of_rate))).count();
        assert_eq!(admitted, 10, "a third of 30");
        assert!(!world.store.status().available);
    }
}

#[test]
fn c124_copies_without_their_store_admit_together_what_the_limit_is() {
    let rate = hard("rate", MINUTE, 30);
    let of_rate = plan(&[(&rate, 1)]);
    let admitted = |world: &World| (0..30).filter(|id| is_admitted(&world.reserve(*id, &of_rate))).count();
    let copies = [(); 3].map(|()| World::new());
    copies.iter().for_each(|world| world.faulty.set(Fault::Refused));
    assert_eq!(copies.iter().map(admitted).sum::<usize>(), 30);
}

#[test]
fn a_session_a_run_and_every_period_is_a_budget_and_no_rate_is() {
    let world = World::new();
    world.faulty.set(Fault::Refused);
    let idle = DurationMs::new(1_000);
    let budgets = [
        Rule::Calendar(Period::Minute),
        Rule::Calendar(Period::Total),
        Rule::Idle { after: idle },
        Rule::Elapsed { after: idle },
    ];
    for (id, rule) in (100..).zip(budgets) {
        assert!(world.reserve(1, &plan(&[(&hard("budget", rule, 10), 1)])).is_err(), "{rule:?}");
        assert!(is_admitted(&world.reserve(id, &plan(&[(&limit("soft", rule, 0, Enforcement::Soft), 5)]))));
    }
    let rates = [
        MINUTE,
        Rule::BucketedWindow { window: idle },
        Rule::TokenBucket { window: idle },
        Rule::Concurrent,
        Rule::PerRequest,
    ];
    for (id, rule) in (10..).zip(rates) {
        assert!(
            is_admitted(&world.reserve(id, &plan(&[(&hard(&format!("{rule:?}"), rule, 10), 1)]))),
            "{rule:?}"
        );
    }
}

#[test]
fn a_refusal_of_local_limits_names_the_entry_and_the_local_amount() {
    let world = World::new();
    world.faulty.set(Fault::Refused);
    let soft = limit("soft", Rule::Calendar(Period::Day), 5, Enforcement::Soft);
    let (rate, size) = (hard("rate", MINUTE, 9), hard("size", Rule::PerRequest, 7));
    let plan_of = |charge| plan(&[(&soft, 100), (&size, charge), (&rate, charge)]);
    let Ok(Verdict::Refused(refusal)) = world.reserve(1, &plan_of(4)) else {
        panic!("4 of a third of 9 pass")
    };
    assert_eq!((refusal.binding.index, refusal.binding.limit), (2, Amount::new(3)));
    let Ok(Verdict::Refused(refusal)) = world.reserve(2, &plan_of(8)) else { panic!("8 of 7 pass") };
    assert_eq!(refusal.refusing.iter().map(|entry| entry.index).collect::<Vec<_>>(), [1, 2]);
    let held = world.held(3, &plan_of(3)).unwrap();
    // What a budget is charged is nobody's, here and afterwards.
    world.settle(&held, &[100, 1, 1]).unwrap();
    world.faulty.set(Fault::None);
    assert_eq!(world.shared(&soft), (0, 0));
    assert!(world.held(4, &plan(&[(&rate, 2)])).is_some(), "what was not used is free again");
}

#[test]
fn one_call_in_five_seconds_finds_out_and_no_other_waits() {
    let world = World::new();
    let rate = hard("rate", MINUTE, 3_000);
    let of_rate = plan(&[(&rate, 1)]);
    world.faulty.set(Fault::CallLost);
    for tenth in 0..200 {
        assert!(is_admitted(&world.reserve(tenth, &of_rate)));
        world.advance(100);
    }
    assert_eq!(world.faulty.calls(), 4, "at 0, 5, 10 and 15 seconds");
    world.faulty.set(Fault::None);
    assert!(is_admitted(&world.reserve(1_000, &of_rate)));
    assert!(world.store.status().available);
    assert_eq!(world.store.status().outages, 1);
    assert_eq!(world.shared(&rate), (0, 1), "what passed meanwhile is not in it");
}

#[test]
fn a_reservation_that_may_have_been_made_is_given_back() {
    for fault in [Fault::CallLost, Fault::AnswerLost, Fault::Partly] {
        let world = World::new();
        let rate = hard("rate", MINUTE, 30);
        world.faulty.set(fault);
        let held = world.held(1, &plan(&[(&rate, 6)])).unwrap();
        world.faulty.set(Fault::None);
        world.advance(RETRY_MS);
        now(world.store.write_through());
        assert_eq!(world.shared(&rate), (0, 0), "{fault:?}");
        // The call itself belongs to this copy's own limits.
        assert_eq!(world.settle(&held, &[2]).unwrap(), Settled::Applied);
        assert_eq!(world.shared(&rate), (0, 0));
    }
}

/// One tenant's counter that somebody has overwritten: of its calls only local limits hold, and others are decided.
#[test]
fn what_cannot_be_read_is_no_outage_and_stops_only_hard_budgets() {
    let world = World::new();
    let (rate, usd) = (hard("rate", MINUTE, 30), hard("usd", Rule::Calendar(Period::Day), 1_000));
    let of_rate = plan(&[(&rate, 1)]);
    world.faulty.set(Fault::Spoilt);
    assert!(matches!(world.reserve(1, &plan(&[(&rate, 1), (&usd, 1)])), Err(StoreError::Corrupt(_))));
    let admitted = (2..30).filter(|id| is_admitted(&world.reserve(*id, &of_rate))).count();
    assert_eq!(admitted, 10, "a third of 30");
    assert!(world.store.status().available);
    world.faulty.set(Fault::None);
    let held = world.held(30, &plan(&[(&usd, 1)])).unwrap();

    // A settlement that cannot be counted is told, and what is given back in vain is not.
    world.faulty.set(Fault::Spoilt);
    now(world.store.write_through());
    assert_eq!(world.store.status().settlements_lost, 0);
    assert!(matches!(world.settle(&held, &[1]), Err(StoreError::Corrupt(_))));
    assert_eq!((world.store.status().settlements_lost, world.store.waiting()), (1, 0));
}

#[test]
fn a_closed_policy_lets_nothing_pass() {
    let world = World::with(|policy| policy.closed = true);
    let rate = hard("rate", MINUTE, 30);
    world.faulty.set(Fault::Refused);
    assert!(world.reserve(1, &plan(&[(&rate, 1)])).is_err());
    assert!(matches!(world.reserve(2, &plan(&[(&rate, 1)])), Err(StoreError::Unavailable(_))));
    assert!(matches!(world.reserve(3, &plan(&[])), Err(StoreError::Unavailable(_))));
}

#[test]
fn an_extension_passes_unless_a_hard_budget_is_asked_for_it() {
    let world = World::new();
    let (rate, usd) = (hard("rate", MINUTE, 30), hard("usd", Rule::Calendar(Period::Day), 1_000));
    let cheap = world.held(1, &plan(&[(&rate, 1)])).unwrap();
    let dear = world.held(2, &plan(&[(&rate, 1), (&usd, 1)])).unwrap();
    world.faulty.set(Fault::Refused);
    let local = world.held(3, &plan(&[(&rate, 1)])).unwrap();
    assert!(is_admitted(&now(world.store.extend(&cheap, 1, &[Amount::new(1)]))));
    assert!(now(world.store.extend(&dear, 1, &[Amount::new(1); 2])).is_err());
    assert!(is_admitted(&now(world.store.extend(&local, 1, &[Amount::new(9)]))));
    assert!(!is_admitted(&now(world.store.extend(&local, 2, &[Amount::new(1)]))), "ten are its share");
}
