//! `tollgate demo`: the proxy at work on a provider of its own.

mod calls;
mod table;

use std::{
    env::VarError,
    io,
    net::SocketAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
};

use tollgate_config::{Config, Environment};
use tollgate_mock::{Mock, Options};
use tollgate_pricing::PriceTable;
use tollgate_proxy::{Proxy, Setup};
use tollgate_store::{Clock, MemoryStore, SystemClock};

use crate::{
    cli::{DemoArgs, Failure},
    out::print,
    signals,
};

/// What the mock expects from the proxy in place of the clients' keys.
const PROVIDER_KEY: &str = "demo-provider-key";

/// Where the demo listens, so that its `curl` can be pasted; if that is taken, anywhere.
const LISTEN: &str = "127.0.0.1:8080";

pub(crate) fn run(args: &DemoArgs) -> Result<(), Failure> {
    let directory = Directory::new().map_err(Failure::refused)?;
    let options = Options { api_key: Some(PROVIDER_KEY.to_owned()), ..Options::default() };
    let mock = Mock::start(options).map_err(Failure::refused)?;
    let preferred = if args.once { "127.0.0.1:0" } else { LISTEN };
    let proxy =
        start(preferred, &mock, &directory.0).or_else(|_| start("127.0.0.1:0", &mock, &directory.0))?;
    print("A mock provider and Tollgate are up. Nothing leaves this machine.\n\n")?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::refused)?;
    runtime.block_on(calls::run(proxy.address()))?;
    proxy.flush_usage().map_err(Failure::refused)?;
    table::print(&directory.usage_file())?;
    if !args.once {
        print(&in_curl(proxy.address(), proxy.admin_address()))?;
        signals::wait_for_stop().map_err(Failure::refused)?;
    }
    proxy.stop().map_err(Failure::refused)?;
    Ok(())
}

fn start(listen: &str, mock: &Mock, directory: &Path) -> Result<Proxy, Failure> {
    let text = include_str!("demo/demo.toml")
        .replace("{listen}", listen)
        .replace("{provider}", &mock.base_url())
        .replace("{usage_file}", &directory.join("usage.jsonl").display().to_string());
    let config = Config::parse(&text, "demo.toml", directory, &DemoEnvironment).map_err(Failure::config)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = Arc::new(MemoryStore::new(clock.clone()));
    Setup::new(config, PriceTable::builtin()).start(store, clock, NonZeroUsize::MIN).map_err(Failure::refused)
}

fn in_curl(address: SocketAddr, admin: SocketAddr) -> String {
    format!(
        "\nStill up. Try it (Ctrl-C ends it):\n\n\
         curl http://{address}/v1/messages -H 'x-api-key: demo-acme' -H 'anthropic-version: 2023-06-01' \\\n  \
         -H 'content-type: application/json' \\\n  \
         -d '{{\"model\":\"claude-sonnet-5-5\",\"max_tokens\":64,\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'\n\n\
         curl http://{admin}/metrics\n"
    )
}

/// A directory of the demo's own, removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("tollgate-demo-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    fn usage_file(&self) -> PathBuf {
        self.0.join("usage.jsonl")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The demo's keys are no secrets: they are printed.
struct DemoEnvironment;

impl Environment for DemoEnvironment {
    fn var(&self, name: &str) -> Result<String, VarError> {
        match name {
            "DEMO_PROVIDER_KEY" => Ok(PROVIDER_KEY.to_owned()),
            "DEMO_KEY_ACME" => Ok("demo-acme".to_owned()),
            "DEMO_KEY_HASTY" => Ok("demo-hasty".to_owned()),
            "DEMO_KEY_FRUGAL" => Ok("demo-frugal".to_owned()),
            "DEMO_KEY_CHATTY" => Ok("demo-chatty".to_owned()),
            _ => Err(VarError::NotPresent),
        }
    }

    fn read_file(&self, _path: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }
}
