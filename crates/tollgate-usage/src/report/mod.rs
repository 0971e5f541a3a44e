//! Sums of what usage files hold, by whatever the reader asks.
//!
//! A sum keeps costs to the pico-USD and never rounds. Memory is bounded by the number of groups
//! ([`GROUPS_MAX`]) and 16 bytes a request id; the length of the files plays no other part.

mod dimension;
mod moment;
mod totals;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;

use tollgate_limiter::TimestampMs;

use crate::error::UsageError;
use crate::reader::{Past, ReplaySummary, replay_all};
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
        let mut groups = Groups::new(&options.by, GROUPS_MAX);
        let since = options.since.unwrap_or(TimestampMs::new(0));
        let summary = replay_all(paths, progress, |past| {
            let at = dimension::moment(&past);
            if at >= since && options.until.is_none_or(|until| at < until) {
                groups.add(&past);
            }
        })?;
        Ok(groups.into_report(options.by.clone(), summary))
    }
}

/// Groups under construction.
struct Groups<'o> {
    by: &'o [Dimension],
    groups_max: usize,
    places: HashMap<Box<[u8]>, usize>,
    totals: Vec<Totals>,
    rest: Option<Totals>,
    values: Values,
}

impl<'o> Groups<'o> {
    fn new(by: &'o [Dimension], groups_max: usize) -> Self {
        Self {
            by,
            groups_max,
            places: HashMap::new(),
            totals: Vec::new(),
            rest: None,
            values: Values::default(),
        }
    }

    fn add(&mut self, past: &Past<'_>) {
        let values = self.values.of(self.by, past);
        let totals = match self.places.get(values) {
            Some(place) => self.totals.get_mut(*place),
            None if self.totals.len() < self.groups_max => match self.places.entry(values.into()) {
                Entry::Occupied(place) => self.totals.get_mut(*place.get()),
                Entry::Vacant(place) => {
                    place.insert(self.totals.len());
                    self.totals.push(Totals::default());
                    self.totals.last_mut()
                }
            },
            None => Some(self.rest.get_or_insert_default()),
        };
        totals.into_iter().for_each(|totals| totals.add(past));
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
    use crate::reader::replay_all;

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
        let by = [Dimension::Tenant];
        let mut groups = Groups::new(&by, 3);
        let summary = replay_all(&[file.path()], |_, _| (), |past| groups.add(&past)).unwrap();
        let report = groups.into_report(by.to_vec(), summary);
        assert_eq!(report.rows.len(), 3);
        assert_eq!(report.rest.map(|rest| rest.requests), Some(4));
        assert_eq!((report.total.requests, report.total.cost.units()), (10, 30));
    }
}
