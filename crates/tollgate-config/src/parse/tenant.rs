//! `[[tenants]]` with their own limits and budgets.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_limiter::Enforcement;

use super::amounts::{self, NamedRate};
use super::context::{Context, Distinct};
use super::counters::{Counters, Subject};
use super::key;
use crate::problems::Place;
use crate::section::Section;
use crate::{Algorithm, Budget, BudgetWindow, Scope, Tenant, Unpriced};

/// What `[[tenants]]` says.
pub(super) struct Tenants {
    pub(super) tenants: Vec<Tenant>,
    /// Where those stand that have no limit of their own.
    pub(super) without_limits: Vec<(Arc<str>, Place)>,
    /// Where each key stands.
    pub(super) key_places: HashMap<Arc<str>, Place>,
}

pub(super) fn tenants(
    context: &Context<'_>,
    root: &Section<'_>,
    unpriced: Unpriced,
    counters: &mut Counters,
) -> Tenants {
    let sections = root.tables("tenants");
    if sections.is_empty() {
        context.problems.warn(&root.place_of("tenants"), "there is none: nobody can make a call");
    }
    let mut reader = Reader {
        context,
        unpriced,
        counters,
        ids: Distinct::new(),
        keys: key::Reader::new(context),
        without_limits: Vec::new(),
    };
    let tenants = sections.into_iter().filter_map(|section| reader.tenant(section)).collect();
    Tenants { tenants, without_limits: reader.without_limits, key_places: reader.keys.into_places() }
}

struct Reader<'a> {
    context: &'a Context<'a>,
    /// The deployment's rule, which a budget can only make stricter.
    unpriced: Unpriced,
    counters: &'a mut Counters,
    ids: Distinct<Arc<str>>,
    keys: key::Reader<'a>,
    without_limits: Vec<(Arc<str>, Place)>,
}

impl Reader<'_> {
    fn tenant(&mut self, section: Section<'_>) -> Option<Tenant> {
        let id = self.context.id(&section);
        if let Some(id) = &id {
            self.ids.check(self.context.problems, Arc::clone(id), &section.place_of("id"), "this id");
        }
        let rates = amounts::rates(&section, Algorithm::default());
        let budgets = self.budgets(&section);
        if let Some(id) = &id {
            self.name_counters(id, &section, &rates, &budgets);
            if rates.is_empty() && budgets.is_empty() {
                self.without_limits.push((Arc::clone(id), section.place().clone()));
            }
        }
        let keys = section.tables("keys").into_iter().filter_map(|key| self.keys.key(key)).collect();
        section.finish();
        let rates = rates.into_iter().map(|(_, rate)| rate).collect();
        let budgets = budgets.into_iter().map(|(_, budget)| budget).collect();
        Some(Tenant { id: id?, rates, budgets, keys })
    }

    /// Notes the counters of a tenant's own limits, for `[[limits]]` to be told from them. Two of them
    /// cannot be the same here: a field exists once, and so does each window of a budget.
    fn name_counters(
        &mut self,
        id: &Arc<str>,
        section: &Section<'_>,
        rates: &[NamedRate],
        budgets: &[(Place, Budget)],
    ) {
        let subject = Subject::new(Scope::Tenant, Some(Arc::clone(id)), None);
        for (field, rate) in rates {
            let counter = (rate.unit.name(), rate.window_name());
            self.counters.note(&subject, counter, &section.place_of(field));
        }
        for (place, budget) in budgets {
            self.counters.note(&subject, ("micro_usd", budget.window.name()), place);
        }
    }

    fn budgets(&self, tenant: &Section<'_>) -> Vec<(Place, Budget)> {
        let mut windows = Distinct::new();
        let budget = |section: Section<'_>| {
            let window = section.required("window").and_then(|field| amounts::budget_window(&field));
            let place = section.place_of("window");
            if let Some(window) = window {
                windows.check(self.context.problems, BudgetWindow::name(window), &place, "this window");
            }
            let limit = section.required("limit_usd").and_then(|field| amounts::usd(&field));
            let mode = section.field("mode").and_then(|field| amounts::mode(&field));
            let unpriced =
                section.field("unpriced").and_then(|field| amounts::stricter(&field, self.unpriced));
            section.finish();
            Some((
                place,
                Budget { window: window?, limit: limit?, mode: mode.unwrap_or(Enforcement::Hard), unpriced },
            ))
        };
        tenant.tables("budgets").into_iter().filter_map(budget).collect()
    }
}
