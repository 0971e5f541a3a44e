//! A proxy whose connections are memory and whose time is the runtime's: for simulations.
//!
//! It runs on the runtime that calls it, opens no socket and starts no worker. On a runtime whose time is
//! paused, hours of traffic pass in moments, and in an order that does not depend on the machine.

use std::{
    fmt,
    future::Future,
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection, HttpConnector},
    rt::TokioIo,
};
use tokio::io::DuplexStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_store::{Clock, Store};
use tollgate_usage::{UsageError, WriterOptions};
use tower_service::Service;

use crate::{
    Setup,
    error::StartError,
    network::Network,
    server::{self, Client, Shared, Worker},
};

/// Connects to a provider: the far end of a connection, or why there is none.
pub type Dial = Arc<dyn Fn(&Uri) -> io::Result<DuplexStream> + Send + Sync>;

/// How many bytes a connection between a client and the proxy holds in each direction.
const CONNECTION_BYTES: usize = 64 * 1024;

/// A proxy without sockets and threads of its own.
pub struct InMemoryProxy {
    shared: Arc<Shared>,
    worker: Arc<Worker>,
    connections: TaskTracker,
    cut: CancellationToken,
}

impl Setup {
    /// Starts a proxy on the runtime that calls this. Providers are reached by `dial`.
    ///
    /// # Errors
    ///
    /// A CA file or the usage file cannot be used.
    pub fn start_in_memory(
        self,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        dial: Dial,
        writer: WriterOptions,
    ) -> Result<InMemoryProxy, StartError> {
        // Nobody hears of alerts here.
        let (shared, _) = self.shared(store, clock, Network { dial: Some(dial) }, writer, 1)?;
        let shared = Arc::new(shared);
        let worker = Arc::new(Worker { index: 0, shared: shared.clone() });
        Ok(InMemoryProxy { shared, worker, connections: TaskTracker::new(), cut: CancellationToken::new() })
    }
}

impl InMemoryProxy {
    /// A client's connection. Refused when the proxy is stopping or has as many as it may.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::ConnectionRefused`].
    pub fn connect(&self) -> io::Result<DuplexStream> {
        let permit = self.shared.connections.clone().try_acquire_owned();
        let Some(permit) = permit.ok().filter(|_| !self.shared.stop.is_cancelled()) else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        let (near, far) = tokio::io::duplex(CONNECTION_BYTES);
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (shared, worker) = (self.shared.clone(), self.worker.clone());
        let client = Client { io: TokioIo::new(far), peer, permit: Ok(permit) };
        let (connections, cut) = (self.connections.clone(), self.cut.clone());
        self.connections.spawn(server::serve(client, shared, worker, connections, cut));
        Ok(near)
    }

    /// Waits until everything recorded so far is in the usage file. Blocks.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn flush_usage(&self) -> Result<(), UsageError> {
        self.shared.app.load().usage.flush()
    }

    /// Accepts no more, lets open requests finish for up to `server.drain_seconds`, and cuts the rest.
    /// What is still going on then ends with the runtime; [`InMemoryProxy::close`] comes after that.
    pub async fn drain(&self) {
        self.shared.stop.cancel();
        server::drain(&self.shared, &self.connections, &self.cut).await;
    }

    /// Writes the last events. Blocks.
    ///
    /// # Errors
    ///
    /// They could not be written.
    pub fn close(&self) -> Result<(), UsageError> {
        self.shared.app.load().usage.close()
    }
}

impl fmt::Debug for InMemoryProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemoryProxy").finish_non_exhaustive()
    }
}

/// Makes connections of memory where there is a [`Dial`], and of sockets where not.
#[derive(Clone)]
pub(crate) struct Transport {
    tcp: HttpConnector,
    dial: Option<Dial>,
}

impl Transport {
    pub(crate) fn new(tcp: HttpConnector, dial: Option<Dial>) -> Self {
        Self { tcp, dial }
    }
}

impl Service<Uri> for Transport {
    type Response = Socket;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Socket, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        if let Some(dial) = self.dial.clone() {
            return Box::pin(async move {
                // A connection takes a moment, as others do.
                tokio::task::yield_now().await;
                Ok(Socket(Box::pin(TokioIo::new(dial(&uri)?))))
            });
        }
        let connecting = self.tcp.call(uri);
        Box::pin(async move { Ok(Socket(Box::pin(connecting.await?))) })
    }
}

trait ReadWrite: Read + Write + Send {}

impl<T: Read + Write + Send> ReadWrite for T {}

/// One connection to a provider.
pub(crate) struct Socket(Pin<Box<dyn ReadWrite>>);

impl Connection for Socket {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_read(cx, buf)
    }
}

impl Write for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.0.as_mut().poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_shutdown(cx)
    }
}
