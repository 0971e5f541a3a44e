//! What was spent, read back from the usage file.

use std::{collections::BTreeMap, fmt::Write, path::Path};

use tollgate_limiter::ExactAmount;

use crate::cli::Failure;

/// One line of the table.
#[derive(Default)]
struct Spent {
    calls: u64,
    input_tokens: u64,
    output_tokens: u64,
    millionths: u128,
}

/// Prints calls, tokens and cost by tenant and model.
pub(crate) fn print(usage_file: &Path) -> Result<(), Failure> {
    let mut rows: BTreeMap<(String, String), Spent> = BTreeMap::new();
    let summary = tollgate_usage::replay(
        usage_file,
        |_, _| {},
        |event| {
            let row = rows.entry((event.tenant.to_owned(), event.model.to_owned())).or_default();
            row.calls += 1;
            row.input_tokens += event.tokens.input;
            row.output_tokens += event.tokens.output;
            row.millionths += event.cost.as_millionths();
        },
    )
    .map_err(Failure::refused)?;
    let mut out = String::new();
    // Writing into a string cannot fail.
    let _ = writeln!(
        out,
        "\n{:<10} {:<20} {:>6} {:>8} {:>8} {:>12}",
        "tenant", "model", "calls", "input", "output", "USD"
    );
    for ((tenant, model), row) in &rows {
        let micro = ExactAmount::from_millionths(row.millionths).rounded_up().get();
        let usd = format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000);
        let _ = writeln!(
            out,
            "{tenant:<10} {model:<20} {:>6} {:>8} {:>8} {usd:>12}",
            row.calls, row.input_tokens, row.output_tokens
        );
    }
    let _ = writeln!(
        out,
        "{} calls settled, {} refused before they reached the provider.",
        summary.events, summary.refusals
    );
    crate::out::print(&out)
}
