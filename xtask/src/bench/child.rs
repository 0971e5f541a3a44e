//! The processes under test: started on a core, measured, and ended with the bench.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tollgate_store::{Clock, SystemClock};

/// How long a process may take until it can be measured.
pub(crate) const START_DEADLINE: Duration = Duration::from_secs(10);

/// The core of the load generator and the upstream.
pub(crate) const LOAD_CORE: usize = 0;
/// The core of the proxies.
pub(crate) const PROXY_CORE: usize = 1;

/// A running process and the address it serves.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pub(crate) addr: SocketAddr,
}

/// Memory of a process, in KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) resident_kib: u64,
    pub(crate) peak_kib: u64,
}

impl Process {
    /// Starts a program that prints the address it listens on.
    ///
    /// # Errors
    /// It does not start, or prints something else.
    pub(crate) fn announcing(command: &mut Command) -> Result<Self, String> {
        let mut child = spawn(command.stdout(Stdio::piped()))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(|error| error.to_string())?;
        }
        match line.trim().parse() {
            Ok(addr) => Ok(Self { child, addr }),
            Err(_) => {
                end(&mut child);
                Err(format!("{command:?} announced no address: {line:?}"))
            }
        }
    }

    /// Starts a program that was told to listen on `addr`, and waits until it does.
    ///
    /// # Errors
    /// It does not start, ends, or does not listen within ten seconds.
    pub(crate) fn listening(command: &mut Command, addr: SocketAddr, log: &Path) -> Result<Self, String> {
        let file = fs::File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
        let errors = file.try_clone().map_err(|error| error.to_string())?;
        let mut process = Self { child: spawn(command.stdout(file).stderr(errors))?, addr };
        let clock = SystemClock::new();
        while TcpStream::connect_timeout(&addr, Duration::from_millis(100)).is_err() {
            let ended = process.child.try_wait().map_err(|error| error.to_string())?.is_some();
            if ended || clock.elapsed() > START_DEADLINE {
                let said = fs::read_to_string(log).unwrap_or_default();
                return Err(format!("{command:?} does not listen on {addr}:\n{said}"));
            }
            std::thread::yield_now();
        }
        Ok(process)
    }

    /// Processor time of all its threads so far, in nanoseconds.
    ///
    /// # Errors
    /// The process is gone, or the system keeps no scheduler statistics.
    pub(crate) fn cpu_ns(&self) -> Result<u64, String> {
        let path = format!("/proc/{}/task", self.child.id());
        let mut sum_ns = 0;
        for thread in fs::read_dir(&path).map_err(|error| format!("{path}: {error}"))?.flatten() {
            let path = thread.path().join("schedstat");
            let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let run_ns = text.split_whitespace().next().and_then(|field| field.parse::<u64>().ok());
            sum_ns += run_ns.ok_or_else(|| format!("{}: {text:?}", path.display()))?;
        }
        Ok(sum_ns)
    }

    /// Its resident memory, now and at its highest.
    ///
    /// # Errors
    /// The process is gone.
    pub(crate) fn memory(&self) -> Result<Memory, String> {
        let kib = |name| {
            let value = self.status(name)?;
            let number = value.split_whitespace().next().and_then(|kib| kib.parse().ok());
            number.ok_or_else(|| format!("{name} of {value:?}"))
        };
        Ok(Memory { resident_kib: kib("VmRSS:")?, peak_kib: kib("VmHWM:")? })
    }

    /// Makes sure that it can run on `core` only: figures of processes that share a core are worthless.
    ///
    /// # Errors
    /// It can run elsewhere.
    fn is_on(&self, core: usize) -> Result<(), String> {
        let allowed = self.status("Cpus_allowed_list:")?;
        if allowed == core.to_string() {
            return Ok(());
        }
        Err(format!("process {} may run on cores {allowed}, not on {core} alone", self.child.id()))
    }

    fn status(&self, name: &str) -> Result<String, String> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim().to_owned()).ok_or_else(|| format!("{path} has no {name}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Which process runs where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores {
    is_pinned: bool,
}

impl Cores {
    /// Looks at the machine and moves this process to the core of the load generator.
    ///
    /// # Errors
    /// `taskset` (util-linux) is missing or refuses.
    pub(crate) fn divide() -> Result<Self, String> {
        // Asked before this process is moved: afterwards the answer is one core.
        let is_pinned = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > PROXY_CORE);
        if !is_pinned {
            eprintln!("one core only: nothing is pinned, and the figures say little");
            return Ok(Self { is_pinned });
        }
        let pid = std::process::id().to_string();
        let output = Command::new("taskset")
            .args(["--all-tasks", "--cpu-list", "--pid", &LOAD_CORE.to_string(), &pid])
            .output()
            .map_err(|error| format!("taskset (util-linux): {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(Self { is_pinned })
    }

    /// Makes sure that the upstream and the proxies are where they belong.
    ///
    /// # Errors
    /// One of them may run elsewhere.
    pub(crate) fn verify<'a>(self, proxies: impl Iterator<Item = &'a Process>) -> Result<(), String> {
        if !self.is_pinned {
            return Ok(());
        }
        proxies.into_iter().try_for_each(|proxy| proxy.is_on(PROXY_CORE))
    }

    /// A command that runs `program` on one core, if the machine has several.
    pub(crate) fn run_on(self, core: usize, program: &Path) -> Command {
        if !self.is_pinned {
            return Command::new(program);
        }
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", &core.to_string()]).arg(program);
        command
    }
}

/// A port that is free now, for a program that cannot choose one itself.
///
/// # Errors
/// No port is free.
pub(crate) fn free_addr() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    listener.local_addr().map_err(|error| error.to_string())
}

fn spawn(command: &mut Command) -> Result<Child, String> {
    command.stdin(Stdio::piped()).spawn().map_err(|error| format!("{command:?}: {error}"))
}

fn end(child: &mut Child) {
    // Gone already is as good.
    let _ = child.kill();
    let _ = child.wait();
}
