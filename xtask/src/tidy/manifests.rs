//! Every crate takes its lints from the workspace.

use super::{Problem, tree::Tree};

/// Manifests without `[lints] workspace = true`, and a workspace that allows `unsafe`.
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
    }
    problems
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
    fn a_workspace_forbids_unsafe_code() {
        let good = "[workspace]\n[workspace.lints.rust]\nunsafe_code = \"forbid\"\n";
        let bad = "[workspace]\n[workspace.lints.rust]\nunsafe_code = \"warn\"\n";
        assert_eq!(check(&Tree::of(&[("Cargo.toml", good)])), []);
        assert_eq!(check(&Tree::of(&[("Cargo.toml", bad)])).len(), 1);
    }
}
