//! The input estimate against what providers reported.

use crate::case::{Case, Settled};
use tollgate_providers::estimate_input;

/// Exchanges whose input the body does not show: placeholders in place of recorded content, server
/// tools that read pages in between, other passes.
const NOT_COMPARABLE: [&str; 9] = [
    "audio_input",
    "code_execution_stream",
    "compaction_cache_read_stream",
    "compaction_cache_write",
    "advisor_tool",
    "advisor_tool_stream",
    "web_fetch_cache",
    "web_search_stream",
    "web_search_stream_cache_write_late",
];

/// Estimated over reported, in thousandths, of every exchange that can be compared.
#[derive(Default)]
pub(crate) struct Ratios(Vec<u64>);

impl Ratios {
    pub(crate) fn add(&mut self, case: &Case) {
        let name = case.name.rsplit('/').next().unwrap();
        let (Settled::Usage { usage, .. }, Ok(facts)) = (&case.expected, &case.facts) else { return };
        if facts.model.is_empty() || NOT_COMPARABLE.contains(&name) {
            return;
        }
        let (estimate, reported) = (estimate_input(facts).get(), usage.input_total());
        println!("{name:28} estimated {estimate:6} reported {reported:6} ({} %)", estimate * 100 / reported);
        self.0.push(estimate * 1000 / reported);
    }

    pub(crate) fn check(mut self) {
        if self.0.is_empty() {
            return;
        }
        self.0.sort_unstable();
        let at = |percent: usize| self.0[(self.0.len() - 1) * percent / 100];
        let (low, median, high) = (at(0), at(50), at(95));
        println!("{} exchanges: lowest {low} ‰, median {median} ‰, p95 {high} ‰", self.0.len());
        assert!((1000..=1300).contains(&median), "median {median} ‰");
        assert!(low >= 900, "lowest {low} ‰");
        assert!(high <= 1800, "p95 {high} ‰");
    }
}
