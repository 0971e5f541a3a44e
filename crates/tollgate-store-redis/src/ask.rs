//! Scripts asked about one part of a plan.

use std::sync::Arc;

use bytes::Bytes;
use tollgate_limiter::{
    Amount, Attempt, EXTENSIONS_MAX, ExactAmount, Held, Plan, Settled, Standing, TimestampMs, Verdict,
};
use tollgate_store::StoreError;

use crate::{
    Inner,
    keys::Tag,
    parts::{Part, Parts},
    reply::{self, Asked},
    request,
    told::Counted,
};

/// In place of the moment of an admission: -1 as scripts read it.
const ONLY_HELD: u64 = u64::MAX;

/// How a part is asked for a reservation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Mode {
    /// Charge it, if it fits.
    Charge(Attempt),
    /// Only say whether it would fit.
    Look,
}

/// What one part has answered.
#[derive(Debug)]
pub(crate) struct Answer {
    /// About its entries.
    pub(crate) verdict: Verdict,
    /// It is a refusal of the whole plan, given before.
    pub(crate) is_final: bool,
    /// Where it admits: the rate limit with the smallest part left without this charge.
    pub(crate) before: Option<Standing>,
    /// Where it charged now: what its counters were and have become, for [`Inner::undo_part`].
    pub(crate) trace: Bytes,
    /// The script may have run twice.
    pub(crate) is_repeated: bool,
}

/// What is asked of all parts alike.
#[derive(Clone, Copy)]
pub(crate) struct Whole<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) fingerprint: &'a Bytes,
    /// There are several parts.
    pub(crate) is_split: bool,
}

impl Inner {
    pub(crate) async fn reserve_part(
        &self,
        whole: Whole<'_>,
        part: &Part,
        mode: Mode,
    ) -> Result<Answer, StoreError> {
        let arguments = |again| {
            let flags = flags(whole, mode, again, part.mark.is_some());
            let (life, time) = (self.lives.now().bytes(), self.time().to_le_bytes());
            vec![[whole.fingerprint, &life[..], &time, &[flags], &part.entries].concat().into()]
        };
        let keys = || part.keys();
        let (reply, is_repeated) =
            self.run_together(|line| &line.reserves, part.tag, keys, arguments).await?;
        answer(whole, part, 0, &reply, is_repeated)
    }

    pub(crate) async fn extend_part(
        &self,
        whole: Whole<'_>,
        part: &Part,
        mode: Mode,
        step: u32,
        charges: &[Amount],
    ) -> Result<Answer, StoreError> {
        let charges = request::charges(&part.of_all(charges));
        let flags = match (mode, whole.is_split) {
            (Mode::Look, true) => "ls",
            (Mode::Look, false) => "l",
            (Mode::Charge(_), true) => "s",
            (Mode::Charge(_), false) => "",
        };
        let arguments = |_| {
            let (step, most) = (step.to_string().into(), EXTENSIONS_MAX.to_string().into());
            self.arguments(whole, part, [flags.into(), step, charges.clone(), most])
        };
        let (reply, is_repeated) = self.run(&self.extend, part.held_keys(), arguments).await?;
        answer(whole, part, step, &reply, is_repeated)
    }

    /// Where the reservation is gone, what was used is charged as admitted at a moment, if one is given, and Redis knows
    /// what was spent before: one that has forgotten it is told of this call too.
    pub(crate) async fn settle_part(
        &self,
        whole: Whole<'_>,
        part: &Part,
        actuals: &[ExactAmount],
        at: Option<TimestampMs>,
    ) -> Result<Settled, StoreError> {
        let first = if self.is_guarded() { None } else { at };
        if let Some(settled) = self.settle_at(whole, part, actuals, first).await? {
            return Ok(settled);
        }
        // In a box, as it is rare.
        Box::pin(self.settle_gone(whole, part, actuals, at)).await
    }

    async fn settle_gone(
        &self,
        whole: Whole<'_>,
        part: &Part,
        actuals: &[ExactAmount],
        at: Option<TimestampMs>,
    ) -> Result<Settled, StoreError> {
        let Some(at) = at else { return Ok(Settled::Already) };
        if self.client().get_all(&[self.keys.ready(part.tag)]).await?.iter().any(Option::is_none) {
            return Err(StoreError::Unavailable("Redis does not know what was spent".to_owned()));
        }
        let settled = self.settle_at(whole, part, actuals, Some(at)).await?;
        Ok(settled.unwrap_or(Settled::Already))
    }

    /// What of a settlement that Redis has taken it has counted at any of `tags`, as the reservation's records there tell.
    pub(crate) async fn counted(
        &self,
        held: &Held,
        actuals: &[ExactAmount],
        tags: &[Tag],
    ) -> Result<Vec<Counted>, StoreError> {
        let parts = Parts::of(&self.keys, held.id, &held.plan, false)?;
        let whole = parts.whole(&held.plan);
        let mut all_counted = Vec::new();
        for part in parts.all().filter(|part| tags.contains(&part.tag)) {
            let counted = part.places.iter().filter_map(|place| {
                let (entry, spent) = (held.plan.entries().get(*place)?, *actuals.get(*place)?);
                Some(Counted { limit: Arc::clone(&entry.limit), at: held.at, spent })
            });
            match self.settle_at(whole, part, actuals, None).await {
                Ok(Some(_)) => all_counted.extend(counted),
                // What cannot be read tells nothing.
                Ok(None) | Err(StoreError::Corrupt(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all_counted)
    }

    /// `None`: the reservation is gone, and no moment is given.
    async fn settle_at(
        &self,
        whole: Whole<'_>,
        part: &Part,
        actuals: &[ExactAmount],
        at: Option<TimestampMs>,
    ) -> Result<Option<Settled>, StoreError> {
        let used = request::actuals(&part.of_all(actuals));
        let at = at.map_or(ONLY_HELD, TimestampMs::get).to_le_bytes();
        let arguments = |_| {
            let time = self.time().to_le_bytes();
            vec![[whole.fingerprint, &at[..], &time, &used, &part.entries].concat().into()]
        };
        let keys = || part.held_keys();
        let (reply, _) = self.run_together(|line| &line.settlements, part.tag, keys, arguments).await?;
        reply::settled(reply::text(&reply)?, &part.counters)
    }

    /// Takes back what `answer` charged, in step 0 or an extension, because another part refuses. Counters that
    /// nobody has changed since become what they were; of the others what was booked goes back. `refusal` is kept
    /// as the answer to repetitions, if there may be any, also where nothing was charged.
    pub(crate) async fn undo_part(
        &self,
        whole: Whole<'_>,
        part: &Part,
        step: u32,
        answer: &Answer,
        refusal: Option<&str>,
    ) -> Result<(), StoreError> {
        let (step, refusal) =
            (Bytes::from(step.to_string()), Bytes::from(refusal.unwrap_or_default().to_owned()));
        let arguments =
            |_| self.arguments(whole, part, [step.clone(), refusal.clone(), answer.trace.clone()]);
        let (reply, _) = self.run(&self.undo, part.held_keys(), arguments).await?;
        reply::done(&reply, &["U"])
    }

    /// The time, the plan's fingerprint, what a call brings, the plan.
    fn arguments<const N: usize>(&self, whole: Whole<'_>, part: &Part, own: [Bytes; N]) -> Vec<Bytes> {
        let mut arguments = Vec::with_capacity(3 + N);
        arguments.extend([self.now(), whole.fingerprint.clone()]);
        arguments.extend(own);
        arguments.push(part.entries.clone());
        arguments
    }
}

impl Part {
    /// The keys of a call that makes a reservation.
    fn keys(&self) -> Vec<Bytes> {
        [&self.record].into_iter().chain(&self.counters).chain(&self.mark).cloned().collect()
    }

    /// The keys of a call about a reservation that was made.
    fn held_keys(&self) -> Vec<Bytes> {
        let own = [&self.record, &self.extensions];
        own.into_iter().chain(&self.counters).cloned().collect()
    }
}

/// How the script of a reserve is to answer, a bit each: it is a repetition, it only looks, it asks for the mark that Redis
/// knows what was spent, it is one of several parts.
fn flags(whole: Whole<'_>, mode: Mode, again: Attempt, is_guarded: bool) -> u8 {
    let is_again = again == Attempt::Retry && mode != Mode::Look;
    let is_retry = mode == Mode::Charge(Attempt::Retry) || is_again;
    let all = [is_retry, mode == Mode::Look, is_guarded, whole.is_split];
    all.into_iter().rev().fold(0, |bits, is_set| 2 * bits + u8::from(is_set))
}

fn answer(
    whole: Whole<'_>,
    part: &Part,
    step: u32,
    reply: &Bytes,
    is_repeated: bool,
) -> Result<Answer, StoreError> {
    let asked = Asked { plan: whole.plan, places: &part.places, counters: &part.counters, step };
    let (text, rest) = reply::first_line(reply)?;
    let (before, trace) = reply::first_line(&rest)?;
    let before = if before.is_empty() { None } else { reply::before(before, asked)? };
    let (verdict, is_final) = (reply::verdict(text, asked)?, reply::is_final(text));
    Ok(Answer { verdict, is_final, before, trace, is_repeated })
}
