//! The text files of the project, read once.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Folders that hold what is built or installed, not what is written.
const SKIPPED_FOLDERS: &[&str] = &["target", ".git", ".venv", "__pycache__", ".pytest_cache", "node_modules"];

/// Deeper than any folder of the project: a bound for links that run in a circle.
const DEPTH_MAX: usize = 12;

/// A text file.
#[derive(Debug)]
pub(super) struct File {
    /// Relative to the root, with `/` between its parts.
    pub(super) path: String,
    pub(super) text: String,
}

impl File {
    pub(super) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    pub(super) fn line_count(&self) -> usize {
        self.text.lines().count()
    }
}

/// Every text file below one root, ordered by path.
#[derive(Debug)]
pub(super) struct Tree {
    files: Vec<File>,
}

impl Tree {
    /// Reads the tree; files that are not UTF-8 are left out.
    pub(super) fn read(root: &Path) -> Result<Self, String> {
        let mut paths = Vec::new();
        collect(root, 0, &mut paths)?;
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let Ok(text) = String::from_utf8(bytes) else { continue };
            let relative = path.strip_prefix(root).unwrap_or(&path);
            let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy()).collect();
            files.push(File { path: parts.join("/"), text });
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { files })
    }

    pub(super) fn files(&self) -> &[File] {
        &self.files
    }

    pub(super) fn rust_files(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is_rust())
    }

    pub(super) fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let file = |&(path, text): &(&str, &str)| File { path: path.to_owned(), text: text.to_owned() };
        Self { files: files.iter().map(file).collect() }
    }
}

fn collect(folder: &Path, depth: usize, paths: &mut Vec<PathBuf>) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err(format!("{}: folders are nested too deep", folder.display()));
    }
    let problem = |error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(problem)? {
        let entry = entry.map_err(problem)?;
        let kind = entry.file_type().map_err(problem)?;
        let name = entry.file_name();
        if kind.is_dir() {
            if !SKIPPED_FOLDERS.iter().any(|skipped| name == **skipped) {
                collect(&entry.path(), depth.saturating_add(1), paths)?;
            }
        } else if kind.is_file() {
            paths.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_files_are_not_part_of_the_tree() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let tree = Tree::read(root).unwrap();
        assert!(tree.get("src/tidy/tree.rs").is_some());
        assert!(tree.files().iter().all(|file| !file.path.starts_with("target/")));
    }
}
