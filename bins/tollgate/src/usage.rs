//! `tollgate usage`: what was used and what it cost.

#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};
use tollgate_limiter::ExactAmount;
use tollgate_usage::{GROUPS_MAX, Report, ReportOptions, Totals};

use crate::{
    cli::{Failure, ReportArgs},
    out::print,
    progress::bytes_bar,
    table::{Column, decimals, exact_usd, table, usd},
};

/// What the groups beyond the bound are called together.
const REST: &str = "(others)";

pub(crate) fn run(args: &ReportArgs) -> Result<(), Failure> {
    let options = ReportOptions { by: args.by.clone(), since: args.since, until: args.until };
    let bar = bytes_bar("reading usage");
    let report = Report::read(&args.file, &options, |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = report.map_err(Failure::refused)?;
    note(&report);
    print(&match (args.json, args.csv) {
        (true, _) => format!("{:#}\n", in_json(&report)),
        (_, true) => in_csv(&report).map_err(Failure::refused)?,
        _ => in_words(&report),
    })
}

/// Says on standard error what the sums do not have.
fn note(report: &Report) {
    let summary = &report.summary;
    if summary.duplicates > 0 {
        eprintln!("note: {} lines repeat a call and are not counted again", summary.duplicates);
    }
    if summary.skipped_lines > 0 {
        eprintln!("note: {} lines cannot be understood and are skipped", summary.skipped_lines);
    }
    if summary.torn_tail {
        eprintln!("note: the last line of a file is torn and is skipped");
    }
    if report.rest.is_some() {
        eprintln!("note: what is beyond {GROUPS_MAX} groups is summed up as {REST}");
    }
}

fn in_words(report: &Report) -> String {
    let mut columns: Vec<_> = report.by.iter().map(|dimension| Column::text(dimension.name())).collect();
    let numbers =
        ["requests", "refused", "input", "cache read", "cache write", "output", "cost USD", "estimated"];
    columns.extend(numbers.map(Column::number));
    let costs = report.rows.iter().map(|row| row.totals.cost).chain([report.total.cost]);
    let decimals = decimals(costs);
    let line = |mut cells: Vec<String>, totals: &Totals| {
        cells.resize(report.by.len(), String::new());
        cells.extend(numbers_in_words(totals, decimals));
        cells
    };
    let groups = report.rows.iter().map(|row| {
        let values = row.values.iter().map(|value| value.clone().unwrap_or_else(|| "-".to_owned()));
        line(values.collect(), &row.totals)
    });
    let rest = report.rest.iter().map(|rest| line(vec![REST.to_owned()], rest));
    let total = line(vec!["total".to_owned()], &report.total);
    table(&columns, &groups.chain(rest).chain([total]).collect::<Vec<_>>())
}

fn numbers_in_words(totals: &Totals, decimals: usize) -> [String; 8] {
    let tokens = &totals.tokens;
    let per_mille = totals.estimated_per_mille();
    [
        totals.requests.to_string(),
        totals.refusals.to_string(),
        tokens.input.to_string(),
        tokens.cache_read.to_string(),
        tokens.cache_write_total().to_string(),
        tokens.output.to_string(),
        usd(totals.cost, decimals),
        format!("{}.{} %", per_mille / 10, per_mille % 10),
    ]
}

/// The counts of a group, under the names that JSON and CSV have for them.
fn counts(totals: &Totals) -> [(&'static str, u64); 17] {
    let tokens = &totals.tokens;
    [
        ("requests", totals.requests),
        ("refusals", totals.refusals),
        ("input_tokens", tokens.input),
        ("cache_read_tokens", tokens.cache_read),
        ("cache_write_5m_tokens", tokens.cache_write_5m),
        ("cache_write_1h_tokens", tokens.cache_write_1h),
        ("cache_write_tokens", tokens.cache_write),
        ("output_tokens", tokens.output),
        ("reasoning_tokens", tokens.reasoning),
        ("audio_input_tokens", tokens.audio_input),
        ("cached_audio_input_tokens", tokens.cached_audio_input),
        ("image_input_tokens", tokens.image_input),
        ("audio_output_tokens", tokens.audio_output),
        ("image_output_tokens", tokens.image_output),
        ("web_search_requests", tokens.web_searches),
        ("web_fetch_requests", tokens.web_fetches),
        ("estimated_requests", totals.estimated_requests),
    ]
}

/// The amounts of a group, likewise: exact, in dollars.
fn amounts(totals: &Totals) -> [(&'static str, ExactAmount); 2] {
    [("cost_usd", totals.cost), ("estimated_cost_usd", totals.estimated_cost)]
}

fn in_json(report: &Report) -> Value {
    let rows = report.rows.iter().map(|row| {
        let group = report.by.iter().zip(&row.values);
        let group: Map<_, _> =
            group.map(|(dimension, value)| (dimension.name().to_owned(), json!(value))).collect();
        let mut totals = totals_json(&row.totals);
        totals.insert("group".to_owned(), group.into());
        Value::from(totals)
    });
    let summary = &report.summary;
    json!({
        "by": report.by.iter().map(|dimension| dimension.name()).collect::<Vec<_>>(),
        "rows": rows.collect::<Vec<_>>(),
        "rest": report.rest.as_ref().map(totals_json),
        "total": totals_json(&report.total),
        "duplicates": summary.duplicates,
        "skipped_lines": summary.skipped_lines,
        "torn_tail": summary.torn_tail,
    })
}

fn totals_json(totals: &Totals) -> Map<String, Value> {
    let counts = counts(totals).into_iter().map(|(name, count)| (name.to_owned(), count.into()));
    let amounts = amounts(totals).into_iter().map(|(name, cost)| (name.to_owned(), exact_usd(cost).into()));
    let rounded = ("cost_micro_usd".to_owned(), totals.cost.rounded_up().get().into());
    counts.chain(amounts).chain([rounded]).collect()
}

/// A line a group, without a total: whoever reads it adds up.
fn in_csv(report: &Report) -> Result<String, csv::Error> {
    let mut out = csv::Writer::from_writer(Vec::new());
    let names = counts(&report.total).map(|(name, _)| name);
    let amount_names = amounts(&report.total).map(|(name, _)| name);
    let dimensions = report.by.iter().map(|dimension| dimension.name());
    out.write_record(dimensions.chain(names).chain(amount_names))?;
    let groups = report.rows.iter().map(|row| (row.values.clone(), &row.totals));
    let rest = report.rest.iter().map(|rest| (vec![Some(REST.to_owned()); report.by.len()], rest));
    for (values, totals) in groups.chain(rest) {
        let values = values.into_iter().map(Option::unwrap_or_default).map(not_a_formula);
        let counts = counts(totals).into_iter().map(|(_, count)| count.to_string());
        let amounts = amounts(totals).into_iter().map(|(_, cost)| exact_usd(cost));
        out.write_record(values.chain(counts).chain(amounts))?;
    }
    let text = out.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Spreadsheets run what begins like a formula, and callers choose some of the values: an apostrophe makes it
/// text (OWASP, "CSV Injection").
fn not_a_formula(value: String) -> String {
    if value.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{value}") } else { value }
}
