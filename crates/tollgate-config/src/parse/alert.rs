//! `[[alerts]]`.

use std::sync::Arc;

use super::context::Context;
use crate::alert::THRESHOLDS_PERCENT;
use crate::section::{Field, Section};
use crate::{Alert, Scope, Secret};

/// The largest part that is told of: a soft budget may be passed many times over.
const PERCENT_MAX: u64 = 10_000;

/// The most thresholds of one receiver.
const THRESHOLDS_MAX: usize = 32;

pub(super) fn alerts(context: &Context<'_>, root: &Section<'_>) -> Vec<Alert> {
    let alert = |section: Section<'_>| {
        let url = url(context, &section);
        let secret = section.field("secret_env").and_then(|field| context.secret_from_variable(&field));
        let thresholds = section.field("thresholds");
        let thresholds_percent =
            thresholds.map_or_else(|| THRESHOLDS_PERCENT.into(), |field| percent(&field));
        let scope = section.field("scope");
        let scope = scope.and_then(|field| field.choice(&Scope::ALL.map(|scope| (scope.name(), scope))));
        let id_field = section.field("id");
        if let Some(field) = id_field.as_ref().filter(|_| scope.is_none()) {
            field.fail("is for a `scope` only: say whose id it is");
        }
        let id = id_field.and_then(|field| field.text().map(Arc::from));
        section.finish();
        Some(Alert { url: url?, secret, thresholds_percent, scope, id })
    };
    root.tables("alerts").into_iter().filter_map(alert).collect()
}

fn url(context: &Context<'_>, section: &Section<'_>) -> Option<Secret> {
    let url = match (section.field("url"), section.field("url_env")) {
        (Some(_), Some(variable)) => {
            variable.fail("`url` is there too: only one of them is possible");
            return None;
        }
        (None, Some(variable)) => (context.secret_from_variable(&variable)?, variable),
        (Some(field), None) => (Secret::new(field.text()?), field),
        (None, None) => {
            context.problems.error(section.place(), "`url` or `url_env` is needed");
            return None;
        }
    };
    let (url, field) = url;
    let parsed: Option<http::Uri> = url.expose().parse().ok();
    let is_absolute = |uri: &http::Uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri
                .authority()
                .is_some_and(|authority| !authority.host().is_empty() && !authority.as_str().contains('@'))
    };
    if !parsed.as_ref().is_some_and(is_absolute) {
        // Not repeated: it may hold a credential.
        field.fail("must be a URL that starts with `https://` or `http://`, without user and password");
        return None;
    }
    Some(url)
}

fn percent(field: &Field<'_>) -> Arc<[u64]> {
    let items = field.items();
    if items.is_empty() || items.len() > THRESHOLDS_MAX {
        field.fail(format!("must have 1 to {THRESHOLDS_MAX} numbers, in percent"));
    }
    let mut percent: Vec<u64> = items.iter().filter_map(|item| item.integer(1..=PERCENT_MAX)).collect();
    percent.sort_unstable();
    percent.dedup();
    percent.into()
}
