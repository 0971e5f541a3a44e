//! What one decision costs: reserve and settle over four limits of one tenant, on one thread.
//!
//!     cargo bench -p tollgate-store [-- CALLS]

use std::{sync::Arc, time::Duration};

use tollgate_limiter::{
    Amount, Attempt, CounterKey, DurationMs, Enforcement, Entry, ExactAmount, Held, Limit, Period, Plan,
    ReservationId, Rule, Settled, Verdict,
};
use tollgate_store::{Clock, MemoryStore, Store, StoreError, StoreFuture, SystemClock};

const ROUNDS: u32 = 7;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Cargo adds an argument of its own.
    let calls = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(200_000);
    let clock = Arc::new(SystemClock::new());
    let store = MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>);
    let limits = limits();
    let actuals =
        [ExactAmount::whole(1), ExactAmount::whole(700), ExactAmount::whole(90), ExactAmount::whole(90)];
    let mut best = [Duration::MAX; 3];
    for round in 0..ROUNDS {
        let plans = (0..calls).map(|_| plan(&limits)).collect::<Result<Vec<_>, _>>()?;
        let mut held = Vec::with_capacity(plans.len());
        let start = clock.elapsed();
        for (call, plan) in plans.into_iter().enumerate() {
            let id = ReservationId::new(spread(u64::from(round) << 32 | call as u64));
            if let Verdict::Admitted(admission) =
                answer(store.reserve(id, Arc::clone(&plan), Attempt::First))?
            {
                held.push(Held { id, plan, at: admission.at });
            }
        }
        let reserved = clock.elapsed();
        for held in &held {
            if answer(store.settle(held, &actuals))? != Settled::Applied {
                return Err("a settle did not apply".into());
            }
        }
        let settled = clock.elapsed();
        keep_best(&mut best[0], reserved - start);
        keep_best(&mut best[1], settled - reserved);
        keep_best(&mut best[2], in_turn(&store, &*clock, &limits, &actuals, (calls, round))?);
    }
    for (name, best) in
        ["reserve, all open at once", "settle", "plan + reserve + settle in turn"].iter().zip(best)
    {
        println!("{name:<34} {:>6} ns", best.as_nanos() / u128::from(calls));
    }
    Ok(())
}

/// As the proxy does it: a plan is built, reserved and settled while few others are open.
fn in_turn(
    store: &MemoryStore,
    clock: &dyn Clock,
    limits: &[Arc<Limit>],
    actuals: &[ExactAmount],
    (calls, round): (u32, u32),
) -> Result<Duration, Box<dyn std::error::Error>> {
    let start = clock.elapsed();
    for call in 0..calls {
        let id = ReservationId::new(spread(u64::from(round) << 32 | 1 << 31 | u64::from(call)));
        let plan = plan(limits)?;
        if let Verdict::Admitted(admission) = answer(store.reserve(id, Arc::clone(&plan), Attempt::First))? {
            answer(store.settle(&Held { id, plan, at: admission.at }, actuals))?;
        }
    }
    Ok(clock.elapsed() - start)
}

fn limits() -> Vec<Arc<Limit>> {
    let minute = Rule::SlidingWindow { window: DurationMs::new(60_000) };
    let rules = [
        ("requests/minute", minute),
        ("tokens/minute", minute),
        ("usd/day", Rule::Calendar(Period::Day)),
        ("usd/month", Rule::Calendar(Period::Month)),
    ];
    let limit = |(name, rule)| Limit {
        key: CounterKey::new("acme", name),
        rule,
        amount: Amount::new(10_000_000_000),
        enforcement: Enforcement::Hard,
    };
    rules.into_iter().map(limit).map(Arc::new).collect()
}

fn plan(limits: &[Arc<Limit>]) -> Result<Arc<Plan>, tollgate_limiter::PlanError> {
    let charges = [1, 1_200, 100, 100];
    let entry =
        |(limit, charge): (&Arc<Limit>, u64)| Entry { limit: Arc::clone(limit), charge: Amount::new(charge) };
    Plan::new(limits.iter().zip(charges).map(entry).collect()).map(Arc::new)
}

fn answer<T: Unpin>(future: StoreFuture<'_, T>) -> Result<T, StoreError> {
    future
        .now_or_later()
        .unwrap_or_else(|_| Err(StoreError::NotApplied("a memory store answers at once".into())))
}

/// Ids as far apart as random ones.
fn spread(number: u64) -> u128 {
    u128::from(number.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

fn keep_best(best: &mut Duration, this: Duration) {
    *best = this.min(*best);
}
