//! Collects what is wrong, with the place it is wrong at.

use std::cell::RefCell;

use crate::{ConfigError, ConfigErrors};

/// Where something is: a byte of the text and the field's full name.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) offset: usize,
    pub(crate) path: String,
}

impl Place {
    /// The field `name` of the table that this is the place of, at the table's own line.
    pub(crate) fn field(&self, name: &str) -> Self {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Self { offset: self.offset, path }
    }
}

/// The problems of one text.
#[derive(Debug)]
pub(crate) struct Problems {
    file: String,
    /// Where each line starts.
    lines: Vec<usize>,
    errors: RefCell<Vec<ConfigError>>,
    warnings: RefCell<Vec<ConfigError>>,
}

impl Problems {
    pub(crate) fn new(file: &str, text: &str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(breaks.map(|(offset, _)| offset + 1)).collect();
        Self { file: file.to_owned(), lines, errors: RefCell::default(), warnings: RefCell::default() }
    }

    /// Notes an error.
    pub(crate) fn error(&self, place: &Place, message: impl Into<String>) {
        self.errors.borrow_mut().push(self.problem(place, message.into()));
    }

    /// Notes something that is allowed but probably not meant.
    pub(crate) fn warn(&self, place: &Place, message: impl Into<String>) {
        self.warnings.borrow_mut().push(self.problem(place, message.into()));
    }

    /// The line `place` is on, counted from 1.
    pub(crate) fn line(&self, place: &Place) -> usize {
        self.lines.partition_point(|start| *start <= place.offset)
    }

    /// Whether something is wrong.
    pub(crate) fn any_error(&self) -> bool {
        !self.errors.borrow().is_empty()
    }

    /// What is wrong.
    pub(crate) fn into_errors(self) -> ConfigErrors {
        ConfigErrors::new(self.errors.into_inner())
    }

    /// What is probably not meant.
    pub(crate) fn into_warnings(self) -> Vec<String> {
        self.warnings.into_inner().iter().map(ConfigError::to_string).collect()
    }

    fn problem(&self, place: &Place, message: String) -> ConfigError {
        ConfigError {
            file: self.file.clone(),
            line: Some(self.line(place)),
            path: place.path.clone(),
            message,
        }
    }
}
