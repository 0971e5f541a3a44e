//! The results of a message batch: one JSON object a line, in any order.

use tollgate_pricing::Usage;

use super::usage::UsageFields;
use crate::estimate::Run;
use crate::facts::CacheTtls;
use crate::scan::{Handler, Name, Scanner, Want};
use crate::{ModelUsage, RequestFacts};

/// The most models that are told apart in one file.
const MAX_MODELS: usize = 64;

/// Reads a results file while its bytes pass. Only succeeded requests have usage, and only they are
/// billed, at the batch tier.
#[derive(Debug)]
pub struct BatchResultsMeter {
    ttls: CacheTtls,
    scanner: Scanner,
    line: Line,
    totals: Vec<ModelUsage>,
}

#[derive(Debug, Default)]
struct Line {
    model: Option<String>,
    usage: UsageFields,
}

impl BatchResultsMeter {
    /// A meter for the results of requests like `facts`.
    pub fn new(facts: &RequestFacts) -> Self {
        Self { ttls: facts.ttls, scanner: Scanner::new(), line: Line::default(), totals: Vec::new() }
    }

    /// Takes the next piece.
    pub fn feed(&mut self, piece: &[u8]) {
        let mut rest = piece;
        while !rest.is_empty() {
            let read = self.scanner.feed(rest, &mut self.line);
            rest = rest.get(read..).unwrap_or_default();
            if self.scanner.is_done() {
                self.end_line();
            }
        }
    }

    /// The usage by model. A line that was cut off counts nothing.
    pub fn finish(self) -> Vec<ModelUsage> {
        self.totals
    }

    fn end_line(&mut self) {
        self.scanner.restart();
        let line = std::mem::take(&mut self.line);
        let model = line.model.unwrap_or_default();
        let report = line.usage.report(self.ttls, Some(&model));
        if report.is_present {
            self.add(model, &report.usage);
            for other in report.others {
                self.add(other.model, &other.usage);
            }
        }
    }

    fn add(&mut self, model: String, usage: &Usage) {
        let index = match self.totals.iter().position(|total| total.model == model) {
            Some(index) => index,
            None if self.totals.len() < MAX_MODELS => {
                self.totals.push(ModelUsage { model, usage: Usage::default() });
                self.totals.len() - 1
            }
            None => 0,
        };
        if let Some(total) = self.totals.get_mut(index) {
            total.usage = sum(&total.usage, usage);
        }
    }
}

impl Handler for Line {
    fn want(&mut self, path: &[Name]) -> Want {
        match path {
            [Name::Result, Name::Message, Name::Model | Name::Usage] => Want::Keep,
            _ => Want::Skip,
        }
    }

    fn kept(&mut self, path: &[Name], json: &[u8]) {
        match path {
            [.., Name::Model] => self.model = serde_json::from_slice(json).ok(),
            _ => self.usage.replace(json),
        }
    }

    fn counted(&mut self, _: &[Name], _: Run) {}
}

/// Adds the classes that a Messages answer reports.
fn sum(a: &Usage, b: &Usage) -> Usage {
    Usage {
        input: a.input.saturating_add(b.input),
        cache_read: a.cache_read.saturating_add(b.cache_read),
        cache_write_5m: a.cache_write_5m.saturating_add(b.cache_write_5m),
        cache_write_1h: a.cache_write_1h.saturating_add(b.cache_write_1h),
        output: a.output.saturating_add(b.output),
        reasoning: a.reasoning.saturating_add(b.reasoning),
        web_searches: a.web_searches.saturating_add(b.web_searches),
        web_fetches: a.web_fetches.saturating_add(b.web_fetches),
        ..Usage::default()
    }
}
