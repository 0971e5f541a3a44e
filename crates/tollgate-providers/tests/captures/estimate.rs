//! The input estimate against what providers reported, as it is and as it is corrected.

use std::collections::BTreeMap;

use crate::case::{Case, Settled};
use tollgate_limiter::Tokens;
use tollgate_providers::{InputRatios, Protocol, estimate_input, model_family};

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

/// One exchange that can be compared.
struct Compared {
    /// What is learned together.
    kind: (Protocol, &'static str),
    estimated: u64,
    reported: u64,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Comparison(Vec<Compared>);

impl Comparison {
    pub(crate) fn add(&mut self, case: &Case) {
        let name = case.name.rsplit('/').next().unwrap();
        let (Settled::Usage { usage, .. }, Ok(facts)) = (&case.expected, &case.facts) else { return };
        if facts.model.is_empty() || NOT_COMPARABLE.contains(&name) {
            return;
        }
        let (estimated, reported) = (estimate_input(facts).get(), usage.input_total());
        println!(
            "{name:28} estimated {estimated:6} reported {reported:6} ({} %)",
            estimated * 100 / reported
        );
        let kind = (case.endpoint.protocol, model_family(&facts.model));
        self.0.push(Compared { kind, estimated, reported });
    }

    /// Estimates as they are: close, and seldom too low.
    pub(crate) fn check(&self) {
        if self.0.is_empty() {
            return;
        }
        let ratios = Ratios::of(self.0.iter().map(|one| (one.estimated, one.reported)));
        println!("before learning: {ratios}");
        assert!((1000..=1300).contains(&ratios.at(50)) && ratios.at(0) >= 900 && ratios.at(95) <= 1800);
    }

    /// Each exchange corrected by what all others of its family have taught: what is corrected is never what
    /// was learned from. The recordings are few, so each counts as four.
    pub(crate) fn check_learned(&self) {
        if self.0.is_empty() {
            return;
        }
        let corrected = self.0.iter().enumerate().map(|(index, one)| {
            let mut others = InputRatios::default();
            let others_of_kind =
                self.0.iter().enumerate().filter(|(other, of)| *other != index && of.kind == one.kind);
            for (_, other) in others_of_kind {
                (0..4).for_each(|_| others.add(Tokens::new(other.estimated), Tokens::new(other.reported)));
            }
            let factor = others.factor_permille().unwrap_or(1_000);
            ((one.estimated * factor).div_ceil(1_000), one.reported)
        });
        let ratios = Ratios::of(corrected);
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        for one in &self.0 {
            *kinds.entry(format!("{} {}", one.kind.0.name(), one.kind.1)).or_default() += 1;
        }
        println!("after learning:  {ratios}; {kinds:?}");
        let before = Ratios::of(self.0.iter().map(|one| (one.estimated, one.reported)));
        assert!(ratios.at(50) <= before.at(50) && ratios.at(95) <= before.at(95));
        assert!(ratios.too_low() * 10 <= self.0.len());
    }
}

/// Estimated over reported, in thousandths, ascending.
struct Ratios(Vec<u64>);

impl Ratios {
    fn of(pairs: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut ratios: Vec<u64> = pairs.map(|(estimated, reported)| estimated * 1_000 / reported).collect();
        ratios.sort_unstable();
        Self(ratios)
    }

    fn at(&self, percent: usize) -> u64 {
        self.0[(self.0.len() - 1) * percent / 100]
    }

    fn too_low(&self) -> usize {
        self.0.iter().filter(|ratio| **ratio < 1_000).count()
    }

    /// The absolute error at a percentile, in thousandths of what was reported.
    fn error_at(&self, percent: usize) -> u64 {
        let mut errors: Vec<u64> = self.0.iter().map(|ratio| ratio.abs_diff(1_000)).collect();
        errors.sort_unstable();
        errors[(errors.len() - 1) * percent / 100]
    }
}

impl std::fmt::Display for Ratios {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} exchanges, estimated/reported in thousandths: lowest {}, median {}, p95 {}; error: median {}, p95 {}; too \
             low: {}",
            self.0.len(),
            self.at(0),
            self.at(50),
            self.at(95),
            self.error_at(50),
            self.error_at(95),
            self.too_low()
        )
    }
}
