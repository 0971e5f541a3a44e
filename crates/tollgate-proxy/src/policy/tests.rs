//! What a call meets, against a scan of all rules.

use std::{
    collections::{BTreeMap, BTreeSet},
    env::VarError,
    io,
    path::Path,
    sync::Arc,
};

use proptest::{prelude::*, sample::select};
use tollgate_config::{Config, Environment, KeyHash, Scope, ScopedLimit};
use tollgate_limiter::TimestampMs;
use tollgate_pricing::PriceTable;

use super::{Circumstances, Policy};

const NOW: TimestampMs = TimestampMs::new(1_795_996_800_000);

/// Few values, so that rules and calls often meet; some of them in two scopes, to be told apart.
const VALUES: [&str; 3] = ["a", "b", "ab"];
const MODELS: [&str; 7] = ["unit", "one", "unit-20260901", "dear", "unknown", "UNIT", "Unknown"];
const PRICES: &str = "models:\n  unit:\n    input: 1\n    output: 1\n    aliases: [one]\n  dear:\n    input: 5\n    output: 5\n";
const AMOUNTS: [&str; 4] = [
    "requests_per_minute = 1",
    "tokens_per_day = 1",
    "max_concurrent = 1",
    "budget_usd = 1\nwindow = \"session\"",
];
const FILTERS: [&str; 3] = ["[\"unit\"]", "[\"uN*\", \"dear\"]", "[\"*-20260901\"]"];

/// Every variable is set to its own name.
struct NamedKeys;

impl Environment for NamedKeys {
    fn var(&self, name: &str) -> Result<String, VarError> {
        Ok(name.to_owned())
    }

    fn read_file(&self, _: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// A call: whose key, what it sets, where it goes.
#[derive(Clone, Debug)]
struct Call {
    key: usize,
    user: Option<&'static str>,
    session: Option<&'static str>,
    provider: &'static str,
    model: &'static str,
    is_billed: bool,
}

/// Two tenants: the key of `a` has a team and lets its callers set the user. Of the two keys of `b` one
/// fixes the user and one lets its callers set it.
const TENANTS: &str = "[[providers]]\nid = \"a\"\nprotocol = \"anthropic\"\nbase_url = \"https://a.example\"\n\
    [[providers]]\nid = \"b\"\nprotocol = \"openai\"\nbase_url = \"https://b.example\"\n\
    [[tenants]]\nid = \"a\"\nrequests_per_hour = 1\n[[tenants.keys]]\nid = \"ab\"\nkey_env = \"key_0\"\n\
    attributes = { team = \"a\", org = \"ab\" }\ncaller_attributes = [\"user\"]\n\
    [[tenants]]\nid = \"b\"\n[[tenants.keys]]\nid = \"b\"\nkey_env = \"key_1\"\nattributes = { team = \"a\", user = \"b\" }\n\
    [[tenants.keys]]\nid = \"a\"\nkey_env = \"key_2\"\ncaller_attributes = [\"user\"]\n";

fn fixed(key: usize) -> (&'static str, &'static str, BTreeMap<Scope, &'static str>) {
    match key {
        0 => ("a", "ab", [(Scope::Team, "a"), (Scope::Org, "ab")].into()),
        1 => ("b", "b", [(Scope::Team, "a"), (Scope::User, "b")].into()),
        _ => ("b", "a", BTreeMap::new()),
    }
}

fn table() -> impl Strategy<Value = String> {
    let id = proptest::option::of(select(&VALUES[..]));
    let scope = select(&Scope::ALL[..]);
    let filter = proptest::option::of(select(&FILTERS[..]));
    (scope, id, select(&MODELS[..]), filter, select(&AMOUNTS[..])).prop_map(
        |(scope, id, model, filter, amount)| {
            let id = match scope {
                Scope::Global => None,
                Scope::Model => id.map(|_| model),
                // Only these are known.
                Scope::Tenant | Scope::Provider => id.filter(|id| *id != "ab"),
                _ => id,
            };
            let id = id.map_or_else(String::new, |id| format!("id = \"{id}\"\n"));
            let filter = filter.map_or_else(String::new, |globs| format!("models = {globs}\n"));
            format!("[[limits]]\nscope = \"{scope}\"\n{id}{filter}{amount}\n")
        },
    )
}

fn call() -> impl Strategy<Value = Call> {
    let value = || proptest::option::of(select(&VALUES[..]));
    let goes = (select(&["a", "b"][..]), select(&MODELS[..]));
    (0..3_usize, value(), value(), goes, any::<bool>()).prop_map(|(key, user, session, goes, is_billed)| {
        Call { key, user: user.filter(|_| key != 1), session, provider: goes.0, model: goes.1, is_billed }
    })
}

/// What tells one counter from another: whose, and of what.
type Identity =
    (Scope, String, bool, BTreeSet<String>, &'static str, Option<(String, String)>, Option<String>);

/// The counters that a call meets, by looking at every limit.
fn scan(config: &Config, call: &Call) -> BTreeSet<Identity> {
    let (tenant, ..) = fixed(call.key);
    let mut met: BTreeSet<Identity> = BTreeSet::new();
    if tenant == "a" {
        met.insert((Scope::Tenant, "a".to_owned(), false, BTreeSet::new(), "requests hour", None, None));
    }
    met.extend(config.limits.iter().filter_map(|limit| meets(limit, call)));
    met
}

fn meets(limit: &ScopedLimit, call: &Call) -> Option<Identity> {
    let (tenant, key, attributes) = fixed(call.key);
    let canonical = if ["one", "unit-20260901"].contains(&call.model) { "unit" } else { call.model };
    let value = match limit.scope {
        Scope::Global => "global",
        Scope::Tenant => tenant,
        Scope::Key => key,
        Scope::Provider => call.provider,
        Scope::Session => call.session?,
        Scope::Model if limit.id.as_deref().is_some_and(|id| id.eq_ignore_ascii_case(call.model)) => {
            call.model
        }
        Scope::Model => canonical,
        Scope::User => attributes.get(&Scope::User).copied().or(call.user)?,
        scope => attributes.get(&scope)?,
    };
    let is_it = limit
        .id
        .as_deref()
        .is_none_or(|id| id == value || limit.scope == Scope::Model && id.eq_ignore_ascii_case(value));
    let globs = limit.models.as_ref();
    let passes =
        globs.is_none_or(|globs| globs.matches_any_case(call.model) || globs.matches_any_case(canonical));
    let (unit, counts_unbilled) = match (&limit.rates[..], limit.max_concurrent, limit.budget) {
        ([rate], ..) if rate.window_name() == "minute" => ("requests minute", true),
        ([_], ..) => ("tokens day", false),
        (_, Some(_), _) => ("concurrent", true),
        _ => ("micro_usd session", false),
    };
    let per_session = limit.scope == Scope::Session || limit.budget.is_some();
    let session = if per_session { Some((tenant.to_owned(), call.session?.to_owned())) } else { None };
    let models = globs.map(tollgate_config::ModelGlobs::as_set).unwrap_or_default();
    let value = value_of(limit.scope, value);
    // What a caller has chosen counts within its tenant.
    let is_chosen = limit.scope == Scope::User && !attributes.contains_key(&Scope::User);
    let within = is_chosen.then(|| tenant.to_owned());
    (is_it && passes && (call.is_billed || counts_unbilled))
        .then(|| (limit.scope, value, limit.id.is_none(), models, unit, session, within))
}

/// A value as it tells counters apart: the case of a model's name does not.
fn value_of(scope: Scope, value: &str) -> String {
    if scope == Scope::Model { value.to_ascii_lowercase() } else { value.to_owned() }
}

/// The same by the policy, with the name of each counter.
fn compiled(policy: &Policy, call: &Call) -> BTreeMap<String, Identity> {
    let key = policy.key(&KeyHash::of(&format!("key_{}", call.key))).unwrap();
    let caller: Vec<_> = call.user.map(|user| (Scope::User, Arc::from(user))).into_iter().collect();
    let models = policy.models_called([call.model].into_iter(), NOW);
    let circumstances =
        Circumstances { caller: &caller, session: call.session, provider: call.provider, models: &models };
    let limits = policy.limits(key, &circumstances, call.is_billed);
    let identity = |limit: &super::AppliedLimit| {
        let unit = match (limit.rule.measure.name(), limit.rule.window) {
            ("requests", "minute") => "requests minute",
            ("requests", _) => "requests hour",
            ("tokens", _) => "tokens day",
            ("concurrent_requests", _) => "concurrent",
            _ => "micro_usd session",
        };
        let per_session = limit.rule.is_per_session();
        let session =
            per_session.then(|| (key.tenant.to_string(), call.session.unwrap_or_default().to_owned()));
        let models = limit.rule.models.as_ref();
        let models = models.map(tollgate_config::ModelGlobs::as_set);
        let is_generic = limit.rule.id.is_none();
        let is_chosen = limit.rule.scope == Scope::User && call.user.is_some();
        let within = is_chosen.then(|| key.tenant.to_string());
        (
            limit.rule.scope,
            value_of(limit.rule.scope, &limit.id),
            is_generic,
            models.unwrap_or_default(),
            unit,
            session,
            within,
        )
    };
    let named: BTreeMap<_, _> =
        limits.iter().map(|limit| (format!("{:?}", limit.limit.key), identity(limit))).collect();
    assert_eq!(named.len(), limits.len(), "two limits of a call share a counter");
    named
}

/// The policy of a configuration and a price table.
pub(crate) fn compile(text: &str, prices: &str) -> Policy {
    let config = Config::parse(text, "t.toml", Path::new("/"), &NamedKeys).unwrap();
    Policy::new(&config, Arc::new(PriceTable::from_yaml(prices).unwrap()))
}

fn load(tables: &[String]) -> Option<Config> {
    let text = format!("{TENANTS}{}", tables.concat());
    // Two of the tables may be one: then the configuration is refused.
    Config::parse(&text, "t.toml", Path::new("/"), &NamedKeys).ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// A call meets what a scan of all limits finds, and counters of several calls have one name
    /// exactly where they are one counter.
    #[test]
    fn a_call_meets_what_a_scan_of_all_limits_finds(
        tables in proptest::collection::vec(table(), 0..12),
        calls in proptest::collection::vec(call(), 1..6),
    ) {
        let Some(config) = load(&tables) else { return Ok(()) };
        let prices = Arc::new(PriceTable::from_yaml(PRICES).unwrap());
        let policy = Policy::new(&config, prices);
        let (mut by_name, mut by_identity) = (BTreeMap::new(), BTreeMap::new());
        for call in &calls {
            let met = compiled(&policy, call);
            // The second time from memory, as far as it goes.
            prop_assert_eq!(&met, &compiled(&policy, call));
            prop_assert_eq!(met.values().cloned().collect::<BTreeSet<_>>(), scan(&config, call), "{:?}", call);
            for (name, identity) in met {
                let first = by_name.entry(name.clone()).or_insert_with(|| identity.clone());
                prop_assert_eq!(&*first, &identity, "one name for two counters");
                let first = by_identity.entry(identity).or_insert_with(|| name.clone());
                prop_assert_eq!(&*first, &name, "two names for one counter");
            }
        }
    }
}
