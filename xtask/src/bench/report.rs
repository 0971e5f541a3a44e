//! Samples into a table, JSON, and a verdict.

use std::fmt::Write;

use serde::Serialize;

use super::child::Memory;
use super::measure::{Sample, median};
use super::target::{DIRECT, METERING, PASS_THROUGH, REDIS, ROLLING, TOLLGATE};
use super::workload::Workload;

/// The most that Tollgate may cost, in percent of the pass-through of the same run.
const PLAIN_PERCENT_MAX: u64 = 160;
const SPACED_PERCENT_MAX: u64 = 130;
const BURST_PERCENT_MAX: u64 = 20;
/// The most that reservations which grow with streams may cost, in percent of metering alone.
const ROLLING_PERCENT_MAX: u64 = 115;
/// The most that a plain request may cost with counters in Redis, in percent of counters in memory.
const REDIS_PERCENT_MAX: u64 = 150;
const RESIDENT_KIB_MAX: u64 = 40_000;

/// All samples of one target, round by round.
#[derive(Debug)]
pub(crate) struct Samples {
    pub(crate) name: &'static str,
    pub(crate) rounds: Vec<(Workload, Sample)>,
    pub(crate) memory: Option<Memory>,
}

/// The result of a bench.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    seconds_each: u64,
    rounds: u32,
    /// CPU per spaced event with reservations that grow, in percent of metering alone.
    rolling_percent: Option<u64>,
    /// CPU per plain request with counters in Redis, in percent of counters in memory.
    redis_percent: Option<u64>,
    targets: Vec<Line>,
}

/// The medians of one target. A ratio is the median of the rounds' ratios to the pass-through's cost.
#[derive(Debug, Default, Serialize)]
struct Line {
    target: &'static str,
    plain_requests_per_second: u64,
    plain_cpu_ns: Option<u64>,
    plain_percent: Option<u64>,
    burst_streams_per_second: u64,
    burst_cpu_ns: Option<u64>,
    burst_percent: Option<u64>,
    spaced_event_cpu_ns: Option<u64>,
    spaced_percent: Option<u64>,
    added_p50_ns: i64,
    added_p99_ns: i64,
    resident_kib: Option<u64>,
    peak_kib: Option<u64>,
}

impl Report {
    pub(crate) fn new(seconds_each: u64, rounds: u32, samples: &[Samples]) -> Self {
        let find = |name| samples.iter().find(|samples| samples.name == name);
        let (direct, bare) = (find(DIRECT), find(PASS_THROUGH));
        let targets = samples.iter().map(|samples| line(samples, direct, bare)).collect();
        let beside = |name, other, workload| percent(find(name)?, find(other)?, workload);
        let rolling_percent = beside(ROLLING, METERING, Workload::Spaced);
        let redis_percent = beside(REDIS, TOLLGATE, Workload::Plain);
        Self { seconds_each, rounds, rolling_percent, redis_percent, targets }
    }

    pub(crate) fn table(&self) -> String {
        let mut table = format!(
            "medians of {} rounds of {} s; cpu in µs of the proxy, (ratio to {PASS_THROUGH})\n\n\
             {:<13} {:>9} {:>16} {:>9} {:>16} {:>16} {:>9} {:>9} {:>7} {:>7}\n",
            self.rounds,
            self.seconds_each,
            "target",
            "plain/s",
            "cpu/request",
            "burst/s",
            "cpu/stream",
            "cpu/spaced event",
            "+p50 µs",
            "+p99 µs",
            "RSS MB",
            "peak MB"
        );
        for line in &self.targets {
            // Writing to a string does not fail.
            let _ = writeln!(
                table,
                "{:<13} {:>9} {:>16} {:>9} {:>16} {:>16} {:>9} {:>9} {:>7} {:>7}",
                line.target,
                line.plain_requests_per_second,
                cost(line.plain_cpu_ns, line.plain_percent),
                line.burst_streams_per_second,
                cost(line.burst_cpu_ns, line.burst_percent),
                cost(line.spaced_event_cpu_ns, line.spaced_percent),
                tenths(line.added_p50_ns),
                tenths(line.added_p99_ns),
                megabytes(line.resident_kib),
                megabytes(line.peak_kib)
            );
        }
        if let Some(percent) = self.rolling_percent {
            let _ = writeln!(table, "\nrolling: {percent} % of metering's cpu/spaced event");
        }
        if let Some(percent) = self.redis_percent {
            let _ = writeln!(table, "\nredis: {percent} % of {TOLLGATE}'s cpu/plain request");
        }
        table
    }

    /// What misses the targets; empty if nothing does.
    pub(crate) fn misses(&self) -> Vec<String> {
        let miss = |(what, value, most): (&str, Option<u64>, u64)| match value {
            Some(value) if value <= most => None,
            Some(value) => Some(format!("{what}: {value}, at most {most}")),
            None => Some(format!("{what}: not measured")),
        };
        if self.rolling_percent.is_some() {
            let bound = ("CPU per spaced event, % of metering", self.rolling_percent, ROLLING_PERCENT_MAX);
            return miss(bound).into_iter().collect();
        }
        if self.redis_percent.is_some() {
            let bound = ("CPU per plain request, % of memory", self.redis_percent, REDIS_PERCENT_MAX);
            return miss(bound).into_iter().collect();
        }
        let Some(line) = self.targets.iter().find(|line| line.target == TOLLGATE) else {
            return vec![format!("{TOLLGATE} was not measured")];
        };
        let resident = line.resident_kib.map(|kib| kib * 1024 / 1000);
        let bounds = [
            ("CPU per plain request, % of pass-through", line.plain_percent, PLAIN_PERCENT_MAX),
            ("CPU per spaced event, % of pass-through", line.spaced_percent, SPACED_PERCENT_MAX),
            ("CPU per burst stream, % of pass-through", line.burst_percent, BURST_PERCENT_MAX),
            ("resident memory after the run, kB", resident, RESIDENT_KIB_MAX),
        ];
        bounds.into_iter().filter_map(miss).collect()
    }
}

fn line(samples: &Samples, direct: Option<&Samples>, bare: Option<&Samples>) -> Line {
    let cpu = |workload| {
        let values = values(samples, workload, |sample| sample.cpu_ns);
        (!values.is_empty()).then(|| median(values))
    };
    let percent = |workload| percent(samples, bare?, workload);
    let rate = |workload| median(values(samples, workload, |sample| Some(sample.requests_per_second)));
    let added = |latency: fn(&Sample) -> Option<u64>| {
        let own = median(values(samples, Workload::Latency, latency));
        let without = direct.map_or(0, |direct| median(values(direct, Workload::Latency, latency)));
        own.checked_signed_diff(without).unwrap_or(i64::MAX)
    };
    Line {
        target: samples.name,
        plain_requests_per_second: rate(Workload::Plain),
        plain_cpu_ns: cpu(Workload::Plain),
        plain_percent: percent(Workload::Plain),
        burst_streams_per_second: rate(Workload::Burst),
        burst_cpu_ns: cpu(Workload::Burst),
        burst_percent: percent(Workload::Burst),
        spaced_event_cpu_ns: cpu(Workload::Spaced),
        spaced_percent: percent(Workload::Spaced),
        added_p50_ns: added(|sample| Some(sample.p50_ns)),
        added_p99_ns: added(|sample| Some(sample.p99_ns)),
        resident_kib: samples.memory.map(|memory| memory.resident_kib),
        peak_kib: samples.memory.map(|memory| memory.peak_kib),
    }
}

/// The median of the rounds' ratios of one target's CPU to another's, in percent.
fn percent(samples: &Samples, other: &Samples, workload: Workload) -> Option<u64> {
    let cpu_ns = |samples| values(samples, workload, |sample| sample.cpu_ns);
    let pairs = cpu_ns(samples).into_iter().zip(cpu_ns(other));
    let ratios: Vec<u64> =
        pairs.filter_map(|(own, other)| own.saturating_mul(100).checked_div(other)).collect();
    (!ratios.is_empty()).then(|| median(ratios))
}

fn values(samples: &Samples, workload: Workload, field: impl Fn(&Sample) -> Option<u64>) -> Vec<u64> {
    let of_workload = samples.rounds.iter().filter(|(of, _)| *of == workload);
    of_workload.filter_map(|(_, sample)| field(sample)).collect()
}

fn cost(cpu_ns: Option<u64>, percent: Option<u64>) -> String {
    let Some(cpu_ns) = cpu_ns else { return "-".to_owned() };
    let ratio =
        percent.map_or_else(String::new, |percent| format!(" ({}.{:02})", percent / 100, percent % 100));
    format!("{}.{}{ratio}", cpu_ns / 1000, cpu_ns % 1000 / 100)
}

fn tenths(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let ns = ns.unsigned_abs();
    format!("{sign}{}.{}", ns / 1000, ns % 1000 / 100)
}

fn megabytes(kib: Option<u64>) -> String {
    kib.map_or_else(
        || "-".to_owned(),
        |kib| format!("{}.{}", kib * 1024 / 1_000_000, kib * 1024 / 100_000 % 10),
    )
}

#[cfg(test)]
mod tests;
