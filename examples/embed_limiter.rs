//! Limits in a program of one's own: plan, reserve, settle, and when to come back.
//!
//!     cargo run -p tollgate-examples --bin embed_limiter
//!
//! The program is a translation service. How many words a job takes is known when it is done, so each
//! job reserves the most it may take, and gives back the rest. There is no clock and no randomness in
//! a ledger: time and ids are arguments.

use std::{error::Error, sync::Arc};

use tollgate_limiter::{
    Amount, Attempt, CounterKey, DurationMs, Enforcement, Entry, ExactAmount, Held, Ledger, LedgerError,
    Limit, Outcome, Period, Plan, Refusal, ReservationId, Rule, TimestampMs, Verdict,
};

/// What a word costs, in micro-USD.
const WORD_MICRO_USD: u64 = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut service = Service::new();
    let monday = TimestampMs::new(1_795_996_800_000); // a program would ask its clock

    println!("Nothing is known of a job before it is done, so the most it may take is held:");
    let first = service.open("first", monday, 600)?.ok_or("the first job fits")?;
    service.open("second", monday, 600)?;

    println!("The first is done after 150 words. The rest is free at once:");
    service.close("first", monday, &first, 150)?;
    let second = service.open("second", monday, 600)?.ok_or("450 words are free again")?;
    let third = service.open("third", monday, 100)?.ok_or("150 + 600 + 100 fit")?;

    println!("Each limit says whether and when to come back:");
    service.open("fourth", monday, 100)?;
    service.open("fifth", monday, 1_001)?;

    println!("A refusal's time is exact. One millisecond before it is too early:");
    service.close("second", monday, &second, 600)?;
    service.close("third", monday, &third, 100)?;
    let Some(wait) = service.refusal(monday, 400)?.and_then(|refusal| wait_of(&refusal)) else {
        return Err("a wait was announced".into());
    };
    let on_time = monday.saturating_add(wait);
    let early = TimestampMs::new(on_time.get() - 1);
    service.open("sixth", early, 400)?;
    let sixth = service.open("sixth", on_time, 400)?.ok_or("it was announced")?;

    println!("What is used beyond a reservation is recorded all the same, and refuses later jobs:");
    service.close("sixth", on_time, &sixth, 1_650)?;
    service.open("seventh", on_time, 10)?;

    service.print(on_time);
    Ok(())
}

/// The limits of one customer, each counted by another rule.
struct Service {
    ledger: Ledger,
    limits: [Arc<Limit>; 4],
    ids: u128,
}

impl Service {
    fn new() -> Self {
        let minute = DurationMs::new(60_000);
        let limits = [
            limit("jobs open", Rule::Concurrent, 2),
            limit("jobs/minute", Rule::TokenBucket { window: minute }, 30),
            limit("words/minute", Rule::SlidingWindow { window: minute }, 1_000),
            limit("micro-USD/day", Rule::Calendar(Period::Day), 50_000),
        ];
        Self { ledger: Ledger::new(), limits, ids: 0 }
    }

    /// What a job of at most `words` adds to each limit: all of it, or nothing.
    fn plan(&self, words: u64) -> Result<Arc<Plan>, Box<dyn Error>> {
        let charges = [1, 1, words, words * WORD_MICRO_USD];
        let entries = self
            .limits
            .iter()
            .zip(charges)
            .map(|(limit, charge)| Entry { limit: Arc::clone(limit), charge: Amount::new(charge) });
        Ok(Arc::new(Plan::new(entries.collect())?))
    }

    fn reserve(&mut self, now: TimestampMs, words: u64) -> Result<(Held, Verdict), Box<dyn Error>> {
        self.ids += 1; // a program takes 128 random bits
        let (id, plan) = (ReservationId::new(self.ids), self.plan(words)?);
        let verdict = self.ledger.reserve(now, id, Arc::clone(&plan), Attempt::First)?;
        Ok((Held { id, plan, at: now }, verdict))
    }

    /// Asks for a job, and says what came of it.
    fn open(&mut self, job: &str, now: TimestampMs, words: u64) -> Result<Option<Held>, Box<dyn Error>> {
        let (held, verdict) = self.reserve(now, words)?;
        match verdict {
            Verdict::Admitted(admission) => {
                println!("  {job}: {words} words held");
                Ok(Some(Held { at: admission.at, ..held }))
            }
            Verdict::Refused(refusal) => {
                let name = self.limits[refusal.binding.index].key.name();
                println!("  {job}: {words} words refused by {name}, {}", advice(&refusal));
                Ok(None)
            }
        }
    }

    /// Why a job of so many words would be refused. A refusal changes no counter.
    fn refusal(&mut self, now: TimestampMs, words: u64) -> Result<Option<Refusal>, Box<dyn Error>> {
        match self.reserve(now, words)? {
            (_, Verdict::Refused(refusal)) => Ok(Some(refusal)),
            (_, Verdict::Admitted(_)) => Ok(None),
        }
    }

    /// Replaces what a job holds by what it took. No limit can refuse that.
    fn close(&mut self, job: &str, now: TimestampMs, held: &Held, words: u64) -> Result<(), LedgerError> {
        let actuals = [1, 1, words, words * WORD_MICRO_USD].map(ExactAmount::whole);
        self.ledger.settle(now, held, &actuals)?;
        println!("  {job}: took {words} words");
        Ok(())
    }

    fn print(&self, now: TimestampMs) {
        println!("So the limits stand:");
        for view in self.ledger.inspect(now, &self.limits) {
            let (spent, held) = (view.spent.units(), view.held);
            println!("  {:<14} {spent:>6} used {held:>3} held {:>6} left", view.key.name(), view.remaining);
        }
    }
}

fn limit(name: &str, rule: Rule, amount: u64) -> Arc<Limit> {
    let key = CounterKey::new("customer 1", name);
    Arc::new(Limit { key, rule, amount: Amount::new(amount), enforcement: Enforcement::Hard })
}

fn wait_of(refusal: &Refusal) -> Option<DurationMs> {
    match refusal.binding.outcome {
        Outcome::Wait(wait) => Some(wait),
        Outcome::Admit | Outcome::Never => None,
    }
}

/// The three answers: a time, an event, never.
fn advice(refusal: &Refusal) -> String {
    match wait_of(refusal) {
        Some(wait) => format!("fits in {wait} ms"),
        None if refusal.binding.fits_without_holds() => "fits when another job is done".to_owned(),
        None => "can never fit".to_owned(),
    }
}
