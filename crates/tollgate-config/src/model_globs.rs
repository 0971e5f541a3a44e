//! Which models a key or a route is for.

use std::fmt;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// A list of globs over model ids: `*`, `?`, `[a-z]`, `{a,b}`. Case counts, `*` crosses `/`.
#[derive(Clone)]
pub struct ModelGlobs {
    patterns: Vec<String>,
    set: GlobSet,
}

impl ModelGlobs {
    /// Compiles `patterns`.
    ///
    /// # Errors
    /// The place of the first pattern that is no glob, and what is wrong with it.
    pub fn new(patterns: Vec<String>) -> Result<Self, (usize, String)> {
        let mut set = GlobSetBuilder::new();
        for (position, pattern) in patterns.iter().enumerate() {
            let glob = GlobBuilder::new(pattern).literal_separator(false).build();
            set.add(glob.map_err(|error| (position, error.kind().to_string()))?);
        }
        let set = set.build().map_err(|error| (0, error.kind().to_string()))?;
        Ok(Self { patterns, set })
    }

    /// Whether one of the globs matches the whole of `model`.
    pub fn matches(&self, model: &str) -> bool {
        self.set.is_match(model)
    }

    /// The globs as they were written.
    pub fn patterns(&self) -> &[String] {
        &self.patterns
    }
}

impl fmt::Debug for ModelGlobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.patterns.fmt(f)
    }
}
