//! What the documentation guarantees is proved by a test that exists.

use std::collections::BTreeSet;

use super::{Problem, tests_index::TestIndex, tree::Tree};

const GUARANTEES: &str = "docs/guarantees.md";

/// Claims without a test. A claim is a list item that starts with a bold id (`- **G1.** …`) and goes
/// on to the next item or blank line; its tests stand in `Test:` or `Tests:` at its end.
pub(super) fn check(tree: &Tree, tests: &TestIndex) -> Vec<Problem> {
    let Some(file) = tree.get(GUARANTEES) else { return Vec::new() };
    let mut problems = Vec::new();
    let claims = claims(&file.text);
    let mut ids = BTreeSet::new();
    for (line, claim) in &claims {
        let id = claim.split("**").nth(1).unwrap_or_default();
        if !ids.insert(id) {
            problems.push(Problem::line(GUARANTEES, *line, format!("another claim has the id {id}")));
        }
        let named: Vec<&str> = claim
            .split_once("Tests:")
            .or_else(|| claim.split_once("Test:"))
            .map(|(_, names)| names.split('`').skip(1).step_by(2).collect())
            .unwrap_or_default();
        if named.is_empty() {
            problems.push(Problem::line(GUARANTEES, *line, "a claim names the test that proves it"));
        }
        for name in named.into_iter().filter(|name| !tests.contains(name)) {
            problems.push(Problem::line(GUARANTEES, *line, format!("no test is named `{name}`")));
        }
    }
    if claims.is_empty() {
        problems.push(Problem::file(GUARANTEES, "holds no claim (`- **G1.** …`)"));
    }
    problems
}

/// Every claim with the line it starts on.
fn claims(text: &str) -> Vec<(usize, String)> {
    let mut claims: Vec<(usize, String)> = Vec::new();
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        if line.starts_with("- **") {
            claims.push((index + 1, line.to_owned()));
            inside = true;
        } else if line.trim().is_empty() || line.starts_with("- ") || line.starts_with('#') {
            inside = false;
        } else if let Some((_, claim)) = claims.last_mut().filter(|_| inside) {
            claim.push(' ');
            claim.push_str(line.trim());
        }
    }
    claims
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(guarantees: &str) -> Vec<String> {
        let tree =
            Tree::of(&[(GUARANTEES, guarantees), ("a.rs", "#[test]\nfn one() {}\n#[test]\nfn two() {}\n")]);
        check(&tree, &TestIndex::of(&tree)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_claim_with_its_tests_passes() {
        assert_eq!(problems("- **G1.** It `holds`.\n  Tests: `one`,\n  `two`.\n"), Vec::<String>::new());
    }

    #[test]
    fn a_claim_without_a_test_is_named() {
        let text = "# Claims\n- **G1.** It holds. Test: `one`\n- **G2.** It holds too.\n";
        assert_eq!(problems(text), ["docs/guarantees.md:3: a claim names the test that proves it"]);
    }

    #[test]
    fn an_id_that_stands_twice_is_named() {
        let text = "- **G1.** It holds. Test: `one`\n- **G1.** So does this. Test: `two`\n";
        assert_eq!(problems(text), ["docs/guarantees.md:2: another claim has the id G1."]);
    }

    #[test]
    fn a_claim_whose_test_is_gone_is_named() {
        assert_eq!(problems("- **G1.** Test: `three`\n"), ["docs/guarantees.md:1: no test is named `three`"]);
    }
}
