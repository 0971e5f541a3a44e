//! `[[runs]]`.

use std::sync::Arc;

use tollgate_limiter::DurationMs;

use super::amounts;
use super::context::{Context, Distinct};
use crate::nearest::nearest;
use crate::section::{Field, Section};
use crate::{Run, RunOwner, Tenant};

/// Ten years: a run that lasts longer is none.
const SECONDS_MAX: u64 = 315_360_000;

pub(super) fn runs(context: &Context<'_>, root: &Section<'_>, tenants: &[Tenant]) -> Vec<Run> {
    let mut owners = Distinct::new();
    root.tables("runs")
        .into_iter()
        .filter_map(|section| run(context, section, tenants, &mut owners))
        .collect()
}

fn run(
    context: &Context<'_>,
    section: Section<'_>,
    tenants: &[Tenant],
    owners: &mut Distinct<RunOwner>,
) -> Option<Run> {
    let (tenant, key) = (section.field("tenant"), section.field("key"));
    let steps = section.field("max_steps");
    let tokens = section.field("max_tokens");
    let budget = section.field("budget_usd");
    let seconds = section.field("max_seconds");
    if steps.is_none() && tokens.is_none() && budget.is_none() && seconds.is_none() {
        let message = "limits nothing: give it `max_steps`, `max_tokens`, `budget_usd` or `max_seconds`";
        context.problems.error(section.place(), message);
    }
    let owner = owner(tenant.as_ref(), key.as_ref(), tenants);
    if let Some(owner) = &owner {
        owners.check(context.problems, owner.clone(), section.place(), "whom this run is for");
    }
    let run = Run {
        owner: owner.unwrap_or(RunOwner::All),
        steps: steps.and_then(|field| amounts::amount(&field)),
        tokens: tokens.and_then(|field| amounts::amount(&field)),
        budget: budget.and_then(|field| amounts::usd(&field)),
        time: seconds
            .and_then(|field| field.integer(0..=SECONDS_MAX))
            .map(|seconds| DurationMs::new(seconds * 1_000)),
    };
    section.finish();
    Some(run)
}

fn owner(tenant: Option<&Field<'_>>, key: Option<&Field<'_>>, tenants: &[Tenant]) -> Option<RunOwner> {
    let tenant = match tenant {
        Some(field) => Some(known(field, "tenant", tenants.iter().map(|tenant| &tenant.id))?),
        None => None,
    };
    let Some(field) = key else { return Some(tenant.map_or(RunOwner::All, RunOwner::Tenant)) };
    let is_of = |owner: &&Tenant| tenant.as_ref().is_none_or(|tenant| *tenant == owner.id);
    let keys = tenants.iter().filter(is_of).flat_map(|owner| &owner.keys);
    known(field, "key", keys.map(|key| &key.id)).map(RunOwner::Key)
}

/// The id that `field` names, of those that there are.
fn known<'t>(
    field: &Field<'_>,
    what: &str,
    ids: impl Iterator<Item = &'t Arc<str>> + Clone,
) -> Option<Arc<str>> {
    let text = field.text()?;
    let found = ids.clone().find(|id| &***id == text);
    if found.is_none() {
        let known: Vec<&str> = ids.map(|id| &**id).collect();
        let hint =
            nearest(text, &known).map_or_else(String::new, |near| format!("; the nearest one is {near:?}"));
        field.fail(format!("no {what} has the id {text:?}{hint}"));
    }
    found.cloned()
}
