//! The command line: what can be typed, and what a failure exits with.

use std::{fmt::Display, net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand};
use tollgate_config::Scope;
use tollgate_limiter::TimestampMs;
use tollgate_store::{Clock, SystemClock};
use tollgate_usage::{Dimension, UnknownDimension, parse_moment};

/// Refused input or a failed check.
const EXIT_REFUSED: u8 = 1;

/// A configuration that cannot be used (`EX_CONFIG` of sysexits).
const EXIT_CONFIG: u8 = 78;

/// A proxy that decides before each LLM call whether it may be paid for.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the proxy.
    Serve(ConfigArgs),
    /// Show the proxy at work on a provider of its own: no key, no network, no set-up.
    Demo(DemoArgs),
    /// Check a configuration and print every key's effective limits.
    Check(ConfigArgs),
    /// Show what would become of one request, without sending it.
    Explain(ExplainArgs),
    /// Virtual keys.
    Key {
        #[command(subcommand)]
        command: KeyCommand,
    },
    /// The cost of a usage, line by line.
    Price(PriceArgs),
    /// Report what was used and what it cost, from usage files.
    Usage(ReportArgs),
    /// Show what the limits of a configuration would have done to past calls.
    Simulate(SimulateArgs),
    /// Run the mock provider alone.
    #[command(hide = true)]
    Mock(MockArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// The id of the key that the request would come with.
    #[arg(long, value_name = "ID")]
    pub(crate) key: String,
    /// The request's path, such as `/v1/messages`; guessed from the body if left out.
    #[arg(long)]
    pub(crate) path: Option<String>,
    /// A header of the request, such as `x-tollgate-session: run-1`. May be repeated.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// The request's body; `-` reads standard input.
    #[arg(value_name = "REQUEST.json")]
    pub(crate) request: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// End after the calls instead of staying up.
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a key: prints it once, with the lines for the configuration.
    New(KeyArgs),
}

#[derive(Args, Debug)]
pub(crate) struct KeyArgs {
    /// The key's name in the configuration.
    #[arg(long, default_value = "new")]
    pub(crate) id: String,
}

#[derive(Args, Debug)]
pub(crate) struct PriceArgs {
    /// The model.
    #[arg(required_unless_present = "batch")]
    pub(crate) model: Option<String>,
    /// Price JSON lines `{"model":…,"usage":{…},"service_tier":…}` from a file; `-` reads standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "json", "tier"])]
    pub(crate) batch: Option<PathBuf>,
    /// A price table to use instead of the compiled-in one.
    #[arg(long, value_name = "FILE")]
    pub(crate) table: Option<PathBuf>,
    /// The service tier, such as `batch` or `priority`.
    #[arg(long)]
    pub(crate) tier: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) usage: UsageArgs,
}

/// A usage, class by class. `reasoning`, audio and image numbers are parts of `input` and `output`.
#[derive(Args, Debug)]
pub(crate) struct UsageArgs {
    /// Input tokens that are neither read from nor written to a cache.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) input: u64,
    /// Output tokens, reasoning included.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) output: u64,
    /// Input tokens read from a cache.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) cache_read: u64,
    /// Input tokens written to a cache for five minutes.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) cache_write: u64,
    /// Input tokens written to a cache for one hour.
    #[arg(long = "cache-write-1h", value_name = "N", default_value_t = 0)]
    pub(crate) cache_write_1h: u64,
    /// Reasoning tokens within the output.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) reasoning: u64,
    /// Audio tokens within the input.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) audio_input: u64,
    /// Audio tokens within the output.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) audio_output: u64,
    /// Image tokens within the input.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) image_input: u64,
    /// Image tokens within the output.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) image_output: u64,
    /// Web searches the provider ran.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) web_searches: u64,
}

#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Usage files, rotated ones among them. A call that is in several counts once.
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    pub(crate) file: Vec<PathBuf>,
    /// What to group by, such as `tenant,model` or `day`; an unknown name lists what there is.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "tenant", value_parser = dimension)]
    pub(crate) by: Vec<Dimension>,
    /// The first moment that counts: RFC 3339, a date in UTC, or a span back from now such as `24h` or `7d`.
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    pub(crate) since: Option<TimestampMs>,
    /// The first moment that no longer counts: `--until 2026-12-01` ends with November.
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    pub(crate) until: Option<TimestampMs>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print CSV.
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
}

#[derive(Args, Debug)]
pub(crate) struct SimulateArgs {
    /// The configuration whose limits are tried.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Usage files, rotated ones among them. A call that is in several counts once.
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    pub(crate) file: Vec<PathBuf>,
    /// Calls before this are taken as they were and count in budgets: RFC 3339, a date in UTC, or a span back
    /// from now such as `24h` or `7d`.
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    pub(crate) since: Option<TimestampMs>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

fn dimension(name: &str) -> Result<Dimension, UnknownDimension> {
    Dimension::parse(name, &Scope::ATTRIBUTES.map(Scope::name))
}

fn moment(text: &str) -> Result<TimestampMs, String> {
    parse_moment(text, SystemClock::new().now()).ok_or_else(|| {
        "must be RFC 3339 (`2026-11-30T10:00:00Z`), a date (`2026-11-30`) or a span (`90s` `30m` `24h` `7d` `2w`)"
            .to_owned()
    })
}

#[derive(Args, Debug)]
pub(crate) struct MockArgs {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Print `listening on http://…` once it serves.
    #[arg(long)]
    pub(crate) print_address: bool,
}

/// Why a command did not do what it should.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) code: u8,
}

impl Failure {
    /// Refused input, a failed check, a port in use.
    pub(crate) fn refused(message: impl Display) -> Self {
        Self { message: message.to_string(), code: EXIT_REFUSED }
    }

    /// A configuration that cannot be used.
    pub(crate) fn config(message: impl Display) -> Self {
        Self { message: message.to_string(), code: EXIT_CONFIG }
    }
}
