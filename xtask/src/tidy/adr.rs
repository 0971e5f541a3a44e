//! Decision records: complete, listed, and each guarded by tests that exist.

use super::{
    Problem,
    tests_index::TestIndex,
    tree::{File, Tree},
};

const INDEX: &str = "adr/README.md";
const SECTIONS: &[&str] =
    &["## Status", "## Context", "## Decision", "## Consequences", "## Rejected", "## Guarded by"];

/// Gaps in the records and in their index.
pub(super) fn check(tree: &Tree, tests: &TestIndex) -> Vec<Problem> {
    let records: Vec<&File> = tree.files().iter().filter(|file| is_record(&file.path)).collect();
    let Some(index) = tree.get(INDEX) else {
        return vec![Problem::file(INDEX, "missing: it lists every decision record")];
    };
    let mut problems = check_index(index, &records);
    for record in records {
        problems.extend(check_record(record, tests));
    }
    problems
}

fn is_record(path: &str) -> bool {
    path.strip_prefix("adr/").is_some_and(|name| name.ends_with(".md") && name != "README.md")
}

fn check_index(index: &File, records: &[&File]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut numbers = Vec::new();
    for record in records {
        let name = record.path.trim_start_matches("adr/");
        if !index.text.contains(&format!("({name})")) {
            problems.push(Problem::file(INDEX, format!("does not link {name}")));
        }
        match name.split_once('-').map(|(number, _)| number) {
            Some(number) if number.len() == 4 && number.bytes().all(|b| b.is_ascii_digit()) => {
                if numbers.contains(&number) {
                    problems.push(Problem::file(&record.path, format!("number {number} is taken twice")));
                }
                numbers.push(number);
            }
            _ => problems.push(Problem::file(&record.path, "a record is named NNNN-title.md")),
        }
    }
    for (line, target) in links(&index.text) {
        if !records.iter().any(|record| record.path == format!("adr/{target}")) {
            problems.push(Problem::line(INDEX, line, format!("links {target}, which does not exist")));
        }
    }
    problems
}

/// Targets of links to records, with their lines.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        found.extend(
            targets.filter(|target| target.ends_with(".md") && !target.contains('/')).map(|t| (index + 1, t)),
        );
    }
    found
}

fn check_record(record: &File, tests: &TestIndex) -> Vec<Problem> {
    let mut problems = Vec::new();
    for section in SECTIONS {
        if section_lines(record, section).all(str::is_empty) {
            problems.push(Problem::file(&record.path, format!("`{section}` is missing or empty")));
        }
    }
    let mut guards = 0_usize;
    for line in section_lines(record, "## Guarded by").filter(|line| line.starts_with("- ")) {
        guards += 1;
        match line.split('`').nth(1) {
            Some(name) if tests.contains(name) => {}
            Some(name) => problems.push(Problem::file(&record.path, format!("no test is named `{name}`"))),
            None => problems.push(Problem::file(&record.path, format!("names no test: {line}"))),
        }
    }
    if guards == 0 {
        problems.push(Problem::file(&record.path, "`## Guarded by` lists no test"));
    }
    problems
}

fn section_lines<'a>(record: &'a File, section: &'a str) -> impl Iterator<Item = &'a str> {
    let below = record.text.lines().map(str::trim).skip_while(move |&line| line != section).skip(1);
    below.take_while(|line| !line.starts_with("## "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = "# 0001: x\n## Status\nAccepted\n## Context\nc\n## Decision\nd\n## Consequences\ne\n\
                          ## Rejected\nr\n## Guarded by\n- `guard` (crate)\n";
    const TEST: (&str, &str) = ("a.rs", "#[test]\nfn guard() {}\n");

    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::of(files);
        check(&tree, &TestIndex::of(&tree)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_complete_record_passes() {
        let files = [TEST, ("adr/0001-x.md", RECORD), (INDEX, "- [0001](0001-x.md)")];
        assert_eq!(problems(&files), Vec::<String>::new());
    }

    #[test]
    fn a_record_the_index_does_not_list_is_named() {
        let files = [TEST, ("adr/0001-x.md", RECORD), (INDEX, "")];
        assert_eq!(problems(&files), ["adr/README.md: does not link 0001-x.md"]);
    }

    #[test]
    fn a_link_to_nothing_is_named() {
        let files = [(INDEX, "\n[0002](0002-y.md)")];
        assert_eq!(problems(&files), ["adr/README.md:2: links 0002-y.md, which does not exist"]);
    }

    #[test]
    fn a_guard_that_does_not_exist_is_named() {
        let files = [("adr/0001-x.md", RECORD), (INDEX, "[0001](0001-x.md)")];
        assert_eq!(problems(&files), ["adr/0001-x.md: no test is named `guard`"]);
    }

    #[test]
    fn a_missing_section_is_named() {
        let record = RECORD.replace("## Rejected\nr\n", "");
        let files = [TEST, ("adr/0001-x.md", record.as_str()), (INDEX, "[0001](0001-x.md)")];
        assert_eq!(problems(&files), ["adr/0001-x.md: `## Rejected` is missing or empty"]);
    }
}
