//! Calls summed up by everything that a counter may ask for, as far back in detail as one may ask.
//!
//! **Time.** `H` is an hour before the newest call. For a start at any moment `now ≥ H` every calendar period of
//! `now` begins at or after the period of the same kind that `H` is in. So calls since the hour of `H` are summed
//! by the minute, calls of the month and the week of `H` before that by the day, and all earlier ones, which only
//! a total has, by the month: no period that may count begins within a sum. `H` only grows, and each of these
//! sums is a union of finer ones: what is summed once can be summed again.
//!
//! **Sessions.** A session's counter is forgotten a day after its last use, so calls of one session are kept
//! apart from others until an hour more than that. Their sums are of at most a day: no counter that has some of a
//! sum's calls was forgotten between its first and its last one.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::quality::RandomState;
use tollgate_limiter::{DurationMs, ExactAmount, Period, TimestampMs};

use crate::json::{self, SumLine};
use crate::reader::{Replayed, StandsFor};

/// How far back of the newest call a clock may stand at a start.
const SET_BACK_MAX: DurationMs = DurationMs::new(3_600_000);

/// How long after its last call a session is kept apart: a day, and an hour for lines that come late.
const SESSION_KEPT: DurationMs = DurationMs::new(25 * 3_600_000);

/// The most sums: some hundred bytes each. Beyond, checkpoints are given up.
const SUMS_MAX: usize = 4 << 20;

/// With fewer sums nothing is summed up further before the end.
const COMPACT_AT: usize = 1 << 16;

/// The most models whose estimates are kept, those of each tenant counted apart, and of each so many of the latest requests.
const MODELS_MAX: usize = 4_096;
const ESTIMATES_MAX: usize = 256;

/// What calls have in common: names by their number, in the order of the fields of [`SumLine`].
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
struct Common {
    session: Option<Box<str>>,
    names: [u32; 8],
    /// Where the minute, day or month begins, in milliseconds.
    begins: u64,
}

/// Where the path is among the names.
const PATH: usize = 7;

#[derive(Clone, Copy, Debug)]
struct Sum {
    first: TimestampMs,
    last: TimestampMs,
    cost: ExactAmount,
    calls: u64,
    tokens: u64,
}

/// The sums of the calls that were [added](Self::add).
#[derive(Debug)]
pub(super) struct Aggregate {
    names: Names,
    sums: Sums,
    /// Of each tenant, path and model.
    estimates: HashMap<[u32; 3], Estimates, RandomState>,
    newest: TimestampMs,
    compact_at: usize,
    /// Room for a text.
    buffer: Vec<u8>,
}

type Sums = HashMap<Common, Sum, RandomState>;

#[derive(Debug)]
struct Estimates {
    at: TimestampMs,
    pairs: VecDeque<(u64, u64)>,
}

impl Aggregate {
    pub(super) fn new() -> Self {
        Self {
            names: Names::default(),
            sums: Sums::default(),
            estimates: HashMap::default(),
            newest: TimestampMs::new(0),
            compact_at: COMPACT_AT,
            buffer: Vec::new(),
        }
    }

    /// Adds a call, or what an earlier checkpoint summed up.
    pub(super) fn add(&mut self, event: &Replayed<'_>) {
        let own = event.uncorrected_input.map(|input| [(input.get(), event.tokens.input_total())]);
        match event.stands_for {
            StandsFor::Estimates(pairs) => return self.add_estimates(event, pairs),
            _ => own.iter().for_each(|pair| self.add_estimates(event, pair)),
        }
        self.newest = self.newest.max(event.last_use());
        let common = self.common(event);
        let sum = Sum {
            first: event.ts,
            last: event.last_use(),
            cost: event.cost,
            calls: event.calls(),
            tokens: event.tokens_spent(),
        };
        merge(&mut self.sums, common, sum);
        if self.sums.len() >= self.compact_at {
            self.compact();
        }
    }

    /// The newest call; a checkpoint is of use for starts from [`oldest_start`] of it on.
    pub(super) const fn newest(&self) -> TimestampMs {
        self.newest
    }

    /// Whether there are more sums than a checkpoint may have.
    pub(super) fn is_too_large(&self) -> bool {
        self.sums.len() > SUMS_MAX
    }

    fn common(&mut self, event: &Replayed<'_>) -> Common {
        let attributes = self.number_of(|out| json::write_attributes(out, event.attributes()));
        let caller = self.number_of(|out| json::write_names(out, event.caller_attributes()));
        let path = event.session.map_or("", |_| event.path);
        let requested = event.requested_model.unwrap_or("");
        let [tenant, key, provider, model, requested, path] =
            [event.tenant, event.key, event.provider, event.model, requested, path]
                .map(|text| self.names.number(text));
        Common {
            session: event.session.map(Box::from),
            names: [tenant, key, attributes, caller, provider, model, requested, path],
            begins: self.begins(event.ts, event.session.is_some()),
        }
    }

    /// The number of the text that `write` writes.
    fn number_of(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> u32 {
        self.buffer.clear();
        write(&mut self.buffer);
        self.names.number(str::from_utf8(&self.buffer).unwrap_or_default())
    }

    /// Where the sum begins that a call of `at` is in.
    fn begins(&self, at: TimestampMs, in_session: bool) -> u64 {
        let oldest = oldest_start(self.newest);
        let period = if at >= Period::Hour.start(oldest) {
            Period::Minute
        } else if in_session || at >= Period::Month.start(oldest).min(Period::Week.start(oldest)) {
            Period::Day
        } else {
            Period::Month
        };
        period.start(at).get()
    }

    /// Sums up what has become old.
    pub(super) fn compact(&mut self) {
        let mut last_uses: HashMap<(u32, Box<str>), TimestampMs, RandomState> = HashMap::default();
        for (common, sum) in &self.sums {
            if let Some(session) = &common.session {
                let last = last_uses.entry((common.names[0], session.clone())).or_insert(sum.last);
                *last = (*last).max(sum.last);
            }
        }
        last_uses.retain(|_, last| last.saturating_add(SESSION_KEPT) > self.newest);
        for (mut common, sum) in std::mem::take(&mut self.sums) {
            let key = common.session.take().map(|session| (common.names[0], session));
            match key.filter(|key| last_uses.contains_key(key)) {
                Some((_, session)) => common.session = Some(session),
                None => common.names[PATH] = self.names.number(""),
            }
            common.begins = self.begins(sum.first, common.session.is_some());
            merge(&mut self.sums, common, sum);
        }
        self.compact_at = self.sums.len().saturating_mul(2).max(COMPACT_AT);
    }

    fn add_estimates(&mut self, event: &Replayed<'_>, pairs: &[(u64, u64)]) {
        let model = self.names.number(event.requested_model.unwrap_or(event.model));
        let of = [self.names.number(event.tenant), self.names.number(event.path), model];
        if self.estimates.len() >= MODELS_MAX && !self.estimates.contains_key(&of) {
            return;
        }
        let none = || Estimates { at: event.ts, pairs: VecDeque::new() };
        let kept = self.estimates.entry(of).or_insert_with(none);
        kept.at = kept.at.max(event.ts);
        kept.pairs.extend(pairs);
        let beyond = kept.pairs.len().saturating_sub(ESTIMATES_MAX);
        kept.pairs.drain(..beyond);
    }

    /// Calls `each` with every line. Sums of sessions come last, and all in the order of their first calls.
    pub(super) fn lines<E>(&self, mut each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut line = Vec::new();
        let mut put = |form: &dyn Fn(&mut Vec<u8>)| {
            line.clear();
            form(&mut line);
            line.push(b'\n');
            each(&line)
        };
        let mut estimates: Vec<_> = self.estimates.iter().collect();
        estimates.sort_unstable_by_key(|(of, _)| **of);
        for (of, kept) in estimates {
            let of = of.map(|number| self.names.text(number));
            put(&|out| json::write_estimates(out, kept.at, of, kept.pairs.iter()))?;
        }
        let mut sums: Vec<_> = self.sums.iter().collect();
        sums.sort_unstable_by_key(|(common, sum)| (common.session.is_some(), sum.first, *common));
        for (common, sum) in sums {
            put(&|out| json::write_sum(out, &self.line(common, sum)))?;
        }
        Ok(())
    }

    fn line<'a>(&'a self, common: &'a Common, sum: &Sum) -> SumLine<'a> {
        let [tenant, key, attributes, caller_attributes, provider, model, requested_model, path] =
            common.names.map(|number| self.names.text(number));
        SumLine {
            first: sum.first,
            last: sum.last,
            tenant,
            key,
            attributes,
            caller_attributes,
            session: common.session.as_deref(),
            provider,
            model,
            requested_model,
            path,
            cost: sum.cost,
            calls: sum.calls,
            tokens: sum.tokens,
        }
    }
}

/// The earliest moment of a start that a checkpoint is good for whose newest call is of `newest`.
pub(super) fn oldest_start(newest: TimestampMs) -> TimestampMs {
    TimestampMs::new(newest.get().saturating_sub(SET_BACK_MAX.get()))
}

fn merge(sums: &mut Sums, common: Common, new: Sum) {
    let merged = |sum: &mut Sum| {
        sum.first = sum.first.min(new.first);
        sum.last = sum.last.max(new.last);
        sum.cost = sum.cost.saturating_add(new.cost);
        sum.calls = sum.calls.saturating_add(new.calls);
        sum.tokens = sum.tokens.saturating_add(new.tokens);
    };
    sums.entry(common).and_modify(merged).or_insert(new);
}

/// Texts by number: each is kept once.
#[derive(Debug, Default)]
struct Names {
    numbers: HashMap<Arc<str>, u32, RandomState>,
    texts: Vec<Arc<str>>,
}

impl Names {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let (number, text) = (u32::try_from(self.texts.len()).unwrap_or(u32::MAX), Arc::<str>::from(text));
        self.texts.push(text.clone());
        self.numbers.insert(text, number);
        number
    }

    fn text(&self, number: u32) -> &str {
        usize::try_from(number).ok().and_then(|number| self.texts.get(number)).map_or("", |text| text)
    }
}
