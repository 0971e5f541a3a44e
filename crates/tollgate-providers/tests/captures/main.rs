//! Recorded exchanges settle as their `expected.json` says, however the answer is cut.
//!
//! The recordings are not part of this repository. They are looked for in `TOLLGATE_CAPTURES`, then in
//! `../shared/data/captures` beside the workspace. Without them the suite says that it was skipped;
//! where `CI` is set that is a failure.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a broken recording fails the test")]

mod case;
mod estimate;

use case::{Case, Settled};
use tollgate_providers::Protocol;

const FOLDERS: [(&str, Protocol); 2] =
    [("anthropic", Protocol::Anthropic), ("openai-chat", Protocol::OpenAi)];

/// Runs `check` over all cases; says how many there were.
fn each_case(mut check: impl FnMut(&Case)) {
    let Some(root) = case::root() else {
        assert!(std::env::var_os("CI").is_none(), "no captures: set TOLLGATE_CAPTURES to their folder");
        eprintln!("SKIPPED: no captures; set TOLLGATE_CAPTURES to their folder");
        return;
    };
    let mut count = 0;
    for (folder, protocol) in FOLDERS {
        for case in case::all(&root.join(folder), protocol) {
            check(&case);
            count += 1;
        }
    }
    assert!(count >= 57, "only {count} cases found");
}

#[test]
fn every_exchange_settles_as_expected() {
    each_case(|case| assert_eq!(case.settle([case.body.as_slice()]), case.expected, "{}", case.name));
}

#[test]
fn every_exchange_settles_alike_cut_in_two_at_every_offset() {
    each_case(|case| {
        // Long bodies are sampled with a step that shares no factor with likely line lengths.
        let step = if case.body.len() > 4096 { 61 } else { 1 };
        let whole = case.meter([case.body.as_slice()]);
        for offset in (0..=case.body.len()).step_by(step) {
            let (head, tail) = case.body.split_at(offset);
            assert_eq!(case.meter([head, tail]), whole, "{} at {offset}", case.name);
        }
    });
}

#[test]
fn every_exchange_settles_alike_byte_by_byte() {
    each_case(|case| {
        assert_eq!(case.meter(case.body.chunks(1)), case.meter([case.body.as_slice()]), "{}", case.name);
    });
}

#[test]
fn a_stream_without_its_last_blank_line_settles_alike() {
    each_case(|case| {
        if !matches!(case.expected, Settled::Usage { .. }) {
            return;
        }
        let trimmed = case.body.trim_ascii_end();
        assert_eq!(case.settle([trimmed]), case.expected, "{}", case.name);
    });
}

#[test]
fn an_answer_that_breaks_off_is_never_complete_and_never_larger() {
    each_case(|case| {
        let Settled::Usage { .. } = case.expected else { return };
        for offset in (0..case.body.trim_ascii_end().len()).step_by(97) {
            let cut = case.settle([&case.body[..offset]]);
            assert!(case.is_at_most_expected(&cut), "{} at {offset}: {cut:?}", case.name);
        }
    });
}

#[test]
fn every_request_can_be_read() {
    each_case(|case| {
        // One recorded request is itself the error that the provider answered.
        let is_refused =
            case.name.ends_with("error_400_max_tokens") || case.name.ends_with("legacy_complete_no_usage");
        assert_eq!(case.facts.is_err(), is_refused, "{}: {:?}", case.name, case.facts.as_ref().err());
    });
}

#[test]
fn estimates_are_close_to_what_was_reported() {
    compared().check();
}

#[test]
fn what_other_exchanges_have_taught_makes_no_estimate_worse() {
    compared().check_learned();
}

fn compared() -> estimate::Comparison {
    let mut comparison = estimate::Comparison::default();
    each_case(|case| comparison.add(case));
    comparison
}
