//! Redis servers to test against: started, frozen, killed, emptied and started anew by the test itself.
//!
//! Each server is a process on a free port of the loopback interface with a folder of its own, and ends with
//! its owner. The program is `redis-server` on the path, or what `TOLLGATE_REDIS_SERVER` names.

mod cluster;

use std::{
    env, fs,
    io::{self, BufReader, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use tempfile::TempDir;

use tollgate_store::StoreError;

use crate::{RedisStore, Settings, client::Script};
pub use cluster::RedisCluster;

/// A script that is none of the store's, to compare with.
#[derive(Debug)]
pub struct BareScript(Script);

impl BareScript {
    /// The script with this text.
    pub fn new(text: &'static str) -> Self {
        Self(Script::new(text))
    }
}

impl RedisStore {
    /// Says that a copy lives, and gives back places that dead ones hold, as [`SharedStore`](crate::SharedStore) does
    /// every few seconds: how many live, and whether another has its name.
    ///
    /// # Errors
    ///
    /// Redis did not answer.
    pub async fn keep_places(&self, copy: &Arc<str>) -> Result<(usize, bool), StoreError> {
        let living = self.look_after_places(copy).await?;
        Ok((living.copies, living.is_named_twice))
    }

    /// Runs a script on the store's own connection.
    ///
    /// # Errors
    ///
    /// It was not run, or nobody knows.
    pub async fn run_bare(
        &self,
        script: &BareScript,
        keys: &[String],
        arguments: &[String],
    ) -> Result<(), StoreError> {
        let arguments = || arguments.iter().cloned().map(Into::into).collect();
        let keys: Vec<_> = keys.iter().cloned().map(Into::into).collect();
        self.0.client().run::<bytes::Bytes>(&script.0, &keys, arguments).await.map(drop)
    }
}

/// Names the program, where it is not on the path.
const PROGRAM: &str = "TOLLGATE_REDIS_SERVER";

/// How often a port is tried that somebody else has.
const PORT_ATTEMPTS: usize = 50;

const SENTINEL_CONFIG: &str = "sentinel.conf";

/// A Redis of a test's own.
#[derive(Debug)]
pub struct RedisServer {
    folder: TempDir,
    port: u16,
    options: Vec<String>,
    /// A file of its own that the server reads first, and may change.
    config: Option<&'static str>,
    process: Option<Child>,
}

impl RedisServer {
    /// Starts a server without persistence and waits until it answers.
    ///
    /// # Errors
    ///
    /// There is no `redis-server`, or it does not come up.
    pub fn start() -> io::Result<Self> {
        Self::start_with(&["--save", "", "--appendonly", "no"])
    }

    /// As [`start`](Self::start), with options of the command line.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn start_with(options: &[&str]) -> io::Result<Self> {
        on_a_free_port(|| Self::prepared(options)?.running())
    }

    /// Starts a sentinel that watches `primary` under the name `main` and decides by itself, quickly.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn start_sentinel(primary: &Self) -> io::Result<Self> {
        Self::start_sentinel_with(primary, "")
    }

    /// As [`start_sentinel`](Self::start_sentinel), with more lines of its configuration.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn start_sentinel_with(primary: &Self, lines: &str) -> io::Result<Self> {
        let config = format!(
            "sentinel monitor main 127.0.0.1 {} 1\nsentinel down-after-milliseconds main 300\n\
             sentinel failover-timeout main 2000\n{lines}\n",
            primary.port
        );
        on_a_free_port(|| {
            let mut sentinel = Self::prepared(&["--sentinel"])?;
            fs::write(sentinel.folder.path().join(SENTINEL_CONFIG), &config)?;
            sentinel.config = Some(SENTINEL_CONFIG);
            sentinel.running()
        })
    }

    fn prepared(options: &[&str]) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        // Free now, and mostly still so when the server takes it.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let options = options.iter().map(|&option| option.to_owned()).collect();
        Ok(Self { folder, port, options, config: None, process: None })
    }

    fn running(mut self) -> io::Result<Self> {
        self.run()?;
        Ok(self)
    }

    /// The port on the loopback interface.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The server's folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// How to reach it, under a prefix.
    pub fn settings(&self, prefix: &str) -> Settings {
        Settings {
            url: format!("redis://127.0.0.1:{}/0", self.port),
            prefix: prefix.to_owned(),
            timeout: Duration::from_millis(1_000),
        }
    }

    /// Starts it (again) and waits until it answers.
    ///
    /// # Errors
    ///
    /// There is no `redis-server`, or it does not come up.
    pub fn restart(&mut self) -> io::Result<()> {
        for _ in 0..PORT_ATTEMPTS {
            match self.run() {
                // Somebody's connection has its port for a moment.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    std::thread::park_timeout(Duration::from_millis(100));
                }
                result => return result,
            }
        }
        self.run()
    }

    /// The same, once: [`AddrInUse`](io::ErrorKind::AddrInUse) where its port is another's.
    fn run(&mut self) -> io::Result<()> {
        self.kill();
        let program = env::var_os(PROGRAM).unwrap_or_else(|| "redis-server".into());
        let mut command = Command::new(&program);
        command.args(self.config.map(|name| self.folder.path().join(name)));
        command.args(["--bind", "127.0.0.1", "--port", &self.port.to_string(), "--daemonize", "no", "--dir"]);
        command.arg(self.folder.path()).args(&self.options);
        let log = fs::File::create(self.folder.path().join("log"))?;
        let started = command.stdin(Stdio::null()).stderr(Stdio::null()).stdout(log).spawn();
        self.process = Some(started.map_err(|error| {
            let program = program.to_string_lossy();
            io::Error::other(format!(
                "{program}: {error}. Tests against Redis need a redis-server: install one (`cargo xtask redis` \
                 does on Debian), or name it in {PROGRAM}"
            ))
        })?);
        self.wait_until_it_answers()
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have ended by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Stops it from running, connections open, until [`thaw`](Self::thaw).
    ///
    /// # Errors
    ///
    /// The signal could not be sent.
    pub fn freeze(&self) -> io::Result<()> {
        self.signal("-STOP")
    }

    /// Lets it run again.
    ///
    /// # Errors
    ///
    /// The signal could not be sent.
    pub fn thaw(&self) -> io::Result<()> {
        self.signal("-CONT")
    }

    fn signal(&self, signal: &str) -> io::Result<()> {
        let Some(process) = &self.process else { return Err(io::Error::other("the server does not run")) };
        let sent = Command::new("kill").args([signal, &process.id().to_string()]).status()?;
        if sent.success() { Ok(()) } else { Err(io::Error::other(format!("kill {signal}: {sent}"))) }
    }

    /// Sends one command on a connection of its own and returns the first line of the answer, or all texts of
    /// a list, a line each.
    ///
    /// # Errors
    ///
    /// It cannot be reached or does not answer.
    pub fn command(&self, words: &[&str]) -> io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        stream.write_all(request.as_bytes())?;
        read_answer(&mut BufReader::new(stream))
    }

    /// Whether `replica` has done all that this server had when it was asked.
    ///
    /// # Errors
    ///
    /// One of them does not answer.
    pub fn is_replicated_by(&self, replica: &Self) -> io::Result<bool> {
        let offset = |server: &Self, name: &str| -> io::Result<Option<u64>> {
            let info = server.command(&["INFO", "replication"])?;
            Ok(info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()))
        };
        let wanted = offset(self, "master_repl_offset:")?;
        Ok(wanted.is_some() && offset(replica, "slave_repl_offset:")? >= wanted)
    }

    /// The keys that have no time to live.
    ///
    /// # Errors
    ///
    /// The server does not answer.
    pub fn immortal_keys(&self) -> io::Result<Vec<String>> {
        let script = "local all = {} for _, key in ipairs(redis.call('KEYS', '*')) do \
                      if redis.call('PTTL', key) == -1 then all[#all + 1] = key end end return all";
        Ok(self.command(&["EVAL", script, "0"])?.lines().map(str::to_owned).collect())
    }

    fn wait_until_it_answers(&mut self) -> io::Result<()> {
        const ATTEMPTS: usize = 1_000;
        for _ in 0..ATTEMPTS {
            let answer = self.command(&["PING"]).unwrap_or_else(|error| error.to_string());
            // One that asks for a password is there too.
            if answer == "PONG" || answer.starts_with("NOAUTH") {
                return Ok(());
            }
            if let Some(ended) = self.process.as_mut().map(Child::try_wait).transpose()?.flatten() {
                let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                let is_taken = log.contains("Address already in use");
                let kind = if is_taken { io::ErrorKind::AddrInUse } else { io::ErrorKind::Other };
                return Err(io::Error::new(kind, format!("redis-server ended with {ended}\n{log}")));
            }
            // Refused connections are refused at once: a pause, without reading a clock.
            std::thread::park_timeout(Duration::from_millis(10));
        }
        Err(io::Error::other("redis-server does not answer"))
    }
}

/// Starts what takes free ports, again where somebody else was quicker.
fn on_a_free_port<T>(start: impl Fn() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..PORT_ATTEMPTS {
        match start() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            result => return result,
        }
    }
    start()
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// One answer; of a list each element's text on a line of its own.
fn read_answer(reader: &mut impl io::BufRead) -> io::Result<String> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let line = line.trim_end();
    let Some((kind, rest)) = line.split_at_checked(1) else { return Err(io::Error::other("no answer")) };
    let length = || rest.parse::<i64>().map_err(io::Error::other);
    match kind {
        "+" | ":" => Ok(rest.to_owned()),
        "$" => {
            let Ok(length) = usize::try_from(length()?) else { return Ok(String::new()) };
            let mut text = vec![0; length + 2];
            reader.read_exact(&mut text)?;
            text.truncate(length);
            Ok(String::from_utf8_lossy(&text).into_owned())
        }
        "*" => {
            let elements = (0..length()?).map(|_| read_answer(reader)).collect::<io::Result<Vec<_>>>()?;
            Ok(elements.join("\n"))
        }
        _ => Err(io::Error::other(rest.to_owned())),
    }
}
