//! Settlements that a shared store has not answered to, as lines behind the one of their call in the journal: what the
//! next process has to settle.
//!
//! A line is [`MARK`] and one JSON object.

use std::sync::Arc;

use serde::Deserialize;
use tollgate_limiter::{Amount, Entry, ExactAmount, Held, Limit, Plan, ReservationId, TimestampMs};

use crate::json;

/// What a call, or a part of it, is settled to.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// The reservation.
    pub held: Held,
    /// What was used for each entry of its plan.
    pub actuals: Vec<ExactAmount>,
    /// When the call had ended, by the clock of its process.
    pub ended: TimestampMs,
}

/// How the line of a settlement begins. That of a call begins otherwise.
pub(crate) const MARK: u8 = b'+';

/// A settlement as its line has it.
#[derive(Deserialize)]
struct Line {
    /// 32 hexadecimal digits.
    id: String,
    at: TimestampMs,
    /// Older versions did not say it.
    #[serde(default)]
    ended: TimestampMs,
    entries: Vec<Used>,
}

/// An entry of a plan, and what was used.
#[derive(Deserialize)]
struct Used {
    limit: Limit,
    charge: Amount,
    units: u64,
    millionths: u32,
}

/// Reads the settlements of `lines`. One that cannot be read is passed over.
pub(crate) fn read(lines: &[u8]) -> impl Iterator<Item = Settlement> {
    let line = |line: &[u8]| serde_json::from_slice::<Line>(line.strip_prefix(&[MARK])?).ok()?.settlement();
    lines.split(|byte| *byte == b'\n').filter_map(line)
}

/// Names lines that are nobody's, by the first of them. No call has such a name.
pub(crate) fn name(lines: &[u8]) -> Option<String> {
    read(lines).next().map(|settlement| name_of(settlement.held.id))
}

/// Names the line of the settlement of `id` that is nobody's.
pub(crate) fn name_of(id: ReservationId) -> String {
    format!("+{id}")
}

/// Whether `id` names lines that are nobody's.
pub(crate) fn is_name(id: &str) -> bool {
    id.as_bytes().first() == Some(&MARK)
}

/// Adds the line of a settlement.
pub(crate) fn write(out: &mut Vec<u8>, settlement: &Settlement) {
    out.push(MARK);
    json::write_settlement(out, settlement);
    out.push(b'\n');
}

impl Line {
    fn settlement(self) -> Option<Settlement> {
        let id = ReservationId::new(u128::from_str_radix(&self.id, 16).ok()?);
        let actual = |used: &Used| {
            const MILLION: u128 = 1_000_000;
            ExactAmount::from_millionths(u128::from(used.units) * MILLION + u128::from(used.millionths))
        };
        let actuals = self.entries.iter().map(actual).collect();
        let entry = |used: Used| Entry { limit: Arc::new(used.limit), charge: used.charge };
        let plan = Plan::new(self.entries.into_iter().map(entry).collect()).ok()?;
        let held = Held { id, plan: Arc::new(plan), at: self.at };
        Some(Settlement { held, actuals, ended: self.ended })
    }
}
