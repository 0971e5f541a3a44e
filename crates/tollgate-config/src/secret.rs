//! Credentials that cannot be printed by accident.

use std::fmt;
use std::sync::Arc;

/// A credential. Cheap to clone; `Debug` shows nothing of it and there is no `Display`.
#[derive(Clone, Eq, PartialEq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps `value`.
    pub fn new(value: impl Into<Arc<str>>) -> Self {
        Self(value.into())
    }

    /// The credential itself: for the header that carries it or the comparison that checks it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
