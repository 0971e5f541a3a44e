//! `tollgate price`: what a usage costs.

use std::{
    fmt::Write as _,
    fs::File,
    io::{self, BufRead, BufReader, Write},
    path::Path,
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::json;
use tollgate_limiter::TimestampMs;
use tollgate_pricing::{Bill, PicoUsd, PriceTable, Usage, UsageFields, price_usage};
use tollgate_store::{Clock, SystemClock};

use crate::{
    cli::{Failure, PriceArgs, UsageArgs},
    describe::usd,
    load::read_table,
    out::print,
};

/// The longest line of a batch.
const LINE_BYTES_MAX: u64 = 1024 * 1024;

pub(crate) fn run(args: &PriceArgs) -> Result<(), Failure> {
    let table = match &args.table {
        None => PriceTable::builtin(),
        Some(file) => read_table(file).map_err(Failure::config)?,
    };
    let now = SystemClock::new().now();
    match (&args.batch, &args.model) {
        (Some(file), _) => batch(&table, file, now),
        (None, Some(model)) => one(&table, model, args, now),
        (None, None) => Err(Failure::refused("name a model, or a file with --batch")),
    }
}

fn one(table: &PriceTable, model: &str, args: &PriceArgs, now: TimestampMs) -> Result<(), Failure> {
    let usage = usage(&args.usage);
    let bill = price_usage(table, model, &usage, args.tier.as_deref(), now).map_err(Failure::refused)?;
    if args.json {
        return print(&format!("{}\n", bill_json(model, &bill)));
    }
    let mut out = String::new();
    let _ = writeln!(out, "{:<28} {:>14} {:>18} {:>20}", "class", "quantity", "USD per unit", "USD");
    for line in &bill.lines {
        let rate = line.price.map_or_else(
            || "no price".to_owned(),
            |price| format!("{} / {}", usd(price), line.class.unit().name()),
        );
        let _ = writeln!(
            out,
            "{:<28} {:>14} {:>18} {:>20}",
            line.class.name(),
            line.quantity,
            rate,
            usd(line.cost)
        );
    }
    let _ = writeln!(out, "{:<28} {:>14} {:>18} {:>20}", "total", "", "", usd(bill.total));
    if let Some(tokens) = bill.above_tokens {
        let _ = writeln!(out, "prices for more than {tokens} input tokens");
    }
    for flag in bill.flags.names() {
        let _ = writeln!(out, "note: {flag}");
    }
    print(&out)
}

fn bill_json(model: &str, bill: &Bill) -> serde_json::Value {
    let lines: Vec<_> = bill
        .lines
        .iter()
        .map(|line| {
            json!({
                "class": line.class.name(),
                "quantity": line.quantity,
                "unit": line.class.unit().name(),
                "price_usd": line.price.map(usd),
                "cost_pico_usd": number(line.cost),
            })
        })
        .collect();
    json!({
        "model": model,
        "lines": lines,
        "cost_pico_usd": number(bill.total),
        "cost_micro_usd": bill.total.rounded_up().get(),
        "flags": bill.flags.names().collect::<Vec<_>>(),
    })
}

/// One line of a batch.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Priceable {
    model: String,
    usage: UsageFields,
    #[serde(default)]
    service_tier: Option<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Priced {
    Cost { cost_pico_usd: serde_json::Value, cost_micro_usd: u64 },
    Error { line: u64, error: String },
}

/// Prices every line. A line that cannot be priced answers with an error, and the command fails at
/// the end: the other lines are not lost.
fn batch(table: &Arc<PriceTable>, file: &Path, now: TimestampMs) -> Result<(), Failure> {
    let mut input: Box<dyn BufRead> = if file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let opened =
            File::open(file).map_err(|error| Failure::refused(format!("{}: {error}", file.display())))?;
        Box::new(BufReader::new(opened))
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let (mut line, mut failed) = (Vec::new(), 0_u64);
    for number in 1_u64.. {
        line.clear();
        let mut bounded = io::Read::take(&mut input, LINE_BYTES_MAX);
        if bounded.read_until(b'\n', &mut line).map_err(Failure::refused)? == 0 {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let priced = price_line(table, line.trim_ascii(), now).unwrap_or_else(|error| {
            failed += 1;
            Priced::Error { line: number, error }
        });
        let text = serde_json::to_string(&priced).map_err(Failure::refused)?;
        writeln!(out, "{text}").map_err(Failure::refused)?;
    }
    out.flush().map_err(Failure::refused)?;
    if failed > 0 {
        return Err(Failure::refused(format!("{failed} lines could not be priced")));
    }
    Ok(())
}

fn price_line(table: &PriceTable, line: &[u8], now: TimestampMs) -> Result<Priced, String> {
    let priceable: Priceable = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let usage = Usage::from(priceable.usage);
    let bill = price_usage(table, &priceable.model, &usage, priceable.service_tier.as_deref(), now)
        .map_err(|error| error.to_string())?;
    Ok(Priced::Cost { cost_pico_usd: number(bill.total), cost_micro_usd: bill.total.rounded_up().get() })
}

/// An integer where JSON readers can hold it exactly; a string of digits beyond 64 bits.
fn number(cost: PicoUsd) -> serde_json::Value {
    u64::try_from(cost.get()).map_or_else(|_| cost.get().to_string().into(), Into::into)
}

fn usage(args: &UsageArgs) -> Usage {
    Usage {
        input: args.input,
        output: args.output,
        cache_read: args.cache_read,
        cache_write_5m: args.cache_write,
        cache_write_1h: args.cache_write_1h,
        reasoning: args.reasoning,
        audio_input: args.audio_input,
        audio_output: args.audio_output,
        image_input: args.image_input,
        image_output: args.image_output,
        web_searches: args.web_searches,
        ..Usage::default()
    }
}
