//! From text to [`Config`]: reads every section, then what holds between them.

mod alert;
mod amounts;
mod context;
mod counters;
mod fixed;
mod key;
mod limit;
mod provider;
mod reach;
mod run;
mod server;
mod store;
mod tenant;

use std::path::Path;

use toml::de::DeTable;

use crate::problems::{Place, Problems};
use crate::section::Section;
use crate::{Config, ConfigErrors, Environment};
use context::Context;
use counters::Counters;
use reach::Reach;
use tenant::Tenants;

pub(crate) fn parse(
    text: &str,
    file_name: &str,
    base_dir: &Path,
    environment: &dyn Environment,
) -> Result<Config, ConfigErrors> {
    let problems = Problems::new(file_name, text);
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let offset = error.span().map_or(0, |span| span.start);
        problems
            .error(&Place { offset, path: String::new() }, format!("not TOML: {}", error.message().trim()));
    }
    // What could be recovered from bad syntax would be reported as incomplete, which says nothing new.
    if problems.any_error() {
        return Err(problems.into_errors());
    }
    let context = Context { problems: &problems, base_dir, environment };
    let config = read(&context, Section::root(&problems, table.get_ref()));
    if problems.any_error() {
        Err(problems.into_errors())
    } else {
        Ok(Config { warnings: problems.into_warnings(), ..config })
    }
}

fn read(context: &Context<'_>, root: Section<'_>) -> Config {
    let server = server::server(context, root.table("server"));
    let store = store::store(context, root.table("store"));
    let usage = server::usage(context, root.table("usage"));
    let pricing = server::pricing(context, root.table("pricing"));
    let reservation = server::reservation(root.table("reservation"));
    let sessions = server::sessions(root.table("sessions"));
    let providers = provider::providers(context, &root);
    let routes = provider::routes(context, &root, &providers);
    let mut counters = Counters::new();
    let Tenants { tenants, without_limits, key_places } =
        tenant::tenants(context, &root, pricing.unpriced, &mut counters);
    let reach = Reach::new(&providers, &tenants);
    let limits = limit::limits(context, &root, pricing.unpriced, &mut counters, &reach);
    let runs = run::runs(context, &root, &tenants);
    fixed::check(context.problems, &tenants, &key_places, &limits);
    reach::warn_of_unbounded(context.problems, &tenants, &without_limits, &limits);
    let alerts = alert::alerts(context, &root);
    root.finish();
    let providers = providers.into_iter().filter_map(|declared| declared.provider).collect();
    Config {
        server,
        store,
        usage,
        pricing,
        reservation,
        sessions,
        providers,
        routes,
        tenants,
        limits,
        runs,
        alerts,
        warnings: Vec::new(),
    }
}
