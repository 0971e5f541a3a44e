//! Each algorithm against a log of every event, over random histories: bursts, idle gaps, edges of
//! windows, a limit of 1, charges of the whole limit and one more, clocks that go both ways.

use std::sync::Arc;

use proptest::prelude::*;
use tollgate_limiter::{Amount, DurationMs, Limit, Outcome, Period, Rule, TimestampMs, oracle::Log};

use crate::support::{Desk, cases, limit, plan};

const HISTORIES: u32 = 100_000;
/// The ledger drops idle counters with its 256th call, and a log drops nothing: a history ends before.
/// (What is dropped stands where the sweep has looked, see `forgetting_an_idle_counter_is_no_reset`.)
const CALLS_MAX: usize = 255;
/// The most calls that one event takes: itself, each instant of a short wait, four more and the last.
const CALLS_OF_EVENT: usize = 1 + 39 + 4 + 1;

/// A limit and what is asked of it.
#[derive(Clone, Debug)]
struct History {
    rule: Rule,
    amount: u64,
    start_ms: u64,
    events: Vec<Event>,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    /// How far the clock moves before it.
    gap_ms: i64,
    charge: u64,
    /// At which part of an announced wait, in 2¹⁶ths, to ask again.
    early: u16,
}

/// Windows and limits of all sizes, and events that lean to their edges.
fn histories(
    rule: fn(DurationMs) -> Rule,
    windows: impl Strategy<Value = u64> + 'static,
) -> impl Strategy<Value = History> {
    let amounts = prop_oneof![
        2 => Just(1_u64),
        6 => 1_u64..100,
        1 => Just(10_000_000_000),
        2 => 9_999_999_000_u64..10_000_000_000,
        1 => 1_u64..10_000_000_000,
    ];
    (windows, amounts, 0_u64..2_000_000_000_000).prop_flat_map(move |(window_ms, amount, start_ms)| {
        let rule = rule(DurationMs::new(window_ms));
        let events = prop::collection::vec(event(window_ms.cast_signed(), amount), 1..20);
        events.prop_map(move |events| History { rule, amount, start_ms: start_ms + 3 * window_ms, events })
    })
}

fn event(window_ms: i64, amount: u64) -> impl Strategy<Value = Event> {
    let gap = prop_oneof![
        5 => Just(0),
        5 => 0..=window_ms / 7 + 1,
        2 => 0..=window_ms * 3,
        1 => window_ms - 1..=window_ms + 1,
        1 => Just(window_ms * 2),
        1 => -window_ms * 2..=0,
    ];
    let charge = prop_oneof![
        4 => 1..=amount / 5 + 1,
        2 => 0..=amount + 1,
        2 => Just(1),
        2 => amount..=amount + 1,
    ];
    (gap, charge, any::<u16>()).prop_map(|(gap_ms, charge, early)| Event { gap_ms, charge, early })
}

fn any_window() -> impl Strategy<Value = u64> {
    prop_oneof![Just(60_000_u64), Just(1_000), 1_u64..200, Just(3_600_000), Just(86_400_000), Just(90_001)]
}

/// One history as it goes on.
struct Run {
    desk: Desk,
    log: Log,
    limit: Arc<Limit>,
    now_ms: u64,
}

impl Run {
    /// The whole history: each decision is the log's, each wait is exact.
    fn of(history: &History) -> Result<Self, TestCaseError> {
        let limit = limit("r", history.rule, history.amount);
        let mut run =
            Self { desk: Desk::default(), log: Log::new(history.rule), limit, now_ms: history.start_ms };
        for event in &history.events {
            if run.desk.calls() + CALLS_OF_EVENT > CALLS_MAX {
                break;
            }
            run.now_ms = run.now_ms.saturating_add_signed(event.gap_ms);
            run.ask(event)?;
        }
        Ok(run)
    }

    fn ask(&mut self, event: &Event) -> Result<(), TestCaseError> {
        match self.decide(self.now_ms, event.charge)? {
            Outcome::Admit => Ok(()),
            Outcome::Never => {
                let is_too_large = event.charge > self.limit.amount.get();
                let waits_for_others =
                    matches!(self.limit.rule, Rule::Concurrent | Rule::Calendar(Period::Total));
                prop_assert!(is_too_large || waits_for_others);
                Ok(())
            }
            Outcome::Wait(wait) => self.wait(wait.get(), event),
        }
    }

    /// Refused at every instant before the announced one (at some, if they are many), admitted at it.
    fn wait(&mut self, wait_ms: u64, event: &Event) -> Result<(), TestCaseError> {
        prop_assert!(wait_ms > 0);
        let some_ms = (wait_ms * u64::from(event.early)) >> 16;
        let instants = [1, wait_ms / 2, some_ms, wait_ms - 1];
        let all = 1..wait_ms.min(40);
        let all = if wait_ms <= 40 { all } else { 0..0 };
        for early_ms in all.chain(instants).filter(|early_ms| *early_ms < wait_ms) {
            let left = Outcome::Wait(DurationMs::new(wait_ms - early_ms));
            prop_assert_eq!(self.decide(self.now_ms + early_ms, event.charge)?, left, "after {}", early_ms);
        }
        self.now_ms += wait_ms;
        prop_assert_eq!(self.decide(self.now_ms, event.charge)?, Outcome::Admit, "after {}", wait_ms);
        Ok(())
    }

    /// What the limit answers, which is what the log says. An admitted charge is booked.
    fn decide(&mut self, now_ms: u64, charge: u64) -> Result<Outcome, TestCaseError> {
        let (now, wanted) = (TimestampMs::new(now_ms), Amount::new(charge));
        let fits = self.log.fits(self.limit.amount, wanted, now);
        let outcome = self.desk.outcome(now_ms, &self.limit, charge);
        prop_assert_eq!(outcome == Outcome::Admit, fits, "{} at {}", charge, now_ms);
        if fits {
            self.log.admit(wanted, now);
        }
        Ok(outcome)
    }
}

proptest! {
    #![proptest_config(cases(HISTORIES))]

    /// Besides, no window of the clock holds more than the limit, and no span of a window's length as
    /// much as twice the limit. (Cutting a long window into 60,000 parts only ever counts more.)
    #[test]
    fn a_sliding_window_decides_as_a_log_does(
        history in histories(|window| Rule::SlidingWindow { window }, any_window()),
    ) {
        let run = Run::of(&history)?;
        let (window, limit) = (window_of(history.rule), u128::from(history.amount));
        prop_assert!(run.log.largest(window) < 2 * limit);
        for start_ms in run.log.moments().map(|at| at.get() - at.get() % window.get()) {
            let start = TimestampMs::new(start_ms);
            prop_assert!(run.log.between(start, start.saturating_add(window)) <= limit);
        }
    }

    /// Besides, no span of a window's length holds more than the limit, wherever it starts.
    #[test]
    fn a_bucketed_window_decides_as_a_log_does(
        history in histories(|window| Rule::BucketedWindow { window }, any_window()),
    ) {
        let run = Run::of(&history)?;
        prop_assert!(run.log.largest(window_of(history.rule)) <= u128::from(history.amount));
    }

    /// Besides, no span holds more than the burst and what is refilled within it.
    #[test]
    fn a_token_bucket_decides_as_a_log_does(
        history in histories(|window| Rule::TokenBucket { window }, any_window()),
    ) {
        let run = Run::of(&history)?;
        let (window_ms, limit) = (u128::from(window_of(history.rule).get()), u128::from(history.amount));
        let moments: Vec<_> = run.log.moments().collect();
        for (index, start) in moments.iter().enumerate() {
            for end in &moments[index..] {
                let charged = run.log.between(*start, end.saturating_add(DurationMs::new(1)));
                prop_assert!(charged * window_ms <= limit * (window_ms + u128::from(end.since(*start).get())));
            }
        }
    }

    /// Besides, no period holds more than the limit.
    #[test]
    fn a_calendar_budget_decides_as_a_log_does(
        history in histories(
            |window| Rule::Calendar(match window.get() {
                60_000 => Period::Minute,
                3_600_000 => Period::Hour,
                86_400_000 => Period::Day,
                604_800_000 => Period::Week,
                2_592_000_000 => Period::Month,
                _ => Period::Total,
            }),
            prop_oneof![
                Just(60_000_u64), Just(3_600_000), Just(86_400_000), Just(604_800_000), Just(2_592_000_000), Just(1)
            ],
        ),
    ) {
        let run = Run::of(&history)?;
        let Rule::Calendar(period) = history.rule else { unreachable!() };
        for at in run.log.moments() {
            let (start, end) = (period.start(at), period.end(at).unwrap_or(TimestampMs::new(u64::MAX)));
            prop_assert!(run.log.between(start, end) <= u128::from(history.amount));
        }
    }

    #[test]
    fn a_session_decides_as_a_log_does(
        history in histories(|after| Rule::Idle { after }, any_window()),
    ) {
        Run::of(&history)?;
    }

    #[test]
    fn a_run_decides_as_a_log_does(
        history in histories(|after| Rule::Elapsed { after }, any_window()),
    ) {
        Run::of(&history)?;
    }

    #[test]
    fn what_is_open_and_what_is_asked_decide_as_a_log_does(
        history in histories(
            |window| if window.get() == 1 { Rule::Concurrent } else { Rule::PerRequest },
            1_u64..=2,
        ),
    ) {
        Run::of(&history)?;
    }
}

fn window_of(rule: Rule) -> DurationMs {
    match rule {
        Rule::SlidingWindow { window } | Rule::BucketedWindow { window } | Rule::TokenBucket { window } => {
            window
        }
        _ => unreachable!(),
    }
}

proptest! {
    #![proptest_config(cases(20_000))]

    /// What is really used and what is still held keep a token bucket's bound, in whatever order
    /// reservations end.
    #[test]
    fn what_goes_back_never_lets_a_token_bucket_pass_its_bound(
        (window_ms, amount) in (prop_oneof![Just(1_000_u64), 1_u64..300], 1_u64..60),
        calls in prop::collection::vec((0_u64..400, 0_u64..60, 0_usize..8, 0_u64..100), 1..40),
    ) {
        let limit = limit("r", Rule::TokenBucket { window: DurationMs::new(window_ms) }, amount);
        let mut desk = Desk::default();
        let (mut now_ms, mut open, mut net) = (1_000, Vec::new(), Vec::<(u64, u64)>::new());
        for (gap_ms, charge, which, percent) in calls {
            now_ms += gap_ms * window_ms / 400;
            if let Ok(held) = desk.reserve(now_ms, &plan(&[(&limit, charge)])) {
                open.push((held, net.len()));
                net.push((now_ms, charge));
            }
            if which < open.len() {
                let (held, place) = open.remove(which);
                let used = net[place].1 * percent / 100;
                desk.settle(now_ms, &held, &[used]);
                net[place].1 = used;
            }
            for (index, (start_ms, _)) in net.iter().enumerate() {
                let charged: u64 = net[index..].iter().map(|(_, charge)| charge).sum();
                prop_assert!(charged * window_ms <= amount * (window_ms + now_ms - start_ms));
            }
        }
    }
}
