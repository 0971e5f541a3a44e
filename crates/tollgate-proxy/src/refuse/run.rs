//! Refusals by runs: an agent loop has used up what one session may.

use tollgate_limiter::EntryRefusal;
use tollgate_providers::ErrorKind;

use super::{
    RETRY_AFTER_HELD_SECONDS, Refused,
    limit::{Whose, usd},
};
use crate::policy::{AppliedLimit, Measure};

/// 402: no official SDK retries it, and a loop that cannot go on ends.
pub(super) fn exhausted(binding: &EntryRefusal, limit: &AppliedLimit) -> Refused {
    let measure = limit.rule.measure;
    let (what, field) = match measure {
        Measure::Steps => ("steps", "max_steps"),
        Measure::MicroUsd => ("USD", "budget_usd"),
        Measure::Elapsed => ("seconds", "max_seconds"),
        _ => ("tokens", "max_tokens"),
    };
    let show = |amount: u64| match measure {
        Measure::MicroUsd => usd(amount),
        Measure::Elapsed => format!("{}.{:03} s", amount / 1_000, amount % 1_000),
        _ => format!("{amount} {what}"),
    };
    let whose = Whose(limit);
    let (most, used) = (show(binding.limit.get()), show(binding.spent.get()));
    let mut message = match measure {
        Measure::Elapsed => {
            format!("The run of {whose} is out of seconds: it may last {most}, and began {used} ago.")
        }
        _ => format!(
            "The run of {whose} is out of {what}: limit {most}, used {used}, held by open requests {}, this request \
             needs {}.",
            show(binding.held.get()),
            show(binding.needed.get()),
        ),
    };
    // A step that is open stays one, and time only goes on.
    let frees_itself =
        matches!(measure, Measure::MicroUsd | Measure::Unit(_)) && binding.fits_without_holds();
    if frees_itself {
        message.push_str(" It may fit once open requests are settled.");
    } else {
        message.push_str(&format!(
            " Begin a new session, or raise `{field}` of its [[runs]]. A session is forgotten 24 hours after its last \
             call."
        ));
    }
    Refused {
        kind: ErrorKind::BudgetExceeded,
        reason: "run_exhausted",
        message,
        retry_after_seconds: frees_itself.then_some(RETRY_AFTER_HELD_SECONDS),
        should_retry: (!frees_itself).then_some(false),
    }
}
