//! The memory store beside the limiter's ledger, its bounds, and what only it offers.

#![expect(
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

use std::{fmt::Debug, sync::Arc};

use proptest::prelude::*;
use tollgate_limiter::{
    Amount, CounterKey, DurationMs, Enforcement, Entry, ExactAmount, Ledger, Limit, Period, Plan,
    ReservationId, Rule, TimestampMs, Verdict,
};
use tollgate_store::{
    Attempt, Clock, Held, ManualClock, MemoryStore, Settled, Store, StoreError, StoreFuture,
};

const MINUTE: Rule = Rule::SlidingWindow { window: DurationMs::new(60_000) };

fn store_at(now_ms: u64) -> (Arc<ManualClock>, Arc<MemoryStore>) {
    let clock = Arc::new(ManualClock::new(TimestampMs::new(now_ms)));
    let store = MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>);
    (clock, Arc::new(store))
}

fn limit(partition: &str, name: &str, rule: Rule, amount: u64) -> Arc<Limit> {
    let key = CounterKey::new(partition, name);
    Arc::new(Limit { key, rule, amount: Amount::new(amount), enforcement: Enforcement::Hard })
}

fn plan(entries: &[(&Arc<Limit>, u64)]) -> Arc<Plan> {
    let entry = |&(limit, charge): &(&Arc<Limit>, u64)| Entry {
        limit: Arc::clone(limit),
        charge: Amount::new(charge),
    };
    Arc::new(Plan::new(entries.iter().map(entry).collect()).unwrap())
}

fn now<T: Debug>(answer: StoreFuture<'_, T>) -> Result<T, StoreError> {
    answer.now_or_later().unwrap()
}

#[derive(Clone, Debug)]
enum Call {
    Reserve {
        id: u128,
        variant: bool,
        attempt: Attempt,
    },
    Extend {
        id: u128,
        step: u32,
        charges: [u64; 3],
    },
    Settle {
        id: u128,
        actuals: [u64; 3],
    },
    Wait {
        ms: u64,
    },
    SetBack {
        ms: u64,
    },
    /// What follows is of other reservations.
    Others,
}

/// How many reservations calls are of at a time: of those that ended the store is sure to remember the last
/// four alone, since all may fall into one of its shards.
const REMEMBERED: u128 = 4;

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let attempt = prop_oneof![Just(Attempt::First), Just(Attempt::Retry)];
    let id = 0..REMEMBERED;
    prop::collection::vec(
        prop_oneof![
            5 => (id.clone(), prop::bool::weighted(0.1), attempt).prop_map(|(id, variant, attempt)| Call::Reserve { id, variant, attempt }),
            2 => (id.clone(), 0_u32..4, prop::array::uniform3(0_u64..6)).prop_map(|(id, step, charges)| Call::Extend { id, step, charges }),
            4 => (id, prop::array::uniform3(0_u64..25)).prop_map(|(id, actuals)| Call::Settle { id, actuals }),
            3 => (0_u64..45_000).prop_map(|ms| Call::Wait { ms }),
            1 => (0_u64..45_000).prop_map(|ms| Call::SetBack { ms }),
            1 => Just(Call::Others),
        ],
        1..80,
    )
}

/// The same answer, where a store tells an error in words.
fn same<T: Debug, E: std::fmt::Display>(
    store: Result<T, StoreError>,
    ledger: Result<T, E>,
) -> Result<(), TestCaseError> {
    match (store, ledger) {
        (Ok(store), Ok(ledger)) => prop_assert_eq!(format!("{store:?}"), format!("{ledger:?}")),
        (Err(StoreError::Mismatch(store)), Err(ledger)) => prop_assert_eq!(store, ledger.to_string()),
        (store, ledger) => {
            prop_assert!(false, "{:?} against {:?}", store, ledger.map_err(|error| error.to_string()))
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Same calls, same clock, same answers, same counters: shards and locks add nothing.
    #[test]
    fn the_memory_store_answers_as_the_ledger_does(calls in calls()) {
        let (clock, store) = store_at(1_000_000);
        let mut ledger = Ledger::new();
        let limits = [
            limit("acme", "tokens", MINUTE, 60),
            limit("acme", "usd", Rule::Calendar(Period::Minute), 50),
            limit("global", "tokens", Rule::SlidingWindow { window: DurationMs::new(3_600_000) }, 300),
        ];
        let plan_of = |id: u128, variant: bool| {
            let charge = |entry: u64| (u64::try_from(id).unwrap() * (entry + 3) + u64::from(variant)) % 20;
            plan(&[(&limits[0], charge(0)), (&limits[1], charge(1)), (&limits[2], charge(2))])
        };
        let mut first = 0;
        for call in calls {
            let at = clock.now();
            let held = |id| Held { id: ReservationId::new(first + id), plan: plan_of(first + id, false), at };
            match call {
                Call::Others => first += REMEMBERED,
                Call::Wait { ms } => clock.advance(DurationMs::new(ms)),
                Call::SetBack { ms } => clock.set(TimestampMs::new(at.get().saturating_sub(ms))),
                Call::Reserve { id, variant, attempt } => {
                    let (id, plan) = (ReservationId::new(first + id), plan_of(first + id, variant));
                    let answer = now(store.reserve(id, Arc::clone(&plan), attempt));
                    same(answer, ledger.reserve(at, id, plan, attempt))?;
                }
                Call::Extend { id, step, charges } => {
                    let charges = charges.map(Amount::new);
                    let answer = now(store.extend(&held(id), step, &charges));
                    same(answer, ledger.extend(at, &held(id), step, &charges))?;
                }
                Call::Settle { id, actuals } => {
                    let actuals = actuals.map(ExactAmount::whole);
                    let answer = now(store.settle(&held(id), &actuals));
                    same(answer, ledger.settle(at, &held(id), &actuals))?;
                }
            }
            let at = clock.now();
            prop_assert_eq!(now(store.inspect(&limits)).unwrap(), ledger.inspect(at, &limits));
            prop_assert_eq!(store.open_reservations(), ledger.open_reservations());
        }
    }
}

/// A hundred thousand keys over virtual time: what is kept is what still counts.
#[test]
fn a_hundred_thousand_keys_leave_few_counters() {
    let (clock, store) = store_at(0);
    for number in 0..100_000_u64 {
        let key = limit(&format!("tenant {number}"), "requests", MINUTE, 10);
        let entries = plan(&[(&key, 1)]);
        let id = ReservationId::new(u128::from(number));
        let Ok(Verdict::Admitted(admission)) = now(store.reserve(id, Arc::clone(&entries), Attempt::First))
        else {
            panic!("the first of ten was refused");
        };
        now(store.settle(&Held { id, plan: entries, at: admission.at }, &[ExactAmount::whole(1)])).unwrap();
        clock.advance(DurationMs::new(500));
    }
    // 120 keys a minute count for up to two minutes; each of 64 shards sweeps every 256 calls.
    assert!(store.counters() <= 240 + 64 * 256, "{}", store.counters());
    assert_eq!(store.open_reservations(), 0);
}

#[test]
fn ended_reservations_are_remembered_in_bounds() {
    let (_, store) = store_at(0);
    let total = limit("acme", "usd", Rule::Calendar(Period::Total), 1_000_000);
    let held =
        |number| Held { id: ReservationId::new(number), plan: plan(&[(&total, 1)]), at: TimestampMs::EPOCH };
    let one = [ExactAmount::whole(1)];
    for number in 0..20_000 {
        let held = held(number);
        now(store.reserve(held.id, Arc::clone(&held.plan), Attempt::First)).unwrap();
        assert_eq!(now(store.settle(&held, &one)).unwrap(), Settled::Applied);
    }
    assert_eq!(now(store.settle(&held(19_999), &one)).unwrap(), Settled::Already);
    assert_eq!(now(store.settle(&held(0), &one)).unwrap(), Settled::WithoutReservation);
}

#[test]
fn c39_what_was_spent_before_the_start_counts_in_its_own_period() {
    let hour_ms = 3_600_000;
    let (clock, store) = store_at(10 * hour_ms);
    let (hour, total, rate) = (
        limit("acme", "usd/hour", Rule::Calendar(Period::Hour), 100),
        limit("acme", "usd", Rule::Calendar(Period::Total), 100),
        limit("acme", "requests", MINUTE, 100),
    );
    let spent = ExactAmount::from_millionths(30_500_000);
    for at_ms in [9 * hour_ms, 10 * hour_ms, 11 * hour_ms] {
        for limit in [&hour, &total, &rate] {
            store.restore(limit, TimestampMs::new(at_ms)..=TimestampMs::new(at_ms), spent);
        }
    }
    let spent_now = || {
        let views = now(store.inspect(&[Arc::clone(&hour), Arc::clone(&total), Arc::clone(&rate)])).unwrap();
        views.into_iter().map(|view| view.spent.as_millionths()).collect::<Vec<_>>()
    };
    assert_eq!(spent_now(), [30_500_000, 91_500_000, 0]);
    clock.advance(DurationMs::new(hour_ms));
    assert_eq!(spent_now(), [0, 91_500_000, 0]);
}

/// A session that was used again in time has all its spend, one that was forgotten has none.
#[test]
fn what_a_live_session_spent_before_the_start_counts() {
    let (_, store) = store_at(10_000);
    let session = |name| limit("acme", name, Rule::Idle { after: DurationMs::new(1_000) }, 100);
    let [live, chain, over, broken] = ["live", "chain", "over", "broken"].map(session);
    let uses = [
        (&chain, 8_100),
        (&broken, 8_200),
        (&over, 9_000),
        (&chain, 9_050),
        (&live, 9_001),
        (&broken, 9_200),
        (&chain, 9_900),
    ];
    for (limit, at_ms) in uses {
        store.restore(
            limit,
            TimestampMs::new(at_ms)..=TimestampMs::new(at_ms),
            ExactAmount::from_millionths(1_500_000),
        );
    }
    let views = now(store.inspect(&[live, chain, over, broken])).unwrap();
    let stands: Vec<_> =
        views.iter().map(|view| (view.spent.as_millionths(), view.resets_at.map(TimestampMs::get))).collect();
    assert_eq!(
        stands,
        [(1_500_000, Some(10_001)), (4_500_000, Some(10_900)), (0, None), (1_500_000, Some(10_200))]
    );
}

#[test]
fn a_charge_is_for_good_and_keeps_no_record() {
    let (clock, store) = store_at(0);
    let minute = limit("acme", "requests", MINUTE, 2);
    let one = plan(&[(&minute, 1)]);
    let admitted: Vec<_> = (0..3).map(|_| matches!(store.charge(&one), Verdict::Admitted(_))).collect();
    assert_eq!(admitted, [true, true, false]);
    let view = now(store.inspect(&[minute])).unwrap().remove(0);
    assert_eq!((view.spent, view.held, store.open_reservations()), (ExactAmount::whole(2), Amount::ZERO, 0));
    clock.advance(DurationMs::new(90_000));
    assert!(matches!(store.charge(&one), Verdict::Admitted(_)));
}
