//! What must be true of every life: each call has one end, spend is what was charged or more, budgets are
//! passed by no more than the published bound, counters equal the events.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use serde_json::Value;
use tollgate_limiter::{Period, TimestampMs};
use tollgate_store::{MemoryStore, Store};
use tollgate_tests::counter;

use crate::{
    life::Seen,
    plan::{Call, Plan},
};

/// How often things happened, so that a simulation in which nothing happens is noticed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) calls: u64,
    pub(crate) refusals: u64,
    pub(crate) outcomes: BTreeMap<String, u64>,
    pub(crate) estimated: u64,
    pub(crate) recovered: u64,
    /// Of how many micro-USD at most budgets were passed.
    pub(crate) overspend_max: u64,
    /// Periods in which a hard budget was passed.
    pub(crate) overspent: u64,
}

impl Told {
    pub(crate) fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.refusals += other.refusals;
        self.estimated += other.estimated;
        self.recovered += other.recovered;
        self.overspent += other.overspent;
        self.overspend_max = self.overspend_max.max(other.overspend_max);
        for (outcome, count) in &other.outcomes {
            *self.outcomes.entry(outcome.clone()).or_default() += count;
        }
    }

    /// Everything that can happen has happened.
    pub(crate) fn expect_variety(&self) {
        assert!(
            self.refusals > 0 && self.estimated > 0 && self.recovered > 0 && self.overspent > 0,
            "{self:?}"
        );
        for outcome in ["complete", "upstream_error", "upstream_broken", "client_gone", "cut_off"] {
            assert!(self.outcomes.contains_key(outcome), "no call ended as {outcome}: {self:?}");
        }
    }
}

/// One usage event, as far as the books need it.
#[derive(Debug)]
struct Entry {
    ts: TimestampMs,
    ended: TimestampMs,
    tenant: String,
    call: String,
    outcome: String,
    /// In pico-USD.
    cost: u128,
    /// In micro-USD.
    reserved: u64,
    estimated_input: u64,
    input: u64,
    output: u64,
    is_estimated: bool,
    /// Its process was killed while it was open.
    is_recovered: bool,
}

impl Entry {
    fn new(event: &Value) -> Self {
        let number = |name: &str| event[name].as_u64().unwrap_or_else(|| panic!("no {name}: {event}"));
        let text =
            |name: &str| event[name].as_str().unwrap_or_else(|| panic!("no {name}: {event}")).to_owned();
        let cost = event["cost_pico_usd"].as_u64().map(u128::from);
        let ts = text("ts").parse::<jiff::Timestamp>().expect("a time").as_millisecond();
        let ts = u64::try_from(ts).expect("after 1970");
        Self {
            ts: TimestampMs::new(ts),
            ended: TimestampMs::new(ts + number("duration_ms")),
            tenant: text("tenant"),
            call: text("session"),
            outcome: text("outcome"),
            cost: cost.unwrap_or_else(|| u128::from(number("cost_micro_usd")) * MICRO),
            reserved: number("reserved_micro_usd"),
            estimated_input: number("estimated_input_tokens"),
            input: number("input_tokens"),
            output: number("output_tokens"),
            is_estimated: event["usage_estimated"] == true,
            is_recovered: event["flags"].as_array().is_some_and(|flags| flags.contains(&"recovered".into())),
        }
    }
}

/// Pico-USD in a micro-USD.
const MICRO: u128 = 1_000_000;

/// The counters of all budgets are what the events of their current periods sum up to, and nothing is held.
pub(crate) async fn check_counters(plan: &Plan, directory: &Path, store: &MemoryStore, now: TimestampMs) {
    let entries = entries(directory).0;
    for tenant in &plan.tenants {
        for (window, micro_usd, _) in &tenant.budgets {
            let limit = Arc::new(counter(&tenant.id, "micro_usd", window, *micro_usd));
            let view = store.inspect(&[limit]).await.expect("an answer").remove(0);
            let period = period(window);
            let current =
                |entry: &&Entry| entry.tenant == tenant.id && period.index(entry.ts) == period.index(now);
            let sum: u128 = entries.iter().filter(current).map(|entry| entry.cost).sum();
            let what = format!("{} {window} at {now:?}", tenant.id);
            assert_eq!((view.spent.as_millionths(), view.held.get()), (sum, 0), "{what}");
        }
    }
}

/// Everything else, once a life is over.
pub(crate) fn check(plan: &Plan, directory: &Path, providers: &Seen) -> Told {
    let (entries, refusals) = entries(directory);
    let calls: BTreeMap<&str, &Call> = plan
        .generations
        .iter()
        .flat_map(|generation| &generation.calls)
        .map(|call| (call.name.as_str(), call))
        .collect();
    let mut settled = BTreeSet::new();
    for entry in &entries {
        assert!(settled.insert(&entry.call), "{} was settled twice", entry.call);
        check_call(plan, calls[entry.call.as_str()], entry, providers);
    }
    for name in &providers.received {
        assert!(settled.contains(name), "{name} was sent and never settled");
    }
    let mut told = Told { calls: entries.len() as u64, refusals, ..Told::default() };
    for entry in &entries {
        *told.outcomes.entry(entry.outcome.clone()).or_default() += 1;
        told.estimated += u64::from(entry.is_estimated);
        told.recovered += u64::from(entry.is_recovered);
    }
    check_budgets(plan, &entries, &mut told);
    told
}

/// A call costs what its provider charged, or more.
fn check_call(plan: &Plan, call: &Call, entry: &Entry, providers: &Seen) {
    let is_received = providers.received.contains(&call.name);
    if entry.is_estimated && is_received {
        let reserved = u128::from(entry.reserved) * MICRO;
        assert!(entry.cost + MICRO > reserved, "less than was reserved: {entry:#?} {call:#?}");
    }
    let price = prices(call);
    let Some(bill) = providers.charged.get(&call.name) else {
        let may_be_free = !is_received || entry.outcome == "upstream_error";
        assert!(may_be_free || entry.is_estimated, "nobody told the cost of {entry:#?} {call:#?}");
        return;
    };
    let (input, output) = (bill.usage.input_tokens, bill.usage.output_tokens);
    let charged = u128::from(input) * price.0 + u128::from(output) * price.1;
    if call.is_honest && !entry.is_estimated {
        assert_eq!(entry.cost, charged, "{} costs what was reported", call.name);
        return;
    }
    // Nobody told how much input there was, and what was on its way has not been seen.
    let unknown_input = u128::from(input.saturating_sub(entry.estimated_input.max(entry.input))) * price.0;
    let on_its_way = u128::from(2 * call.event_tokens) * price.1;
    // Of a call that its process took with it no more is known than what it had reserved: for a stream that
    // is held by a hard budget, all that was passed on.
    let beyond = match (entry.is_recovered, call.grows(plan)) {
        (false, _) => 0,
        (true, true) => call.overrun(output),
        (true, false) => output,
    };
    let beyond = u128::from(beyond) * price.1;
    let least = charged.saturating_sub(unknown_input + on_its_way + beyond);
    assert!(
        entry.cost >= least,
        "{entry:#?} for which {charged} was charged, for {input} and {output} tokens: {call:#?}",
    );
}

/// No hard budget is passed by more than the sum of what its calls may use beyond their reservations.
fn check_budgets(plan: &Plan, entries: &[Entry], told: &mut Told) {
    let calls: BTreeMap<&str, &Call> = plan
        .generations
        .iter()
        .flat_map(|generation| &generation.calls)
        .map(|call| (call.name.as_str(), call))
        .collect();
    for tenant in &plan.tenants {
        for (window, micro_usd, _) in tenant.budgets.iter().filter(|(.., is_hard)| *is_hard) {
            let mut periods: BTreeMap<u64, (u128, u128)> = BTreeMap::new();
            for entry in entries.iter().filter(|entry| entry.tenant == tenant.id) {
                let (spent, bound) = periods.entry(period(window).index(entry.ts)).or_default();
                *spent += entry.cost;
                // A budget does not hold what goes on after its period.
                let outlives = period(window).index(entry.ended) != period(window).index(entry.ts);
                let excess = excess(plan, calls[entry.call.as_str()], entry);
                *bound += if outlives { entry.cost } else { excess };
            }
            for (index, (spent, bound)) in periods {
                let limit = u128::from(*micro_usd) * MICRO;
                let over = spent.saturating_sub(limit);
                let of_tenant =
                    || entries.iter().filter(|entry| entry.tenant == tenant.id).collect::<Vec<_>>();
                assert!(
                    over <= bound,
                    "{window} {index}: {spent} of {limit}, bound {bound}: {tenant:#?} {:#?}",
                    of_tenant()
                );
                told.overspent += u64::from(over > 0);
                told.overspend_max = told.overspend_max.max(u64::try_from(over / MICRO).expect("small"));
            }
        }
    }
}

/// What a call has cost beyond what it had reserved. That is no more than the README says.
fn excess(plan: &Plan, call: &Call, entry: &Entry) -> u128 {
    let excess = entry.cost.saturating_sub(u128::from(entry.reserved) * MICRO);
    let price = prices(call);
    let input_error = u128::from(entry.input.saturating_sub(entry.estimated_input)) * price.0;
    let output = if call.grows(plan) {
        // What is not reserved is not passed on: no more than what has come and was refused, by an estimate
        // that is on the high side.
        call.event_tokens + call.event_tokens.div_ceil(4) + 4 + call.overrun(entry.output)
    } else {
        let limit = call.output_limit.unwrap_or(u64::MAX);
        limit - plan.reservation.output_tokens.unwrap_or(u64::MAX).min(limit) + call.overrun(entry.output)
    };
    let bound = input_error + u128::from(output) * price.1 + MICRO;
    assert!(excess <= bound, "{excess} beyond the reservation, bound {bound}: {entry:#?} {call:#?}");
    excess
}

/// Pico-USD a token, in and out.
fn prices(call: &Call) -> (u128, u128) {
    if call.body["model"] == "unit" { (MICRO, MICRO) } else { (MICRO * 3 / 10, MICRO * 17 / 10) }
}

fn period(window: &str) -> Period {
    match window {
        "minute" => Period::Minute,
        "hour" => Period::Hour,
        "day" => Period::Day,
        "month" => Period::Month,
        _ => Period::Total,
    }
}

/// The usage file's usage events, and how many refusals it has.
fn entries(directory: &Path) -> (Vec<Entry>, u64) {
    let text = std::fs::read_to_string(directory.join("usage.jsonl")).unwrap_or_default();
    let (mut entries, mut refusals) = (Vec::new(), 0);
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).expect("a line of JSON");
        if event["type"] == "usage" {
            entries.push(Entry::new(&event));
        } else {
            refusals += 1;
        }
    }
    (entries, refusals)
}
