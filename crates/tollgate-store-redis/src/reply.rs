//! What scripts answer, read into what a store answers.

use tollgate_limiter::{
    Admission, Amount, CounterView, DurationMs, EntryRefusal, EntrySet, ExactAmount, LedgerError, Limit,
    MILLIONTHS, Outcome, Plan, Refusal, Settled, Standing, TimestampMs, Verdict,
};
use tollgate_store::StoreError;

/// The verdict in the answer to a reserve or to extension `step`.
///
/// # Errors
///
/// [`StoreError::Mismatch`] where the script says so, [`StoreError::Corrupt`] for what cannot be read.
pub(crate) fn verdict(reply: &str, plan: &Plan, step: u32) -> Result<Verdict, StoreError> {
    let read = match reply.split_once(' ') {
        Some(("A", rest)) => admission(rest, plan).map(Verdict::Admitted),
        Some(("R", rest)) => refusal(rest, plan).map(Verdict::Refused),
        Some(("X", word)) => return Err(mismatch(word, step).unwrap_or_else(|| corrupt(reply))),
        _ => None,
    };
    read.ok_or_else(|| corrupt(reply))
}

/// What a settle did.
///
/// # Errors
///
/// As [`verdict`].
pub(crate) fn settled(reply: &str) -> Result<Settled, StoreError> {
    match reply {
        "S applied" => Ok(Settled::Applied),
        "S already" => Ok(Settled::Already),
        "S conflict" => Ok(Settled::Conflict),
        "S unheld" => Ok(Settled::WithoutReservation),
        "X plan" => Err(LedgerError::OtherPlan.into()),
        _ => Err(corrupt(reply)),
    }
}

/// How counters stand, in the order of `limits`.
///
/// # Errors
///
/// [`StoreError::Corrupt`] for what cannot be read.
pub(crate) fn views<'a>(
    reply: &str,
    limits: impl ExactSizeIterator<Item = &'a Limit>,
) -> Result<Vec<CounterView>, StoreError> {
    let wanted = limits.len();
    let views: Option<Vec<_>> = reply.split(';').zip(limits).map(|(text, limit)| view(text, limit)).collect();
    views.filter(|views| views.len() == wanted).ok_or_else(|| corrupt(reply))
}

fn corrupt(reply: &str) -> StoreError {
    const SHOWN: usize = 200;
    StoreError::Corrupt(reply.chars().take(SHOWN).collect())
}

fn mismatch(word: &str, step: u32) -> Option<StoreError> {
    let error = match word {
        "plan" => LedgerError::OtherPlan,
        "ended" => LedgerError::AlreadyEnded,
        "held" => LedgerError::NotHeld,
        "charges" => LedgerError::OtherCharges { step },
        "stale" => LedgerError::StaleStep { step },
        "many" => LedgerError::TooManyExtensions,
        "unknown" => {
            return Some(StoreError::Unavailable("Redis does not know what was spent".to_owned()));
        }
        _ => return None,
    };
    Some(error.into())
}

fn admission(text: &str, plan: &Plan) -> Option<Admission> {
    let (at, rest) = text.split_once(' ')?;
    let (over, tightest) = rest.split_once(' ')?;
    let mut over_soft = EntrySet::default();
    for index in over.split(',').filter(|_| over != "-") {
        let index: usize = index.parse().ok()?;
        plan.entries().get(index)?;
        over_soft.insert(index);
    }
    Some(Admission { at: moment(at)?, over_soft, tightest: standing(tightest, plan)? })
}

fn refusal(text: &str, plan: &Plan) -> Option<Refusal> {
    let (head, list) = text.split_once(';')?;
    let (binding, tightest) = head.split_once(' ')?;
    let binding: usize = binding.parse().ok()?;
    let refusing: Vec<_> = list.split(';').map(|one| entry_refusal(one, plan)).collect::<Option<_>>()?;
    let binding = *refusing.iter().find(|refusal| refusal.index == binding)?;
    Some(Refusal { binding, refusing, tightest: standing(tightest, plan)? })
}

fn entry_refusal(text: &str, plan: &Plan) -> Option<EntryRefusal> {
    let [index, outcome, spent, held, needed, resets_at] = words(text)?;
    let index: usize = index.parse().ok()?;
    let limit = plan.entries().get(index)?.limit.amount;
    let outcome = match outcome {
        "-1" => Outcome::Never,
        wait => Outcome::Wait(DurationMs::new(number(wait)?)),
    };
    Some(EntryRefusal {
        index,
        outcome,
        limit,
        spent: Amount::new(number(spent)?),
        held: Amount::new(number(held)?),
        needed: Amount::new(number(needed)?),
        resets_at: or_none(resets_at)?,
    })
}

/// The outer `None` is for what cannot be read.
fn standing(text: &str, plan: &Plan) -> Option<Option<Standing>> {
    if text == "-" {
        return Some(None);
    }
    let [index, remaining, resets_in] = words(text)?;
    let index: usize = index.parse().ok()?;
    let limit = plan.entries().get(index)?.limit.amount;
    let remaining = Amount::new(number(remaining)?);
    Some(Some(Standing { index, limit, remaining, resets_in: DurationMs::new(number(resets_in)?) }))
}

fn view(text: &str, limit: &Limit) -> Option<CounterView> {
    let [units, millionths, held, remaining, resets_at] = words(text)?;
    let millionths = number(millionths).filter(|millionths| *millionths < u64::from(MILLIONTHS))?;
    let below = ExactAmount::from_millionths(millionths.into());
    Some(CounterView {
        key: limit.key.clone(),
        spent: ExactAmount::whole(number(units)?).saturating_add(below),
        held: Amount::new(number(held)?),
        remaining: Amount::new(number(remaining)?),
        resets_at: or_none(resets_at)?,
    })
}

fn or_none(text: &str) -> Option<Option<TimestampMs>> {
    if text == "-" { Some(None) } else { moment(text).map(Some) }
}

fn moment(text: &str) -> Option<TimestampMs> {
    number(text).map(TimestampMs::new)
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// Exactly so many words, separated by single spaces.
fn words<const N: usize>(text: &str) -> Option<[&str; N]> {
    text.split(' ').collect::<Vec<_>>().try_into().ok()
}
