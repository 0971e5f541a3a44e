//! Workers: one thread with its own runtime, listener and upstream pools for each core.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use arc_swap::ArcSwap;
use hyper::{
    rt::{Read, Write},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{app::App, error::StartError, reload::ReloadState, service, stall::StallGuard};

/// How long a client may leave its answer unread before its connection is closed.
pub(crate) const CLIENT_STALL_MAX: Duration = Duration::from_secs(60);

/// The most bytes of one request's head.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The most requests at a time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 250;

/// An HTTP/2 connection that answers no ping for this long is closed.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// A connection without an open request is looked at so often within the header time-out. At the last
/// look it is asked to end, one look later it is dropped: a head may take a quarter longer.
const IDLE_LOOKS: u32 = 4;

/// How long streams that are cut at the end of a drain may take to say so.
const CUT_PATIENCE: Duration = Duration::from_secs(1);

/// How long settlements on their way to the store are waited for: longer than a store waits for its answer (5 s at most),
/// which then keeps them itself.
const SETTLING_PATIENCE: Duration = Duration::from_secs(6);

/// After a failed accept (no file descriptors left), accepting pauses for this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What all workers share.
pub(crate) struct Shared {
    /// The configuration at work.
    pub(crate) app: ArcSwap<App>,
    pub(crate) reload: ReloadState,
    pub(crate) connections: Arc<Semaphore>,
    pub(crate) header_timeout: Duration,
    pub(crate) drain: Duration,
    /// Ends accepting.
    pub(crate) stop: CancellationToken,
    /// How many connections were cut because they outlasted the drain.
    pub(crate) cut: AtomicU64,
}

/// One worker's part.
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) shared: Arc<Shared>,
}

/// Starts a worker thread on `listener`. It ends after the shared stop signal and the drain.
pub(crate) fn spawn(
    index: usize,
    listener: TcpListener,
    shared: Arc<Shared>,
) -> Result<JoinHandle<()>, StartError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Worker)?;
    let work = move || {
        let worker = Arc::new(Worker { index, shared: shared.clone() });
        runtime.block_on(run(listener, shared, worker));
        runtime.shutdown_timeout(Duration::from_millis(100));
    };
    std::thread::Builder::new().name(format!("worker-{index}")).spawn(work).map_err(StartError::Worker)
}

async fn run(listener: TcpListener, shared: Arc<Shared>, worker: Arc<Worker>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "a listener cannot be used");
            return;
        }
    };
    let tracker = TaskTracker::new();
    let cut = CancellationToken::new();
    accept(&listener, &shared, &worker, &tracker, &cut).await;
    drop(listener);
    drain(&shared, &tracker, &cut).await;
}

/// Waits for the open connections of a worker that accepts no more, and cuts those that outlast the
/// drain.
pub(crate) async fn drain(shared: &Shared, tracker: &TaskTracker, cut: &CancellationToken) {
    tracker.close();
    let parts = shared.app.load().parts.clone();
    if tokio::time::timeout(shared.drain, tracker.wait()).await.is_err() {
        shared.cut.fetch_add(tracker.len() as u64, Ordering::Relaxed);
        parts.cutting.cancel();
        // Streams say in their protocol that they are cut; what does not end by itself then is broken.
        let _ = tokio::time::timeout(CUT_PATIENCE, tracker.wait()).await;
        cut.cancel();
        tracker.wait().await;
    }
    // What is still read after its client left.
    parts.tasks.close();
    let _ = tokio::time::timeout(shared.drain, parts.tasks.wait()).await;
    parts.settling.close();
    let _ = tokio::time::timeout(SETTLING_PATIENCE, parts.settling.wait()).await;
}

/// Accepts until the stop signal.
async fn accept(
    listener: &tokio::net::TcpListener,
    shared: &Arc<Shared>,
    worker: &Arc<Worker>,
    tracker: &TaskTracker,
    cut: &CancellationToken,
) {
    loop {
        // The permit comes after the connection: an idle worker must not hold one that another needs.
        let next = async {
            let accepted = listener.accept().await;
            (accepted, shared.connections.clone().acquire_owned().await)
        };
        let (accepted, permit) = tokio::select! {
            accepted = next => accepted,
            () = shared.stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let _ = stream.set_nodelay(true);
                let client = Client { io: TokioIo::new(stream), peer, permit };
                tracker.spawn(serve(client, shared.clone(), worker.clone(), tracker.clone(), cut.clone()));
            }
            Err(error) => pause_after(&error).await,
        }
    }
}

/// A client that has connected.
pub(crate) struct Client<T> {
    pub(crate) io: T,
    pub(crate) peer: SocketAddr,
    /// Held as long as its connection is there.
    pub(crate) permit: Result<OwnedSemaphorePermit, AcquireError>,
}

/// Waits after a failed accept, unless the connection failed and not the listener.
pub(crate) async fn pause_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};

    if !matches!(error.kind(), ConnectionAborted | ConnectionReset | ConnectionRefused) {
        tracing::warn!(%error, "cannot accept a connection");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// Serves one connection until it ends or is cut.
pub(crate) async fn serve<T: Read + Write + Send + Unpin + 'static>(
    client: Client<T>,
    shared: Arc<Shared>,
    worker: Arc<Worker>,
    tracker: TaskTracker,
    cut: CancellationToken,
) {
    let Client { io, peer, permit: _permit } = client;
    let io = StallGuard::new(io, CLIENT_STALL_MAX);
    let open = OpenRequests::default();
    let counted = open.clone();
    let service = service_fn(move |request| service::call(worker.clone(), counted.begin(), request));
    let builder = http_builder(tracker);
    let connection = builder.serve_connection(io, service);
    tokio::pin!(connection);
    // In place of hyper's header time-out, which makes a timer for every request, does not cover the
    // time before the first byte and is not there in HTTP/2.
    let pause = shared.header_timeout / IDLE_LOOKS;
    let idle = open.none_for(IDLE_LOOKS, pause);
    tokio::pin!(idle);
    let stop = shared.stop.cancelled();
    tokio::pin!(stop);
    let cut = cut.cancelled();
    tokio::pin!(cut);
    let mut ending = false;
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%peer, error = &*error, "a connection ended with an error");
                }
                return;
            }
            () = idle.as_mut() => {
                if ending {
                    return;
                }
                ending = true;
                connection.as_mut().graceful_shutdown();
                idle.set(open.none_for(1, pause));
            }
            () = stop.as_mut(), if !ending => {
                ending = true;
                connection.as_mut().graceful_shutdown();
                // Half a head is no request: it does not hold the drain.
                idle.set(open.none_for(1, pause));
            }
            // After the stop only: it is looked at with every piece of a request.
            () = cut.as_mut(), if ending => return,
        }
    }
}

/// Counts the requests of one connection. Each holds a clone while it is open, until its answer is gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenRequests {
    /// How many have begun.
    begun: Arc<AtomicU64>,
}

impl OpenRequests {
    /// Clones that are not requests: the connection's own and its service's.
    const OWN_CLONES: usize = 2;

    /// A request has begun; it holds what is returned.
    fn begin(&self) -> Self {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.clone()
    }

    /// Ends when no request has been open at so many looks in a row, `pause` apart, nor between them.
    async fn none_for(&self, looks: u32, pause: Duration) {
        let (mut idle_looks, mut begun_before) = (0, self.begun.load(Ordering::Relaxed));
        while idle_looks < looks {
            tokio::time::sleep(pause).await;
            let begun = self.begun.load(Ordering::Relaxed);
            let is_idle = begun == begun_before && Arc::strong_count(&self.begun) <= Self::OWN_CLONES;
            idle_looks = if is_idle { idle_looks + 1 } else { 0 };
            begun_before = begun;
        }
    }
}

/// Spawns a connection's tasks where the drain waits for them.
#[derive(Clone)]
struct Tracked(TaskTracker);

impl<F> hyper::rt::Executor<F> for Tracked
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}

fn http_builder(tracker: TaskTracker) -> auto::Builder<Tracked> {
    let mut builder = auto::Builder::new(Tracked(tracker));
    builder.http1().max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX))
        .keep_alive_interval(PING_INTERVAL);
    builder
}
