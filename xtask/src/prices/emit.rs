//! Writes the table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Notes;
use super::model::{Model, Prices, Set};

/// The documentation of the format, which opens the file.
const HEAD: &str = include_str!("../../prices/head.txt");

/// The ids that the overlay's rows have: its lines that are indented once.
pub(super) fn overlay_ids(overlay: &str) -> Vec<&str> {
    let rows = overlay.lines().filter_map(|line| line.strip_prefix("  ")?.strip_suffix(':'));
    rows.filter(|id| !id.starts_with([' ', '#'])).map(|id| id.trim_matches('"')).collect()
}

/// The text of the table: the same for the same map and overlay.
pub(super) fn table(
    models: &BTreeMap<String, Model>,
    overlay: &str,
    map_name: &str,
    notes: &Notes,
) -> String {
    let mut text = String::new();
    for line in HEAD.replace("{map}", map_name).lines() {
        push(&mut text, 0, &if line.is_empty() { "#".to_owned() } else { format!("# {line}") });
    }
    for line in notes.to_string().lines() {
        push(&mut text, 0, &format!("#   {line}"));
    }
    push(&mut text, 0, "\nmodels:");
    text.push_str(overlay);
    push(&mut text, 0, "\n  # Imported rows.");
    for (id, model) in models {
        row(&mut text, id, model);
    }
    text
}

fn row(text: &mut String, id: &str, model: &Model) {
    push(text, 1, &format!("{}:", quoted(id)));
    push(text, 2, &format!("provider: {}", model.provider));
    let aliases: Vec<String> = model.aliases.iter().map(|alias| quoted(alias)).collect();
    let patterns: Vec<String> = model.patterns.iter().map(|pattern| quoted(pattern)).collect();
    for (name, list) in [("aliases", aliases), ("patterns", patterns)] {
        if !list.is_empty() {
            push(text, 2, &format!("{name}: [{}]", list.join(", ")));
        }
    }
    for (name, count) in
        [("max_input_tokens", model.max_input_tokens), ("max_output_tokens", model.max_output_tokens)]
    {
        if let Some(count) = count {
            push(text, 2, &format!("{name}: {count}"));
        }
    }
    if model.cache_auto {
        push(text, 2, "cache_auto: true");
    }
    set(text, 2, &model.standard);
    if !model.tiers.is_empty() {
        push(text, 2, "tiers:");
        for (name, tier) in &model.tiers {
            push(text, 3, &format!("{name}:"));
            set(text, 4, tier);
        }
    }
    if !model.multipliers.is_empty() {
        let factors: Vec<String> =
            model.multipliers.iter().map(|(name, by)| format!("{name}: {by}")).collect();
        push(text, 2, &format!("multipliers: {{{}}}", factors.join(", ")));
    }
}

fn set(text: &mut String, depth: usize, set: &Set) {
    for (class, price) in &set.prices {
        push(text, depth, &format!("{}: {price}", class.name()));
    }
    if !set.context.is_empty() {
        push(text, depth, "context:");
        for (above, prices) in &set.context {
            push(text, depth + 1, &format!("- {{above: {above}, {}}}", inline(prices)));
        }
    }
}

fn inline(prices: &Prices) -> String {
    let fields: Vec<String> =
        prices.iter().map(|(class, price)| format!("{}: {price}", class.name())).collect();
    fields.join(", ")
}

/// Names with anything but letters, digits, dots and dashes could mean something to YAML.
fn quoted(name: &str) -> String {
    let plain = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    if plain { name.to_owned() } else { format!("\"{name}\"") }
}

fn push(text: &mut String, depth: usize, line: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{:width$}{line}", "", width = depth * 2);
}
