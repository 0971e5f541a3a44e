//! `tollgate explain`: what would become of one request, without sending it.

use std::{fmt::Write, fs::File, io::Read, path::Path};

use http::{HeaderName, HeaderValue};
use serde_json::{Value, json};
use tollgate_limiter::{Enforcement, TimestampMs};
use tollgate_proxy::{ExplainedLimit, Explanation, Question, Setup};
use tollgate_store::{Clock, SystemClock};

use crate::{
    cli::{ExplainArgs, Failure},
    describe::{describe_limit, usd},
    load,
    out::print,
    progress::bytes_bar,
};

pub(crate) fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let (config, prices) = load::load(&args.config)?;
    let body_bytes_max = config.server.max_body_bytes;
    let setup = Setup::new(config, prices);
    let now = SystemClock::new().now();
    learn(&setup, now);
    let headers = args.headers.iter().map(|line| header(line)).collect::<Result<Vec<_>, _>>()?;
    let body = read(&args.request, body_bytes_max)?;
    let question = Question { key: &args.key, path: args.path.as_deref(), headers: &headers, body: &body };
    let explanation = setup.explain(&question, now).map_err(Failure::refused)?;
    if args.json {
        return print(&format!("{:#}\n", in_json(&explanation)));
    }
    print(&in_words(&explanation))
}

/// Learns from earlier calls, as the proxy does when it starts. What cannot be read teaches nothing.
fn learn(setup: &Setup, now: TimestampMs) {
    let bar = bytes_bar("learning from usage");
    let learned = setup.learn(now, |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    if let Err(error) = learned {
        eprintln!("note: the estimate is not corrected by what earlier calls have taught: {error}");
    }
}

fn header(line: &str) -> Result<(HeaderName, HeaderValue), Failure> {
    let malformed = || Failure::refused(format!("--header must be `NAME: VALUE`, not `{line}`"));
    let (name, value) = line.split_once(':').ok_or_else(malformed)?;
    let name = HeaderName::try_from(name.trim()).map_err(|_| malformed())?;
    let value = HeaderValue::try_from(value.trim()).map_err(|_| malformed())?;
    Ok((name, value))
}

/// A body, as far as the proxy would read it.
fn read(file: &Path, bytes_max: usize) -> Result<Vec<u8>, Failure> {
    let failed = |error| Failure::refused(format!("{}: {error}", file.display()));
    let input: Box<dyn Read> = if file == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(File::open(file).map_err(failed)?)
    };
    let mut body = Vec::new();
    let beyond = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    input.take(beyond).read_to_end(&mut body).map_err(failed)?;
    if body.len() > bytes_max {
        return Err(Failure::refused(format!(
            "{}: larger than `server.max_body_bytes` ({bytes_max})",
            file.display()
        )));
    }
    Ok(body)
}

fn in_words(explanation: &Explanation) -> String {
    let mut out = String::new();
    // Writing into a string cannot fail.
    let _ = writeln!(out, "request   POST {} ({})", explanation.path, explanation.protocol);
    for model in &explanation.models {
        let priced = model.priced_as.as_deref().unwrap_or("not priced");
        let _ = writeln!(out, "model     {} ({priced})", model.name);
        for (class, price, unit) in &model.prices {
            let _ = writeln!(out, "  {class:<20} {} USD per {unit}", usd(*price));
        }
    }
    let _ = writeln!(out, "provider  {}", explanation.provider);
    if let Some((session, derived)) = &explanation.session {
        let how = if *derived { " (derived from the prompt)" } else { "" };
        let _ = writeln!(out, "session   {session}{how}");
    }
    let _ = writeln!(out, "input     {} tokens{}", explanation.input_tokens, correction(explanation));
    for (part, tokens) in &explanation.input {
        let _ = writeln!(out, "  {part:<20} {tokens}");
    }
    let _ = writeln!(out, "output    {} tokens", explanation.output_tokens);
    if let Some(slice) = explanation.extended_by {
        let _ = writeln!(out, "  if its stream uses more, {slice} more at a time");
    }
    if explanation.fits {
        let _ = writeln!(out, "  its limit is lowered where a hard budget does not afford it");
    }
    let _ = writeln!(out, "reserves  {} USD", usd(explanation.cost));
    if explanation.limits.is_empty() {
        let _ = writeln!(out, "limits    none: it passes");
    }
    for limit in &explanation.limits {
        let verdict = if can_fit(limit) { "" } else { ": it can never pass" };
        let _ = writeln!(out, "{}\n  adds {}{verdict}", describe_limit(&limit.limit), charge(limit));
    }
    out
}

/// What the estimate was before earlier calls have corrected it, if they have.
fn correction(explanation: &Explanation) -> String {
    match explanation.uncorrected_input_tokens {
        uncorrected if uncorrected == explanation.input_tokens => String::new(),
        uncorrected => format!(
            ": estimated at {uncorrected}, and corrected by what the tenant's earlier calls have taught"
        ),
    }
}

/// What the request adds to a counter, in the counter's unit.
fn charge(limit: &ExplainedLimit) -> String {
    let charge = limit.charge.get();
    match limit.limit.unit {
        "micro_usd" => format!("{}.{:06} USD", charge / 1_000_000, charge % 1_000_000),
        unit => format!("{charge} {unit}"),
    }
}

/// Whether the request passes a limit that nothing else has been counted against.
fn can_fit(limit: &ExplainedLimit) -> bool {
    limit.charge <= limit.limit.amount || limit.limit.enforcement == Enforcement::Soft
}

fn in_json(explanation: &Explanation) -> Value {
    let models: Vec<_> = explanation
        .models
        .iter()
        .map(|model| {
            let prices = model.prices.iter();
            let prices = prices
                .map(|(class, price, unit)| json!({"class": class, "price_usd": usd(*price), "per": unit}));
            json!({"name": model.name, "priced_as": model.priced_as, "prices": prices.collect::<Vec<_>>()})
        })
        .collect();
    let input = explanation.input.iter().map(|(part, tokens)| json!({"part": part, "tokens": tokens.get()}));
    json!({
        "path": explanation.path,
        "protocol": explanation.protocol,
        "models": models,
        "provider": &*explanation.provider,
        "session": explanation.session.as_ref().map(|(session, _)| &**session),
        "session_derived": explanation.session.as_ref().is_some_and(|(_, derived)| *derived),
        "input": input.collect::<Vec<_>>(),
        "uncorrected_input_tokens": explanation.uncorrected_input_tokens.get(),
        "reserved": {
            "input_tokens": explanation.input_tokens.get(),
            "output_tokens": explanation.output_tokens.get(),
            "micro_usd": explanation.cost.rounded_up().get(),
        },
        "fits": explanation.fits,
        "extended_by": explanation.extended_by.map(|slice| slice.get()),
        "limits": explanation.limits.iter().map(limit_json).collect::<Vec<_>>(),
    })
}

fn limit_json(explained: &ExplainedLimit) -> Value {
    let limit = &explained.limit;
    json!({
        "scope": limit.scope.name(),
        "id": limit.id,
        "models": limit.models,
        "unit": limit.unit,
        "window": limit.window,
        "limit": limit.amount.get(),
        "counting": limit.counting,
        "mode": if limit.enforcement == Enforcement::Hard { "hard" } else { "soft" },
        "charge": explained.charge.get(),
        "can_fit": can_fit(explained),
    })
}
