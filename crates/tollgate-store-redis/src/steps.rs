//! A plan decided in its parts: the first by itself, then all others together. Where one of them refuses, what was
//! charged goes back.
//!
//! Between the two steps others may find the first part charged, and be refused or told to wait for what is given
//! back at once: never admitted beyond a limit. Who dies between them leaves the first part charged, as every
//! reservation that nobody settles. Of a plan with one part all this is one script.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

use tollgate_limiter::{
    Amount, Attempt, ExactAmount, Held, LedgerError, Plan, ReservationId, Settled, TimestampMs, Verdict,
};
use tollgate_store::StoreError;

use crate::{
    Inner,
    ask::{Answer, Mode, Whole},
    join::{join, settled},
    parts::Parts,
    reply,
};

/// What each part has answered, in their order.
type Answers = Vec<Result<Answer, StoreError>>;

impl Inner {
    pub(crate) async fn reserve_all(
        &self,
        id: ReservationId,
        plan: &Plan,
        attempt: Attempt,
    ) -> Result<Verdict, StoreError> {
        let parts = Parts::of(&self.keys, id, plan, self.is_guarded())?;
        let whole = parts.whole(plan);
        let first = self.reserve_part(whole, &parts.first, Mode::Charge(attempt));
        if !whole.is_split {
            return Ok(first.await?.verdict);
        }
        // In a box, as most plans have one part.
        Box::pin(self.in_time(async {
            let first = first.await?;
            if first.is_final {
                return Ok(first.verdict);
            }
            let mode = first.mode_of_others(attempt);
            let others = all(parts.others.iter().map(|part| self.reserve_part(whole, part, mode))).await;
            let keeps_refusal = attempt == Attempt::Retry;
            self.conclude(whole, &parts, 0, first, others, keeps_refusal).await
        }))
        .await
    }

    pub(crate) async fn extend_all(
        &self,
        held: &Held,
        step: u32,
        charges: &[Amount],
    ) -> Result<Verdict, StoreError> {
        check_length(&held.plan, charges.len())?;
        let parts = Parts::of(&self.keys, held.id, &held.plan, false)?;
        let (whole, charge) = (parts.whole(&held.plan), Mode::Charge(Attempt::First));
        let first = self.extend_part(whole, &parts.first, charge, step, charges);
        if !whole.is_split {
            return Ok(first.await?.verdict);
        }
        self.in_time(async {
            let first = first.await?;
            let mode = first.mode_of_others(Attempt::First);
            let others =
                all(parts.others.iter().map(|part| self.extend_part(whole, part, mode, step, charges))).await;
            self.conclude(whole, &parts, step, first, others, false).await
        })
        .await
    }

    /// Several steps have the time of one together. What some of them have charged then is left to whoever asked, who does
    /// not know it.
    async fn in_time<T>(&self, steps: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let late = || StoreError::Unknown("the limits in several slots took too long".to_owned());
        tokio::time::timeout(self.lines.timeout(), steps).await.unwrap_or_else(|_elapsed| Err(late()))
    }

    /// The first part first: that the call does not fit the reservation is known there. Where there is no reservation,
    /// what was used is charged as admitted at a moment, if one is given. Parts are settled beside one that cannot be read.
    pub(crate) async fn settle_all(
        &self,
        held: &Held,
        actuals: &[ExactAmount],
        at: Option<TimestampMs>,
    ) -> Result<Settled, StoreError> {
        check_length(&held.plan, actuals.len())?;
        let parts = Parts::of(&self.keys, held.id, &held.plan, false)?;
        let whole = parts.whole(&held.plan);
        let first = self.settle_part(whole, &parts.first, actuals, at).await;
        if !whole.is_split || !matches!(first, Ok(_) | Err(StoreError::Corrupt(_))) {
            return first;
        }
        let others =
            Box::pin(all(parts.others.iter().map(|part| self.settle_part(whole, part, actuals, at)))).await;
        others.into_iter().fold(first, |all, other| settled(all, other.map_err(half_done)))
    }

    /// The verdict over all parts. Where it is none, or a refusal, no part stays charged.
    async fn conclude(
        &self,
        whole: Whole<'_>,
        parts: &Parts,
        step: u32,
        first: Answer,
        others: Answers,
        keeps_refusal: bool,
    ) -> Result<Verdict, StoreError> {
        let (is_charged, mut answers, mut failed) = (first.admits(), vec![(&parts.first, first)], None);
        for (part, answer) in parts.others.iter().zip(others) {
            match answer {
                Ok(answer) => answers.push((part, answer)),
                // Of several errors one that leaves it open whether something was charged.
                Err(error) if is_charged => failed = failed.filter(is_open).or(Some(error)),
                // It could not be looked at. The first part refuses in any case.
                Err(_) => {}
            }
        }
        if let Some(error) = failed.take_if(|error| is_open(error)) {
            return Err(error);
        }
        let verdict = join(whole.plan, answers.iter().map(|(_, answer)| answer));
        if matches!(verdict, Verdict::Admitted(_)) && failed.is_none() {
            return Ok(verdict);
        }
        let keeps_refusal = keeps_refusal || answers.iter().any(|(_, answer)| answer.is_repeated);
        let refusal = match &verdict {
            Verdict::Refused(refusal) if keeps_refusal => Some(reply::refusal_text(refusal)),
            _ => None,
        };
        // A first part that refuses by itself has kept its own words only.
        let told = answers.iter().enumerate().filter(|(number, (_, answer))| match is_charged {
            true => answer.admits(),
            false => *number == 0 && refusal.is_some(),
        });
        let undone = all(
            told.map(|(_, (part, answer))| self.undo_part(whole, part, step, answer, refusal.as_deref()))
        );
        undone.await.into_iter().collect::<Result<Vec<()>, _>>().map_err(half_done)?;
        failed.map_or(Ok(verdict), Err)
    }
}

impl Answer {
    fn admits(&self) -> bool {
        matches!(self.verdict, Verdict::Admitted(_))
    }

    /// How the others are asked after this one: where it refuses, what they would say belongs to the refusal.
    fn mode_of_others(&self, attempt: Attempt) -> Mode {
        if self.admits() { Mode::Charge(attempt) } else { Mode::Look }
    }
}

impl Parts {
    pub(crate) fn whole<'a>(&'a self, plan: &'a Plan) -> Whole<'a> {
        Whole { plan, fingerprint: &self.fingerprint, is_split: self.is_split() }
    }
}

/// Whether an error leaves it open that its part was charged. A part that cannot be read is not: the others give back what
/// they can.
const fn is_open(error: &StoreError) -> bool {
    matches!(error, StoreError::Unknown(_))
}

/// Some parts have what the others have not: whoever asked has to repeat it, or to release it.
fn half_done(error: StoreError) -> StoreError {
    match error {
        StoreError::NotApplied(reason) => {
            StoreError::Unknown(format!("one part of the limits is done, another not: {reason}"))
        }
        StoreError::Unavailable(reason) => StoreError::Partly(reason),
        other => other,
    }
}

fn check_length(plan: &Plan, given: usize) -> Result<(), StoreError> {
    let entries = plan.entries().len();
    if entries == given { Ok(()) } else { Err(LedgerError::WrongLength { entries, given }.into()) }
}

/// Runs all together, to their ends.
pub(crate) async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<Pin<Box<F>>> = futures.map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut is_over = true;
        for (future, output) in running.iter_mut().zip(&mut done) {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(value) => *output = Some(value),
                    Poll::Pending => is_over = false,
                }
            }
        }
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use tollgate_limiter::{
        Amount, CounterKey, Enforcement, Entry, Limit, Period, Plan, ReservationId, Rule,
    };
    use tollgate_store::{Attempt, Store as _};

    use super::Mode;
    use crate::{RedisStore, ask::Whole, parts::Parts, testing::RedisServer};

    /// What another part refuses is taken back wherever it can be, by its trace and without.
    #[tokio::test]
    async fn what_was_charged_beside_a_counter_that_cannot_be_read_is_taken_back() {
        let server = RedisServer::start().unwrap();
        let store = RedisStore::connect(&server.settings("tollgate")).unwrap();
        store.connected().await.unwrap();
        let limits = ["day", "spoilt", "open"].map(|name| {
            let rule = if name == "open" { Rule::Concurrent } else { Rule::Calendar(Period::Day) };
            let (key, amount) = (CounterKey::new("acme", name), Amount::new(10));
            Arc::new(Limit { key, rule, amount, enforcement: Enforcement::Hard })
        });
        let entries = limits.iter().map(|limit| Entry { limit: Arc::clone(limit), charge: Amount::new(4) });
        let plan = Plan::new(entries.collect()).unwrap();
        let key = "tollgate:{acme}:c:spoilt";
        for (id, has_trace, is_hash) in
            [(1, true, false), (2, false, false), (3, true, true), (4, false, true)]
        {
            let parts = Parts::of(&store.0.keys, ReservationId::new(id), &plan, false).unwrap();
            let whole = Whole { is_split: true, ..parts.whole(&plan) };
            let mode = Mode::Charge(Attempt::First);
            let mut answer = store.0.reserve_part(whole, &parts.first, mode).await.unwrap();
            assert!(answer.admits() && !answer.trace.is_empty());
            if !has_trace {
                answer.trace = Bytes::new();
            }
            server.command(&["DEL", key]).unwrap();
            let (put, get) = if is_hash { ("HSET", "HGET") } else { ("SET", "GET") };
            let words =
                if is_hash { &[key, "field", "something else"][..] } else { &[key, "something else"] };
            server.command(&[&[put], words].concat()).unwrap();
            store.0.undo_part(whole, &parts.first, 0, &answer, None).await.unwrap();
            let others = [&limits[0], &limits[2]].map(Arc::clone);
            let views = store.inspect(&others).await.unwrap();
            assert!(views.iter().all(|view| view.held == Amount::ZERO && view.spent.units() == 0));
            let found = server.command(&[&[get], &words[..words.len() - 1]].concat()).unwrap();
            assert_eq!(found, "something else");
            server.command(&["DEL", key]).unwrap();
        }
    }
}
