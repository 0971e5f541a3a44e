//! `tollgate simulate`: what other limits would have done to past calls.

#[cfg(test)]
mod tests;

use std::fmt::Write;

use serde_json::{Value, json};
use tollgate_limiter::{Enforcement, TimestampMs};
use tollgate_proxy::{
    KeyLimit, Setup, SimulateProgress, SimulatedCalls, SimulatedLimit, SimulatedRefusals, Simulation,
};
use tollgate_usage::format_moment as moment;

use crate::{
    cli::{Failure, SimulateArgs},
    describe::describe_limit,
    load,
    out::print,
    progress::{bytes_bar, calls_bar},
    table::{Column, decimals, exact_usd, table, usd},
};

/// What a simulation does not know, for whoever reads its result.
const CAVEATS: [&str; 4] = [
    "calls after a refused one are as they were, retries of it are not made",
    "each call reserves what it reserved then: [reservation] of this configuration plays no part, no stream is extended or cut off",
    "a request is as large for max_request_tokens as what was reserved for it",
    "a call that used several models counts for the one that answered",
];

pub(crate) fn run(args: &SimulateArgs) -> Result<(), Failure> {
    let (config, prices) = load::load(&args.config)?;
    let setup = Setup::new(config, prices);
    let (reading, deciding) = (bytes_bar("reading usage"), calls_bar("deciding calls"));
    let simulation = setup.simulate(&args.file, args.since, |progress| {
        let (bar, done, total) = match progress {
            SimulateProgress::Reading(done, total) => (&reading, done, total),
            SimulateProgress::Deciding(done, total) => (&deciding, done, total),
        };
        bar.set_length(total);
        bar.set_position(done);
    });
    reading.finish_and_clear();
    deciding.finish_and_clear();
    let simulation = simulation.map_err(Failure::refused)?;
    if args.json {
        return print(&format!("{:#}\n", in_json(&simulation)));
    }
    print(&in_words(&simulation))
}

fn in_words(simulation: &Simulation) -> String {
    let mut out = String::new();
    // Writing into a string cannot fail.
    let Simulation { calls, refused, spent_before, .. } = simulation;
    let span = simulation
        .span
        .map_or_else(String::new, |(first, last)| format!(" from {} to {}", moment(first), moment(last)));
    let _ = writeln!(out, "calls     {}, {} USD{span}", calls.count, exact_usd(calls.cost));
    if spent_before.count > 0 {
        let cost = exact_usd(spent_before.cost);
        let _ = writeln!(
            out,
            "before    {}, {cost} USD: taken as they were, they count in budgets",
            spent_before.count
        );
    }
    let _ = writeln!(out, "refused   {}, {} USD saved", refused.count, exact_usd(refused.cost));
    if simulation.past_refusals > 0 {
        let _ = writeln!(out, "besides   {} that were refused then: not simulated", simulation.past_refusals);
    }
    if !simulation.refusals.is_empty() {
        let _ = write!(out, "\n{}", refusals_table(&simulation.refusals));
    }
    if !simulation.limits.is_empty() {
        let _ = write!(out, "\n{}", limits_table(&simulation.limits));
    }
    out.push('\n');
    for caveat in caveats(simulation) {
        let _ = writeln!(out, "note: {caveat}");
    }
    out
}

fn caveats(simulation: &Simulation) -> Vec<String> {
    let mut caveats: Vec<_> = CAVEATS.iter().map(|caveat| (*caveat).to_owned()).collect();
    let summary = &simulation.summary;
    let unsaid = simulation.without_reserved_output;
    let counts = [
        (unsaid, "calls do not say how much output was reserved: as much as was used counts"),
        (summary.duplicates, "lines repeat a call and are not counted again"),
        (summary.skipped_lines, "lines cannot be understood and are skipped"),
    ];
    caveats
        .extend(counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    caveats
}

fn refusals_table(rows: &[SimulatedRefusals]) -> String {
    let columns = [
        Column::text("tenant"),
        Column::text("key"),
        Column::number("refused"),
        Column::number("saved USD"),
        Column::text("first"),
        Column::text("last"),
        Column::text("by"),
    ];
    let decimals = decimals(rows.iter().map(|row| row.calls.cost));
    let line = |row: &SimulatedRefusals| {
        vec![
            row.tenant.to_string(),
            row.key.to_string(),
            row.calls.count.to_string(),
            usd(row.calls.cost, decimals),
            moment(row.span.0),
            moment(row.span.1),
            row.limit.as_ref().map_or_else(|| row.reason.to_owned(), in_one_line),
        ]
    };
    table(&columns, &rows.iter().map(line).collect::<Vec<_>>())
}

fn limits_table(limits: &[SimulatedLimit]) -> String {
    let columns = [
        Column::number("calls"),
        Column::number("refused"),
        Column::number("over soft"),
        Column::number("peak"),
        Column::number("part"),
        Column::text("at"),
        Column::text("limit"),
    ];
    let line = |limit: &SimulatedLimit| {
        vec![
            limit.calls.to_string(),
            limit.refused.count.to_string(),
            limit.over_soft.count.to_string(),
            amount(limit),
            part(limit),
            moment(limit.peak_at),
            in_one_line(&limit.limit),
        ]
    };
    table(&columns, &limits.iter().map(line).collect::<Vec<_>>())
}

/// `budget 5.000000 USD per day, hard: tenant acme`, without the columns of a list.
fn in_one_line(limit: &KeyLimit) -> String {
    describe_limit(limit).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The peak in the limit's unit.
fn amount(limit: &SimulatedLimit) -> String {
    let peak = limit.peak.get();
    match limit.limit.unit {
        "micro_usd" => format!("{}.{:06}", peak / 1_000_000, peak % 1_000_000),
        _ => peak.to_string(),
    }
}

/// The peak as a part of the limit, rounded up to a tenth of a percent.
fn part(limit: &SimulatedLimit) -> String {
    let (peak, whole) = (u128::from(limit.peak.get()), u128::from(limit.limit.amount.get()));
    match peak.saturating_mul(1_000).saturating_add(whole.saturating_sub(1)).checked_div(whole) {
        Some(per_mille) => format!("{}.{} %", per_mille / 10, per_mille % 10),
        None => "-".to_owned(),
    }
}

fn in_json(simulation: &Simulation) -> Value {
    let span = |(first, last): (TimestampMs, TimestampMs)| (moment(first), moment(last));
    let (first, last) = simulation.span.map(span).unzip();
    let refusals = simulation.refusals.iter().map(|row| {
        let (first, last) = span(row.span);
        json!({
            "tenant": &*row.tenant,
            "key": &*row.key,
            "reason": row.reason,
            "limit": row.limit.as_ref().map(limit_json),
            "refused": calls_json(row.calls),
            "first": first,
            "last": last,
        })
    });
    let limits = simulation.limits.iter().map(|limit| {
        json!({
            "limit": limit_json(&limit.limit),
            "calls": limit.calls,
            "refused": calls_json(limit.refused),
            "over_soft": calls_json(limit.over_soft),
            "peak": limit.peak.get(),
            "peak_at": moment(limit.peak_at),
        })
    });
    json!({
        "calls": calls_json(simulation.calls),
        "spent_before": calls_json(simulation.spent_before),
        "refused": calls_json(simulation.refused),
        "past_refusals": simulation.past_refusals,
        "first": first,
        "last": last,
        "refusals": refusals.collect::<Vec<_>>(),
        "limits": limits.collect::<Vec<_>>(),
        "notes": caveats(simulation),
    })
}

fn calls_json(calls: SimulatedCalls) -> Value {
    json!({"count": calls.count, "cost_usd": exact_usd(calls.cost), "cost_micro_usd": calls.cost.rounded_up().get()})
}

fn limit_json(limit: &KeyLimit) -> Value {
    json!({
        "scope": limit.scope.name(),
        "id": limit.id,
        "models": limit.models,
        "unit": limit.unit,
        "window": limit.window,
        "limit": limit.amount.get(),
        "mode": if limit.enforcement == Enforcement::Hard { "hard" } else { "soft" },
    })
}
