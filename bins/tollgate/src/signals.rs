//! Waiting for the end of the process.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Blocks until SIGTERM or SIGINT.
pub(crate) fn wait_for_stop() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        loop {
            tokio::select! {
                _ = terminate.recv() => return Ok(()),
                _ = interrupt.recv() => return Ok(()),
                _ = hangup.recv() => tracing::warn!("SIGHUP: a changed configuration needs a restart"),
            }
        }
    })
}
