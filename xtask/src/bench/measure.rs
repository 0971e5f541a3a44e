//! One stretch of load on one target, as numbers.

use std::time::Duration;

use super::load::{self, Done};
use super::target::Target;
use super::workload::Workload;

/// What one stretch showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) requests_per_second: u64,
    /// Processor time of the proxy for each request, or for each event if they are spaced.
    pub(crate) cpu_ns: Option<u64>,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
}

/// Runs a workload on a target.
///
/// # Errors
/// A wrong answer, a broken connection, or a proxy that is gone.
pub(crate) async fn measure(
    target: &Target,
    workload: Workload,
    stream_bytes: usize,
    duration: Duration,
) -> Result<Sample, String> {
    let cpu_ns = || target.process.as_ref().map(super::child::Process::cpu_ns).transpose();
    let before_ns = cpu_ns()?;
    let done = load::run(target.addr, workload, stream_bytes, duration).await?;
    let used_ns = cpu_ns()?.zip(before_ns).map(|(after, before)| after.saturating_sub(before));
    let units = done.requests.saturating_mul(u64::from(workload.units()));
    Ok(Sample {
        requests_per_second: per_second(&done),
        cpu_ns: used_ns.and_then(|used| used.checked_div(units)),
        p50_ns: quantile(&done.latencies_ns, 50),
        p99_ns: quantile(&done.latencies_ns, 99),
    })
}

fn per_second(done: &Done) -> u64 {
    let rate = u128::from(done.requests) * 1_000_000_000 / done.elapsed.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

fn quantile(sorted: &[u64], percent: usize) -> u64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get(last * percent / 100).copied().unwrap_or(0)
}

/// The middle of some values, the lower one of two; 0 of none.
pub(crate) fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    quantile(&values, 50)
}

#[cfg(test)]
mod tests {
    use super::{median, quantile};

    #[test]
    fn the_middle_and_the_tail() {
        let values: Vec<u64> = (1..=101).collect();
        assert_eq!((quantile(&values, 50), quantile(&values, 99)), (51, 100));
        assert_eq!(median(vec![9, 1, 5]), 5);
        assert_eq!((median(vec![]), median(vec![4])), (0, 4));
    }
}
