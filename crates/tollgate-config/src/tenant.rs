//! Tenants, their limits and their keys.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::{Budget, ModelGlobs, RateLimit, Scope};

/// Named values that a key carries into its usage events, such as `team` = `ml`.
pub type Attributes = Arc<BTreeMap<Arc<str>, Arc<str>>>;

/// The owner of keys, limits and budgets.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Its name.
    pub id: Arc<str>,
    /// Rate limits, at most one for each unit and window.
    pub rates: Vec<RateLimit>,
    /// Budgets, at most one for each window.
    pub budgets: Vec<Budget>,
    /// The keys that share these limits.
    pub keys: Vec<Key>,
}

/// One virtual API key.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its name: what events and messages show instead of the key.
    pub id: Arc<str>,
    /// The key's hash, from `hash` or of the value of `key_env`.
    pub hash: KeyHash,
    /// The models it may call; `None`: all.
    pub models: Option<ModelGlobs>,
    /// What its calls carry, whoever makes them.
    pub attributes: Attributes,
    /// The attributes that a call may set for itself (`caller_attributes`). None of them is in
    /// `attributes`: what is fixed cannot be overridden.
    pub caller_attributes: Arc<[Scope]>,
}

/// SHA-256 of a whole key.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// The hash from its bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The hash of `key`, to be compared with those of the configuration.
    pub fn of(key: &str) -> Self {
        Self(Sha256::digest(key.as_bytes()).into())
    }

    /// The hash's bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for KeyHash {
    type Err = &'static str;

    /// Reads `sha256:` and 64 hexadecimal digits. The error does not repeat the text, which may be a
    /// key that was put here by mistake.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "must be `sha256:` and 64 hexadecimal digits: `tollgate key new` prints it";
        let digits = text.strip_prefix("sha256:").filter(|digits| digits.len() == 64).ok_or(EXPECTED)?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            let pair =
                str::from_utf8(pair).ok().filter(|pair| pair.bytes().all(|digit| digit.is_ascii_hexdigit()));
            *byte = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()).ok_or(EXPECTED)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for KeyHash {
    /// As the configuration has it: `sha256:` and 64 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyHash {
    /// Nothing of it: a hash in a log can be looked up by whoever has a list of keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(…)")
    }
}
