//! Refusals by limits: which of them answers, and what it says.

use std::fmt;

use tollgate_config::Scope;
use tollgate_limiter::{Amount, DurationMs, EntryRefusal, MicroUsd, Outcome, Refusal};
use tollgate_providers::ErrorKind;
use tollgate_usage::RefusingLimit;

use super::{RETRY_AFTER_HELD_SECONDS, Refused, run, whole_seconds};
use crate::policy::{AppliedLimit, Measure};

/// The longest `retry-after` that every official SDK obeys; beyond it some retry at once.
const RETRY_AFTER_OBEYED_SECONDS: u64 = 60;

/// What `retry-after` says when waiting does not help: no SDK that obeys it waits longer.
const RETRY_AFTER_NEVER_SECONDS: u64 = 60;

/// What is said of a limit of 0, which no smaller request passes.
const BLOCKS: &str = " The limit is 0: it blocks every call that counts. Raise it to let calls pass.";

/// What `retry-after` says while other requests are open: any of them may end at once.
const RETRY_AFTER_OPEN_SECONDS: u64 = 1;

impl Refused {
    /// The answer to a refusal by limits. `limits` are those of the plan, in its order.
    pub(crate) fn by_limit(refusal: &Refusal, limits: &[AppliedLimit]) -> Self {
        let binding = &refusal.binding;
        let Some(limit) = limits.get(binding.index) else {
            let message = "a limit refused that the request does not have";
            return Self::new(ErrorKind::Internal, "internal", message);
        };
        match (limit.rule.measure, binding.outcome) {
            _ if limit.rule.is_of_run() => run::exhausted(binding, limit),
            (Measure::MicroUsd, _) => over_budget(binding, limit),
            (Measure::Concurrent, _) => too_many_open(binding, limit),
            (Measure::Unit(_), Outcome::Wait(wait)) => over_rate(binding, limit, wait),
            (Measure::Unit(_) | Measure::RequestTokens | Measure::Steps | Measure::Elapsed, _) => {
                too_large(binding, limit)
            }
        }
    }
}

impl Refused {
    /// What a stream is told whose reservation may not grow. `limits` are those of the plan, in its order.
    pub(crate) fn extension(refusal: &Refusal, limits: &[AppliedLimit]) -> Self {
        let binding = &refusal.binding;
        if let Some(limit) = limits.get(binding.index).filter(|limit| limit.rule.is_of_run()) {
            return run::exhausted(binding, limit);
        }
        let message = limits.get(binding.index).map_or_else(
            || "A limit does not allow this answer to go on.".to_owned(),
            |limit| {
                format!(
                    "{} It may fit again once open requests are settled or the budget resets.",
                    state(binding, limit, "this answer to go on", "its next part needs")
                )
            },
        );
        Self { should_retry: Some(false), ..Self::new(ErrorKind::BudgetExceeded, "budget_exceeded", message) }
    }
}

/// The limit that refused, for the event.
pub(crate) fn refusing_limit(refusal: &Refusal, limits: &[AppliedLimit]) -> Option<RefusingLimit> {
    let binding = &refusal.binding;
    let limit = limits.get(binding.index)?;
    Some(RefusingLimit {
        scope: limit.rule.scope.name(),
        id: limit.id.clone(),
        unit: limit.rule.measure.name(),
        window: limit.rule.window,
        limit: binding.limit.get(),
        spent: binding.spent.get(),
        held: binding.held.get(),
    })
}

/// 402. Money that open requests hold may come back; money that is spent does not.
fn over_budget(binding: &EntryRefusal, limit: &AppliedLimit) -> Refused {
    let held = binding.fits_without_holds();
    let mut message = state(binding, limit, "this request", "this request needs");
    if held {
        message.push_str(" It may fit once open requests are settled.");
    } else if binding.limit.get() == 0 {
        message.push_str(BLOCKS);
    } else if binding.needed > binding.limit {
        message.push_str(" It is larger than the whole budget: make the request smaller or raise the limit.");
    } else {
        match binding.resets_at {
            Some(at) => message.push_str(&format!(" The budget resets at {}.", rfc3339(at.get()))),
            None => message.push_str(" The budget does not reset: raise its limit to go on."),
        }
    }
    Refused {
        kind: ErrorKind::BudgetExceeded,
        reason: if held { "budget_held" } else { "budget_exceeded" },
        message,
        retry_after_seconds: held.then_some(RETRY_AFTER_HELD_SECONDS),
        should_retry: (!held).then_some(false),
    }
}

/// Where a budget stands that does not allow `what`.
fn state(binding: &EntryRefusal, limit: &AppliedLimit, what: &str, needs: &str) -> String {
    let amount = |amount: Amount| match limit.rule.measure {
        Measure::MicroUsd => usd(amount.get()),
        _ => format!("{amount} {}", unit(limit)),
    };
    format!(
        "{} budget of {} does not allow {what}: limit {}, spent {}, held by open requests {}, {needs} {}.",
        capitalised(limit.rule.window),
        Whose(limit),
        amount(binding.limit),
        amount(binding.spent),
        amount(binding.held),
        amount(binding.needed),
    )
}

/// 429. Waiting helps, for so long.
fn over_rate(binding: &EntryRefusal, limit: &AppliedLimit, wait: DurationMs) -> Refused {
    let seconds = whole_seconds(wait);
    let message = format!(
        "Limit of {} {} per {} of {} reached: used {}, held by open requests {}, this request needs {}. \
         It fits in {seconds} s.",
        binding.limit,
        unit(limit),
        limit.rule.window,
        Whose(limit),
        binding.spent,
        binding.held,
        binding.needed,
    );
    Refused {
        retry_after_seconds: Some(seconds),
        should_retry: Some(seconds <= RETRY_AFTER_OBEYED_SECONDS),
        ..Refused::new(ErrorKind::RateLimited, "rate_limited", message)
    }
}

/// 429. The request alone is larger than the limit: no waiting helps.
fn too_large(binding: &EntryRefusal, limit: &AppliedLimit) -> Refused {
    let mut message = format!(
        "This request needs {} {}, and {} may use {} per {}: it can never pass.",
        binding.needed,
        unit(limit),
        Whose(limit),
        binding.limit,
        limit.rule.window,
    );
    if binding.spent.get() > 0 || binding.held.get() > 0 {
        message.push_str(&format!(" Used {}, held by open requests {}.", binding.spent, binding.held));
    }
    message.push_str(if binding.limit.get() == 0 {
        BLOCKS
    } else {
        " Make the request smaller (a shorter prompt or a lower output limit) or raise the limit."
    });
    Refused {
        retry_after_seconds: Some(RETRY_AFTER_NEVER_SECONDS),
        should_retry: Some(false),
        ..Refused::new(ErrorKind::RateLimited, "request_too_large", message)
    }
}

/// 429. Another request has to end first; where none may be open at all, that does not help either.
fn too_many_open(binding: &EntryRefusal, limit: &AppliedLimit) -> Refused {
    let frees_itself = binding.fits_without_holds();
    let advice = if frees_itself { "It fits once one of them ends." } else { "Raise the limit to go on." };
    let message = format!(
        "Limit of {} concurrent requests of {} reached: {} are open, this request needs {}. {advice}",
        binding.limit,
        Whose(limit),
        binding.held,
        binding.needed,
    );
    let seconds = if frees_itself { RETRY_AFTER_OPEN_SECONDS } else { RETRY_AFTER_NEVER_SECONDS };
    Refused {
        retry_after_seconds: Some(seconds),
        should_retry: Some(frees_itself),
        ..Refused::new(ErrorKind::RateLimited, "rate_limited", message)
    }
}

/// Whose limit it is, as messages say it.
pub(super) struct Whose<'a>(pub(super) &'a AppliedLimit);

impl fmt::Display for Whose<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(limit) = self;
        match limit.rule.scope {
            Scope::Global => f.write_str("all calls together (scope `global`)")?,
            scope => write!(f, "{scope} `{}`", limit.id)?,
        }
        if let Some(session) = &limit.session {
            write!(f, " in session `{session}`")?;
        }
        match &limit.rule.models {
            Some(globs) => write!(f, " for models {}", globs.patterns().join(", ")),
            None => Ok(()),
        }
    }
}

fn unit(limit: &AppliedLimit) -> String {
    limit.rule.measure.name().replace('_', " ")
}

/// Micro-USD as dollars with six decimals: exact, so that small budgets can be told apart.
pub(super) fn usd(micro_usd: u64) -> String {
    let micro = MicroUsd::new(micro_usd).get();
    format!("{}.{:06} USD", micro / 1_000_000, micro % 1_000_000)
}

fn rfc3339(ms: u64) -> String {
    let timestamp = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    timestamp.map_or_else(|| "a later time".to_owned(), |timestamp| timestamp.to_string())
}

fn capitalised(window: &str) -> &str {
    match window {
        "minute" => "Minute",
        "hour" => "Hour",
        "day" => "Day",
        "week" => "Week",
        "month" => "Month",
        "session" => "Session",
        _ => "Total",
    }
}
