//! What is printed of a report.

use tollgate_usage::{Dimension, ReplaySummary, Row, TokenCounts};

use super::*;

fn report() -> Report {
    let totals = |requests, pico| Totals {
        requests,
        tokens: TokenCounts { input: 10 * requests, cache_write_1h: 7, ..TokenCounts::default() },
        cost: ExactAmount::from_millionths(pico),
        ..Totals::default()
    };
    let row = |model: Option<&str>, totals| Row {
        values: vec![Some("acme".to_owned()), model.map(str::to_owned)],
        totals,
    };
    let refused = Totals { refusals: 2, ..Totals::default() };
    Report {
        by: vec![Dimension::Tenant, Dimension::Model],
        rows: vec![row(Some("a,\"b\""), totals(3, 12_000_240_000)), row(None, refused)],
        rest: None,
        total: Totals { refusals: 2, ..totals(3, 12_000_240_000) },
        summary: ReplaySummary::default(),
    }
}

#[test]
fn the_table_is_aligned_and_ends_with_the_total() {
    let expected = "\
tenant  model  requests  refused  input  cache read  cache write  output    cost USD  estimated
acme    a,\"b\"         3        0     30           0            7       0  0.01200024      0.0 %
acme    -             0        2      0           0            0       0  0.00000000      0.0 %
total                 3        2     30           0            7       0  0.01200024      0.0 %
";
    assert_eq!(in_words(&report()), expected);
}

#[test]
fn csv_quotes_what_callers_have_chosen_and_keeps_every_digit() {
    let text = in_csv(&report()).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("tenant,model,requests,refusals,input_tokens,"), "{text}");
    assert!(lines[0].ends_with(",estimated_requests,cost_usd,estimated_cost_usd"), "{text}");
    assert!(
        lines[1].starts_with("acme,\"a,\"\"b\"\"\",3,0,30,0,0,7,") && lines[1].ends_with(",0,0.01200024,0")
    );
    assert!(lines[2].starts_with("acme,,0,2,0,"), "{text}");
    assert_eq!(lines.len(), 3);
}

#[test]
fn csv_runs_nothing_in_a_spreadsheet() {
    let mut report = report();
    for value in ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "a=1"] {
        report.rows[0].values[1] = Some(value.to_owned());
        let text = in_csv(&report).unwrap();
        let expected = if value == "a=1" { value.to_owned() } else { format!("'{value}") };
        assert!(text.lines().any(|line| line.starts_with(&format!("acme,{expected},3,"))), "{text}");
    }
}

#[test]
fn json_has_every_name_whatever_the_values_are() {
    let json = in_json(&report());
    assert_eq!(json["by"], json!(["tenant", "model"]));
    assert_eq!(json["rows"][0]["group"], json!({"tenant": "acme", "model": "a,\"b\""}));
    assert_eq!(json["rows"][1]["group"], json!({"tenant": "acme", "model": null}));
    assert_eq!(json["rows"][0]["cost_usd"], "0.01200024");
    assert_eq!(json["rows"][0]["cost_micro_usd"], 12_001);
    assert_eq!(json["rows"][0]["cache_write_1h_tokens"], 7);
    assert_eq!(json["total"]["refusals"], 2);
    assert_eq!((&json["rest"], &json["torn_tail"]), (&Value::Null, &json!(false)));
}
