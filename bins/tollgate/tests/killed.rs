//! The program under load, killed at random instants: nothing that was reserved or settled is lost.
//!
//! `TOLLGATE_KILLS` sets how often (default: 200), `TOLLGATE_SEED` repeats a run.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{BufRead, BufReader, Read, Seek, SeekFrom},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::{sleep, timeout},
};
use tollgate_mock::{Mock, Options};
use tollgate_store_redis::testing::RedisServer;
use tollgate_tests::{Client, PATIENCE, json_request};

/// A token of `unit` costs a micro-USD; a request to `dear` costs more than the budget has.
const PRICES: &str =
    "models:\n  unit:\n    input: 1\n    output: 1\n  dear:\n    input: 10000\n    output: 10000\n";

/// Kills of one usage file: a longer file only takes longer to read.
const KILLS_OF_A_FILE: u64 = 20;

/// The program, running.
struct Program {
    child: Child,
    log: BufReader<ChildStderr>,
    /// Where it tells of itself, once it does.
    admin: Option<SocketAddr>,
}

impl Program {
    fn spawn(folder: &Path) -> Self {
        Self::start(Command::new(env!("CARGO_BIN_EXE_tollgate")), folder)
    }

    /// As it runs where no file may be longer than so many bytes.
    fn spawn_with_short_files(folder: &Path, most_bytes: u64) -> Self {
        let mut shell = Command::new("sh");
        let program = format!("ulimit -f {}; exec \"$0\" \"$@\"", most_bytes / 512);
        shell.args(["-c", &program, env!("CARGO_BIN_EXE_tollgate")]);
        Self::start(shell, folder)
    }

    fn start(mut program: Command, folder: &Path) -> Self {
        let mut child = program
            .args(["serve", "--config"])
            .arg(folder.join("tollgate.toml"))
            .env("KEY", "key_of_t")
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let log = BufReader::new(child.stderr.take().expect("its log"));
        Self { child, log, admin: None }
    }

    /// Where it listens, once it does.
    fn address(&mut self) -> SocketAddr {
        let mut log = String::new();
        loop {
            let before = log.len();
            self.log.read_line(&mut log).expect("its log");
            let line = &log[before..];
            assert!(!line.is_empty(), "it ended:\n{log}");
            let line: Value = serde_json::from_str(line).unwrap_or_default();
            if line["message"] == "serving" {
                let of = |name: &str| line[name].as_str().expect("an address").parse().expect("an address");
                self.admin = Some(of("admin"));
                return of("listen");
            }
        }
    }

    /// `kill -9`.
    fn kill(mut self) {
        self.child.kill().expect("it is killed");
        self.child.wait().expect("it has ended");
    }

    /// What it says before it ends by itself.
    fn failure(mut self) -> String {
        let mut log = String::new();
        self.log.read_to_string(&mut log).expect("its log");
        assert!(!self.child.wait().expect("it has ended").success(), "{log}");
        log
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the usage file says, read as it grows.
struct Books {
    path: PathBuf,
    read_bytes: u64,
    costs: HashMap<String, u64>,
    refusals: HashMap<String, Value>,
    recovered: u64,
}

impl Books {
    fn new(folder: &Path) -> Self {
        let path = folder.join("usage.jsonl");
        Self { path, read_bytes: 0, costs: HashMap::new(), refusals: HashMap::new(), recovered: 0 }
    }

    fn read(&mut self) {
        let Ok(mut file) = File::open(&self.path) else { return };
        file.seek(SeekFrom::Start(self.read_bytes)).expect("the file");
        let mut text = Vec::new();
        file.read_to_end(&mut text).expect("the file");
        text.truncate(text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        self.read_bytes += u64::try_from(text.len()).expect("a length");
        for line in text.split(|byte| *byte == b'\n') {
            // A line that a kill has torn is none.
            let Ok(event) = serde_json::from_slice::<Value>(line) else { continue };
            let id = event["request_id"].as_str().expect("an id").to_owned();
            if event["type"] == "refusal" {
                self.refusals.insert(id, event);
                continue;
            }
            let is_recovered =
                event["flags"].as_array().is_some_and(|flags| flags.contains(&json!("recovered")));
            self.recovered += u64::from(is_recovered);
            let cost = event["cost_micro_usd"].as_u64().expect("a cost");
            assert_eq!(self.costs.insert(id, cost), None, "one call, one event");
        }
    }

    fn sum(&self) -> u64 {
        self.costs.values().sum()
    }
}

/// Whole numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn configure(folder: &Path, mock: &Mock, reservation: &str) {
    fs::write(folder.join("prices.yaml"), PRICES).expect("written");
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n\
         [pricing]\nfile = \"prices.yaml\"\n[reservation]\n{reservation}\n\
         [[providers]]\nid = \"anthropic\"\nprotocol = \"anthropic\"\nbase_url = \"{}\"\napi_key_env = \"KEY\"\n\
         [[tenants]]\nid = \"t\"\n[[tenants.budgets]]\nwindow = \"total\"\nlimit_usd = 2.9\n\
         [[tenants.keys]]\nid = \"k\"\nkey_env = \"KEY\"\n",
        mock.base_url()
    );
    fs::write(folder.join("tollgate.toml"), text).expect("written");
}

fn request(model: &str, stream: bool, headers: &[&str]) -> Vec<u8> {
    let content = "Hello ".repeat(if model == "dear" { 1_000 } else { 1 });
    let body = json!({"model": model, "max_tokens": 300, "stream": stream,
                      "messages": [{"role": "user", "content": content}]});
    let headers: Vec<_> = headers.iter().chain(&["connection: close"]).copied().collect();
    json_request("/v1/messages", "key_of_t", &body, &headers)
}

/// Sends a request and reads what comes, as far as the other side lives.
async fn call(address: SocketAddr, request: Vec<u8>) -> Vec<u8> {
    let mut answer = Vec::new();
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(&request).await?;
        stream.read_to_end(&mut answer).await
    };
    let _ = timeout(PATIENCE, exchange).await;
    answer
}

/// Some clients that call one after the other until the server is gone.
fn load(address: SocketAddr, random: &mut Random) -> JoinSet<()> {
    let mut clients = JoinSet::new();
    for client in 0..8 {
        let seed = random.below(u64::MAX);
        clients.spawn(async move {
            let mut random = Random(seed | 1);
            loop {
                let stream = client % 2 == 0;
                let output = format!("x-mock-output-tokens: {}", 1 + random.below(250));
                let delay = format!("x-mock-first-byte-delay-ms: {}", random.below(5));
                let pace: &[&str] = if stream { &["x-mock-events: 4", "x-mock-interval-ms: 1"] } else { &[] };
                let headers: Vec<_> = pace.iter().copied().chain([&*output, &*delay]).collect();
                if call(address, request("unit", stream, &headers)).await.is_empty() {
                    return;
                }
            }
        });
    }
    clients
}

/// What the budget has spent and holds, as a call that does not fit is told.
async fn standing(address: SocketAddr, books: &mut Books) -> (u64, u64) {
    let answer = call(address, request("dear", false, &[])).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.starts_with("HTTP/1.1 402"), "{answer}");
    let id =
        answer.split("x-tollgate-request-id: ").nth(1).expect("an id").split("\r\n").next().expect("an id");
    let told = async {
        loop {
            books.read();
            match books.refusals.get(id) {
                Some(event) => return event["limit"].clone(),
                None => sleep(Duration::from_millis(1)).await,
            }
        }
    };
    let limit = timeout(PATIENCE, told).await.expect("the refusal is in the file");
    (limit["spent"].as_u64().expect("spend"), limit["held"].as_u64().expect("holds"))
}

fn billed(mock: &Mock) -> u64 {
    mock.billed().values().map(|bill| bill.usage.prompt_tokens() + bill.usage.output_tokens).sum()
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::test]
async fn killed_at_any_instant_nothing_spent_is_lost_and_nothing_counts_twice() {
    let (kills, seed) = (setting("TOLLGATE_KILLS", 200), setting("TOLLGATE_SEED", 0x2545_f491_4f6c_dd1d));
    println!("seed {seed}");
    let mut random = Random(seed);
    let (mut calls, mut recovered) = (0, 0);
    for first in (0..kills).step_by(usize::try_from(KILLS_OF_A_FILE).expect("a step")) {
        let folder = tempfile::tempdir().expect("a folder");
        let mock = Mock::start(Options::default()).expect("the mock starts");
        configure(folder.path(), &mock, "");
        let mut books = Books::new(folder.path());
        for kill in first..kills.min(first + KILLS_OF_A_FILE) {
            let mut program = Program::spawn(folder.path());
            // Some are killed while they read and recover.
            if random.below(4) == 0 {
                sleep(Duration::from_micros(random.below(60_000))).await;
                program.kill();
                continue;
            }
            let address = program.address();
            let (spent, held) = standing(address, &mut books).await;
            assert_eq!((spent, held), (books.sum(), 0), "after kill {kill}: counters and events");
            assert!(spent >= billed(&mock), "after kill {kill}: {spent} spent, {} billed", billed(&mock));
            let mut clients = load(address, &mut random);
            sleep(Duration::from_micros(random.below(40_000))).await;
            program.kill();
            while clients.join_next().await.is_some() {}
        }
        let mut program = Program::spawn(folder.path());
        let (spent, held) = standing(program.address(), &mut books).await;
        assert_eq!((spent, held), (books.sum(), 0), "after the last kill");
        assert!(spent >= billed(&mock));
        calls += books.costs.len();
        recovered += books.recovered;
    }
    println!("{kills} kills, {calls} calls, {recovered} of them open when their process was killed");
    assert!(recovered > kills / 4, "the kills came while calls were open: {recovered}");
}

#[tokio::test]
async fn c18_holds_that_were_open_at_a_kill_are_spent_and_hold_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mock = Mock::start(Options::default()).expect("the mock starts");
    configure(folder.path(), &mock, "");
    let mut program = Program::spawn(folder.path());
    let address = program.address();
    let mut clients = JoinSet::new();
    for _ in 0..50 {
        clients.spawn(call(address, request("unit", false, &["x-mock-start: hang"])));
    }
    mock.wait_for_requests(50, PATIENCE).await.expect("all are with the provider");
    program.kill();
    while clients.join_next().await.is_some() {}

    let mut books = Books::new(folder.path());
    let mut program = Program::spawn(folder.path());
    let address = program.address();
    let (spent, held) = standing(address, &mut books).await;
    assert_eq!((books.recovered, spent, held), (50, books.sum(), 0));
    assert!(spent >= 50 * 300, "{spent}");
    // Others are not held up by them.
    let answer = call(address, request("unit", false, &["x-mock-output-tokens: 5"])).await;
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
}

#[tokio::test]
async fn places_in_redis_that_calls_had_at_a_kill_are_free_when_the_program_is_back() {
    let server = RedisServer::start().expect("a Redis starts");
    let folder = tempfile::tempdir().expect("a folder");
    let mock = Mock::start(Options::default()).expect("the mock starts");
    let store = format!("[store]\nkind = \"redis\"\nurl = \"{}\"\n", server.settings("").url);
    configure(folder.path(), &mock, &format!("{store}[[limits]]\nscope = \"tenant\"\nmax_concurrent = 3\n"));
    for _ in 0..2 {
        let mut program = Program::spawn(folder.path());
        let address = program.address();
        let is_free = async || call(address, request("unit", false, &[])).await.starts_with(b"HTTP/1.1 200");
        // They are given back beside the first calls.
        let all_free = async {
            while !is_free().await {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, all_free).await.expect("there is room");
        let mut clients = JoinSet::new();
        let before = u64::try_from(mock.requests().len()).expect("a count");
        for _ in 0..3 {
            clients.spawn(call(address, request("unit", false, &["x-mock-start: hang"])));
        }
        mock.wait_for_requests(before + 3, PATIENCE).await.expect("all are with the provider");
        assert!(!is_free().await, "three hold all places");
        program.kill();
        while clients.join_next().await.is_some() {}
    }
}

/// A program with its counters in a Redis.
struct OnRedis {
    server: RedisServer,
    mock: Mock,
    folder: tempfile::TempDir,
    books: Books,
}

impl OnRedis {
    fn new() -> Self {
        let server = RedisServer::start().expect("a Redis starts");
        let folder = tempfile::tempdir().expect("a folder");
        let mock = Mock::start(Options::default()).expect("the mock starts");
        let store = format!("[store]\nkind = \"redis\"\nurl = \"{}\"\n", server.settings("").url);
        let places = "[[limits]]\nscope = \"tenant\"\nmax_concurrent = 40\n";
        configure(folder.path(), &mock, &format!("{store}{places}"));
        let books = Books::new(folder.path());
        Self { server, mock, folder, books }
    }

    /// A program that decides over hard budgets, and where it listens.
    async fn begin(&self) -> (Program, SocketAddr) {
        let mut program = Program::spawn(self.folder.path());
        let address = program.address();
        let decided = async {
            while !call(address, request("unit", false, &[])).await.starts_with(b"HTTP/1.1 200") {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, decided).await.expect("hard budgets are decided");
        (program, address)
    }

    /// Twenty streams of so many events, each with the provider.
    async fn stream(&self, address: SocketAddr, events: &str) -> JoinSet<Vec<u8>> {
        let before = u64::try_from(self.mock.requests().len()).expect("a count");
        let mut clients = JoinSet::new();
        for _ in 0..20 {
            let pace = [events, "x-mock-interval-ms: 100", "x-mock-output-tokens: 7"];
            clients.spawn(call(address, request("unit", true, &pace)));
        }
        self.mock.wait_for_requests(before + 20, PATIENCE).await.expect("all are with the provider");
        clients
    }

    /// What the program says of itself on its other listener.
    async fn metrics(program: &Program) -> String {
        let admin = program.admin.expect("it serves");
        let request = b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        String::from_utf8(call(admin, request.to_vec()).await).expect("a text")
    }

    /// Redis forgets everything, and is told what was spent.
    async fn empty(&self) {
        self.server.command(&["FLUSHALL"]).expect("it is emptied");
        let told = async {
            while self.server.command(&["EXISTS", "tollgate:ready"]).expect("an answer") != "1" {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, told).await.expect("it is told what was spent");
    }

    /// Redis has what the events say, of calls that had all ended.
    async fn assert_settled(&mut self, address: SocketAddr) {
        let settled = async {
            loop {
                let (spent, held) = standing(address, &mut self.books).await;
                if (spent, held) == (self.books.sum(), 0) {
                    return;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, settled).await.expect("Redis has all of it");
        assert_eq!(self.books.recovered, 0, "all had ended");
    }
}

/// To their ends, which clients see whole.
async fn ended(mut clients: JoinSet<Vec<u8>>) {
    while let Some(answer) = clients.join_next().await {
        let answer = String::from_utf8_lossy(&answer.expect("an answer")).into_owned();
        assert!(answer.contains("message_stop"), "{answer}");
    }
}

/// Redis answers no more, calls end meanwhile, and the program is killed in the same moment: when both are back, Redis has
/// what was used, and nothing is held.
#[tokio::test]
async fn settlements_on_their_way_to_redis_at_a_kill_are_settled_when_the_program_is_back() {
    let mut run = OnRedis::new();
    for round in 0..3 {
        let (program, address) = run.begin().await;
        let clients = run.stream(address, "x-mock-events: 3").await;
        run.server.freeze().expect("it stands still");
        ended(clients).await;
        program.kill();
        // One that is killed while it begins loses none of them either.
        if round == 1 {
            let mut program = Program::spawn(run.folder.path());
            program.address();
            program.kill();
        }
        run.server.thaw().expect("it goes on");

        let (program, address) = run.begin().await;
        run.assert_settled(address).await;
        program.kill();
    }
    assert!(run.books.costs.len() >= 60);
}

/// As above, of calls that were open when Redis was emptied: nothing of them is held there any more, and they were not among
/// what it was told.
#[tokio::test]
async fn calls_that_were_open_when_redis_was_emptied_are_settled_after_a_kill() {
    let mut run = OnRedis::new();
    let (program, address) = run.begin().await;
    // Without a kill they are settled too, and none of it is a failure.
    let clients = run.stream(address, "x-mock-events: 30").await;
    run.empty().await;
    ended(clients).await;
    run.assert_settled(address).await;
    assert!(OnRedis::metrics(&program).await.contains("tollgate_settle_failures_total 0"));

    let clients = run.stream(address, "x-mock-events: 30").await;
    run.empty().await;
    run.server.freeze().expect("it stands still");
    ended(clients).await;
    program.kill();
    run.server.thaw().expect("it goes on");

    let (_program, address) = run.begin().await;
    run.assert_settled(address).await;
    assert!(run.books.costs.len() >= 40);
}

#[tokio::test]
async fn a_stream_that_had_reserved_more_comes_back_at_all_of_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mock = Mock::start(Options::default()).expect("the mock starts");
    configure(folder.path(), &mock, "output_tokens = 50\nextend_tokens = 50");
    let mut program = Program::spawn(folder.path());
    let body = json!({"model": "unit", "max_tokens": 3000, "stream": true,
                      "messages": [{"role": "user", "content": "Hello"}]});
    let headers = [
        "x-mock-output-tokens: 2000",
        "x-mock-text-bytes: 8000",
        "x-mock-events: 40",
        "x-mock-hang-after: 30",
    ];
    let mut connection = Client::new(program.address()).connect().await;
    connection.write(&json_request("/v1/messages", "key_of_t", &body, &headers)).await;
    connection.read_at_least(6_000).await.expect("most of the answer");
    program.kill();

    let mut books = Books::new(folder.path());
    let mut program = Program::spawn(folder.path());
    let (spent, held) = standing(program.address(), &mut books).await;
    assert_eq!((books.recovered, spent, held), (1, books.sum(), 0));
    assert!(spent >= 500, "far more than the first 50 tokens: {spent}");
}

#[tokio::test]
async fn files_that_may_not_grow_refuse_hard_budgets_and_end_no_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let mock = Mock::start(Options::default()).expect("the mock starts");
    configure(folder.path(), &mock, "");
    let mut program = Program::spawn_with_short_files(folder.path(), 16 << 10);
    let address = program.address();
    let mut statuses = Vec::new();
    for _ in 0..60 {
        let answer = call(address, request("unit", false, &["x-mock-output-tokens: 5"])).await;
        statuses
            .push(String::from_utf8_lossy(&answer).split(' ').nth(1).map(str::to_owned).expect("a status"));
    }
    let passed = statuses.iter().take_while(|status| *status == "200").count();
    assert!(passed > 5, "{statuses:?}");
    assert!(statuses.len() > passed, "it is never full: {statuses:?}");
    assert!(statuses[passed..].iter().all(|status| status == "503"), "{statuses:?}");
    program.kill();

    let mut books = Books::new(folder.path());
    let mut program = Program::spawn(folder.path());
    let (spent, held) = standing(program.address(), &mut books).await;
    assert_eq!((books.costs.len(), spent, held), (passed, books.sum(), 0));
    assert!(spent >= billed(&mock));
}

#[tokio::test]
async fn a_second_process_on_one_usage_file_is_told_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let mock = Mock::start(Options::default()).expect("the mock starts");
    configure(folder.path(), &mock, "");
    let mut first = Program::spawn(folder.path());
    let address = first.address();
    let told = Program::spawn(folder.path()).failure();
    assert!(told.contains("another process uses it"), "{told}");
    let answer = call(address, request("unit", false, &[])).await;
    assert!(answer.starts_with(b"HTTP/1.1 200"), "the first one goes on");
}
