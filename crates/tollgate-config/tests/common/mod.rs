//! A made-up environment, and parsing against it.

use std::collections::BTreeMap;
use std::env::VarError;
use std::io;
use std::path::{Path, PathBuf};

use tollgate_config::{Config, Environment};

/// Variables and files that exist only here.
pub(crate) struct Fake {
    pub(crate) variables: BTreeMap<&'static str, String>,
    pub(crate) files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Environment for Fake {
    fn var(&self, name: &str) -> Result<String, VarError> {
        self.variables.get(name).cloned().ok_or(VarError::NotPresent)
    }

    fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// What the tests find in the environment. `SENTINEL` marks everything that is secret.
pub(crate) fn environment() -> Fake {
    let variables = [
        ("PROVIDER_KEY", "SENTINEL-provider"),
        ("ADMIN_TOKEN", "SENTINEL-admin"),
        ("DEV_KEY", "SENTINEL-dev"),
        ("ALERT_URL", "https://hooks.example/SENTINEL"),
        ("REDIS_URL", "rediss://:SENTINEL@redis.example/0"),
        ("EMPTY", ""),
        ("BROKEN", "SENTINEL\r\nx-injected: 1"),
    ];
    let files = [
        ("/etc/tollgate/key", "SENTINEL-file\r\n\n"),
        ("/etc/tollgate/empty", "\n"),
        ("/etc/tollgate/ca.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        ("/etc/tollgate/text", "hello\n"),
    ];
    Fake {
        variables: variables.map(|(name, value)| (name, value.to_owned())).into(),
        files: files.map(|(name, content)| (name.into(), content.as_bytes().to_vec())).into(),
    }
}

/// The configuration in `text`, or its problems one a line.
pub(crate) fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, "t.toml", Path::new("/etc/tollgate"), &environment())
        .map_err(|errors| errors.to_string())
}
