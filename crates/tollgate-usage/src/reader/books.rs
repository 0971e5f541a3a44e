//! What counts, and how often: calls that are there once more do not.

use std::path::Path;

use super::parse::{Problem, Read};
use super::seen::{Names, Seen};
use super::{Past, ReplaySummary, StandsFor};

/// Of lines that cannot be understood, this many are logged one by one.
pub(super) const WARNINGS_MAX: u64 = 5;

/// What a line tells of, as far as it matters whether it was told before.
#[derive(Clone, Copy, Debug)]
pub(super) enum Told {
    Call(Option<u128>),
    Refusal(Option<u128>),
    /// What a checkpoint sums up.
    Sum,
}

impl Told {
    pub(super) fn by(past: &Past<'_>, names: &Names) -> Self {
        match past {
            Past::Usage(event) if event.stands_for == StandsFor::Call => {
                Self::Call(names.of(event.request_id))
            }
            Past::Usage(_) => Self::Sum,
            Past::Refusal(refusal) => Self::Refusal(names.of(refusal.request_id)),
        }
    }
}

/// A line that cannot be understood.
#[derive(Clone, Debug)]
pub(super) struct Misread {
    /// Counted from 1.
    pub(super) line: u64,
    /// Whether a line break follows.
    pub(super) ended: bool,
    pub(super) problem: Problem,
}

/// One run over files.
#[derive(Default)]
pub(super) struct Books {
    pub(super) summary: ReplaySummary,
    calls: Seen,
    refusals: Seen,
    /// Lines skipped when the current file began.
    skipped_before: u64,
}

impl Books {
    /// Whether it was not told before.
    pub(super) fn count(&mut self, told: Told) -> bool {
        let summary = &mut self.summary;
        let (is_new, counted) = match told {
            Told::Call(name) => (self.calls.insert(name), &mut summary.events),
            Told::Refusal(name) => (self.refusals.insert(name), &mut summary.refusals),
            Told::Sum => (true, &mut summary.checkpoint_lines),
        };
        *if is_new { counted } else { &mut summary.duplicates } += 1;
        is_new
    }

    /// Counts what was read without being told.
    pub(super) fn read(&mut self, read: Read) {
        self.summary.refusals += u64::from(read == Read::Refusal);
    }

    pub(super) fn misread(&mut self, path: &Path, misread: &Misread) {
        let Misread { line, ended, problem } = misread;
        if !ended {
            self.summary.torn_tail = true;
            tracing::warn!(file = %path.display(), line, "the last usage line is torn: skipped");
            return;
        }
        self.summary.skipped_lines += 1;
        if self.summary.skipped_lines <= WARNINGS_MAX {
            tracing::warn!(file = %path.display(), line, reason = &**problem, "usage line skipped");
        }
    }

    /// A file is read to its end.
    pub(super) fn end(&mut self, path: &Path) {
        let skipped = self.summary.skipped_lines - self.skipped_before;
        if skipped > WARNINGS_MAX {
            tracing::warn!(file = %path.display(), lines = skipped, "usage lines skipped in all");
        }
        self.skipped_before = self.summary.skipped_lines;
    }
}
