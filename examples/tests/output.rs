//! Each example runs to its end and prints what it shows.

#![expect(clippy::unwrap_used, reason = "a helper beside test functions is no test to clippy")]

use std::process::Command;

fn printed_by(example: &str) -> String {
    let output = Command::new(example).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_program_that_embeds_the_limits_reserves_settles_and_is_told_when_to_come_back() {
    let shown = printed_by(env!("CARGO_BIN_EXE_embed_limiter"));
    for line in [
        "  second: 600 words refused by words/minute, fits in 80000 ms\n",
        "  first: took 150 words\n  second: 600 words held\n",
        "  fourth: 100 words refused by jobs open, fits when another job is done\n",
        "  fifth: 1001 words refused by words/minute, can never fit\n",
        "  sixth: 400 words refused by words/minute, fits in 1 ms\n  sixth: 400 words held\n",
        "  seventh: 10 words refused by micro-USD/day, fits in 86322352 ms\n",
        "  words/minute     2250 used   0 held      0 left\n",
        "  micro-USD/day   50000 used   0 held      0 left\n",
    ] {
        assert!(shown.contains(line), "{line:?} is not in\n{shown}");
    }
}

#[test]
fn the_example_of_a_store_keeps_the_contract() {
    let shown = printed_by(env!("CARGO_BIN_EXE_custom_store"));
    let points = tollgate_store::contract::all();
    for (name, _) in points {
        assert!(shown.contains(&format!("kept: {name}\n")), "{name} is not in\n{shown}");
    }
    assert!(shown.ends_with(&format!("The store keeps all {} points of the contract.\n", points.len())));
}

#[test]
fn the_oracle_agrees_with_the_limits_and_finds_a_fixed_window_out() {
    let shown = printed_by(env!("CARGO_BIN_EXE_property_test_limiter"));
    assert!(shown.starts_with("500 histories agree with the oracle: "), "{shown}");
    assert!(shown.contains("A fixed window is found out, by "), "{shown}");
    assert!(shown.contains(" steps: it says true where the rule says false.\n"), "{shown}");
}
