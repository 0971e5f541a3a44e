//! The names of all tests in the tree.

use std::collections::BTreeSet;

use super::{
    lexer::code_only,
    tree::{File, Tree},
};

/// Lists plain functions that a macro turns into tests for each store.
const CONTRACT: &str = "crates/tollgate-store/src/contract/mod.rs";

/// Names of test functions: Rust functions under a `test` attribute, members of the store contract,
/// and Python functions `test_…`.
#[derive(Debug, Default)]
pub(super) struct TestIndex {
    names: BTreeSet<String>,
}

impl TestIndex {
    pub(super) fn of(tree: &Tree) -> Self {
        let mut names = BTreeSet::new();
        for file in tree.files() {
            if file.is_rust() {
                collect_rust(file, &mut names);
            } else if file.path.ends_with(".py") {
                collect_python(file, &mut names);
            }
        }
        Self { names }
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}

fn collect_rust(file: &File, names: &mut BTreeSet<String>) {
    let code = code_only(&file.text);
    let mut under_test_attribute = false;
    for line in code.lines().map(str::trim) {
        if line.starts_with("#[") {
            under_test_attribute |= is_test_attribute(line);
        } else if let Some(name) = function_name(line) {
            if under_test_attribute {
                names.insert(name.to_owned());
            }
            under_test_attribute = false;
        } else if let Some(name) = listed_name(line).filter(|_| file.path == CONTRACT) {
            names.insert(name.to_owned());
        } else if !line.is_empty() {
            under_test_attribute = false;
        }
    }
}

/// The function in a line of the contract's list: `module::name` and nothing else.
fn listed_name(line: &str) -> Option<&str> {
    let is_word = |word: &str| word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    line.split_once("::").filter(|(module, name)| is_word(module) && is_word(name)).map(|(_, name)| name)
}

fn is_test_attribute(line: &str) -> bool {
    let inside = line.trim_start_matches("#[").trim_end_matches(']');
    let path = inside.split('(').next().unwrap_or(inside);
    path.rsplit("::").next() == Some("test")
}

fn function_name(line: &str) -> Option<&str> {
    let mut rest = line;
    for prefix in ["pub(crate) ", "pub(super) ", "pub ", "const ", "async "] {
        rest = rest.strip_prefix(prefix).unwrap_or(rest);
    }
    name_before_bracket(rest.strip_prefix("fn ")?)
}

fn collect_python(file: &File, names: &mut BTreeSet<String>) {
    for line in file.text.lines().map(str::trim) {
        let line = line.strip_prefix("async ").unwrap_or(line);
        let name = line.strip_prefix("def ").and_then(name_before_bracket);
        names.extend(name.filter(|name| name.starts_with("test_")).map(str::to_owned));
    }
}

fn name_before_bracket(text: &str) -> Option<&str> {
    text.split(['(', '<']).next().map(str::trim).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_told_from_other_functions() {
        let rust = "#[test]\n#[expect(x)]\nfn one() {}\nfn two() {}\n#[tokio::test(flavor = \"multi_thread\")]\n\
                    async fn three() {}\n#[cfg(test)]\nmod tests {}\nfn four() {}\n";
        let contract = "tests! {\n    admission::five\n}\nfn run() {\n    thread::park();\n}\n";
        let python = "def test_six(x):\n  pass\nasync def test_seven():\n  pass\ndef eight():\n  pass\n";
        let tree = Tree::of(&[("a.rs", rust), (CONTRACT, contract), ("c.py", python)]);
        let index = TestIndex::of(&tree);
        for name in ["one", "three", "five", "test_six", "test_seven"] {
            assert!(index.contains(name), "{name} is a test");
        }
        for name in ["two", "four", "eight", "run", "park"] {
            assert!(!index.contains(name), "{name} is no test");
        }
    }
}
