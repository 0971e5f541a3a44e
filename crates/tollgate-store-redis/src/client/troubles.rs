//! What becomes of a connection while nobody asks.

use fred::{
    error::{Error, ErrorKind},
    types::config::Server,
};
use tokio::sync::broadcast;

/// Tells when a connection was made anew.
pub(crate) struct Reconnections(pub(super) broadcast::Receiver<Server>);

impl Reconnections {
    /// Waits for the next time, or for several that were missed. `false`: there is none any more.
    pub(crate) async fn next(&mut self) -> bool {
        !matches!(self.0.recv().await, Err(broadcast::error::RecvError::Closed))
    }
}

/// Tells why there is no connection.
pub(crate) struct Troubles(pub(super) broadcast::Receiver<(Error, Option<Server>)>);

impl Troubles {
    /// Waits for the next reason. `None`: there is none any more.
    pub(crate) async fn next(&mut self) -> Option<String> {
        loop {
            match self.0.recv().await {
                Ok((error, _)) if !is_of_network(error.kind()) => {
                    return Some(format!("{}: {}", error.kind().to_str(), error.details()));
                }
                Err(broadcast::error::RecvError::Closed) => return None,
                _ => {}
            }
        }
    }
}

/// Whether a server that is not there, or goes away, looks like this.
const fn is_of_network(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::IO | ErrorKind::Timeout | ErrorKind::Canceled | ErrorKind::Cluster)
}
