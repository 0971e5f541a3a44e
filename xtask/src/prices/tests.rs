use std::fmt::Write as _;

use super::*;

/// A map in the shape of the public one. The numbers are ours.
fn map(entries: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (id, fields) in entries {
        let comma = if text.is_empty() { "" } else { "," };
        write!(text, "{comma}\"{id}\":{{{fields}}}").unwrap();
    }
    format!("{{{text}}}")
}

fn table(entries: &[(&str, &str)]) -> String {
    import(&map(entries), "map.json").unwrap().0
}

fn row<'a>(table: &'a str, id: &str) -> &'a str {
    let (_, rest) = table.split_once(&format!("\n  {id}:\n")).unwrap_or_else(|| panic!("no {id} in {table}"));
    let end = rest.match_indices("\n  ").find(|(at, _)| !rest[at + 3..].starts_with(' ')).map(|(at, _)| at);
    rest[..end.unwrap_or(rest.len())].trim_end()
}

const CHAT: &str = r#""litellm_provider":"anthropic","mode":"chat","input_cost_per_token":3e-06,"output_cost_per_token":1.5e-05"#;

#[test]
fn prices_per_token_become_exact_prices_per_million() {
    let table = table(&[(
        "m",
        r#""litellm_provider":"openai","mode":"chat","input_cost_per_token":3.125e-08,"output_cost_per_token":0.0000006,"cache_read_input_token_cost":1e-07"#,
    )]);
    assert_eq!(
        row(&table, "m"),
        "    provider: openai\n    input: 0.03125\n    cache_read: 0.1\n    output: 0.6\n"
            .trim_end_matches('\n')
    );
}

#[test]
fn a_dated_id_with_the_same_prices_is_an_alias_and_one_with_others_stays() {
    let dearer = CHAT.replace("3e-06", "4e-06");
    let table = table(&[
        ("m", CHAT),
        ("m-20260101", CHAT),
        ("m-2026-02-02", &dearer),
        ("n-20260101", CHAT),
        ("n-20260202", CHAT),
    ]);
    assert!(row(&table, "m").contains("aliases: [m-20260101]"));
    assert!(row(&table, "m-2026-02-02").contains("input: 4"));
    assert!(row(&table, "n-20260202").contains("aliases: [n]"), "the newest one stands for the undated id");
    assert!(!row(&table, "n-20260101").contains("aliases"));
}

#[test]
fn what_a_tier_or_a_step_lacks_is_filled_in_at_its_ratio() {
    let fields = format!(
        r#"{CHAT},"cache_creation_input_token_cost":3.75e-06,"cache_creation_input_token_cost_above_1hr":6e-06,
        "input_cost_per_token_above_200k_tokens":6e-06,"output_cost_per_token_above_200k_tokens":2.25e-05,
        "input_cost_per_token_batches":1.5e-06,"output_cost_per_token_batches":7.5e-06"#
    );
    let table = table(&[("m", &fields)]);
    let row = row(&table, "m");
    assert!(
        row.contains("- {above: 200000, input: 6, cache_write: 7.5, cache_write_1h: 12, output: 22.5}"),
        "{row}"
    );
    assert!(
        row.contains("batch:\n        input: 1.5\n        cache_write: 1.875\n        cache_write_1h: 3"),
        "{row}"
    );
    assert!(
        row.contains("- {above: 200000, input: 3, cache_write: 3.75, cache_write_1h: 6, output: 11.25}"),
        "{row}"
    );
}

#[test]
fn an_output_that_only_images_have_a_price_for_is_not_free_in_a_tier() {
    let table = table(&[(
        "m",
        r#""litellm_provider":"openai","mode":"image_generation","input_cost_per_token":5e-06,"output_cost_per_image_token":4e-05,"input_cost_per_token_batches":2.5e-06"#,
    )]);
    assert!(row(&table, "m").contains("batch:\n        input: 2.5\n        image_output: 20"));
}

#[test]
fn vertex_is_an_alias_where_it_costs_the_same_and_a_row_where_not() {
    let gemini = CHAT.replace("anthropic", "gemini");
    let vertex = CHAT.replace("anthropic", "vertex_ai-language-models");
    let table = table(&[
        ("gemini/gemini-a", &gemini),
        ("gemini-a", &vertex),
        ("gemini/gemini-b", &gemini),
        ("vertex_ai/gemini-b", &vertex.replace("3e-06", "4e-06")),
    ]);
    assert!(row(&table, "gemini-a").contains("aliases: [\"vertex_ai/gemini-a\"]"));
    assert!(row(&table, "gemini-b").contains("input: 3"));
    assert!(row(&table, "\"vertex_ai/gemini-b\"").contains("input: 4"));
}

#[test]
fn audio_by_the_second_is_audio_by_the_minute() {
    let second = |price: &str| {
        format!(
            r#""litellm_provider":"openai","mode":"audio_transcription","input_cost_per_second":{price},"output_cost_per_second":{price}"#
        )
    };
    let table = table(&[("m", &second("0.0001")), ("n", &second("0.000283333333333"))]);
    assert!(row(&table, "m").contains("per_minute_audio: 0.006"));
    assert!(row(&table, "n").ends_with("per_minute_audio: 0.017"), "{}", row(&table, "n"));
}

#[test]
fn a_chat_model_for_nothing_is_left_out_and_named() {
    let free = CHAT.replace("3e-06", "0").replace("1.5e-05", "0.0");
    let (table, report) = import(&map(&[("m", &free), ("n", CHAT)]), "map.json").unwrap();
    assert!(!table.contains("\n  m:"));
    assert!(report.contains("would make a chat model free: 1 (m)"), "{report}");
}

#[test]
fn the_same_map_gives_the_same_table_and_the_overlay_wins() {
    let entries = [("b", CHAT), ("a", CHAT), ("claude-3-7-sonnet", &*CHAT.replace("3e-06", "9e-06"))];
    let first = table(&entries);
    assert_eq!(first, table(&entries));
    assert!(first.find("\n  a:") < first.find("\n  b:"));
    assert!(row(&first, "claude-3-7-sonnet").contains("input: 3\n"));
}

#[test]
fn a_price_in_the_wrong_unit_is_refused() {
    let per_million = CHAT.replace("3e-06", "3");
    let problem = import(&map(&[("m", &per_million)]), "map.json").unwrap_err().to_string();
    assert!(problem.contains("`m`") && problem.contains("`input`"), "{problem}");
}
