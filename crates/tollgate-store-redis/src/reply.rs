//! What scripts answer, read into what a store answers.

use bytes::Bytes;
use tollgate_limiter::{
    Admission, Amount, CounterView, DurationMs, EntryRefusal, EntrySet, ExactAmount, LedgerError, Limit,
    MILLIONTHS, Outcome, Plan, Refusal, Settled, Standing, TimestampMs, Verdict,
};
use tollgate_store::StoreError;

/// What a script was asked about.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) plan: &'a Plan,
    /// The places in the plan of the entries that it was told of.
    pub(crate) places: &'a [usize],
    /// The keys of their counters.
    pub(crate) counters: &'a [Bytes],
    /// The extension, or 0.
    pub(crate) step: u32,
}

/// How the refusal of a whole plan begins, which a part keeps. Its places are those of the plan.
const FINAL: &str = "W";

/// An answer that is a text.
///
/// # Errors
///
/// [`StoreError::Corrupt`] for one that is none.
pub(crate) fn text(reply: &[u8]) -> Result<&str, StoreError> {
    std::str::from_utf8(reply).map_err(|_| corrupt(&String::from_utf8_lossy(reply)))
}

/// The text of an answer's first line, and what follows it.
///
/// # Errors
///
/// As [`text`].
pub(crate) fn first_line(reply: &Bytes) -> Result<(&str, Bytes), StoreError> {
    match reply.iter().position(|byte| *byte == b'\n') {
        Some(end) => Ok((text(reply.get(..end).unwrap_or_default())?, reply.slice(end + 1..))),
        None => Ok((text(reply)?, Bytes::new())),
    }
}

/// Whether an answer is one of those that say that something is done.
///
/// # Errors
///
/// [`StoreError::Corrupt`] for any other.
pub(crate) fn done(reply: &[u8], answers: &[&str]) -> Result<(), StoreError> {
    let reply = text(reply)?;
    if answers.contains(&reply) { Ok(()) } else { Err(corrupt(reply)) }
}

/// The verdict in the answer to a reserve or an extension.
///
/// # Errors
///
/// [`StoreError::Mismatch`] where the script says so, [`StoreError::Corrupt`] for what cannot be read, counters among it.
pub(crate) fn verdict(reply: &str, asked: Asked<'_>) -> Result<Verdict, StoreError> {
    let read = match reply.split_once(' ') {
        Some(("A", rest)) => admission(rest, asked).map(Verdict::Admitted),
        Some(("R", rest)) => refusal(rest, asked).map(Verdict::Refused),
        Some((FINAL, rest)) => {
            let places: Vec<_> = (0..asked.plan.entries().len()).collect();
            refusal(rest, Asked { places: &places, ..asked }).map(Verdict::Refused)
        }
        Some(("X", rest)) => {
            let error = mismatch(rest, asked.step).or_else(|| spoilt(rest, asked.counters, ""));
            return Err(error.unwrap_or_else(|| corrupt(reply)));
        }
        _ => None,
    };
    read.ok_or_else(|| corrupt(reply))
}

/// Whether an answer is the refusal of a whole plan.
pub(crate) fn is_final(reply: &str) -> bool {
    reply.split_once(' ').is_some_and(|(word, _)| word == FINAL)
}

/// The rate limit with the smallest part left, where a part of a plan was admitted, without its charge.
///
/// # Errors
///
/// [`StoreError::Corrupt`] for what cannot be read.
pub(crate) fn before(text: &str, asked: Asked<'_>) -> Result<Option<Standing>, StoreError> {
    standing(text, asked).ok_or_else(|| corrupt(text))
}

/// A refusal of a whole plan, for a part to keep.
pub(crate) fn refusal_text(refusal: &Refusal) -> String {
    let tightest = refusal.tightest.map_or_else(
        || "-".to_owned(),
        |Standing { index, remaining, resets_in, .. }| format!("{index} {remaining} {}", resets_in.get()),
    );
    let entry = |entry: &EntryRefusal| {
        let outcome = match entry.outcome {
            Outcome::Wait(wait) => wait.get().to_string(),
            Outcome::Never | Outcome::Admit => "-1".to_owned(),
        };
        let resets_at = entry.resets_at.map_or_else(|| "-".to_owned(), |at| at.get().to_string());
        let EntryRefusal { index, spent, held, needed, .. } = entry;
        format!("{index} {outcome} {spent} {held} {needed} {resets_at}")
    };
    let entries: Vec<_> = refusal.refusing.iter().map(entry).collect();
    format!("{FINAL} {} {tightest};{}", refusal.binding.index, entries.join(";"))
}

/// What a settle of these counters did.
///
/// # Errors
///
/// As [`verdict`].
pub(crate) fn settled(reply: &str, counters: &[Bytes]) -> Result<Option<Settled>, StoreError> {
    match reply {
        "S applied" => Ok(Some(Settled::Applied)),
        "S already" => Ok(Some(Settled::Already)),
        "S conflict" => Ok(Some(Settled::Conflict)),
        "S unheld" => Ok(Some(Settled::WithoutReservation)),
        "S gone" => Ok(None),
        "X plan" => Err(LedgerError::OtherPlan.into()),
        "S extensions" => {
            let reason =
                "the extensions of a reservation are not there any more; it is settled by their sums";
            Err(StoreError::Corrupt(reason.to_owned()))
        }
        _ => {
            let list = reply.strip_prefix("S ").unwrap_or_default();
            Err(spoilt(list, counters, "; all others are settled").unwrap_or_else(|| corrupt(reply)))
        }
    }
}

/// The error for counters that cannot be read, where a script has said which.
fn spoilt(answer: &str, counters: &[Bytes], others: &str) -> Option<StoreError> {
    let list = answer.strip_prefix("spoilt ")?;
    let keys = list.split(',').filter_map(|place| counters.get(place.parse::<usize>().ok()?));
    let names: Vec<_> = keys.map(|key| format!("{:?}", String::from_utf8_lossy(key))).collect();
    Some(StoreError::Corrupt(format!("no counter lies under {}{others}", names.join(", "))))
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

impl Asked<'_> {
    /// The place in the plan of what a script calls `number`, and the amount of its limit.
    fn entry(self, number: &str) -> Option<(usize, Amount)> {
        let place = *self.places.get(number.parse::<usize>().ok()?)?;
        Some((place, self.plan.entries().get(place)?.limit.amount))
    }
}

fn admission(text: &str, asked: Asked<'_>) -> Option<Admission> {
    let (at, rest) = text.split_once(' ')?;
    let (over, tightest) = rest.split_once(' ')?;
    let mut over_soft = EntrySet::default();
    for index in over.split(',').filter(|_| over != "-") {
        over_soft.insert(asked.entry(index)?.0);
    }
    Some(Admission { at: moment(at)?, over_soft, tightest: standing(tightest, asked)? })
}

fn refusal(text: &str, asked: Asked<'_>) -> Option<Refusal> {
    let (head, list) = text.split_once(';')?;
    let (binding, tightest) = head.split_once(' ')?;
    let (binding, _) = asked.entry(binding)?;
    let refusing: Vec<_> = list.split(';').map(|one| entry_refusal(one, asked)).collect::<Option<_>>()?;
    let binding = *refusing.iter().find(|refusal| refusal.index == binding)?;
    Some(Refusal { binding, refusing, tightest: standing(tightest, asked)? })
}

fn entry_refusal(text: &str, asked: Asked<'_>) -> Option<EntryRefusal> {
    let [index, outcome, spent, held, needed, resets_at] = words(text)?;
    let (index, limit) = asked.entry(index)?;
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
fn standing(text: &str, asked: Asked<'_>) -> Option<Option<Standing>> {
    if text == "-" {
        return Some(None);
    }
    let [index, remaining, resets_in] = words(text)?;
    let (index, limit) = asked.entry(index)?;
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
