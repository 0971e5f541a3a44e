//! How long files are, and what no file of code contains.

use super::{Problem, lexer::code_only, tree::Tree};

/// The most lines a file of Rust may have.
const LINES_MAX: usize = 600;

/// The one file that reads a clock.
const CLOCK_FILE: &str = "crates/tollgate-store/src/clock.rs";

const CLOCK_READS: &[&str] =
    &["SystemTime::now(", "Instant::now(", "Timestamp::now(", "Zoned::now(", "UNIX_EPOCH.elapsed("];

const UNSAFE_FORMS: &[&str] =
    &["unsafe {", "unsafe fn", "unsafe impl", "unsafe trait", "unsafe extern", "unsafe("];

/// Length, clocks and `unsafe` of every Rust file.
pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.rust_files() {
        let lines = file.line_count();
        if lines > LINES_MAX {
            let message = format!("{lines} lines; a file has at most {LINES_MAX}: split it by subject");
            problems.push(Problem::file(&file.path, message));
        }
        for (index, line) in code_only(&file.text).lines().enumerate() {
            if file.path != CLOCK_FILE && contains_any(line, CLOCK_READS) {
                let message =
                    format!("reads a clock; take a `tollgate_store::Clock`, only {CLOCK_FILE} reads");
                problems.push(Problem::line(&file.path, index + 1, message));
            }
            if contains_any(line, UNSAFE_FORMS) {
                problems.push(Problem::line(&file.path, index + 1, "unsafe code"));
            }
        }
    }
    problems
}

/// How many Rust files there are and how long they are.
pub(super) fn summary(tree: &Tree) -> String {
    let mut lengths: Vec<(usize, &str)> =
        tree.rust_files().map(|file| (file.line_count(), file.path.as_str())).collect();
    lengths.sort_unstable();
    let median = lengths.get(lengths.len() / 2).map_or(0, |&(lines, _)| lines);
    let lines: usize = lengths.iter().map(|&(lines, _)| lines).sum();
    let (longest, path) = lengths.last().copied().unwrap_or_default();
    format!("tidy: {} Rust files, {lines} lines, median {median}, longest {longest} ({path})", lengths.len())
}

/// Whether one of the `needles` stands in `line` as a word of its own.
fn contains_any(line: &str, needles: &[&str]) -> bool {
    let starts_word = |&(at, _): &(usize, &str)| {
        let before = line.get(..at).and_then(|before| before.chars().next_back());
        before.is_none_or(|c| !c.is_alphanumeric() && c != '_')
    };
    needles.iter().any(|needle| line.match_indices(needle).any(|found| starts_word(&found)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_above_the_bound_is_named() {
        let long = "//\n".repeat(LINES_MAX + 1);
        let tree = Tree::of(&[("a.rs", &long), ("b.rs", "//\n"), ("c.md", &long)]);
        let problems = check(&tree);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].path, "a.rs");
    }

    #[test]
    fn only_the_clock_file_reads_clocks() {
        let read = "fn f() {\n    let now = SystemTime::now();\n}\n";
        let tree =
            Tree::of(&[(CLOCK_FILE, read), ("crates/x/src/lib.rs", read), ("y.rs", "// SystemTime::now()")]);
        let problems = check(&tree);
        assert_eq!(problems.len(), 1);
        assert_eq!((problems[0].path.as_str(), problems[0].line), ("crates/x/src/lib.rs", Some(2)));
    }

    #[test]
    fn unsafe_code_is_found_and_the_word_alone_is_not() {
        let tree = Tree::of(&[(
            "a.rs",
            "// unsafe { }\nfn f() { unsafe { g() } }\nlet s = not_unsafe(\"unsafe fn\");",
        )]);
        let lines: Vec<_> = check(&tree).iter().map(|problem| problem.line).collect();
        assert_eq!(lines, [Some(2)]);
    }

    #[test]
    fn the_summary_reports_the_median() {
        let tree = Tree::of(&[("a.rs", "1\n"), ("b.rs", "1\n2\n"), ("c.rs", "1\n2\n3\n")]);
        assert_eq!(summary(&tree), "tidy: 3 Rust files, 6 lines, median 2, longest 3 (c.rs)");
    }
}
