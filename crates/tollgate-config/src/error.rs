//! Problems of a configuration: always all of them at once.

use std::fmt;
use std::path::Path;

/// One problem.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConfigError {
    /// The configuration file, as it was named by the caller.
    pub file: String,
    /// The line the problem is on, counted from 1.
    pub line: Option<usize>,
    /// The field, such as `tenants[0].budgets[1].window`; empty for the file as a whole.
    pub path: String,
    /// What is wrong and what is allowed. Never contains a secret.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Everything that is wrong with a configuration, in the file's order. Never empty.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{}", Lines(.0))]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    pub(crate) fn new(mut errors: Vec<ConfigError>) -> Self {
        errors.sort_by_key(|error| error.line.unwrap_or(usize::MAX));
        Self(errors)
    }

    pub(crate) fn unreadable(file: &Path, message: impl fmt::Display) -> Self {
        Self::new(vec![ConfigError {
            file: file.display().to_string(),
            line: None,
            path: String::new(),
            message: format!("cannot be read: {message}"),
        }])
    }

    /// The problems.
    pub fn errors(&self) -> &[ConfigError] {
        &self.0
    }
}

/// One problem a line, no line break at the end.
struct Lines<'a>(&'a [ConfigError]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, error) in self.0.iter().enumerate() {
            if position > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}
