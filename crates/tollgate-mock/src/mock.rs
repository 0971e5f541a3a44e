//! The mock as a handle: start, look, stop.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::behaviour::Behaviour;
use crate::handler::Handler;
use crate::record::{Counts, Received, Records};
use crate::usage::Bill;
use crate::wire::{Stream, Switch, Wire};

/// Connections served at the same moment; further ones wait.
const CONNECTIONS_MAX: usize = 8192;
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// How to start a mock.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; port 0 is any free port.
    pub listen: SocketAddr,
    /// How to answer, unless a request's headers say otherwise.
    pub behaviour: Behaviour,
    /// The only key accepted, as `x-api-key`, `api-key` or bearer token; left out, every request is.
    pub api_key: Option<String>,
    /// What `/v1/models` lists. Other models are answered for all the same.
    pub models: Vec<String>,
    /// How many requests are kept; the oldest are dropped.
    pub request_limit: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            behaviour: Behaviour::default(),
            api_key: None,
            models: ["claude-sonnet-5-5", "claude-haiku-5-5", "gpt-6-astra"].map(str::to_owned).to_vec(),
            request_limit: 10_000,
        }
    }
}

/// A mock could not be started.
#[derive(Debug, thiserror::Error)]
pub enum MockError {
    /// The address cannot be listened on.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    /// The system gives no thread or no event queue.
    #[error("cannot start the mock's thread: {0}")]
    Start(#[source] io::Error),
}

/// What was waited for did not happen in time.
#[derive(Debug, thiserror::Error)]
#[error("not seen within {waited:?}; the last counts were {last:?}")]
pub struct TimedOut {
    /// How long was waited.
    pub waited: Duration,
    /// What had happened until then.
    pub last: Counts,
}

/// A running mock. Dropping it stops it and closes its connections.
#[derive(Debug)]
pub struct Mock {
    /// Where it listens.
    pub addr: SocketAddr,
    records: Arc<Records>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Mock {
    /// Starts a mock. It accepts connections when this returns.
    ///
    /// # Errors
    /// The address is taken, or the system gives no thread.
    pub fn start(options: Options) -> Result<Self, MockError> {
        let listen = |error| MockError::Listen(options.listen, error);
        let listener = TcpListener::bind(options.listen).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let addr = listener.local_addr().map_err(listen)?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(MockError::Start)?;
        let stop = CancellationToken::new();
        let server = Server::new(options);
        let records = Arc::clone(&server.records);
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("tollgate-mock".to_owned())
            .spawn(move || {
                runtime.block_on(stopped.run_until_cancelled(server.run(listener)));
            })
            .map_err(MockError::Start)?;
        Ok(Self { addr, records, stop, thread: Some(thread) })
    }

    /// `http://` and the address, without a slash at the end.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The requests received, oldest first, as many as [`Options::request_limit`] keeps.
    pub fn requests(&self) -> Vec<Received> {
        self.records.requests()
    }

    /// What each model's provider would charge so far, by the name in the answers.
    pub fn billed(&self) -> BTreeMap<String, Bill> {
        self.records.bills()
    }

    /// How much has happened so far.
    pub fn counts(&self) -> Counts {
        self.records.counts()
    }

    /// Waits until the counts are as `condition` wants. Needs a tokio runtime with a timer.
    ///
    /// # Errors
    /// They were not within `deadline`.
    pub async fn wait_for(
        &self,
        deadline: Duration,
        condition: impl Fn(&Counts) -> bool,
    ) -> Result<Counts, TimedOut> {
        let mut counts = self.records.watch();
        // The sender lives in `self.records`, so the only other error, that it is gone, cannot happen.
        match tokio::time::timeout(deadline, counts.wait_for(|counts| condition(counts))).await {
            Ok(Ok(seen)) => Ok(*seen),
            _ => Err(TimedOut { waited: deadline, last: self.counts() }),
        }
    }

    /// Waits until so many requests have been received, and returns those that are kept.
    ///
    /// # Errors
    /// They were not within `deadline`.
    pub async fn wait_for_requests(&self, count: u64, deadline: Duration) -> Result<Vec<Received>, TimedOut> {
        self.wait_for(deadline, |counts| counts.requests >= count).await?;
        Ok(self.requests())
    }

    /// Stops the mock, closes its connections and waits for its thread.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic of the server's thread has been printed by the panic hook.
            let _ = thread.join();
        }
    }
}

/// Answers connections.
#[derive(Debug)]
pub(crate) struct Server {
    options: Arc<Options>,
    pub(crate) records: Arc<Records>,
}

impl Server {
    pub(crate) fn new(options: Options) -> Self {
        let records = Arc::new(Records::new(options.request_limit));
        Self { options: Arc::new(options), records }
    }

    /// Answers the requests of one connection until it ends.
    pub(crate) fn serve<S: Stream + Send + 'static>(
        &self,
        stream: S,
    ) -> impl Future<Output = ()> + Send + use<S> {
        let switch = Switch::default();
        let handler = Handler {
            options: Arc::clone(&self.options),
            records: Arc::clone(&self.records),
            connection: self.records.connection(),
            switch: switch.clone(),
        };
        let service = service_fn(move |request| handler.clone().answer(request));
        let wire = TokioIo::new(Wire::new(stream, switch));
        async move {
            // Ends in an error whenever a behaviour breaks the connection or the client does.
            let _ = http1::Builder::new().serve_connection(wire, service).await;
        }
    }

    async fn run(self, listener: TcpListener) {
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else {
                // Out of file descriptors, most likely: let connections end first.
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            // Without it an event could wait for the acknowledgement of the one before.
            let _ = stream.set_nodelay(true);
            let connection = self.serve(stream);
            tokio::spawn(async move {
                connection.await;
                drop(slot);
            });
        }
    }
}
