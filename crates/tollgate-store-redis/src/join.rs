//! What the parts of a plan have answered, as one: what a single step over all of it would have.

use tollgate_limiter::{
    Admission, EntryRefusal, EntrySet, Plan, Refusal, Settled, Standing, TimestampMs, Verdict,
};

use tollgate_store::StoreError;

use crate::ask::Answer;

/// The verdict over the plan whose parts have answered. The first of them tells the moment.
pub(crate) fn join<'a>(plan: &Plan, answers: impl Iterator<Item = &'a Answer> + Clone) -> Verdict {
    if let Some(answer) = answers.clone().find(|answer| answer.is_final) {
        return answer.verdict.clone();
    }
    let mut refusing = Vec::new();
    let (mut over_soft, mut at) = (EntrySet::default(), None);
    let (mut left, mut left_before) = (None, None);
    for answer in answers {
        match &answer.verdict {
            Verdict::Admitted(admission) => {
                admission.over_soft.iter().for_each(|index| over_soft.insert(index));
                at = at.or(Some(admission.at));
                left = tighter(left, admission.tightest);
                left_before = tighter(left_before, answer.before);
            }
            Verdict::Refused(refusal) => {
                refusing.extend(refusal.refusing.iter().copied());
                left_before = tighter(left_before, refusal.tightest);
            }
        }
    }
    refusing.sort_by_key(|refusal: &EntryRefusal| refusal.index);
    match binding(plan, &refusing) {
        Some(binding) => Verdict::Refused(Refusal { binding, refusing, tightest: left_before }),
        None => {
            Verdict::Admitted(Admission { at: at.unwrap_or(TimestampMs::EPOCH), over_soft, tightest: left })
        }
    }
}

/// What settling all parts has done, of what two of them say: first of all that it has to be repeated.
pub(crate) fn settled(
    one: Result<Settled, StoreError>,
    other: Result<Settled, StoreError>,
) -> Result<Settled, StoreError> {
    let rank = |settled: &Result<Settled, StoreError>| match settled {
        Err(StoreError::Corrupt(_)) => 4,
        Err(StoreError::Unavailable(_) | StoreError::Partly(_)) => 6,
        Err(error) if error.is_transient() => 7,
        Err(_) => 5,
        Ok(Settled::Conflict) => 3,
        Ok(Settled::WithoutReservation) => 2,
        Ok(Settled::Applied) => 1,
        Ok(Settled::Already) => 0,
    };
    if rank(&other) > rank(&one) { other } else { one }
}

/// The first of those that refuse the hardest.
fn binding(plan: &Plan, refusing: &[EntryRefusal]) -> Option<EntryRefusal> {
    let rule = |refusal: &EntryRefusal| plan.entries().get(refusal.index).map(|entry| entry.limit.rule);
    let severity = |refusal: &EntryRefusal| rule(refusal).map(|rule| refusal.severity(rule));
    refusing.iter().copied().reduce(
        |binding, refusal| {
            if severity(&refusal) > severity(&binding) { refusal } else { binding }
        },
    )
}

/// Of two rate limits the one with the smaller part left, of equal ones the first in the plan.
fn tighter(one: Option<Standing>, other: Option<Standing>) -> Option<Standing> {
    match (one, other) {
        (Some(one), Some(other)) => {
            let is_first = other.index < one.index && !one.is_tighter_than(other);
            Some(if other.is_tighter_than(one) || is_first { other } else { one })
        }
        (one, other) => one.or(other),
    }
}
