//! `[[limits]]`.

use std::sync::Arc;

use tollgate_limiter::{Amount, Enforcement};

use super::amounts::{self, NamedRate};
use super::context::Context;
use super::counters::{Counters, Subject};
use super::reach::Reach;
use crate::section::{Field, Section};
use crate::{Algorithm, Budget, ModelGlobs, Scope, ScopedLimit, Unpriced};

const ALGORITHMS: [Algorithm; 3] =
    [Algorithm::SlidingWindow, Algorithm::BucketedWindow, Algorithm::TokenBucket];

pub(super) fn limits(
    context: &Context<'_>,
    root: &Section<'_>,
    unpriced: Unpriced,
    counters: &mut Counters,
    reach: &Reach<'_>,
) -> Vec<ScopedLimit> {
    let mut reader = Reader { context, unpriced, counters, reach };
    root.tables("limits").into_iter().filter_map(|section| reader.limit(section)).collect()
}

struct Reader<'a> {
    context: &'a Context<'a>,
    /// The deployment's rule, which a budget can only make stricter.
    unpriced: Unpriced,
    counters: &'a mut Counters,
    /// What calls can carry.
    reach: &'a Reach<'a>,
}

/// Whom a limit is about. `id` and `models` are `Some(None)` where they are there and wrong.
struct About {
    scope: Option<Scope>,
    id: Option<Option<Arc<str>>>,
    models: Option<Option<ModelGlobs>>,
}

/// What a limit allows.
struct Allows {
    rates: Vec<NamedRate>,
    max_concurrent: Option<Amount>,
    max_request_tokens: Option<Amount>,
    budget: Option<Budget>,
}

impl Reader<'_> {
    fn limit(&mut self, section: Section<'_>) -> Option<ScopedLimit> {
        let about = self.about(&section);
        let allows = self.allows(&section);
        let limit = whole(about, &allows);
        if let Some(limit) = &limit {
            self.name_counters(&section, limit, &allows.rates);
            self.reach.check(self.context.problems, limit, &section);
        }
        section.finish();
        limit
    }

    fn about(&self, section: &Section<'_>) -> About {
        let scope = section
            .required("scope")
            .and_then(|field| field.choice(&Scope::ALL.map(|scope| (scope.name(), scope))));
        let id = section.field("id").map(|field| {
            if scope == Some(Scope::Global) {
                field.fail("is not for scope = \"global\", which has one counter for all calls");
                return None;
            }
            self.reach.id(scope?, &field)
        });
        let models_field = section.field("models");
        let models = models_field.as_ref().map(|field| self.context.globs(field));
        if let (Some(Scope::Model), Some(Some(id)), Some(Some(globs))) = (scope, &id, &models)
            && !globs.matches_any_case(id)
            && let Some(field) = &models_field
        {
            field.fail(format!("do not match the model {id:?} that the limit is for: it would never apply"));
        }
        About { scope, id, models }
    }

    fn allows(&self, section: &Section<'_>) -> Allows {
        let has_rates = amounts::has_rates(section);
        let algorithm = section.field("algorithm").and_then(|field| algorithm(&field, has_rates));
        let rates = amounts::rates(section, algorithm.unwrap_or_default());
        let max_concurrent = section.field("max_concurrent");
        let max_request_tokens = section.field("max_request_tokens");
        let budget_usd = section.field("budget_usd");
        if !has_rates && max_concurrent.is_none() && max_request_tokens.is_none() && budget_usd.is_none() {
            let message = "limits nothing: give it a rate such as `requests_per_minute`, `max_concurrent`, \
                           `max_request_tokens` or `budget_usd`";
            self.context.problems.error(section.place(), message);
        }
        Allows {
            rates,
            max_concurrent: max_concurrent.and_then(|field| amounts::amount(&field)),
            max_request_tokens: max_request_tokens.and_then(|field| amounts::amount(&field)),
            budget: self.budget(section, budget_usd.as_ref()),
        }
    }

    fn budget(&self, section: &Section<'_>, budget_usd: Option<&Field<'_>>) -> Option<Budget> {
        let (window, mode) = (section.field("window"), section.field("mode"));
        let unpriced = section.field("unpriced");
        let Some(budget_usd) = budget_usd else {
            for field in [window, mode, unpriced].into_iter().flatten() {
                field.fail("is for `budget_usd`, which is missing");
            }
            return None;
        };
        let limit = amounts::usd(budget_usd);
        if window.is_none() {
            let message = "is missing: `budget_usd` needs the window that it is spent in";
            self.context.problems.error(&section.place_of("window"), message);
        }
        let window = window.and_then(|field| amounts::budget_window(&field));
        let mode = mode.and_then(|field| amounts::mode(&field)).unwrap_or(Enforcement::Hard);
        let unpriced = unpriced.and_then(|field| amounts::stricter(&field, self.unpriced));
        Some(Budget { window: window?, limit: limit?, mode, unpriced })
    }

    fn name_counters(&mut self, section: &Section<'_>, limit: &ScopedLimit, rates: &[NamedRate]) {
        let subject = Subject::new(limit.scope, limit.id.clone(), limit.models.as_ref());
        let mut named: Vec<(&str, _)> =
            rates.iter().map(|(field, rate)| (*field, (rate.unit.name(), rate.window_name()))).collect();
        if limit.max_concurrent.is_some() {
            named.push(("max_concurrent", ("concurrent_requests", "none")));
        }
        if limit.max_request_tokens.is_some() {
            named.push(("max_request_tokens", ("tokens", "request")));
        }
        if let Some(budget) = limit.budget {
            named.push(("budget_usd", ("micro_usd", budget.window.name())));
        }
        for (field, counter) in named {
            self.counters.check(self.context.problems, &subject, counter, &section.place_of(field));
        }
    }
}

fn whole(about: About, allows: &Allows) -> Option<ScopedLimit> {
    let scope = about.scope?;
    let id = match about.id {
        Some(id) => Some(id?),
        None => None,
    };
    let models = match about.models {
        Some(globs) => Some(globs?),
        None => None,
    };
    Some(ScopedLimit {
        scope,
        id,
        models,
        rates: allows.rates.iter().map(|(_, rate)| *rate).collect(),
        max_concurrent: allows.max_concurrent,
        max_request_tokens: allows.max_request_tokens,
        budget: allows.budget,
    })
}

fn algorithm(field: &Field<'_>, has_rates: bool) -> Option<Algorithm> {
    if !has_rates {
        field.fail("is for rate fields such as `requests_per_minute`, and there is none");
        return None;
    }
    field.choice(&ALGORITHMS.map(|algorithm| (algorithm.name(), algorithm)))
}
