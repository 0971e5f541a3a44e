//! `cargo xtask bench`: what Tollgate costs beside a proxy that only passes on.
//!
//! The upstream and the load generator share a thread on the first core, the proxies have the second. All
//! targets run at the same time, idle but for the one under load, and take turns in short stretches, since
//! the same code varies by a tenth from minute to minute: only figures of the same run are compared.
//!
//! The first core never sleeps. Who sends to a core that does pays for waking it, on a virtual machine with
//! an exit to the host: a slow proxy, which leaves its peers idle more often, would be charged for more of
//! that than a fast one, though peers on other machines cost neither anything.

mod child;
mod http1;
mod load;
mod measure;
mod passthrough;
mod report;
mod target;
mod upstream;
mod workload;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::workspace::Workspace;
use child::{Cores, Process};
use report::{Report, Samples};
use target::{Setting, Target};
use workload::Workload;

/// What the pass-through is meant to share with Tollgate.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How to bench.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// One round of one second each: to see that it works, not what it costs.
    #[arg(long)]
    quick: bool,
    /// Seconds for each workload at each target in each round.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// How many rounds.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Also write the figures as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// In place of Tollgate as it is used most: metering alone beside reservations that grow with streams.
    #[arg(long)]
    rolling: bool,
    /// In place of nginx: Tollgate with its counters in a Redis, beside Tollgate with those in memory.
    #[arg(long, conflicts_with = "rolling")]
    redis: bool,
    /// Fail if Tollgate misses the project's targets.
    #[arg(long)]
    check: bool,
    #[command(subcommand)]
    role: Option<Role>,
}

/// The bench's own processes.
#[derive(Clone, Copy, Debug, Subcommand)]
enum Role {
    /// The proxy that only passes on.
    #[command(hide = true)]
    PassThrough {
        /// Where to.
        upstream: SocketAddr,
    },
}

/// Runs the bench, or one of its processes.
///
/// # Errors
/// Something cannot be built or started, an answer was wrong, or `--check` found a target missed.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<(), String> {
    match arguments.role {
        Some(Role::PassThrough { upstream }) => passthrough::run(upstream),
        None if cfg!(debug_assertions) => run_optimised(root),
        None => bench(arguments),
    }
}

/// `cargo xtask` is built for quick starts; what is measured is built for speed.
fn run_optimised(root: &Path) -> Result<(), String> {
    let build = |package| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--release", "--package", package]).current_dir(root);
        match cargo.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("building {package}: {status}")),
            Err(error) => Err(format!("cargo: {error}")),
        }
    };
    build("xtask")?;
    if let Err(problem) = build("tollgate") {
        eprintln!("{problem}");
    }
    let program = Workspace::read(root)?.target_directory.join("release").join("xtask");
    let status = Command::new(&program)
        .args(std::env::args_os().skip(1))
        .status()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    if status.success() { Ok(()) } else { Err(format!("bench: {status}")) }
}

fn bench(arguments: &Arguments) -> Result<(), String> {
    let (rounds, seconds) = if arguments.quick { (1, 1) } else { (arguments.rounds, arguments.seconds) };
    let cores = Cores::divide()?;
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    // Where the system puts a process's pages has much to do with what it costs: each round has processes
    // of its own, so that the middle of the rounds is not the luck of one start.
    let start = |round: u32, upstream| {
        let dir = dir.path().join(round.to_string());
        fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let targets = targets(cores, &program, upstream, &dir, arguments)?;
        cores.verify(targets.iter().filter_map(|target| target.process.as_ref()))?;
        Ok(targets)
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("tokio: {error}"))?;
    let samples = runtime.block_on(async {
        let upstream = upstream::start().await?;
        tokio::spawn(stay_awake());
        rounds_of(start, upstream, rounds, seconds).await
    })?;
    let report = Report::new(seconds, rounds, &samples);
    println!("{}", report.table());
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
        fs::write(path, json + "\n").map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let misses = report.misses();
    if arguments.check && !misses.is_empty() {
        return Err(format!("missed:\n  {}", misses.join("\n  ")));
    }
    Ok(())
}

/// Keeps the runtime's thread from waiting for anything.
async fn stay_awake() {
    loop {
        tokio::task::yield_now().await;
    }
}

/// Those that can be started; why the others cannot is said.
fn targets(
    cores: Cores,
    program: &Path,
    upstream: SocketAddr,
    dir: &Path,
    arguments: &Arguments,
) -> Result<Vec<Target>, String> {
    let mut targets = vec![Target::direct(upstream), Target::pass_through(cores, program, upstream)?];
    let tollgate = program.with_file_name("tollgate");
    let tollgate = |setting| Target::tollgate(setting, cores, &tollgate, upstream, dir);
    let optional = if arguments.rolling {
        [tollgate(Setting::Metering), tollgate(Setting::Rolling)]
    } else if arguments.redis {
        [tollgate(Setting::Usual), tollgate(Setting::Redis)]
    } else {
        [Target::nginx(cores, upstream, dir), tollgate(Setting::Usual)]
    };
    for target in optional {
        match target {
            Ok(target) => targets.push(target),
            Err(reason) => eprintln!("left out: {reason}"),
        }
    }
    Ok(targets)
}

async fn rounds_of(
    start: impl Fn(u32, SocketAddr) -> Result<Vec<Target>, String>,
    upstream: SocketAddr,
    rounds: u32,
    seconds: u64,
) -> Result<Vec<Samples>, String> {
    const WARM_UP: Duration = Duration::from_millis(300);
    let stream_bytes = load::stream_bytes(upstream).await?;
    let mut all: Vec<Samples> = Vec::new();
    for round in 1..=rounds {
        let targets = start(round, upstream)?;
        for target in &targets {
            load::run(target.addr, Workload::Plain, stream_bytes, WARM_UP).await?;
            if all.iter().all(|samples| samples.name != target.name) {
                all.push(Samples { name: target.name, rounds: Vec::new(), memory: None });
            }
        }
        for workload in Workload::ALL {
            eprintln!("round {round} of {rounds}: {}", workload.name());
            for target in &targets {
                let duration = Duration::from_secs(seconds);
                let sample = measure::measure(target, workload, stream_bytes, duration).await?;
                let samples = all.iter_mut().find(|samples| samples.name == target.name);
                samples.into_iter().for_each(|samples| samples.rounds.push((workload, sample)));
            }
        }
        for (target, samples) in targets.iter().zip(&mut all) {
            samples.memory = target.process.as_ref().map(Process::memory).transpose()?;
        }
    }
    Ok(all)
}
