//! What every section needs: where problems go, what else may be read, and the kinds of values that
//! several sections have.

use std::collections::BTreeMap;
use std::env::VarError;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::problems::{Place, Problems};
use crate::section::{Field, Section};
use crate::{Environment, ModelGlobs, Secret};

/// The longest id.
const ID_CHARS_MAX: usize = 64;

/// The longest glob over model ids.
const GLOB_BYTES_MAX: usize = 256;

pub(super) struct Context<'a> {
    pub(super) problems: &'a Problems,
    pub(super) base_dir: &'a Path,
    pub(super) environment: &'a dyn Environment,
}

impl Context<'_> {
    /// A file name, relative to the configuration's directory.
    pub(super) fn file_name(&self, field: &Field<'_>) -> Option<PathBuf> {
        let text = field.text()?;
        if text.is_empty() || text.contains('\0') {
            field.fail("must be a file name");
            return None;
        }
        Some(self.base_dir.join(text))
    }

    /// The content of the file that `field` names.
    pub(super) fn file(&self, field: &Field<'_>) -> Option<Vec<u8>> {
        let path = self.file_name(field)?;
        let content = self.environment.read_file(&path);
        content.map_err(|error| field.fail(format!("{} cannot be read: {error}", path.display()))).ok()
    }

    /// The secret in the environment variable that `field` names.
    pub(super) fn secret_from_variable(&self, field: &Field<'_>) -> Option<Secret> {
        let name = field.text()?;
        if !is_variable_name(name) {
            // Not repeated: it may be the secret itself, put here by mistake.
            field.fail("must be the name of an environment variable: letters, digits and `_`");
            return None;
        }
        let value = match self.environment.var(name) {
            Ok(value) => value,
            Err(VarError::NotPresent) => {
                field.fail(format!("the environment variable {name} is not set"));
                return None;
            }
            Err(VarError::NotUnicode(_)) => {
                field.fail(format!("the environment variable {name} is not Unicode"));
                return None;
            }
        };
        self.secret(field, &value, &format!("the environment variable {name}"))
    }

    /// The secret in the file that `field` names, without line breaks at the end.
    pub(super) fn secret_from_file(&self, field: &Field<'_>) -> Option<Secret> {
        let content = self.file(field)?;
        let source = format!("the file {}", field.text().unwrap_or_default());
        match str::from_utf8(&content) {
            Ok(text) => self.secret(field, text.trim_end_matches(['\r', '\n']), &source),
            Err(_) => {
                field.fail(format!("{source} is not UTF-8"));
                None
            }
        }
    }

    fn secret(&self, field: &Field<'_>, value: &str, source: &str) -> Option<Secret> {
        if value.is_empty() {
            field.fail(format!("{source} is empty"));
            return None;
        }
        if !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            field.fail(format!(
                "{source} contains characters that no credential has: only visible ASCII without spaces"
            ));
            return None;
        }
        Some(Secret::new(value))
    }

    /// The field `id`.
    pub(super) fn id(&self, section: &Section<'_>) -> Option<Arc<str>> {
        let field = section.required("id")?;
        let id = field.text()?;
        let allowed = |other: char| other.is_ascii_alphanumeric() || "._-@:".contains(other);
        if !id.starts_with(|first: char| first.is_ascii_alphanumeric())
            || !id.chars().all(allowed)
            || id.len() > ID_CHARS_MAX
        {
            field.fail(format!(
                "must be 1 to {ID_CHARS_MAX} letters, digits, `.`, `_`, `-`, `@` or `:`, beginning with a letter or digit"
            ));
            return None;
        }
        Some(id.into())
    }

    /// The globs of `field`, at least one.
    pub(super) fn globs(&self, field: &Field<'_>) -> Option<ModelGlobs> {
        let items = field.items();
        if items.is_empty() {
            if field.value().is_array() {
                field.fail("must have at least one glob, such as \"claude-*\"");
            }
            return None;
        }
        let patterns: Vec<_> = items.iter().map(glob).collect::<Option<_>>()?;
        Some(ModelGlobs::new(patterns))
    }
}

fn glob(item: &Field<'_>) -> Option<Box<str>> {
    let text = item.text()?;
    if text.is_empty() || text.len() > GLOB_BYTES_MAX {
        item.fail(format!("must be a glob of 1 to {GLOB_BYTES_MAX} bytes, such as \"claude-*\""));
        return None;
    }
    if text.contains(['[', ']', '{', '}', '\\']) {
        item.fail("must not contain brackets, braces or backslashes: a glob has only `*` and `?`");
        return None;
    }
    Some(text.into())
}

fn is_variable_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Finds values that must not be given twice.
pub(super) struct Distinct<K>(BTreeMap<K, Place>);

impl<K: Ord> Distinct<K> {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Complains at `place` if `key` was there before.
    pub(super) fn check(&mut self, problems: &Problems, key: K, place: &Place, what: &str) {
        match self.0.get(&key) {
            Some(first) => {
                problems.error(
                    place,
                    format!("{what} is already that of {} (line {})", first.path, problems.line(first)),
                );
            }
            None => {
                self.0.insert(key, place.clone());
            }
        }
    }

    /// Notes that `key` is at `place`, unless it was there before.
    pub(super) fn note(&mut self, key: K, place: &Place) {
        self.0.entry(key).or_insert_with(|| place.clone());
    }
}
