use super::{Memory, Report, Sample, Samples, Workload};
use crate::bench::target::{DIRECT, METERING, PASS_THROUGH, REDIS, ROLLING, TOLLGATE};

fn samples(name: &'static str, cpu_ns: [u64; 3]) -> Samples {
    let sample =
        |cpu_ns| Sample { requests_per_second: 1000, cpu_ns: Some(cpu_ns), p50_ns: 90_000, p99_ns: 100_000 };
    let round = |cpu_ns: u64| Workload::ALL.map(|workload| (workload, sample(cpu_ns)));
    let memory = Memory { resident_kib: 20_000, peak_kib: 30_000 };
    Samples { name, rounds: cpu_ns.into_iter().flat_map(round).collect(), memory: Some(memory) }
}

#[test]
fn ratios_compare_within_a_round() {
    let bare = samples(PASS_THROUGH, [10_000, 20_000, 40_000]);
    let own = samples(TOLLGATE, [15_000, 30_000, 50_000]);
    let report = Report::new(3, 3, &[bare, own]);
    assert_eq!(report.targets[1].plain_percent, Some(150));
    assert_eq!(report.targets[1].plain_cpu_ns, Some(30_000));
    assert_eq!(report.targets[0].plain_percent, Some(100));
}

#[test]
fn what_is_too_dear_is_named() {
    let bare = || samples(PASS_THROUGH, [10_000; 3]);
    let check = |cpu_ns, resident_kib| {
        let mut own = samples(TOLLGATE, [cpu_ns; 3]);
        own.memory = Some(Memory { resident_kib, peak_kib: 0 });
        Report::new(3, 3, &[bare(), own]).misses()
    };
    assert_eq!(check(2_000, 39_062), Vec::<String>::new());
    assert_eq!(check(2_000, 39_064).len(), 1, "memory");
    assert_eq!(check(2_100, 0).len(), 1, "burst");
    assert_eq!(check(13_100, 0).len(), 2, "burst, spaced");
    assert_eq!(check(16_100, 0).len(), 3, "burst, spaced, plain");
    assert_eq!(Report::new(3, 3, &[bare()]).misses().len(), 1, "not measured");
}

#[test]
fn latency_is_what_the_proxy_adds() {
    let mut direct = samples(DIRECT, [1; 3]);
    for (_, sample) in &mut direct.rounds {
        sample.p50_ns = 30_000;
    }
    let report = Report::new(3, 3, &[direct, samples(PASS_THROUGH, [1; 3])]);
    assert_eq!((report.targets[1].added_p50_ns, report.targets[1].added_p99_ns), (60_000, 0));
    assert!(report.table().contains("60.0"));
}

#[test]
fn rolling_is_compared_with_metering_alone() {
    let report = |rolling_ns| {
        let all = [(PASS_THROUGH, 5_000), (METERING, 10_000), (ROLLING, rolling_ns)];
        Report::new(3, 3, &all.map(|(name, cpu_ns)| samples(name, [cpu_ns; 3])))
    };
    assert_eq!(report(11_500).misses(), Vec::<String>::new());
    assert_eq!(report(11_600).misses(), ["CPU per spaced event, % of metering: 116, at most 115"]);
    assert!(report(11_600).table().contains("116 % of metering"));
}

#[test]
fn redis_is_compared_with_memory() {
    let report = |redis_ns| {
        let all = [(PASS_THROUGH, 10_000), (TOLLGATE, 20_000), (REDIS, redis_ns)];
        Report::new(3, 3, &all.map(|(name, cpu_ns)| samples(name, [cpu_ns; 3])))
    };
    assert_eq!(report(30_000).misses(), Vec::<String>::new());
    assert_eq!(report(30_200).misses(), ["CPU per plain request, % of memory: 151, at most 150"]);
    assert!(report(30_200).table().contains("151 % of tollgate"));
}
