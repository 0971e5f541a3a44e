//! How many limits every call of a key meets: more than one decision checks would refuse all its calls.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_limiter::ENTRIES_MAX;

use crate::problems::{Place, Problems};
use crate::{Budget, BudgetWindow, Key, Scope, ScopedLimit, Tenant};

/// Complains of keys whose calls meet too many limits, whatever else they are. `places` has the keys'.
pub(super) fn check(
    problems: &Problems,
    tenants: &[Tenant],
    places: &HashMap<Arc<str>, Place>,
    limits: &[ScopedLimit],
) {
    let mut counts: HashMap<(Scope, Option<&str>), usize> = HashMap::new();
    for limit in limits.iter().filter(|limit| limit.models.is_none()) {
        *counts.entry((limit.scope, limit.id.as_deref())).or_default() += entries(limit);
    }
    let count = |scope: Scope, value: Option<&str>| counts.get(&(scope, value)).copied().unwrap_or(0);
    let both = |scope: Scope, value: &str| count(scope, None) + count(scope, Some(value));
    for tenant in tenants {
        let own = tenant.rates.len() + tenant.budgets.iter().filter(|budget| is_fixed(budget)).count();
        let of_tenant = own + count(Scope::Global, None) + both(Scope::Tenant, &tenant.id);
        for key in &tenant.keys {
            let of_attributes: usize = attributes(key).map(|(scope, value)| both(scope, value)).sum();
            let all = of_tenant + both(Scope::Key, &key.id) + of_attributes;
            if let Some(place) = places.get(&key.id).filter(|_| all > ENTRIES_MAX) {
                let message = format!(
                    "key `{}` meets {all} limits with every call, and a call can be checked against \
                     {ENTRIES_MAX}: remove some of its limits",
                    key.id
                );
                problems.error(place, message);
            }
        }
    }
}

/// How many limits of a table a call meets that meets it.
fn entries(limit: &ScopedLimit) -> usize {
    let single = [limit.max_concurrent, limit.max_request_tokens];
    let budget = limit.budget.iter().filter(|budget| is_fixed(budget)).count();
    limit.rates.len() + single.iter().flatten().count() + budget
}

/// A budget of each session is met by the calls that name one.
fn is_fixed(budget: &Budget) -> bool {
    budget.window != BudgetWindow::Session
}

fn attributes(key: &Key) -> impl Iterator<Item = (Scope, &str)> {
    let scoped = |attribute: Scope| Some((attribute, &**key.attributes.get(attribute.name())?));
    Scope::ATTRIBUTES.into_iter().filter_map(scoped)
}
