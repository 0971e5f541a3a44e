//! `[[limits]]`: what they turn into, and what is wrong with them.

mod common;

use common::parse;
use tollgate_config::{Algorithm, BudgetWindow, Config, Scope, Unit, Unpriced};
use tollgate_limiter::{Enforcement, MicroUsd, Period};

/// Eighteen lines: a provider, and two tenants with a key each.
const BASE: &str = r#"[[providers]]
id = "anthropic"
protocol = "anthropic"
base_url = "https://a.example"
[[tenants]]
id = "acme"
[[tenants.keys]]
id = "ci"
key_env = "DEV_KEY"
attributes = { team = "ml", org = "research" }
caller_attributes = ["user"]
[[tenants]]
id = "other"
requests_per_minute = 5
[[tenants.budgets]]
window = "day"
limit_usd = 1
# The limits follow.
"#;

/// The line of the first `[[limits]]`.
const FIRST_LINE: usize = 19;

fn with(limits: &str) -> Result<Config, String> {
    parse(&format!("{BASE}{limits}"))
}

/// Checks that one limit of `lines` has the one problem `expected`, which names the line `line` of the
/// table counted from its header.
fn refused(lines: &str, line: usize, expected: &str) {
    let problems = with(&format!("[[limits]]\n{lines}\n")).map(|_| "accepted".to_owned());
    let line = FIRST_LINE + line;
    assert_eq!(problems.unwrap_or_else(|problems| problems), format!("t.toml:{line}: {expected}"), "{lines}");
}

#[test]
fn every_field_is_read() {
    let text = r#"
[[limits]]
scope = "team"
id = "ml"
models = ["claude-*", "gpt-?"]
requests_per_minute = 600
tokens_per_hour = 150_000
input_tokens_per_second = 100
output_tokens_per_day = 0
algorithm = "token-bucket"
max_concurrent = 20
max_request_tokens = 200_000
budget_usd = "500.5"
window = "month"
mode = "soft"
unpriced = "block"
"#;
    let config = with(text).unwrap();
    let [limit] = &config.limits[..] else { panic!("one limit") };
    assert_eq!((limit.scope, limit.id.as_deref()), (Scope::Team, Some("ml")));
    assert!(limit.models.as_ref().unwrap().matches("gpt-5"));
    let rates: Vec<_> =
        limit.rates.iter().map(|rate| (rate.unit, rate.window_name(), rate.amount.get())).collect();
    let expected = [
        (Unit::Requests, "minute", 600),
        (Unit::Tokens, "hour", 150_000),
        (Unit::InputTokens, "second", 100),
        (Unit::OutputTokens, "day", 0),
    ];
    assert_eq!(rates, expected);
    assert!(limit.rates.iter().all(|rate| rate.algorithm == Algorithm::TokenBucket));
    assert_eq!(limit.max_concurrent.unwrap().get(), 20);
    assert_eq!(limit.max_request_tokens.unwrap().get(), 200_000);
    let budget = limit.budget.unwrap();
    assert_eq!((budget.window, budget.mode), (BudgetWindow::Period(Period::Month), Enforcement::Soft));
    assert_eq!((budget.limit, budget.unpriced), (MicroUsd::new(500_500_000), Some(Unpriced::Block)));
}

#[test]
fn every_scope_can_stand_without_an_id_and_all_but_global_with_one() {
    for scope in Scope::ALL {
        let text = format!("[[limits]]\nscope = \"{scope}\"\nrequests_per_minute = 1\n");
        assert_eq!(with(&text).unwrap().limits[0].scope, scope);
        let id = match scope {
            Scope::Global => continue,
            Scope::Tenant => "acme",
            Scope::Key => "ci",
            Scope::Provider => "anthropic",
            _ => "x",
        };
        let text = format!("{text}id = \"{id}\"\n");
        assert_eq!(with(&text).unwrap().limits[0].id.as_deref(), Some(id));
    }
}

#[test]
fn a_session_is_a_window_of_budgets() {
    let text = "[[limits]]\nscope = \"team\"\nbudget_usd = 2\nwindow = \"session\"\n";
    assert_eq!(with(text).unwrap().limits[0].budget.unwrap().window, BudgetWindow::Session);
    let tenant = BASE.replace("window = \"day\"", "window = \"session\"");
    assert_eq!(parse(&tenant).unwrap().tenants[1].budgets[0].window, BudgetWindow::Session);
}

#[test]
fn what_a_caller_may_set_is_read() {
    let config = with("").unwrap();
    assert_eq!(*config.tenants[0].keys[0].caller_attributes, [Scope::User]);
}

#[test]
fn c121_a_limit_without_effect_is_refused() {
    refused(
        "scope = \"team\"\nid = \"ml\"",
        0,
        "limits[0]: limits nothing: give it a rate such as `requests_per_minute`, `max_concurrent`, \
         `max_request_tokens` or `budget_usd`",
    );
    refused(
        "scope = \"team\"\nmax_concurrent = 1\nalgorithm = \"token-bucket\"",
        3,
        "limits[0].algorithm: is for rate fields such as `requests_per_minute`, and there is none",
    );
    for line in ["window = \"day\"", "mode = \"soft\"", "unpriced = \"block\""] {
        let field = line.split(' ').next().unwrap();
        refused(
            &format!("scope = \"team\"\nmax_concurrent = 1\n{line}"),
            3,
            &format!("limits[0].{field}: is for `budget_usd`, which is missing"),
        );
    }
    refused(
        "scope = \"model\"\nid = \"gpt-5\"\nmodels = [\"claude-*\"]\nmax_concurrent = 1",
        3,
        "limits[0].models: do not match the model \"gpt-5\" that the limit is for: it would never apply",
    );
}

#[test]
fn bad_values_are_refused_with_what_is_allowed() {
    let scopes =
        "global, tenant, org, team, project, key, user, customer, business_unit, model, provider, session";
    refused("max_concurrent = 1", 0, "limits[0].scope: is missing");
    refused(
        "scope = \"teem\"\nmax_concurrent = 1",
        1,
        &format!("limits[0].scope: must be one of {scopes}, not \"teem\""),
    );
    let team = |lines: &str| format!("scope = \"team\"\n{lines}");
    refused(
        &team("requests_per_minut = 1\nmax_concurrent = 1"),
        2,
        "limits[0].requests_per_minut: unknown field; the nearest known one is `requests_per_minute`",
    );
    for field in ["tokens_per_day", "max_concurrent", "max_request_tokens"] {
        refused(
            &team(&format!("{field} = 10_000_000_001")),
            2,
            &format!("limits[0].{field}: must be from 0 to 10000000000, not 10000000001"),
        );
    }
    refused(
        &team("requests_per_day = 1\nalgorithm = \"leaky\""),
        3,
        "limits[0].algorithm: must be one of sliding-window, bucketed-window, token-bucket, not \"leaky\"",
    );
    refused(
        &team("budget_usd = 1"),
        0,
        "limits[0].window: is missing: `budget_usd` needs the window that it is spent in",
    );
    refused(&team("budget_usd = -1\nwindow = \"day\""), 2, "limits[0].budget_usd: must not be negative");
    refused(
        &team("budget_usd = 1\nwindow = \"day\"\nunpriced = \"ignore\""),
        4,
        "limits[0].unpriced: must not be laxer than `pricing.unpriced` (which is \"warn\" if it is left out)",
    );
    refused(
        &team("models = []\nmax_concurrent = 1"),
        2,
        "limits[0].models: must have at least one glob, such as \"claude-*\"",
    );
}

#[test]
fn ids_that_cannot_be_are_refused_with_the_nearest() {
    let id = |scope: &str, id: &str| format!("scope = \"{scope}\"\nid = \"{id}\"\nmax_concurrent = 1");
    refused(
        &id("global", "all"),
        2,
        "limits[0].id: is not for scope = \"global\", which has one counter for all calls",
    );
    refused(
        &id("tenant", "amce"),
        2,
        "limits[0].id: no tenant has the id \"amce\"; the nearest one is \"acme\"",
    );
    refused(
        &id("provider", "antropic"),
        2,
        "limits[0].id: no provider has the id \"antropic\"; the nearest one is \"anthropic\"",
    );
    refused(
        &id("model", "claude-*"),
        2,
        "limits[0].id: must be the name of one model: globs go into `models`",
    );
    refused(
        &id("session", "a b"),
        2,
        "limits[0].id: must be 1 to 128 visible ASCII characters without spaces",
    );
    refused(
        &id("user", &"x".repeat(129)),
        2,
        "limits[0].id: must be 1 to 128 characters, none of them a control character",
    );
}

/// Revoking the last key of a team must not make a configuration wrong: the revocation would wait.
#[test]
fn limits_that_no_key_meets_are_warned_of() {
    let text = r#"
[[limits]]
scope = "team"
id = "mm"
max_concurrent = 1
[[limits]]
scope = "key"
id = "cj"
max_concurrent = 1
[[limits]]
scope = "customer"
max_concurrent = 1
[[limits]]
scope = "user"
id = "anyone can say this"
max_concurrent = 1
"#;
    let expected = [
        "t.toml:22: limits[0].id: no key carries the team \"mm\"; the nearest one is \"ml\": this limit never applies",
        "t.toml:26: limits[1].id: no key has the id \"cj\"; the nearest one is \"ci\": this limit never applies",
        "t.toml:29: limits[2].scope: no key carries the attribute `customer`: this limit never applies",
    ];
    assert_eq!(with(text).unwrap().warnings, expected);
}

#[test]
fn a_tenant_that_some_limit_bounds_is_not_warned_of() {
    let warned = |limits: &str| !with(limits).unwrap().warnings.is_empty();
    assert!(warned(""));
    assert!(warned("[[limits]]\nscope = \"tenant\"\nid = \"other\"\nmax_concurrent = 1\n"));
    for scope in ["global", "tenant", "key", "team", "user", "session", "model"] {
        assert!(!warned(&format!("[[limits]]\nscope = \"{scope}\"\nmax_concurrent = 1\n")), "{scope}");
    }
}

#[test]
fn two_limits_with_one_counter_are_refused() {
    let twice = |first: &str, second: &str| {
        let text = format!("[[limits]]\n{first}\n[[limits]]\n{second}\n");
        with(&text).map(|_| "accepted".to_owned()).unwrap_or_else(|problems| problems)
    };
    let same = "this combination of scope, id, models, unit and window is already that of";
    // Neither the amount nor the algorithm nor the order of globs makes another counter.
    let first = "scope = \"team\"\nmodels = [\"a*\", \"b*\"]\nrequests_per_minute = 1";
    let second = "scope = \"team\"\nmodels = [\"b*\", \"a*\", \"b*\"]\nrequests_per_minute = 2\nalgorithm = \"token-bucket\"";
    assert_eq!(
        twice(first, second),
        format!("t.toml:26: limits[1].requests_per_minute: {same} limits[0].requests_per_minute (line 22)")
    );
    assert_eq!(twice(first, "scope = \"team\"\nmodels = [\"a*\"]\nrequests_per_minute = 2"), "accepted");
    assert_eq!(twice(first, "scope = \"team\"\nrequests_per_minute = 2"), "accepted");
    assert_eq!(twice(first, &format!("{first}\nid = \"ml\"")), "accepted");
    for field in
        ["max_concurrent = 1", "max_request_tokens = 1", "budget_usd = 1\nwindow = \"day\"\nmode = \"soft\""]
    {
        let limit = format!("scope = \"user\"\n{field}");
        assert!(twice(&limit, &limit).contains(same), "{field}");
    }
    // A tenant's own limits are limits of the scope `tenant`.
    let own = with(
        "[[limits]]\nscope = \"tenant\"\nid = \"other\"\nrequests_per_minute = 1\nbudget_usd = 1\nwindow = \"day\"\n",
    );
    assert_eq!(
        own.unwrap_err(),
        format!(
            "t.toml:22: limits[0].requests_per_minute: {same} tenants[1].requests_per_minute (line 14)\n\
             t.toml:23: limits[0].budget_usd: {same} tenants[1].budgets[0].window (line 16)"
        )
    );
}

#[test]
fn all_problems_of_a_limit_are_reported_at_once() {
    let text = "[[limits]]\nscope = \"teem\"\nid = \"\"\nmodels = 1\nmax_concurrent = -1\nbudget_usd = true\nmode = 1\n";
    let problems = with(text).unwrap_err();
    let fields: Vec<_> = problems.lines().filter_map(|line| line.split(": ").nth(1)).collect();
    let expected = ["window", "scope", "models", "max_concurrent", "budget_usd", "mode"];
    assert_eq!(fields, expected.map(|field| format!("limits[0].{field}")));
}

#[test]
fn c121_an_attribute_that_no_header_can_carry_is_warned_of() {
    let base = BASE.replace("[\"user\"]", "[\"user\", \"project\"]");
    let limit = |scope: &str, id: &str| {
        format!("[[limits]]\nscope = \"{scope}\"\nid = \"{id}\"\nmax_concurrent = 1\n")
    };
    let text = [base, limit("project", "a b"), limit("user", "a b"), limit("project", "a-b")].concat();
    let expected = [
        "t.toml:21: limits[0].id: no key carries the project \"a b\", and no call can: a header takes visible ASCII \
         characters without spaces: this limit never applies",
    ];
    assert_eq!(parse(&text).unwrap().warnings, expected);
}

#[test]
fn a_key_whose_every_call_meets_too_many_limits_is_refused() {
    let table = |scope: &str, count: usize| {
        let units = ["requests", "tokens", "input_tokens", "output_tokens"];
        let windows = ["second", "minute", "hour", "day"];
        let rates = units
            .iter()
            .flat_map(|unit| windows.iter().map(move |window| format!("{unit}_per_{window} = 1\n")));
        format!("[[limits]]\nscope = \"{scope}\"\n{}", rates.take(count).collect::<String>())
    };
    let most = [table("global", 16), table("tenant", 16), table("team", 16), table("key", 15)].concat();
    // Those of a call's own values, models and sessions are not met by every call.
    let own = "[[limits]]\nscope = \"user\"\nmax_concurrent = 1\n[[limits]]\nscope = \"model\"\nmax_concurrent = 1\n\
               [[limits]]\nscope = \"org\"\nid = \"research\"\nmodels = [\"x\"]\nmax_concurrent = 1\n\
               [[limits]]\nscope = \"org\"\nbudget_usd = 1\nwindow = \"session\"\n";
    let one = |id: &str| {
        format!(
            "[[limits]]\nscope = \"org\"\nid = \"{id}\"\nmax_request_tokens = 1\nbudget_usd = 1\nwindow = \"day\"\n"
        )
    };
    assert!(with(&format!("{most}{own}")).is_ok());
    assert!(with(&format!("{most}{}", one("elsewhere"))).is_ok());
    let expected = "t.toml:7: tenants[0].keys[0]: key `ci` meets 65 limits with every call, and a call can be checked \
                    against 64: remove some of its limits";
    assert_eq!(with(&format!("{most}{own}{}", one("research"))).map(|_| ()), Err(expected.to_owned()));
}

#[test]
fn limits_of_models_that_differ_in_case_alone_are_one() {
    for (one, other) in [
        ("scope = \"model\"\nid = \"GPT-6\"", "scope = \"model\"\nid = \"gpt-6\""),
        ("scope = \"key\"\nmodels = [\"GPT-*\"]", "scope = \"key\"\nmodels = [\"gpt-*\"]"),
    ] {
        let text =
            format!("[[limits]]\n{one}\nmax_concurrent = 1\n[[limits]]\n{other}\nmax_concurrent = 1\n");
        assert!(with(&text).is_err(), "{text}");
    }
}
