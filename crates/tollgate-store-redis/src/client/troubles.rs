//! What becomes of a connection while nobody asks, and why there is none.

use std::sync::{Arc, Mutex, PoisonError};

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

    /// Whether there was one since it was last asked.
    pub(super) fn was_any(&mut self) -> bool {
        let mut was_any = false;
        while let Ok(_) | Err(broadcast::error::TryRecvError::Lagged(_)) = self.0.try_recv() {
            was_any = true;
        }
        was_any
    }
}

/// Tells why there is no connection.
pub(crate) struct Troubles {
    pub(super) errors: broadcast::Receiver<(Error, Option<Server>)>,
    /// Whether the server is spoken to by TLS.
    pub(super) is_tls: bool,
}

/// Why there is no connection.
pub(crate) struct Trouble {
    pub(crate) reason: String,
    /// Whether a server that is not there, or goes away, looks like this.
    pub(crate) is_of_network: bool,
}

impl Troubles {
    /// Waits for the next one. `None`: there is none any more.
    pub(crate) async fn next(&mut self) -> Option<Trouble> {
        loop {
            match self.errors.recv().await {
                Ok((error, _)) => return Some(trouble(&error, self.is_tls)),
                Err(broadcast::error::RecvError::Closed) => return None,
                Err(broadcast::error::RecvError::Lagged(_)) => {}
            }
        }
    }
}

/// The reason that was said last, for those whose calls find no connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Why(Arc<Mutex<Option<String>>>);

impl Why {
    pub(crate) fn set(&self, reason: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    pub(super) fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn trouble(error: &Error, is_tls: bool) -> Trouble {
    let (kind, details) = (error.kind(), error.details());
    if let Some(reason) = of_certificate(details) {
        return Trouble { reason, is_of_network: false };
    }
    let is_of_network = match kind {
        ErrorKind::IO => !OF_SETTINGS.iter().any(|words| details.contains(words)),
        kind => matches!(kind, ErrorKind::Timeout | ErrorKind::Canceled | ErrorKind::Cluster),
    };
    // What servers do to whom they do not understand.
    let perhaps = match kind {
        ErrorKind::Timeout if is_tls => " (perhaps it has no TLS on this port)",
        ErrorKind::IO if !is_tls && details.contains("ConnectionReset") => {
            " (perhaps it asks for TLS on this port)"
        }
        _ => "",
    };
    Trouble { reason: format!("{}: {}{perhaps}", kind.to_str(), of_system(details)), is_of_network }
}

/// What says of an error of the network that it does not pass by itself: the other side does not speak TLS, the name of the
/// server is none.
const OF_SETTINGS: &[&str] = &["kind: InvalidData", "failed to lookup address"];

/// Why rustls does not accept the server's certificate. Without the time of day, so that it is the same each time.
fn of_certificate(details: &str) -> Option<String> {
    let (_, reason) = details.split_once("InvalidCertificate(")?;
    let reason = reason.split_once(" { time: ").map_or(reason, |(reason, _)| reason);
    let perhaps = match reason.contains("CaUsedAsEndEntity") {
        true => " (it is the certificate of an authority: have it sign one for the server)",
        false => "",
    };
    Some(format!("invalid peer certificate: {}{perhaps}", reason.strip_suffix(") }").unwrap_or(reason)))
}

/// What the system says, where fred shows its error as it is for programmers: `Os { code: 111, …, message: "…" }`.
fn of_system(details: &str) -> &str {
    let message = details.split_once("message: \"").or_else(|| details.split_once("error: \""));
    message.and_then(|(_, message)| message.strip_suffix("\" }")).unwrap_or(details)
}
