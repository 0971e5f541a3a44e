//! Histories drawn at random: a few counters, plans over them, and calls that repeat, come late, or never
//! belonged.

use std::sync::Arc;

use proptest::{prelude::*, sample::Index};
use tollgate_limiter::{Amount, CounterKey, DurationMs, Enforcement, Entry, Limit, Period, Plan, Rule};
use tollgate_store::Attempt;

/// Counters that the plans of one history share.
const COUNTERS: usize = 9;
/// So many of them, the first, are in one partition. Every plan begins with one of these: a reservation's
/// record lies with its first counter, and only there another plan under the same id is noticed.
const SHARED: usize = 5;
/// The largest amount of a budget here. A history's sums stay below 2⁵³, where numbers end to be exact.
const BUDGET_MAX: u64 = 1 << 46;

#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) limits: Vec<Arc<Limit>>,
    pub(crate) plans: Vec<Arc<Plan>>,
    pub(crate) calls: Vec<Call>,
}

#[derive(Clone, Debug)]
pub(crate) enum Call {
    Reserve {
        id: u128,
        plan: Index,
        attempt: Attempt,
    },
    Extend {
        id: u128,
        plan: Index,
        step: u32,
        charges: Vec<u64>,
    },
    /// In millionths.
    Settle {
        id: u128,
        plan: Index,
        actuals: Vec<u64>,
    },
    Wait {
        ms: u64,
    },
    SetBack {
        ms: u64,
    },
}

pub(crate) fn histories() -> impl Strategy<Value = History> {
    let limits = |is_common| (0..COUNTERS).map(|number| limit(number, is_common)).collect::<Vec<_>>();
    let limits = prop::bool::ANY.prop_flat_map(limits);
    let large = prop_oneof![3 => Just(false), 1 => Just(true)];
    (limits, large).prop_flat_map(|(limits, is_large)| {
        let limits: Vec<_> = limits.into_iter().map(|limit| Arc::new(scaled(limit, is_large))).collect();
        let plans = prop::collection::vec(plan(limits.clone(), is_large), 1..5);
        let calls = prop::collection::vec(call(is_large), 1..50);
        (Just(limits), plans, calls).prop_map(|(limits, plans, calls)| History { limits, plans, calls })
    })
}

/// Some limit, of small amounts. `is_common`: by one of the rules that scripts have a quick way for.
fn limit(number: usize, is_common: bool) -> impl Strategy<Value = Limit> {
    let partition = match number {
        0..SHARED => "acme",
        _ if number.is_multiple_of(2) => "a {b}",
        _ => "global",
    };
    let enforcement = prop_oneof![4 => Just(Enforcement::Hard), 1 => Just(Enforcement::Soft)];
    let rule = rule().prop_filter("a common one", move |rule| {
        let is_rare =
            matches!(rule, Rule::BucketedWindow { .. } | Rule::TokenBucket { .. } | Rule::Elapsed { .. });
        !(is_common && is_rare)
    });
    (rule, 0_u64..40, enforcement).prop_map(move |(rule, amount, enforcement)| Limit {
        key: CounterKey::new(partition, format!("limit {number}")),
        rule,
        amount: Amount::new(amount),
        enforcement,
    })
}

fn rule() -> impl Strategy<Value = Rule> {
    let window = prop_oneof![
        Just(1_u64),
        Just(777),
        Just(1_000),
        Just(60_000),
        Just(100_001),
        Just(3_600_000),
        Just(86_400_000)
    ];
    let period = prop_oneof![
        Just(Period::Minute),
        Just(Period::Hour),
        Just(Period::Day),
        Just(Period::Week),
        Just(Period::Month),
        Just(Period::Total)
    ];
    prop_oneof![
        3 => window.clone().prop_map(|ms| Rule::SlidingWindow { window: DurationMs::new(ms) }),
        3 => window.clone().prop_map(|ms| Rule::BucketedWindow { window: DurationMs::new(ms) }),
        3 => window.clone().prop_map(|ms| Rule::TokenBucket { window: DurationMs::new(ms) }),
        3 => period.prop_map(Rule::Calendar),
        2 => window.clone().prop_map(|ms| Rule::Idle { after: DurationMs::new(ms) }),
        2 => window.prop_map(|ms| Rule::Elapsed { after: DurationMs::new(ms) }),
        1 => Just(Rule::Concurrent),
        1 => Just(Rule::PerRequest),
    ]
}

/// The limit as large as its rule allows, give or take what it was.
fn scaled(mut limit: Limit, is_large: bool) -> Limit {
    if is_large {
        let most = limit.rule.amount_max().get().min(BUDGET_MAX);
        limit.amount = Amount::new(most - limit.amount.get());
    }
    limit
}

/// Some of the limits, now and then raised, lowered or counted by another rule, each with a charge.
fn plan(limits: Vec<Arc<Limit>>, is_large: bool) -> impl Strategy<Value = Arc<Plan>> {
    let changes =
        prop::collection::vec((prop::option::weighted(0.08, rule()), prop::bool::weighted(0.1)), COUNTERS);
    let charges = prop::collection::vec(amount(is_large), COUNTERS);
    let (shared, others) = limits.split_at(SHARED);
    let chosen = prop::sample::subsequence(shared.to_vec(), 1..=3);
    let others = prop::sample::subsequence(others.to_vec(), 0..=3);
    (chosen, others, changes, charges).prop_map(move |(mut limits, others, changes, charges)| {
        limits.extend(others);
        let changed = |limit: Arc<Limit>, (rule, is_raised): (Option<Rule>, bool)| {
            let mut changed = Limit::clone(&limit);
            changed.rule = rule.unwrap_or(limit.rule);
            let raised = limit.amount.get() + u64::from(is_raised) * 3;
            changed.amount = Amount::new(raised.min(changed.rule.amount_max().get()));
            Arc::new(changed)
        };
        let limits = limits.into_iter().zip(changes).map(|(limit, change)| changed(limit, change));
        let entries = limits.zip(charges).map(|(limit, charge)| Entry { limit, charge: Amount::new(charge) });
        Arc::new(Plan::new(entries.collect()).unwrap())
    })
}

fn amount(is_large: bool) -> impl Strategy<Value = u64> {
    let small = prop_oneof![1 => Just(0_u64), 6 => 1_u64..12, 1 => 12_u64..60];
    let large = prop_oneof![
        1 => Just(0_u64),
        2 => 1_u64..100,
        4 => 1_u64..10_000_000_001,
        2 => 1_u64..BUDGET_MAX,
    ];
    if is_large { large.boxed() } else { small.boxed() }
}

fn call(is_large: bool) -> impl Strategy<Value = Call> {
    let attempt = prop_oneof![3 => Just(Attempt::First), 1 => Just(Attempt::Retry)];
    let (id, plan) = (0_u128..14, any::<Index>());
    let amounts = prop::collection::vec(amount(is_large), COUNTERS);
    let millionths = prop_oneof![2 => Just(0_u64), 1 => 1_u64..1_000_000];
    let actual = (amount(is_large), millionths).prop_map(move |(units, millionths)| {
        units.min(if is_large { 1 << 43 } else { u64::MAX / 2_000_000 }) * 1_000_000 + millionths
    });
    let actuals = prop::collection::vec(actual, COUNTERS);
    let wait = prop_oneof![
        4 => 1_u64..500,
        4 => 500_u64..70_000,
        2 => 70_000_u64..8_000_000,
        1 => 8_000_000_u64..3_000_000_000,
    ];
    prop_oneof![
        8 => (id.clone(), plan.clone(), attempt)
            .prop_map(|(id, plan, attempt)| Call::Reserve { id, plan, attempt }),
        3 => (id.clone(), plan.clone(), 0_u32..5, amounts)
            .prop_map(|(id, plan, step, charges)| Call::Extend { id, plan, step, charges }),
        5 => (id, plan, actuals).prop_map(|(id, plan, actuals)| Call::Settle { id, plan, actuals }),
        5 => wait.prop_map(|ms| Call::Wait { ms }),
        1 => (1_u64..200_000).prop_map(|ms| Call::SetBack { ms }),
    ]
}
