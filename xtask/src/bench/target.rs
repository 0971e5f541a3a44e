//! What is measured: the upstream itself and the proxies in front of it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use tollgate_store::{Clock, SystemClock};

use super::child::{Cores, LOAD_CORE, PROXY_CORE, Process, START_DEADLINE, free_addr};
use super::workload::CLIENT_KEY;

pub(crate) const DIRECT: &str = "direct";
pub(crate) const PASS_THROUGH: &str = "pass-through";
pub(crate) const NGINX: &str = "nginx";
pub(crate) const TOLLGATE: &str = "tollgate";
pub(crate) const METERING: &str = "metering";
pub(crate) const ROLLING: &str = "rolling";
pub(crate) const REDIS: &str = "redis";

/// A way to the upstream.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) addr: SocketAddr,
    /// The proxy; nothing for the way without one.
    pub(crate) process: Option<Process>,
    /// The Redis that holds its counters.
    _redis: Option<Process>,
}

impl Target {
    /// No proxy at all.
    pub(crate) fn direct(upstream: SocketAddr) -> Self {
        Self { name: DIRECT, addr: upstream, process: None, _redis: None }
    }

    /// The proxy that does nothing else.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) fn pass_through(cores: Cores, program: &Path, upstream: SocketAddr) -> Result<Self, String> {
        let mut command = cores.run_on(PROXY_CORE, program);
        let process = Process::announcing(command.args(["bench", "pass-through", &upstream.to_string()]))?;
        Ok(Self::proxy(PASS_THROUGH, process))
    }

    /// nginx with one worker, pooled connections to the upstream and no buffering of answers.
    ///
    /// # Errors
    /// It is not installed or does not start.
    pub(crate) fn nginx(cores: Cores, upstream: SocketAddr, dir: &Path) -> Result<Self, String> {
        let addr = free_addr()?;
        let config = dir.join("nginx.conf");
        write(&config, &nginx_config(addr, upstream, dir))?;
        let mut command = cores.run_on(PROXY_CORE, Path::new("nginx"));
        command.arg("-p").arg(dir).arg("-c").arg(&config).arg("-e").arg(dir.join("error.log"));
        find("nginx")?;
        Ok(Self::proxy(NGINX, Process::listening(&mut command, addr, &dir.join("nginx.out"))?))
    }

    /// Tollgate with rate limits and a budget, all of them too large to refuse anything.
    ///
    /// # Errors
    /// The binary has not been built or does not start.
    pub(crate) fn tollgate(
        setting: Setting,
        cores: Cores,
        program: &Path,
        upstream: SocketAddr,
        dir: &Path,
    ) -> Result<Self, String> {
        let name = setting.name();
        if !program.exists() {
            return Err(format!("{} has not been built", program.display()));
        }
        let (addr, admin) = (free_addr()?, free_addr()?);
        let config = dir.join(name).with_extension("toml");
        let usage = dir.join(name).with_extension("jsonl");
        let redis = (setting == Setting::Redis).then(|| redis(cores, dir)).transpose()?;
        let store = redis.as_ref().map_or_else(String::new, |redis| {
            // It shares a core with the load: what is measured is no outage.
            format!("\n[store]\nkind = \"redis\"\nurl = \"redis://{}\"\ntimeout_ms = 5_000\n", redis.addr)
        });
        write(&config, &(tollgate_config(addr, admin, upstream, &usage) + setting.budget() + &store))?;
        let mut command = cores.run_on(PROXY_CORE, program);
        command.arg("serve").arg("--config").arg(&config).env(PROVIDER_KEY_ENV, "tollgate-bench-provider");
        command.env_remove("RUST_LOG");
        let log = dir.join(name).with_extension("out");
        let process = Process::listening(&mut command, addr, &log)?;
        redis.as_ref().map_or(Ok(()), |redis| wait_until_it_decides(redis.addr))?;
        Ok(Self { _redis: redis, ..Self::proxy(name, process) })
    }

    fn proxy(name: &'static str, process: Process) -> Self {
        Self { name, addr: process.addr, process: Some(process), _redis: None }
    }
}

/// What Tollgate is to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Setting {
    /// What it does for most: a hard budget, and reservations of the usual size.
    Usual,
    /// A soft budget: streams are metered, and their reservations stay as they are.
    Metering,
    /// A hard budget, and reservations so small that the bench's streams have theirs extended again and again.
    Rolling,
    /// As [`Usual`](Self::Usual), with counters in a Redis on the load generator's core.
    Redis,
}

impl Setting {
    const fn name(self) -> &'static str {
        match self {
            Self::Usual => TOLLGATE,
            Self::Metering => METERING,
            Self::Rolling => ROLLING,
            Self::Redis => REDIS,
        }
    }

    const fn budget(self) -> &'static str {
        match self {
            Self::Usual | Self::Redis => "mode = \"hard\"\n",
            Self::Metering => "mode = \"soft\"\n",
            Self::Rolling => "mode = \"hard\"\n\n[reservation]\noutput_tokens = 64\nextend_tokens = 64\n",
        }
    }
}

/// A Redis that keeps nothing on the disk. It has the load generator's core, so that the proxy's costs are its own; one
/// call in a hundred waits there for the scheduler, which the added p99 shows: beside the proxy it does not.
fn redis(cores: Cores, dir: &Path) -> Result<Process, String> {
    let addr = free_addr()?;
    let mut command = cores.run_on(LOAD_CORE, Path::new("redis-server"));
    command.args(["--bind", "127.0.0.1", "--port", &addr.port().to_string()]);
    command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(dir);
    find("redis-server")?;
    Process::listening(&mut command, addr, &dir.join("redis.out"))
}

/// Waits until a Redis that was empty knows that nothing was spent: before that, hard budgets are refused.
fn wait_until_it_decides(redis: SocketAddr) -> Result<(), String> {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(redis)?;
        stream.write_all(b"EXISTS tollgate:ready\r\nQUIT\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let clock = SystemClock::new();
    loop {
        match ask() {
            Ok(answer) if answer.starts_with(":1") => return Ok(()),
            answer if clock.elapsed() > START_DEADLINE => return Err(format!("no Redis: {answer:?}")),
            _ => std::thread::yield_now(),
        }
    }
}

const PROVIDER_KEY_ENV: &str = "TOLLGATE_BENCH_PROVIDER_KEY";

fn nginx_config(listen: SocketAddr, upstream: SocketAddr, dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "daemon off;
master_process off;
worker_processes 1;
pid {dir}/nginx.pid;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    tcp_nodelay on;
    keepalive_requests 1000000000;
    client_body_buffer_size 64k;
    client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;
    upstream provider {{
        server {upstream};
        keepalive 128;
        keepalive_requests 1000000000;
    }}
    server {{
        listen {listen};
        location / {{
            proxy_pass http://provider;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_buffering off;
        }}
    }}
}}
"
    )
}

fn tollgate_config(listen: SocketAddr, admin: SocketAddr, upstream: SocketAddr, usage: &Path) -> String {
    let hash: String = Sha256::digest(CLIENT_KEY).iter().map(|byte| format!("{byte:02x}")).collect();
    let usage = usage.display();
    format!(
        r#"[server]
listen = "{listen}"
admin_listen = "{admin}"

[usage]
file = "{usage}"

[[providers]]
id = "anthropic"
protocol = "anthropic"
base_url = "http://{upstream}"
api_key_env = "{PROVIDER_KEY_ENV}"

[[tenants]]
id = "bench"
requests_per_minute = 1_000_000_000
tokens_per_minute = 9_000_000_000

[[tenants.keys]]
id = "bench"
hash = "sha256:{hash}"

[[tenants.budgets]]
window = "month"
limit_usd = 1_000_000
"#
    )
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Whether a program is installed; `taskset` would only say so by ending.
fn find(program: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| path.is_file());
    found.ok_or_else(|| format!("{program} is not installed"))
}
