//! What the journal costs: CPU time of a call that is held and settled, beside one that is recorded only.
//!
//!     cargo run --release -p tollgate-usage --example journal_cost -- DIRECTORY
//!
//! The time is this process's own, user and system, of all its threads (Linux only).
#![allow(clippy::unwrap_used, reason = "in a measurement, a broken assumption ends it")]

use std::sync::Arc;

use tollgate_limiter::{
    Amount, CounterKey, DurationMs, Enforcement, Entry, ExactAmount, Held, Limit, MicroUsd, Period, Plan,
    ReservationId, Rule, TimestampMs, Tokens,
};
use tollgate_usage::{
    Event, Journal, Outcome, Settlement, TokenCounts, UsageEvent, Writer, WriterOptions, Written,
};

const CALLS: u64 = 100_000;
/// Calls that are open at a time.
const OPEN: usize = 64;
/// Calls that are written down in the same moment.
const TOGETHER: u64 = 8;
/// Limits that a settlement is about.
const LIMITS: usize = 6;
/// `/proc/self/stat` counts in hundredths of a second.
const TICK_US: u64 = 10_000;

fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let folder = std::path::Path::new(&folder).join("journal_cost");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("usage.jsonl");
    let template = template();
    for round in 0..3 {
        let recorded = measure(&path, false, |writer, _| {
            for id in 0..CALLS {
                writer.record(&Event::Usage(event(&template, id)));
                pause(writer, id);
            }
        });
        let [alone, together] = [1, TOGETHER].map(|together| held(&path, &template, together, false));
        let settled = held(&path, &template, TOGETHER, true);
        let before = cpu_us();
        let file = std::fs::File::create(&path).unwrap();
        let bytes = [7; 640];
        for call in 0..2 * CALLS {
            let offset = call % OPEN as u64 * (16 << 10) + call % 2 * (8 << 10);
            std::os::unix::fs::FileExt::write_all_at(&file, &bytes, offset).unwrap();
        }
        let written = (cpu_us() - before) * 1_000 / CALLS;
        println!("round {round}: recorded {recorded} ns, held and settled {alone} ns a call alone");
        println!("  and {together} ns where {TOGETHER} are written together; two bare writes {written} ns");
        println!("  with settlements of {LIMITS} limits {settled} ns, {TOGETHER} together");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The CPU time of a call that is held and settled, where so many are in the same moment; also with a settlement that a
/// store answers to.
fn held(path: &std::path::Path, template: &UsageEvent, together: u64, keeps: bool) -> u64 {
    let plan = plan();
    let settlement = |id: u64| {
        let held = Held { id: ReservationId::new(id.into()), plan: Arc::clone(&plan), at: template.ts };
        let actuals = vec![ExactAmount::from_millionths(1_234_567_890); LIMITS];
        keeps.then_some(Settlement { held, actuals, ended: template.ts })
    };
    measure(path, keeps, |writer, journal| {
        let mut open = std::collections::VecDeque::new();
        for first in (0..CALLS).step_by(usize::try_from(together).unwrap()) {
            let settled: Vec<Written> = (open.len() >= OPEN)
                .then(|| open.drain(..usize::try_from(together).unwrap()))
                .into_iter()
                .flatten()
                .map(|(id, hold)| {
                    let written = writer.settle(hold, &event(template, id), settlement(id).as_slice());
                    journal.settled(ReservationId::new(id.into()));
                    written
                })
                .collect();
            settled.into_iter().for_each(|written| written.now().unwrap());
            let held = (first..first + together).map(|id| (id, writer.hold(&event(template, id)).unwrap()));
            for (id, (hold, written)) in held.collect::<Vec<_>>() {
                written.now().unwrap();
                open.push_back((id, hold));
                pause(writer, id);
            }
        }
        open.drain(..).for_each(|(id, hold)| drop(writer.settle(hold, &event(template, id), &[])));
    })
}

/// As many calls as come within the interval of a batch at ten thousand a second.
fn pause(writer: &Writer, id: u64) {
    if id.is_multiple_of(256) {
        writer.flush().unwrap();
    }
}

/// The CPU time of `run` in nanoseconds a call.
fn measure(path: &std::path::Path, keeps: bool, run: impl FnOnce(&Writer, &Journal)) -> u64 {
    let _ = std::fs::remove_file(path);
    let flush_timeout = std::time::Duration::from_secs(600);
    let options = WriterOptions { waiting_max: usize::MAX >> 1, flush_timeout, ..WriterOptions::default() };
    let mut journal = Journal::open(path).unwrap();
    if keeps {
        journal.keep_settlements();
    }
    let journal = Arc::new(journal);
    let writer = Writer::resume(Arc::clone(&journal), options).unwrap();
    let before = cpu_us();
    run(&writer, &journal);
    writer.flush().unwrap();
    let used = cpu_us() - before;
    drop(writer);
    std::fs::remove_file(path).unwrap();
    used * 1_000 / CALLS
}

fn plan() -> Arc<Plan> {
    let entry = |number| {
        let key = CounterKey::new("acme", format!("tenant:tokens:{number}"));
        let rule = Rule::Calendar(Period::Month);
        let limit = Limit { key, rule, amount: Amount::new(1_000_000), enforcement: Enforcement::Hard };
        Entry { limit: Arc::new(limit), charge: Amount::new(1_234) }
    };
    Arc::new(Plan::new((0..LIMITS).map(entry).collect()).unwrap())
}

fn cpu_us() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // After the name, which is in brackets: user and system time are the 12th and 13th field.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()) * TICK_US
}

/// As the proxy forms one: what it knows already is shared.
fn event(template: &UsageEvent, id: u64) -> UsageEvent {
    UsageEvent { request_id: id.to_string().into(), ..template.clone() }
}

fn template() -> UsageEvent {
    UsageEvent {
        ts: TimestampMs::new(1_795_946_640_123),
        request_id: "0".into(),
        tenant: "acme".into(),
        key: "ci".into(),
        attributes: Arc::new([(Arc::from("team"), Arc::from("ml"))].into()),
        caller_attributes: Vec::new(),
        session: None,
        provider: "anthropic".into(),
        model: "claude-sonnet-5-5".into(),
        requested_model: None,
        path: "/v1/messages".into(),
        stream: true,
        status: 200,
        outcome: Outcome::Complete,
        tokens: TokenCounts { input: 12, output: 34, ..TokenCounts::default() },
        usage_estimated: false,
        service_tier: Some("standard".into()),
        reserved: MicroUsd::new(41_000),
        reserved_output: Tokens::new(4_096),
        first_reserved: None,
        cost: ExactAmount::whole(364),
        estimated_input: Tokens::new(11),
        uncorrected_input: None,
        duration: DurationMs::new(1_840),
        ttfb: Some(DurationMs::new(320)),
        flags: Vec::new(),
        others: Vec::new(),
    }
}
