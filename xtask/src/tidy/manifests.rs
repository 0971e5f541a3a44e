//! Every crate takes its lints from the workspace, and every dependency has a written reason.

use super::{Problem, tree::Tree};

/// Where each dependency has its reason and a note on its maintenance.
const REASONS: &str = "ARCHITECTURE.md";

/// Manifests without `[lints] workspace = true`, a workspace that allows `unsafe`, and dependencies
/// without a reason.
pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.files().iter().filter(|file| file.path.ends_with("Cargo.toml")) {
        if has_section(&file.text, "[package]") && !inherits_lints(&file.text) {
            let message = "does not take the workspace's lints: add `[lints]` with `workspace = true`";
            problems.push(Problem::file(&file.path, message));
        }
        if has_section(&file.text, "[workspace]")
            && !section(&file.text, "[workspace.lints.rust]").any(forbids_unsafe)
        {
            problems.push(Problem::file(&file.path, "`unsafe_code` is not forbidden for the workspace"));
        }
        problems.extend(without_reason(tree, &file.text));
    }
    problems
}

/// Dependencies of the workspace that no row of the table in [`REASONS`] names.
fn without_reason(tree: &Tree, manifest: &str) -> Vec<Problem> {
    let reasons = tree.get(REASONS).map_or("", |file| file.text.as_str());
    let named: Vec<&str> = reasons
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    section(manifest, "[workspace.dependencies]")
        .filter_map(|line| line.split_once(" =").map(|(name, _)| name))
        .filter(|name| !name.starts_with("tollgate-") && !named.contains(name))
        .map(|name| Problem::file(REASONS, format!("gives no reason for the dependency `{name}`")))
        .collect()
}

fn inherits_lints(manifest: &str) -> bool {
    section(manifest, "[lints]").any(|line| line.replace(' ', "") == "workspace=true")
}

fn forbids_unsafe(line: &str) -> bool {
    line.replace(' ', "") == "unsafe_code=\"forbid\""
}

fn has_section(manifest: &str, header: &str) -> bool {
    manifest.lines().any(|line| line.trim() == header)
}

/// The lines below `header`, up to the next header.
fn section<'a>(manifest: &'a str, header: &'a str) -> impl Iterator<Item = &'a str> {
    let below = manifest.lines().map(str::trim).skip_while(move |&line| line != header).skip(1);
    below.take_while(|line| !line.starts_with('['))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_with_lints_of_its_own_is_named() {
        let good = "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n";
        let bad = "[package]\nname = \"b\"\n\n[lints]\n\n[dependencies]\nworkspace = true\n";
        let tree = Tree::of(&[("a/Cargo.toml", good), ("b/Cargo.toml", bad)]);
        let problems = check(&tree);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].path, "b/Cargo.toml");
    }

    #[test]
    fn a_dependency_without_a_reason_is_named() {
        let manifest = "[workspace.dependencies]\ntollgate-x = { path = \"x\" }\nbytes = \"1\"\nhttp = { version = \"1\" }\n";
        let tree = Tree::of(&[
            ("Cargo.toml", manifest),
            (REASONS, "http, in prose\n| `url`, `bytes` | 1.0 | why |\n"),
        ]);
        let problems: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(problems, ["ARCHITECTURE.md: gives no reason for the dependency `http`"]);
    }

    #[test]
    fn a_workspace_forbids_unsafe_code() {
        let good = "[workspace]\n[workspace.lints.rust]\nunsafe_code = \"forbid\"\n";
        let bad = "[workspace]\n[workspace.lints.rust]\nunsafe_code = \"warn\"\n";
        assert_eq!(check(&Tree::of(&[("Cargo.toml", good)])), []);
        assert_eq!(check(&Tree::of(&[("Cargo.toml", bad)])).len(), 1);
    }
}
