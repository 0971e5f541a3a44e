//! Providers and the routes that lead to them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{ModelGlobs, Secret};

/// One provider account.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Provider {
    /// Its name, also in `/provider/<id>/v1/…`.
    pub id: Arc<str>,
    /// What it speaks.
    pub protocol: Protocol,
    /// Where it is.
    pub base_url: BaseUrl,
    /// The credential that replaces the client's, from `api_key_env` or `api_key_file`.
    /// `None`: the client's own credential passes through.
    pub api_key: Option<Secret>,
    /// Whether a streamed answer's usage is asked for (`openai` only; `false` for `anthropic`,
    /// which always reports it).
    pub usage_in_stream: bool,
    /// PEM certificates that are trusted besides the platform's, from `ca_file`.
    pub ca_pem: Option<Arc<[u8]>>,
    /// Until the connection stands, TLS included (`connect_timeout_ms`).
    pub connect_timeout: Duration,
    /// From the sent request to the answer's headers (`response_timeout_seconds`).
    pub response_timeout: Duration,
    /// Between two pieces of the answer's body (`idle_timeout_seconds`).
    pub idle_timeout: Duration,
}

/// What a provider speaks.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Protocol {
    /// Anthropic's API.
    Anthropic,
    /// OpenAI's API, and what is compatible with it.
    OpenAi,
}

/// Sends models to a provider.
#[derive(Clone, Debug)]
pub struct Route {
    /// The models it is for.
    pub models: ModelGlobs,
    /// The id of the provider they go to: one of [`Config::providers`](crate::Config::providers).
    pub provider: Arc<str>,
}

/// An absolute `http` or `https` URL without credentials, query and fragment.
#[derive(Clone, Eq, PartialEq)]
pub struct BaseUrl {
    https: bool,
    authority: http::uri::Authority,
    path: String,
}

impl BaseUrl {
    /// Parses `text`.
    ///
    /// # Errors
    /// What the text has that a base URL must not have, or lacks.
    pub fn parse(text: &str) -> Result<Self, String> {
        // `http::Uri` cuts a fragment off without a word.
        if text.contains('#') {
            return Err("must not have a fragment".to_owned());
        }
        let uri: http::Uri = text.parse().map_err(|error| format!("is not a URL: {error}"))?;
        let https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err("must start with `https://` or `http://`".to_owned()),
        };
        let Some(authority) = uri.authority().filter(|authority| !authority.host().is_empty()) else {
            return Err("has no host".to_owned());
        };
        if authority.as_str().contains('@') {
            return Err("must not contain credentials: use `api_key_env` or `api_key_file`".to_owned());
        }
        if uri.query().is_some() {
            return Err("must not have a query".to_owned());
        }
        let path = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { https, authority: authority.clone(), path })
    }

    /// Whether the connection is to be encrypted.
    pub fn is_https(&self) -> bool {
        self.https
    }

    /// Host and, where the URL names one, port: what the `host` header says.
    pub fn authority(&self) -> &http::uri::Authority {
        &self.authority
    }

    /// The host; an IPv6 address has its brackets.
    pub fn host(&self) -> &str {
        self.authority.host()
    }

    /// The port, 443 or 80 where the URL names none.
    pub fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.https { 443 } else { 80 })
    }

    /// What a request's path is appended to: empty, or `/…` without a slash at the end.
    pub fn path_prefix(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.path)
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BaseUrl({self})")
    }
}
