//! One's own use of the limits, tried with random histories against the oracle.
//!
//!     cargo run -p tollgate-examples --bin property_test_limiter
//!
//! The thing under test is a mailer that sends at most 100 mails in whatever ten seconds. It runs on the
//! real store, with a clock that the test moves. The oracle knows the rule word for word and nothing
//! else: whatever answers differently is wrong. To see that such a test finds something, it is run on a
//! mailer that counts by fixed windows, too.

use std::{cell::Cell, collections::BTreeMap, error::Error, sync::Arc};

use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner},
};
use tollgate_limiter::{
    Amount, CounterKey, DurationMs, Enforcement, Entry, Limit, Plan, ReservationId, Rule, TimestampMs,
    Verdict, oracle::Log,
};
use tollgate_store::{Attempt, Clock, ManualClock, MemoryStore, Store as _};

const MAILS_MAX: u64 = 100;
const WINDOW: DurationMs = DurationMs::new(10_000);
const RULE: Rule = Rule::BucketedWindow { window: WINDOW };

/// How many histories are tried.
const HISTORIES: u32 = 500;

fn main() -> Result<(), Box<dyn Error>> {
    let (sent, refused) = (Cell::new(0_u32), Cell::new(0_u32));
    try_histories(|history| {
        let (limited, all) = compare(LimitedMailer::new, history)?;
        sent.set(sent.get() + limited);
        refused.set(refused.get() + all - limited);
        Ok(())
    })?;
    println!("{HISTORIES} histories agree with the oracle: {} sent, {} refused.", sent.get(), refused.get());

    match try_histories(|history| compare(FixedWindowMailer::new, history).map(|_| ())) {
        Err(TestError::Fail(reason, history)) => {
            println!("A fixed window is found out, by {} steps: {reason}.", history.len());
            for step in history {
                println!("  {} ms later, {} mails", step.wait_ms, step.mails);
            }
            Ok(())
        }
        other => Err(format!("a fixed window does not hold in every span: {other:?}").into()),
    }
}

/// One thing that happens: time passes, then somebody wants to send.
#[derive(Clone, Debug)]
struct Step {
    wait_ms: u64,
    mails: u64,
}

/// Short waits and long ones, single mails and batches, also one that can never fit.
fn histories() -> impl Strategy<Value = Vec<Step>> {
    let wait_ms = prop_oneof![0_u64..200, 0_u64..12_000];
    let mails = prop_oneof![4 => 1_u64..30, 1 => 1_u64..=MAILS_MAX + 1];
    vec((wait_ms, mails).prop_map(|(wait_ms, mails)| Step { wait_ms, mails }), 1..60)
}

/// Tries the same histories each time, and hands back the simplest one that fails.
fn try_histories(
    property: impl Fn(&[Step]) -> Result<(), TestCaseError>,
) -> Result<(), TestError<Vec<Step>>> {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let config = Config { cases: HISTORIES, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, rng).run(&histories(), |history| property(&history))
}

/// Sends mails, or says no.
trait Mailer {
    fn send(&mut self, mails: u64) -> Result<bool, Box<dyn Error>>;
}

/// Plays a history to a mailer and to the oracle. They must agree on every step, and no span of a
/// window's length may hold more than the limit. Answers how often was sent, and how often asked.
fn compare<M: Mailer>(
    mailer: impl Fn(Arc<ManualClock>) -> M,
    history: &[Step],
) -> Result<(u32, u32), TestCaseError> {
    let clock = Arc::new(ManualClock::new(TimestampMs::new(1_795_996_800_000)));
    let (mut mailer, mut log) = (mailer(Arc::clone(&clock)), Log::new(RULE));
    let (mut sent, mut asked) = (0, 0);
    for step in history {
        clock.advance(DurationMs::new(step.wait_ms));
        let (now, mails) = (clock.now(), Amount::new(step.mails));
        let fits = log.fits(Amount::new(MAILS_MAX), mails, now);
        let answer = mailer.send(step.mails).map_err(|error| TestCaseError::fail(error.to_string()))?;
        if answer != fits {
            let message = format!("it says {answer} where the rule says {fits}");
            return Err(TestCaseError::fail(message));
        }
        if answer {
            log.admit(mails, now);
            sent += 1;
        }
        asked += 1;
    }
    prop_assert!(log.largest(WINDOW) <= u128::from(MAILS_MAX), "a window holds too many");
    Ok((sent, asked))
}

/// The mailer as it should be.
struct LimitedMailer {
    store: MemoryStore,
    limit: Arc<Limit>,
    ids: u128,
}

impl LimitedMailer {
    fn new(clock: Arc<ManualClock>) -> Self {
        let key = CounterKey::new("mailer", "mails");
        let amount = Amount::new(MAILS_MAX);
        let limit = Arc::new(Limit { key, rule: RULE, amount, enforcement: Enforcement::Hard });
        Self { store: MemoryStore::new(clock), limit, ids: 0 }
    }
}

impl Mailer for LimitedMailer {
    fn send(&mut self, mails: u64) -> Result<bool, Box<dyn Error>> {
        let entry = Entry { limit: Arc::clone(&self.limit), charge: Amount::new(mails) };
        let plan = Arc::new(Plan::new(vec![entry])?);
        self.ids += 1;
        let asked = self.store.reserve(ReservationId::new(self.ids), plan, Attempt::First);
        let verdict = asked.now_or_later().map_err(|_| "a store in memory answers at once")??;
        Ok(matches!(verdict, Verdict::Admitted(_)))
    }
}

/// A mailer that begins anew every ten seconds, whatever was sent just before.
struct FixedWindowMailer {
    clock: Arc<ManualClock>,
    sent: BTreeMap<u64, u64>,
}

impl FixedWindowMailer {
    const fn new(clock: Arc<ManualClock>) -> Self {
        Self { clock, sent: BTreeMap::new() }
    }
}

impl Mailer for FixedWindowMailer {
    fn send(&mut self, mails: u64) -> Result<bool, Box<dyn Error>> {
        let sent = self.sent.entry(self.clock.now().get() / WINDOW.get()).or_default();
        let fits = *sent + mails <= MAILS_MAX;
        *sent += if fits { mails } else { 0 };
        Ok(fits)
    }
}
