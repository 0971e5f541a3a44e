//! What is to happen in one life, drawn from its seed.

use std::fmt::Write;

use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};

/// Micro-USD a token, in and out, of the model `unit`.
pub(crate) const PRICES: &str =
    "models:\n  unit:\n    input: 1\n    output: 1\n  fine:\n    input: 0.3\n    output: 1.7\n";

/// The windows a tenant's budget may have.
pub(crate) const WINDOWS: [&str; 5] = ["minute", "hour", "day", "month", "total"];

/// The first of December 2026, 00:00 UTC: every calendar window but the week begins here.
const NEW_MONTH_MS: u64 = 1_796_083_200_000;

/// Everything that is to happen in one life.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) start_ms: u64,
    pub(crate) reservation: Reservation,
    pub(crate) tenants: Vec<Tenant>,
    pub(crate) generations: Vec<Generation>,
}

/// `[reservation]`
#[derive(Debug)]
pub(crate) struct Reservation {
    /// `None`: `"max"`.
    pub(crate) output_tokens: Option<u64>,
    pub(crate) extend_tokens: u64,
    pub(crate) drain_ms: u64,
}

#[derive(Debug)]
pub(crate) struct Tenant {
    pub(crate) id: String,
    /// Window, micro-USD, hard or not.
    pub(crate) budgets: Vec<(&'static str, u64, bool)>,
    requests_per_minute: Option<u64>,
}

/// One process, from its start to its end.
#[derive(Debug)]
pub(crate) struct Generation {
    pub(crate) calls: Vec<Call>,
    pub(crate) end: End,
}

/// How a process ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// By SIGTERM, at this time.
    Stopped { at_ms: u64 },
    /// By SIGKILL at this time, after the events so far have been written or not.
    Killed { at_ms: u64, is_flushed: bool },
    /// When all is done.
    Idle,
}

/// One call.
#[derive(Debug)]
pub(crate) struct Call {
    /// Names it: its session and the label of its bill.
    pub(crate) name: String,
    pub(crate) at_ms: u64,
    pub(crate) tenant: usize,
    pub(crate) is_anthropic: bool,
    pub(crate) body: Value,
    pub(crate) output_limit: Option<u64>,
    /// How the provider behaves: `x-mock-*` lines.
    pub(crate) behaviour: Vec<String>,
    /// The tokens that one of the answer's events holds at most; all of them where they come at once, as
    /// they do in an answer that is no stream: it is made before it is sent.
    pub(crate) event_tokens: u64,
    /// Whether the provider's last report is what it charges.
    pub(crate) is_honest: bool,
    pub(crate) is_unreachable: bool,
    pub(crate) leave: Leave,
}

/// When the client leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leave {
    Never,
    AfterBytes(usize),
    AfterMs(u64),
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let tenants = (0..rng.random_range(1..=3)).map(|index| tenant(&mut rng, index)).collect::<Vec<_>>();
        let mut names = 0;
        let generations =
            (0..rng.random_range(1..=3)).map(|_| generation(&mut rng, tenants.len(), &mut names)).collect();
        Self {
            // Somewhere before the end of a month, so that windows end on the way.
            start_ms: NEW_MONTH_MS - rng.random_range(0..180_000),
            reservation: Reservation {
                output_tokens: (!rng.random_bool(0.2)).then(|| *pick(&mut rng, &[1, 16, 64, 512])),
                extend_tokens: *pick(&mut rng, &[1, 8, 32, 256]),
                drain_ms: *pick(&mut rng, &[0, 0, 200, 5_000]),
            },
            tenants,
            generations,
        }
    }

    /// The configuration with the usage file at `usage`.
    pub(crate) fn config(&self, usage: &std::path::Path) -> String {
        let Reservation { output_tokens, extend_tokens, drain_ms } = &self.reservation;
        let output_tokens = output_tokens.map_or_else(|| "\"max\"".to_owned(), |tokens| tokens.to_string());
        let mut text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\ndrain_seconds = 5\n\
             [usage]\nfile = \"{}\"\n\
             [reservation]\noutput_tokens = {output_tokens}\nextend_tokens = {extend_tokens}\ndrain_ms = {drain_ms}\n",
            usage.display()
        );
        for id in ["anthropic", "openai"] {
            let _ = write!(
                text,
                "[[providers]]\nid = \"{id}\"\nprotocol = \"{id}\"\nbase_url = \"http://{id}.test\"\n\
                 api_key_env = \"PROVIDER\"\nresponse_timeout_seconds = 20\nidle_timeout_seconds = 10\n"
            );
        }
        for Tenant { id, budgets, requests_per_minute } in &self.tenants {
            let _ = writeln!(text, "[[tenants]]\nid = \"{id}\"");
            if let Some(requests) = requests_per_minute {
                let _ = writeln!(text, "requests_per_minute = {requests}");
            }
            for (window, micro_usd, is_hard) in budgets {
                let mode = if *is_hard { "hard" } else { "soft" };
                let _ = writeln!(
                    text,
                    "[[tenants.budgets]]\nwindow = \"{window}\"\nlimit_usd = \"0.{micro_usd:06}\"\nmode = \"{mode}\""
                );
            }
            let _ = writeln!(text, "[[tenants.keys]]\nid = \"{id}\"\nkey_env = \"key_of_{id}\"");
        }
        text
    }
}

impl Call {
    /// How much of its output is beyond what was asked for: a provider that gives more is held by nothing.
    pub(crate) fn overrun(&self, output: u64) -> u64 {
        output.saturating_sub(self.output_limit.unwrap_or(u64::MAX))
    }

    /// Whether its reservation grows with its answer.
    pub(crate) fn grows(&self, plan: &Plan) -> bool {
        let is_held = plan.tenants[self.tenant].budgets.iter().any(|(.., is_hard)| *is_hard);
        is_held && self.body["stream"] == true
    }

    /// The request as it goes over a connection that ends with it.
    pub(crate) fn request(&self, tenant: &str) -> Vec<u8> {
        let path = if self.is_anthropic { "/v1/messages" } else { "/v1/chat/completions" };
        let session = format!("x-tollgate-session: {}", self.name);
        let label = format!("x-mock-label: {}", self.name);
        let mut lines = vec!["connection: close", &session, &label];
        lines.extend(self.behaviour.iter().map(String::as_str));
        tollgate_tests::json_request(path, &format!("key_of_{tenant}"), &self.body, &lines)
    }
}

fn tenant(rng: &mut StdRng, index: usize) -> Tenant {
    let mut budgets = Vec::new();
    for window in WINDOWS {
        if rng.random_bool(0.4) {
            budgets.push((window, *pick(rng, &[50, 700, 3_000, 20_000, 400_000]), rng.random_bool(0.8)));
        }
    }
    let requests_per_minute = rng.random_bool(0.3).then(|| rng.random_range(1..20));
    Tenant { id: format!("t{index}"), budgets, requests_per_minute }
}

fn generation(rng: &mut StdRng, tenants: usize, names: &mut u64) -> Generation {
    // Mostly more at a time than a budget has room for.
    let span_ms = *pick(rng, &[50, 2_000, 60_000, 4_000_000]);
    let calls = (0..rng.random_range(1..30))
        .map(|_| {
            *names += 1;
            call(rng, format!("c{names}"), span_ms, tenants)
        })
        .collect();
    let at_ms = rng.random_range(0..=span_ms);
    let end = match rng.random_range(0..10) {
        0..3 => End::Stopped { at_ms },
        3..6 => End::Killed { at_ms, is_flushed: rng.random_bool(0.5) },
        _ => End::Idle,
    };
    Generation { calls, end }
}

fn call(rng: &mut StdRng, name: String, span_ms: u64, tenants: usize) -> Call {
    let is_anthropic = rng.random_bool(0.5);
    let output = *pick(rng, &[1, 5, 40, 300, 2_000]);
    // A provider that overruns gives more than it was asked for.
    let overruns = rng.random_bool(0.1);
    let asked = rng.random_bool(0.8) || is_anthropic;
    let output_limit =
        asked.then(|| if overruns { output / 2 + 1 } else { output + rng.random_range(0..200) });
    let model = *pick(rng, &["unit", "fine"]);
    let text = "word ".repeat(rng.random_range(1..200));
    let stream = rng.random_bool(0.7);
    let mut body = json!({"model": model, "stream": stream, "messages": [{"role": "user", "content": text}]});
    if let Some(limit) = output_limit {
        body["max_tokens"] = json!(limit);
    }
    let events = *pick(rng, &[1, 4, 20, 60]);
    let interval_ms = *pick(rng, &[0, 1, 50, 900]);
    let mut behaviour = vec![
        format!("x-mock-output-tokens: {output}"),
        format!("x-mock-events: {events}"),
        format!("x-mock-pieces: {}", rng.random_range(1..4)),
        format!("x-mock-interval-ms: {interval_ms}"),
        format!("x-mock-first-byte-delay-ms: {}", pick(rng, &[0, 0, 3, 700, 15_000])),
    ];
    let is_honest = report(rng, &mut behaviour);
    faults(rng, &mut behaviour, events);
    Call {
        name,
        at_ms: rng.random_range(0..span_ms),
        tenant: rng.random_range(0..tenants),
        is_anthropic,
        body,
        output_limit,
        behaviour,
        // Each event is taken for a token at least.
        event_tokens: if interval_ms == 0 || !stream { output.max(events) } else { output.div_ceil(events) },
        is_honest,
        is_unreachable: rng.random_bool(0.03),
        leave: match rng.random_range(0..10) {
            0 => Leave::AfterBytes(rng.random_range(0..3_000)),
            1 => Leave::AfterMs(rng.random_range(0..20_000)),
            _ => Leave::Never,
        },
    }
}

/// What the provider says it used. True if it is the truth.
fn report(rng: &mut StdRng, behaviour: &mut Vec<String>) -> bool {
    match rng.random_range(0..12) {
        0 => behaviour.push("x-mock-usage: missing".to_owned()),
        1 => behaviour.push("x-mock-usage: zero".to_owned()),
        // More input than anybody would think.
        2 => behaviour.push(format!("x-mock-input-tokens: {}", rng.random_range(0..5_000))),
        3 => behaviour.push("x-mock-usage: every-chunk".to_owned()),
        _ => {}
    }
    !behaviour.iter().any(|line| line.ends_with("missing") || line.ends_with("zero"))
}

/// How the provider breaks.
fn faults(rng: &mut StdRng, behaviour: &mut Vec<String>, events: u64) {
    let after = rng.random_range(0..events + 6);
    match rng.random_range(0..20) {
        0 => behaviour.push(format!("x-mock-hang-after: {after}")),
        1 => behaviour.push(format!("x-mock-reset-after: {after}")),
        2 => behaviour.push(format!("x-mock-close-after: {after}")),
        3 => behaviour.push(format!("x-mock-cut-after: {after}")),
        4 => behaviour.push(format!("x-mock-error-after: {after}")),
        5 => behaviour.push(format!("x-mock-status: {}", pick(rng, &[400, 429, 500, 529]))),
        6 => behaviour.push(format!("x-mock-start: {}", pick(rng, &["hang", "reset", "close"]))),
        7 => behaviour.push("x-mock-encoding: gzip".to_owned()),
        8 => behaviour.push(format!("x-mock-split-bytes: {}", rng.random_range(1..40))),
        9 => behaviour.push("x-mock-rejects-stream-options: yes".to_owned()),
        _ => {}
    }
}

fn pick<'a, T>(rng: &mut StdRng, from: &'a [T]) -> &'a T {
    &from[rng.random_range(0..from.len())]
}
