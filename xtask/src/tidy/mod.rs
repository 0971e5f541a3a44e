//! Rules of the house that the compiler does not check, as a fast test over the tree.
//!
//! A rule reads texts and answers with the places that break it; it changes nothing.

mod adr;
mod claims;
mod layers;
mod lexer;
mod manifests;
mod shape;
mod tests_index;
mod text;
mod tree;

use std::{error::Error, fmt, path::Path};

use tests_index::TestIndex;
use tree::Tree;

use crate::workspace::Workspace;

/// One place that breaks a rule.
#[derive(Debug, Eq, PartialEq)]
struct Problem {
    path: String,
    /// Counted from 1; `None` when the whole file is meant.
    line: Option<usize>,
    message: String,
}

impl Problem {
    fn file(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), line: None, message: message.into() }
    }

    fn line(path: impl Into<String>, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.into(), line: Some(line), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.message),
            None => write!(f, "{}: {}", self.path, self.message),
        }
    }
}

/// Checks the tree under `root` and prints its shape.
///
/// # Errors
///
/// Every place that breaks a rule, one a line; or why the tree could not be read.
pub(crate) fn run(root: &Path) -> Result<(), Box<dyn Error>> {
    let tree = Tree::read(root)?;
    let tests = TestIndex::of(&tree);
    let mut problems = layers::check(&Workspace::read(root)?.packages);
    problems.extend(manifests::check(&tree));
    problems.extend(shape::check(&tree));
    problems.extend(text::check(&tree, &text::forbidden_paths(root)));
    problems.extend(adr::check(&tree, &tests));
    problems.extend(claims::check(&tree, &tests));

    println!("{}", shape::summary(&tree));
    if problems.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    Err(format!("{}\ntidy: {} problem(s)", lines.join("\n"), lines.len()).into())
}
