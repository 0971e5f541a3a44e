//! Concurrent calls answer as if they had been made one after the other: for each recorded history there is an
//! order that keeps to real time, in which the limiter's ledger gives the same answers.

#![expect(
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use tollgate_limiter::{
    Amount, CounterKey, DurationMs, Enforcement, Entry, ExactAmount, Ledger, Limit, Period, Plan,
    ReservationId, Rule, TimestampMs, Verdict,
};
use tollgate_store::{Attempt, Clock, Held, ManualClock, Settled, Store};
use tollgate_store_redis::{RedisStore, testing::RedisServer};

const NOW: TimestampMs = TimestampMs::new(1_795_996_823_456);
const CLIENTS: usize = 4;

/// One call with its answer, and when it was made and answered.
#[derive(Clone, Debug)]
struct Event {
    began: u64,
    ended: u64,
    held: Held,
    call: Call,
}

#[derive(Clone, Debug, PartialEq)]
enum Call {
    Reserve(Verdict),
    Settle(ExactAmount, Settled),
}

/// Reserves and settles one after the other, with connections of its own.
async fn client(store: RedisStore, work: Vec<(Held, u64)>, moments: Arc<AtomicU64>) -> Vec<Event> {
    let moment = || moments.fetch_add(1, Ordering::SeqCst);
    let mut events = Vec::new();
    for (held, used) in work {
        let began = moment();
        let verdict = store.reserve(held.id, Arc::clone(&held.plan), Attempt::First).await.unwrap();
        let is_admitted = matches!(verdict, Verdict::Admitted(_));
        events.push(Event { began, ended: moment(), held: held.clone(), call: Call::Reserve(verdict) });
        if is_admitted {
            let (began, used) = (moment(), ExactAmount::whole(used));
            let settled = store.settle(&held, &[used, used]).await.unwrap();
            events.push(Event { began, ended: moment(), held, call: Call::Settle(used, settled) });
        }
    }
    events
}

/// Whether the events, in an order that keeps to real time, are what a ledger answers after those of `before`.
fn has_order(before: &mut Vec<Event>, events: &[Event]) -> bool {
    let Some(first_end) = events.iter().map(|event| event.ended).min() else { return true };
    (0..events.len()).filter(|place| events[*place].began <= first_end).any(|place| {
        let mut rest = events.to_vec();
        let event = rest.remove(place);
        if answer(before, &event) != event.call {
            return false;
        }
        before.push(event);
        let found = has_order(before, &rest);
        before.pop();
        found
    })
}

/// What a ledger answers to the call of `event` after those of `before`.
fn answer(before: &[Event], event: &Event) -> Call {
    let mut ledger = Ledger::new();
    let mut run = |event: &Event| match &event.call {
        Call::Reserve(_) => {
            let plan = Arc::clone(&event.held.plan);
            Call::Reserve(ledger.reserve(NOW, event.held.id, plan, Attempt::First).unwrap())
        }
        Call::Settle(used, _) => {
            Call::Settle(*used, ledger.settle(NOW, &event.held, &[*used, *used]).unwrap())
        }
    };
    before.iter().for_each(|event| drop(run(event)));
    run(event)
}

fn plan(history: u64, charge: u64) -> Arc<Plan> {
    let limit = |name: &str, rule, amount| {
        let key = CounterKey::new(format!("history {history}"), name);
        Arc::new(Limit { key, rule, amount: Amount::new(amount), enforcement: Enforcement::Hard })
    };
    let window = Rule::SlidingWindow { window: DurationMs::new(60_000) };
    let limits = [limit("usd", Rule::Calendar(Period::Day), 20), limit("tokens", window, 14)];
    let entries = limits.map(|limit| Entry { limit, charge: Amount::new(charge) });
    Arc::new(Plan::new(entries.into()).unwrap())
}

#[test]
fn concurrent_calls_answer_as_if_one_came_after_the_other() {
    const HISTORIES: u32 = 48;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let server = RedisServer::start().unwrap();
    let clock = Arc::new(ManualClock::new(NOW));
    let stores: Vec<_> = runtime.block_on(async {
        let mut stores = Vec::new();
        for _ in 0..CLIENTS {
            let clock = Arc::clone(&clock) as Arc<dyn Clock>;
            let store = RedisStore::connect_with_clock(&server.settings("tollgate"), clock).unwrap();
            store.connected().await.unwrap();
            stores.push(store);
        }
        stores
    });
    let number = AtomicU64::new(0);
    let work = prop::collection::vec((1_u64..8, 0_u64..9), 3);
    let all = prop::collection::vec(work, CLIENTS);
    let config = Config { cases: HISTORIES, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&all, |all| {
        let history = number.fetch_add(1, Ordering::SeqCst);
        let moments = Arc::new(AtomicU64::new(0));
        let mut ids = (u128::from(history) << 64)..;
        let mut clients = Vec::new();
        for (store, work) in stores.iter().zip(all) {
            let held = |(charge, used)| {
                let id = ReservationId::new(ids.next().unwrap_or_default());
                (Held { id, plan: plan(history, charge), at: NOW }, used)
            };
            let work = work.into_iter().map(held).collect();
            clients.push(runtime.spawn(client(store.clone(), work, Arc::clone(&moments))));
        }
        let mut events = Vec::new();
        for client in clients {
            events.extend(runtime.block_on(client).unwrap());
        }
        prop_assert!(has_order(&mut Vec::new(), &events), "no order explains {events:#?}");
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// The search itself tells an order from none.
#[test]
fn answers_that_no_order_explains_are_found_out() {
    let event = |id: u128, began, ended| {
        let held = Held { id: ReservationId::new(id), plan: plan(0, 8), at: NOW };
        let call = answer(
            &[],
            &Event { began: 0, ended: 0, held: held.clone(), call: Call::Reserve(admitted(&held)) },
        );
        Event { began, ended, held, call }
    };
    // Two calls of 8 of 14 cannot both pass, whether they overlap or not.
    assert!(has_order(&mut Vec::new(), &[event(1, 0, 1)]));
    assert!(!has_order(&mut Vec::new(), &[event(1, 0, 2), event(2, 1, 3)]));
}

/// Some verdict, in whose place the ledger's own comes.
fn admitted(held: &Held) -> Verdict {
    Ledger::new().reserve(NOW, held.id, Arc::clone(&held.plan), Attempt::First).unwrap()
}
