//! Tenants, their limits and their keys.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tollgate_limiter::{Amount, DurationMs, Enforcement, MicroUsd, Period};

use crate::{ModelGlobs, Unpriced};

/// Named values that a key carries into its usage events, such as `team` = `ml`.
pub type Attributes = Arc<BTreeMap<Arc<str>, Arc<str>>>;

/// The owner of keys, limits and budgets.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Its name.
    pub id: Arc<str>,
    /// Rate limits, at most one for each unit and window.
    pub rates: Vec<RateLimit>,
    /// Budgets, at most one for each period.
    pub budgets: Vec<Budget>,
    /// The keys that share these limits.
    pub keys: Vec<Key>,
}

/// Requests or tokens over a sliding window.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RateLimit {
    /// What is counted.
    pub unit: Unit,
    /// The window's length: a second, a minute, an hour or a day.
    pub window: DurationMs,
    /// The most in a window. Zero lets nothing through that counts.
    pub amount: Amount,
}

/// What a rate limit counts.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Unit {
    /// Requests.
    Requests,
    /// All tokens, input and output.
    Tokens,
    /// Input tokens, cached ones included.
    InputTokens,
    /// Output tokens.
    OutputTokens,
}

impl Unit {
    /// The name that configuration fields, events and messages use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::InputTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
        }
    }
}

/// The largest spend in a period.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Budget {
    /// The calendar period (`window`).
    pub period: Period,
    /// The most that is spent in a period (`limit_usd`).
    pub limit: MicroUsd,
    /// Whether it refuses or warns.
    pub mode: Enforcement,
    /// What this budget demands of models without a price; `None`: nothing beyond the deployment's rule.
    pub unpriced: Option<Unpriced>,
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
    /// What its events carry.
    pub attributes: Attributes,
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
