//! Why the proxy did not start.

use std::{io, net::SocketAddr};

/// The proxy could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A listening socket could not be opened.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A worker thread or its runtime could not be started.
    #[error("cannot start a worker: {0}")]
    Worker(#[source] io::Error),
    /// A provider's key cannot be sent as a header.
    #[error("a provider's key holds characters that no header can carry")]
    Credential,
    /// A CA file cannot be used.
    #[error("a provider's CA file cannot be used: {0}")]
    Certificate(String),
    /// The usage file cannot be read or appended to.
    #[error(transparent)]
    Usage(#[from] tollgate_usage::UsageError),
}
