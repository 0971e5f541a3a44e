//! The load generator: requests on keep-alive connections, every answer checked.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tollgate_store::{Clock, SystemClock};

use super::http1::Reader;
use super::workload::{ANSWER_BYTES, INTERVAL_MS, Workload};

/// What a stretch of load came to. Every answer in it was complete and right.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) requests: u64,
    pub(crate) elapsed: Duration,
    /// Of [`Workload::Latency`] only, sorted.
    pub(crate) latencies_ns: Vec<u64>,
}

/// The work of one connection.
struct Connection {
    addr: SocketAddr,
    workload: Workload,
    body_bytes: usize,
    stop: Arc<AtomicBool>,
    clock: SystemClock,
}

/// Sends a workload to a target for `duration`, then lets what is under way finish. Every connection sends
/// at least one request.
///
/// # Errors
/// A connection fails, or an answer has another status or size than the upstream's.
pub(crate) async fn run(
    target: SocketAddr,
    workload: Workload,
    stream_bytes: usize,
    duration: Duration,
) -> Result<Done, String> {
    let stop = Arc::new(AtomicBool::new(false));
    let body_bytes = if workload.is_stream() { stream_bytes } else { ANSWER_BYTES };
    let clock = SystemClock::new();
    let mut tasks = JoinSet::new();
    for index in 0..workload.connections() {
        let connection = Connection { addr: target, workload, body_bytes, stop: Arc::clone(&stop), clock };
        tasks.spawn(connection.run(index));
    }
    tokio::time::sleep(duration).await;
    stop.store(true, Ordering::Relaxed);
    let mut done = Done { requests: 0, elapsed: Duration::ZERO, latencies_ns: Vec::new() };
    while let Some(joined) = tasks.join_next().await {
        let (requests, latencies_ns) = joined.map_err(|error| error.to_string())??;
        done.requests += requests;
        done.latencies_ns.extend(latencies_ns);
    }
    done.elapsed = clock.elapsed();
    done.latencies_ns.sort_unstable();
    Ok(done)
}

/// The size of the upstream's stream body, which every stream through a proxy must have too.
///
/// # Errors
/// The upstream does not answer.
pub(crate) async fn stream_bytes(upstream: SocketAddr) -> Result<usize, String> {
    let mut stream = TcpStream::connect(upstream).await.map_err(|error| error.to_string())?;
    let request = Workload::Burst.request(upstream);
    stream.write_all(&request).await.map_err(|error| error.to_string())?;
    let mut reader = Reader::new();
    let message = reader.next(&mut stream).await.map_err(|error| error.to_string())?;
    message.map(|message| message.body_bytes).ok_or_else(|| "the upstream closed the connection".to_owned())
}

impl Connection {
    async fn run(self, index: u32) -> Result<(u64, Vec<u64>), String> {
        if self.workload == Workload::Spaced {
            // Events of different streams are not at the same moment in real life either.
            let offset_ms = u64::from(index) * INTERVAL_MS / u64::from(self.workload.connections());
            tokio::time::sleep(Duration::from_millis(offset_ms)).await;
        }
        let problem = |error: std::io::Error| format!("{} at {}: {error}", self.workload.name(), self.addr);
        let request = self.workload.request(self.addr);
        let mut stream = TcpStream::connect(self.addr).await.map_err(problem)?;
        stream.set_nodelay(true).map_err(problem)?;
        let mut reader = Reader::new();
        let (mut requests, mut latencies_ns) = (0, Vec::new());
        loop {
            let start = self.clock.elapsed();
            stream.write_all(&request).await.map_err(problem)?;
            let message = reader.next(&mut stream).await.map_err(problem)?;
            let Some(message) = message else {
                return Err(format!("{} closed the connection", self.addr));
            };
            if message.status() != 200 || message.body_bytes != self.body_bytes {
                return Err(format!(
                    "{} at {}: wanted 200 and {} bytes, got {} bytes of\n{}",
                    self.workload.name(),
                    self.addr,
                    self.body_bytes,
                    message.body_bytes,
                    message.text()
                ));
            }
            requests += 1;
            if self.workload == Workload::Latency {
                let taken = self.clock.elapsed().saturating_sub(start);
                latencies_ns.push(u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX));
            }
            if self.stop.load(Ordering::Relaxed) {
                return Ok((requests, latencies_ns));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate_mock::{Behaviour, Mock, Options, Start};

    use super::super::upstream;
    use super::super::workload::Workload;
    use super::{run, stream_bytes};

    const STRETCH: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn right_answers_are_counted() {
        let addr = upstream::start().await.unwrap();
        let stream_bytes = stream_bytes(addr).await.unwrap();
        for workload in Workload::ALL {
            let done = run(addr, workload, stream_bytes, STRETCH).await.unwrap();
            assert!(done.requests >= u64::from(workload.connections()), "{}", workload.name());
            let latencies = if workload == Workload::Latency { done.requests } else { 0 };
            assert_eq!(u64::try_from(done.latencies_ns.len()).unwrap(), latencies);
        }
    }

    #[tokio::test]
    async fn a_wrong_size_or_status_or_end_is_an_error() {
        let plain = |behaviour| async {
            let mock = Mock::start(Options { behaviour, ..Options::default() }).unwrap();
            run(mock.addr, Workload::Plain, 0, STRETCH).await.unwrap_err()
        };
        let size = plain(Behaviour::default()).await;
        assert!(size.contains("wanted 200 and 645 bytes"), "{size}");
        let refused = plain(Behaviour { status: Some(402), ..Behaviour::default() }).await;
        assert!(refused.contains("billing_error"), "{refused}");
        let closed = plain(Behaviour { start: Start::Close, ..Behaviour::default() }).await;
        assert!(closed.contains("closed the connection"), "{closed}");
    }
}
