//! Paths of one machine, which mean nothing on the next.

use std::{env, path::Path};

use super::{Problem, tree::Tree};

/// Folders every system has: a checkout below one of them does not make the folder suspicious.
const SHARED_FOLDERS: &[&str] = &["/", "/etc", "/home", "/opt", "/srv", "/usr", "/usr/src", "/var"];

/// This file spells the patterns out.
const OWN_PATH: &str = "xtask/src/tidy/text.rs";

/// Prefixes that no file may contain: this checkout, the folder around it, home folders and the
/// temporary folder.
pub(super) fn forbidden_paths(root: &Path) -> Vec<String> {
    let mut folders: Vec<String> =
        ["/home", "/Users", "/root", "/tmp"].iter().map(|&folder| folder.to_owned()).collect();
    let around = root.parent().map(Path::to_path_buf);
    for folder in [Some(root.to_path_buf()), around, env::home_dir()].into_iter().flatten() {
        let folder = folder.to_string_lossy().trim_end_matches('/').to_owned();
        if !folder.is_empty() && !SHARED_FOLDERS.contains(&folder.as_str()) {
            folders.push(folder);
        }
    }
    folders.sort();
    folders.dedup();
    folders.iter().map(|folder| format!("{folder}/")).collect()
}

/// Every line that names one of the `forbidden` prefixes.
pub(super) fn check(tree: &Tree, forbidden: &[String]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.files().iter().filter(|file| file.path != OWN_PATH) {
        for (index, line) in file.text.lines().enumerate() {
            if let Some(path) = forbidden.iter().find(|path| names_path(line, path)) {
                let message = format!("names a path of one machine (`{path}…`)");
                problems.push(Problem::line(&file.path, index + 1, message));
            }
        }
    }
    problems
}

/// Whether `line` contains `path` as the start of a path, not in the middle of one.
fn names_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line.get(..at).and_then(|before| before.chars().next_back());
        before.is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '.' | '_' | '-' | '}' | ')'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_checkout_and_of_homes_are_found() {
        let forbidden = forbidden_paths(Path::new("/builds/tollgate"));
        let tree = Tree::of(&[
            ("a.md", "see /builds/tollgate/x\nsee `/home/ann/x`\n"),
            ("b.rs", "\"/tmp/x\"\n\"https://host/home/x\" is none, nor is ./tmp/x"),
        ]);
        let found: Vec<_> =
            check(&tree, &forbidden).into_iter().map(|problem| (problem.path, problem.line)).collect();
        let expected = [("a.md", 1), ("a.md", 2), ("b.rs", 1)];
        assert_eq!(found, expected.map(|(path, line)| (path.to_owned(), Some(line))));
    }

    #[test]
    fn a_checkout_in_a_shared_folder_does_not_forbid_that_folder() {
        let forbidden = forbidden_paths(Path::new("/usr/tollgate"));
        assert!(!forbidden.contains(&"/usr/".to_owned()));
        assert!(forbidden.contains(&"/usr/tollgate/".to_owned()));
    }
}
