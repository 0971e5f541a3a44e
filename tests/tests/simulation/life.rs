//! Lives a plan: one process after another on the same files, each on a runtime whose time is paused.

use std::{
    collections::{BTreeMap, BTreeSet},
    env::VarError,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    time::{sleep, timeout},
};
use tollgate_config::{Config, Environment};
use tollgate_limiter::TimestampMs;
use tollgate_mock::{Bill, InMemoryMock, Options, Received};
use tollgate_pricing::PriceTable;
use tollgate_proxy::{Dial, InMemoryProxy, Setup};
use tollgate_store::{Clock, MemoryStore};
use tollgate_usage::WriterOptions;

use crate::{
    books::{self, Told},
    clock::VirtualClock,
    plan::{Call, End, Generation, Leave, PRICES, Plan},
};

/// Longer than any client waits.
const NEVER: Duration = Duration::from_secs(3_600);

/// What a process leaves behind.
struct Left {
    at: TimestampMs,
    proxy: Arc<InMemoryProxy>,
    store: Arc<MemoryStore>,
    mock: Arc<InMemoryMock>,
    /// The files as they were when it was killed.
    files: Option<tempfile::TempDir>,
}

/// What the providers saw in a life.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The calls whose request they have received.
    pub(crate) received: BTreeSet<String>,
    /// What they charge for each call.
    pub(crate) charged: BTreeMap<String, Bill>,
}

impl Seen {
    fn add(&mut self, mock: &InMemoryMock) {
        let label = |request: Received| Some(request.headers.get("x-mock-label")?.to_str().ok()?.to_owned());
        self.received.extend(mock.requests().into_iter().filter_map(label));
        self.charged.extend(mock.billed_by_label());
    }
}

/// Lives the life of a seed and checks its books.
pub(crate) fn live(seed: u64) -> Told {
    let plan = Arc::new(Plan::new(seed));
    let mut directory = directory();
    let mut now = TimestampMs::new(plan.start_ms);
    let mut seen = Seen::default();
    for (index, _) in plan.generations.iter().enumerate() {
        let left = on_paused_time(live_generation(plan.clone(), index, directory.path(), now));
        // What had not ended has ended with the runtime.
        left.proxy.close().expect("the events are written");
        now = left.at;
        seen.add(&left.mock);
        match left.files {
            // What a killed process has done since was never done.
            Some(files) => directory = files,
            None => {
                assert_eq!(left.store.open_reservations(), 0, "what is open after the end");
                on_paused_time(books::check_counters(&plan, directory.path(), &left.store, now));
            }
        }
    }
    on_paused_time(async {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::new(now));
        let store = MemoryStore::new(clock);
        setup(&plan, directory.path()).restore(&store, |_, _| {}).expect("the usage file can be read");
        books::check_counters(&plan, directory.path(), &store, now).await;
    });
    books::check(&plan, directory.path(), &seen)
}

/// Files of memory where there is such a thing: a disk that confirms what is written takes longer than
/// all else.
fn directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.expect("a directory")
}

fn on_paused_time<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(future)
}

fn setup(plan: &Plan, directory: &Path) -> Setup {
    let text = plan.config(&directory.join("usage.jsonl"));
    let config = Config::parse(&text, "simulated.toml", directory, &NamedKeys)
        .unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    Setup::new(config, Arc::new(PriceTable::from_yaml(PRICES).expect("the price table is right")))
}

async fn live_generation(plan: Arc<Plan>, index: usize, directory: &Path, start: TimestampMs) -> Left {
    let generation = &plan.generations[index];
    let clock = Arc::new(VirtualClock::new(start));
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let mut setup = setup(&plan, directory);
    setup.restore(&store, |_, _| {}).expect("the usage file can be read");
    let mock = Arc::new(InMemoryMock::new(Options::default()));
    let unreachable = Arc::new(AtomicUsize::new(0));
    let proxy = setup
        .start_in_memory(store.clone(), clock.clone(), dial(&mock, &unreachable), writer())
        .expect("the proxy starts");
    let proxy = Arc::new(proxy);
    let clients: Vec<_> = (0..generation.calls.len())
        .map(|call| tokio::spawn(act(plan.clone(), (index, call), proxy.clone(), unreachable.clone())))
        .collect();
    let files = end(generation, &proxy, clients, directory).await;
    clock.stop();
    Left { at: clock.now(), proxy, store, mock, files }
}

/// Waits for the end of a process, or brings it about. Returns the files of a killed one.
async fn end(
    generation: &Generation,
    proxy: &InMemoryProxy,
    clients: Vec<tokio::task::JoinHandle<()>>,
    files: &Path,
) -> Option<tempfile::TempDir> {
    let all_have_ended = async {
        for client in clients {
            client.await.expect("no client panics");
        }
    };
    match generation.end {
        End::Idle => {
            all_have_ended.await;
            proxy.drain().await;
        }
        End::Stopped { at_ms } => {
            let stop = async {
                sleep(Duration::from_millis(at_ms)).await;
                proxy.drain().await;
            };
            tokio::join!(stop, all_have_ended);
        }
        End::Killed { at_ms, is_flushed } => {
            sleep(Duration::from_millis(at_ms)).await;
            if is_flushed {
                proxy.flush_usage().expect("the events are written");
            }
            return Some(copy_of(files));
        }
    }
    None
}

fn copy_of(files: &Path) -> tempfile::TempDir {
    let copy = directory();
    for entry in std::fs::read_dir(files).expect("the files") {
        let file = entry.expect("a file").path();
        std::fs::copy(&file, copy.path().join(file.file_name().expect("a name"))).expect("a copy");
    }
    copy
}

/// One client: waits for its time, sends its request, reads for as long as it likes.
async fn act(
    plan: Arc<Plan>,
    (generation, call): (usize, usize),
    proxy: Arc<InMemoryProxy>,
    unreachable: Arc<AtomicUsize>,
) {
    let call = &plan.generations[generation].calls[call];
    sleep(Duration::from_millis(call.at_ms)).await;
    if call.is_unreachable {
        unreachable.fetch_add(1, Ordering::Relaxed);
    }
    let Ok(connection) = proxy.connect() else { return };
    let patience = if let Leave::AfterMs(ms) = call.leave { Duration::from_millis(ms) } else { NEVER };
    // Whatever comes back: here it is the books that count.
    let _ = timeout(patience, talk(connection, call, &plan.tenants[call.tenant].id)).await;
}

async fn talk(mut connection: DuplexStream, call: &Call, tenant: &str) -> io::Result<()> {
    connection.write_all(&call.request(tenant)).await?;
    let bytes_max = if let Leave::AfterBytes(bytes) = call.leave { bytes } else { usize::MAX };
    let (mut buffer, mut read) = ([0; 512], 0);
    while read < bytes_max {
        match connection.read(&mut buffer).await? {
            0 => break,
            bytes => read += bytes,
        }
    }
    Ok(())
}

/// Reaches the mock, but for as many times as `unreachable` says.
fn dial(mock: &Arc<InMemoryMock>, unreachable: &Arc<AtomicUsize>) -> Dial {
    let (mock, unreachable) = (mock.clone(), unreachable.clone());
    Arc::new(move |_uri| {
        let refused =
            unreachable.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if refused.is_ok() { Err(io::ErrorKind::ConnectionRefused.into()) } else { Ok(mock.connect()) }
    })
}

/// Writes when it is told to: on virtual time a batch would wait for ever, or not at all.
fn writer() -> WriterOptions {
    WriterOptions { batch_interval: NEVER, ..WriterOptions::default() }
}

/// Every variable is set to its own name.
pub(crate) struct NamedKeys;

impl Environment for NamedKeys {
    fn var(&self, name: &str) -> Result<String, VarError> {
        Ok(name.to_owned())
    }

    fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }
}
