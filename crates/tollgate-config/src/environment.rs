//! The one door to the process: variables and files.

use std::env::VarError;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The largest file that is read: the configuration itself, a secret, a CA bundle.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// What a configuration may read besides its own text.
pub trait Environment {
    /// The environment variable `name`.
    ///
    /// # Errors
    /// It is not set, or not Unicode.
    fn var(&self, name: &str) -> Result<String, VarError>;

    /// The whole content of the file at `path`.
    ///
    /// # Errors
    /// It cannot be read, or it is longer than [`FILE_BYTES_MAX`].
    fn read_file(&self, path: &Path) -> io::Result<Vec<u8>>;
}

/// The environment of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessEnvironment;

impl Environment for ProcessEnvironment {
    fn var(&self, name: &str) -> Result<String, VarError> {
        // The standard library panics on names no variable can have.
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(VarError::NotPresent);
        }
        std::env::var(name)
    }

    fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        File::open(path)?.take(FILE_BYTES_MAX.saturating_add(1)).read_to_end(&mut content)?;
        if u64::try_from(content.len()).unwrap_or(u64::MAX) > FILE_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "longer than 16 MiB"));
        }
        Ok(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_up_to_the_bound() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(FILE_BYTES_MAX).unwrap();
        let content = ProcessEnvironment.read_file(file.path()).unwrap();
        assert_eq!(content.len() as u64, FILE_BYTES_MAX);
        file.as_file().set_len(FILE_BYTES_MAX + 1).unwrap();
        let error = ProcessEnvironment.read_file(file.path()).unwrap_err();
        assert_eq!(error.to_string(), "longer than 16 MiB");
    }

    #[test]
    fn impossible_names_are_not_set() {
        for name in ["", "A=B", "A\0"] {
            assert_eq!(ProcessEnvironment.var(name), Err(VarError::NotPresent));
        }
    }
}
