//! Sums of what usage files hold, by whatever the reader asks.
//!
//! A sum keeps costs to the pico-USD and never rounds. Memory is bounded by the number of groups
//! ([`GROUPS_MAX`]) and 16 bytes a request id; the length of the files plays no other part.

mod dimension;
mod moment;
mod totals;

use std::collections::HashMap;
use std::path::Path;

use foldhash::quality::RandomState;
use tollgate_limiter::TimestampMs;

use crate::error::UsageError;
use crate::reader::{Digest, Past, ReplaySummary, digest_all};
use dimension::Values;

pub use dimension::{Dimension, UnknownDimension};
pub use moment::{format_moment, parse_moment};
pub use totals::Totals;

/// The most groups that a report keeps apart: at a few hundred bytes each, below 200 MB. What belongs to
/// further ones is summed up in [`Report::rest`].
pub const GROUPS_MAX: usize = 250_000;

/// What a report is about.
#[derive(Clone, Debug, Default)]
pub struct ReportOptions {
    /// What calls are grouped by, in the order of the columns. Empty: all calls are one group.
    pub by: Vec<Dimension>,
    /// The first moment that counts.
    pub since: Option<TimestampMs>,
    /// The first moment that no longer counts.
    pub until: Option<TimestampMs>,
}

/// Sums over usage files.
#[derive(Clone, Debug)]
pub struct Report {
    /// What calls are grouped by.
    pub by: Vec<Dimension>,
    /// The groups: the dearest first, then the one with the most requests and refusals, then by value.
    pub rows: Vec<Row>,
    /// What belongs to groups beyond [`GROUPS_MAX`].
    pub rest: Option<Totals>,
    /// All of it.
    pub total: Totals,
    /// What was read, also outside the time asked for.
    pub summary: ReplaySummary,
}

/// One group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Row {
    /// Its value in each dimension; `None`: its calls have none.
    pub values: Vec<Option<String>>,
    /// Its sums.
    pub totals: Totals,
}

impl Report {
    /// Reads `paths` one after the other. A request id counts once over all of them; `progress` hears how
    /// many bytes of how many are done.
    ///
    /// # Errors
    /// One of the files cannot be opened or read.
    pub fn read<P: AsRef<Path>>(
        paths: &[P],
        options: &ReportOptions,
        progress: impl FnMut(u64, u64),
    ) -> Result<Self, UsageError> {
        let mut groups = Groups::new(GROUPS_MAX);
        let make = || Grouping { options, values: Values::default() };
        let (summary, _) = digest_all(paths, progress, make, |_, record| groups.add(record))?;
        Ok(groups.into_report(options.by.clone(), summary))
    }
}

/// Finds the group of each call.
struct Grouping<'o> {
    options: &'o ReportOptions,
    values: Values,
}

impl Digest for Grouping<'_> {
    /// The values of the group and what to add to it; `None`: the call does not count.
    type Record = Option<(Box<[u8]>, Totals)>;

    fn digest(&mut self, past: Past<'_>) -> Self::Record {
        let ReportOptions { by, since, until } = self.options;
        let at = dimension::moment(&past);
        let counts = since.is_none_or(|since| at >= since) && until.is_none_or(|until| at < until);
        counts.then(|| (self.values.of(by, &past).into(), Totals::of(&past)))
    }
}

/// Groups under construction.
struct Groups {
    groups_max: usize,
    places: HashMap<Box<[u8]>, usize, RandomState>,
    totals: Vec<Totals>,
    rest: Option<Totals>,
}

impl Groups {
    fn new(groups_max: usize) -> Self {
        Self { groups_max, places: HashMap::default(), totals: Vec::new(), rest: None }
    }

    fn add(&mut self, record: Option<(Box<[u8]>, Totals)>) {
        let Some((values, more)) = record else { return };
        let totals = match self.places.get(&values) {
            Some(place) => self.totals.get_mut(*place),
            None if self.totals.len() < self.groups_max => {
                self.places.insert(values, self.totals.len());
                self.totals.push(Totals::default());
                self.totals.last_mut()
            }
            None => Some(self.rest.get_or_insert_default()),
        };
        totals.into_iter().for_each(|totals| totals.merge(&more));
    }

    fn into_report(self, by: Vec<Dimension>, summary: ReplaySummary) -> Report {
        let mut total = self.rest.unwrap_or_default();
        let row = |(key, place): (Box<[u8]>, usize)| {
            let totals = self.totals.get(place).copied().unwrap_or_default();
            Row { values: Values::split(&key, by.len()), totals }
        };
        let mut rows: Vec<_> = self.places.into_iter().map(row).collect();
        rows.iter().for_each(|row| total.merge(&row.totals));
        rows.sort_by(|a, b| {
            let size = |row: &Row| (row.totals.cost, row.totals.requests, row.totals.refusals);
            size(b).cmp(&size(a)).then_with(|| a.values.cmp(&b.values))
        });
        Report { by, rows, rest: self.rest, total, summary }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn groups_beyond_the_bound_are_summed_up_in_one() {
        let line = |tenant: u32| {
            format!(
                "{{\"v\":1,\"type\":\"usage\",\"ts\":\"2026-11-29T10:04:00.123Z\",\"request_id\":\"\",\
                 \"tenant\":\"t{tenant}\",\"cost_micro_usd\":3}}\n"
            )
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), (0..10).map(|n| line(n % 5)).collect::<String>()).unwrap();
        let options = ReportOptions { by: vec![Dimension::Tenant], ..ReportOptions::default() };
        let mut groups = Groups::new(3);
        let make = || Grouping { options: &options, values: Values::default() };
        let (summary, _) =
            digest_all(&[file.path()], |_, _| (), make, |_, record| groups.add(record)).unwrap();
        let report = groups.into_report(options.by, summary);
        assert_eq!(report.rows.len(), 3);
        assert_eq!(report.rest.map(|rest| rest.requests), Some(4));
        assert_eq!((report.total.requests, report.total.cost.units()), (10, 30));
    }
}
