//! Notices that a file of the configuration has changed.
//!
//! Files are looked at, not subscribed to: a look sees what an editor's rename, a mounted volume or a
//! swapped link does, where notifications of the kernel do not reach.

use std::{
    cell::RefCell,
    env::VarError,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use tollgate_config::{Environment, ProcessEnvironment};

/// The process's environment, with a note of every file that was read through it.
#[derive(Debug, Default)]
pub(crate) struct NotedEnvironment {
    /// Each file as it was just before it was read, so that no change after that is missed.
    files: RefCell<Vec<(PathBuf, Option<Stamp>)>>,
}

impl NotedEnvironment {
    /// Notes a file that is about to be read otherwise.
    pub(crate) fn note(&self, path: &Path) {
        self.files.borrow_mut().push((path.to_owned(), stamp(path)));
    }

    /// A watch over every file that was read.
    pub(crate) fn watch(self) -> Watch {
        let (files, loaded): (Vec<_>, Vec<_>) = self.files.into_inner().into_iter().unzip();
        Watch { files, seen: loaded.clone(), loaded }
    }
}

impl Environment for NotedEnvironment {
    fn var(&self, name: &str) -> Result<String, VarError> {
        ProcessEnvironment.var(name)
    }

    fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.note(path);
        ProcessEnvironment.read_file(path)
    }
}

/// What the files of a configuration were like when they were loaded.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    files: Vec<PathBuf>,
    loaded: Vec<Option<Stamp>>,
    seen: Vec<Option<Stamp>>,
}

impl Watch {
    /// Looks at the files. True once they are other than those that were loaded and the same as at the
    /// look before: a file that is being written is not read.
    pub(crate) fn has_changed(&mut self) -> bool {
        let now: Vec<_> = self.files.iter().map(|file| stamp(file)).collect();
        let is_settled = now == self.seen;
        self.seen = now;
        is_settled && self.seen != self.loaded
    }
}

/// What tells one state of a file from another.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Stamp {
    device: u64,
    inode: u64,
    size_bytes: u64,
    modified_ns: (i64, i64),
    /// Of the file or of what is known about it: nobody sets this back.
    changed_ns: (i64, i64),
}

fn stamp(file: &Path) -> Option<Stamp> {
    let found = fs::metadata(file).ok()?;
    Some(Stamp {
        device: found.dev(),
        inode: found.ino(),
        size_bytes: found.size(),
        modified_ns: (found.mtime(), found.mtime_nsec()),
        changed_ns: (found.ctime(), found.ctime_nsec()),
    })
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    fn watch(files: &[PathBuf]) -> Watch {
        let environment = NotedEnvironment::default();
        files.iter().for_each(|file| environment.note(file));
        environment.watch()
    }

    #[test]
    fn a_change_is_told_once_it_has_settled() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (folder.path().join("a.toml"), folder.path().join("b.pem"));
        fs::write(&first, "a").unwrap();
        let mut watch = watch(&[first.clone(), second]);
        assert!(!watch.has_changed());

        fs::write(&first, "half of").unwrap();
        assert!(!watch.has_changed());
        fs::write(&first, "half of it, and the rest").unwrap();
        assert!(!watch.has_changed());
        assert!(watch.has_changed());
    }

    #[test]
    fn files_that_come_go_or_are_replaced_have_changed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (folder.path().join("a.toml"), folder.path().join("new"));
        let mut missing = watch(slice::from_ref(&file));
        fs::write(&file, "a").unwrap();
        assert!(!missing.has_changed() && missing.has_changed());

        let mut there = watch(slice::from_ref(&file));
        fs::write(&other, "b").unwrap();
        fs::rename(&other, &file).unwrap();
        assert!(!there.has_changed() && there.has_changed());

        let mut there = watch(slice::from_ref(&file));
        fs::remove_file(&file).unwrap();
        assert!(!there.has_changed() && there.has_changed());
    }

    #[test]
    fn the_environment_notes_what_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        let environment = NotedEnvironment::default();
        environment.read_file(&file).unwrap_err();
        assert_eq!(environment.watch().files, [file]);
    }
}
