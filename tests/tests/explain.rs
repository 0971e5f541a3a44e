//! What `explain` and `check` say, against what calls do.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use std::path::Path;

use http::{HeaderName, HeaderValue};
use serde_json::{Value, json};
use tollgate_config::{KeyHash, Scope};
use tollgate_limiter::TimestampMs;
use tollgate_proxy::{Explanation, Question, Setup, Unexplained};
use tollgate_tests::{Client, Gateway, GatewayOptions, setup};

const NOW: TimestampMs = TimestampMs::new(1_795_996_800_000);

const PRICES: &str = "models:\n  unit:\n    input: 1\n    output: 1\n  dear:\n    input: 7\n    output: 9\n";

fn options(limits: &str) -> GatewayOptions {
    let key = "[[tenants]]\nid = \"t\"\n[[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\nmodels = [\"unit\", \"dear\"]\n\
               attributes = { team = \"ml\" }\ncaller_attributes = [\"user\"]\n";
    GatewayOptions {
        config: format!("{key}{limits}"),
        prices: Some(PRICES.to_owned()),
        ..GatewayOptions::default()
    }
}

fn compiled(limits: &str) -> Setup {
    setup(&options(limits), "http://127.0.0.1:1", Path::new("/nowhere"))
}

fn explain(
    setup: &Setup,
    body: &Value,
    headers: &[(&'static str, &'static str)],
) -> Result<Explanation, Unexplained> {
    let header = |(name, value): &(&'static str, &'static str)| {
        (HeaderName::from_static(name), HeaderValue::from_static(value))
    };
    let headers: Vec<_> = headers.iter().map(header).collect();
    let body = body.to_string();
    let question = Question { key: "k", path: None, headers: &headers, body: body.as_bytes() };
    setup.explain(&question, NOW)
}

#[tokio::test]
async fn what_explain_says_is_what_a_call_reserves() {
    let limits = "[[limits]]\nscope = \"team\"\nmodels = [\"dear\"]\nbudget_usd = 1\nwindow = \"day\"\n\
                  [[limits]]\nscope = \"team\"\ntokens_per_minute = 1\nbudget_usd = 1\nwindow = \"day\"\n\
                  [[limits]]\nscope = \"user\"\nmax_request_tokens = 1\n";
    let two_models = json!({"model": "unit", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}],
        "tools": [{"type": "advisor_20260301", "name": "advisor", "model": "dear"}], "system": "Be brief."});
    let explained = explain(&compiled(limits), &two_models, &[("x-tollgate-user", "ann")]).unwrap();
    assert_eq!(
        (&*explained.path, &*explained.provider, explained.protocol),
        ("/v1/messages", "anthropic", "anthropic")
    );
    let models: Vec<_> =
        explained.models.iter().map(|model| (&*model.name, model.priced_as.as_deref())).collect();
    assert_eq!(models, [("unit", Some("unit")), ("dear", Some("dear"))]);
    assert_eq!(
        explained.input.iter().map(|(_, tokens)| tokens.get()).sum::<u64>(),
        explained.input_tokens.get()
    );
    let input = explained.input_tokens.get();
    // Each limit is charged what it counts: the one on `dear` only what `dear` may cost.
    let charges: Vec<_> = explained
        .limits
        .iter()
        .map(|limit| (limit.limit.scope, limit.limit.unit, limit.charge.get()))
        .collect();
    let expected = [
        (Scope::Team, "tokens", input + 100),
        (Scope::Team, "micro_usd", input * 8 + 100 * 10),
        (Scope::Team, "micro_usd", input * 7 + 100 * 9),
        (Scope::User, "tokens", input + 100),
    ];
    assert_eq!(charges, expected);
    // The same request, sent: the event of its refusal names the same charge.
    let gateway = Gateway::start(options(limits));
    let client = Client::new(gateway.address());
    let refused = client.post("/v1/messages", "key_of_t", &two_models, &["x-tollgate-user: ann"]).await;
    assert_eq!(refused.status, 429);
    assert_eq!(gateway.events()[0]["charge"], input + 100);
    // And without the limits that refuse it, its event names the same reservation.
    let gateway = Gateway::start(options(""));
    let client = Client::new(gateway.address());
    assert_eq!(client.post("/v1/messages", "key_of_t", &two_models, &[]).await.status, 200);
    let event = &gateway.usage_events()[0];
    assert_eq!(event["reserved_micro_usd"], explained.cost.rounded_up().get());
    assert_eq!(event["estimated_input_tokens"], input);
}

#[test]
fn what_would_be_refused_before_any_counter_is_told_with_its_answer() {
    let setup = compiled("[[limits]]\nscope = \"session\"\nbudget_usd = 1\nwindow = \"session\"\n");
    let ask = |model: &str| json!({"model": model, "messages": [{"role": "user", "content": "Hello"}]});
    let refused = |body: &Value, headers| {
        let refused = explain(&setup, body, headers).unwrap_err();
        (refused.status, refused.reason)
    };
    assert_eq!(refused(&ask("other"), &[]), (403, "model_not_allowed"));
    assert_eq!(refused(&json!({"messages": []}), &[]), (400, "bad_request"));
    assert_eq!(refused(&ask("unit"), &[("x-tollgate-team", "x")]), (403, "attribute_not_allowed"));
    assert_eq!(refused(&ask("unit"), &[("x-tollgate-session", "a b")]), (400, "bad_request"));
    let nobody = setup.explain(&Question { key: "nobody", path: None, headers: &[], body: b"{}" }, NOW);
    assert_eq!(nobody.unwrap_err().status, 401);
    let elsewhere = Question { key: "k", path: Some("/v1/files"), headers: &[], body: b"{}" };
    assert_eq!(setup.explain(&elsewhere, NOW).unwrap_err().reason, "unknown_path");
    let fine = explain(&setup, &ask("unit"), &[("x-tollgate-session", "s")]).unwrap();
    assert_eq!((&*fine.path, fine.limits.len()), ("/v1/chat/completions", 1));
}

#[test]
fn a_key_s_limits_are_listed_the_most_restrictive_first() {
    let setup = compiled(
        "[[limits]]\nscope = \"global\"\nrequests_per_second = 1\nbudget_usd = 5\nwindow = \"total\"\n\
         [[limits]]\nscope = \"team\"\nrequests_per_day = 50_000\nbudget_usd = 90\nwindow = \"month\"\n\
         [[limits]]\nscope = \"user\"\nrequests_per_minute = 30\nalgorithm = \"token-bucket\"\n\
         [[limits]]\nscope = \"team\"\nid = \"other\"\nrequests_per_day = 1\n\
         [[limits]]\nscope = \"provider\"\nid = \"openai\"\nbudget_usd = 1\nwindow = \"day\"\nmode = \"soft\"\n\
         [[limits]]\nscope = \"session\"\nmax_concurrent = 1\n\
         [[limits]]\nscope = \"tenant\"\nbudget_usd = 1000\nwindow = \"day\"\n\
         [[limits]]\nscope = \"model\"\nid = \"other\"\nmax_concurrent = 1\n\
         [[limits]]\nscope = \"team\"\nmodels = [\"oth*\"]\nmax_concurrent = 1\n\
         [[runs]]\nkey = \"k\"\nmax_steps = 9\nmax_seconds = 60\n[[runs]]\nbudget_usd = 2\n",
    );
    let listed: Vec<_> = setup
        .key_limits(&KeyHash::of("key_of_t"))
        .unwrap()
        .iter()
        .map(|limit| {
            format!(
                "{} {} {}/{} {}",
                limit.scope,
                limit.id.as_deref().unwrap_or("*"),
                limit.unit,
                limit.window,
                limit.counting
            )
        })
        .collect();
    let expected = [
        "session * concurrent_requests/none open",
        "global global micro_usd/total calendar",
        "team ml micro_usd/month calendar",
        "tenant t micro_usd/day calendar",
        "session * micro_usd/run idle",
        "provider openai micro_usd/day calendar",
        "key k milliseconds/run elapsed",
        "user * requests/minute token-bucket",
        "team ml requests/day sliding-window",
        "global global requests/second sliding-window",
        "key k steps/run idle",
    ];
    assert_eq!(listed, expected);
    assert!(setup.key_limits(&KeyHash::of("nobody")).is_none());
}

#[test]
fn c121_limits_on_models_without_a_price_and_counters_without_end_are_warned_of() {
    let setup = compiled(
        "[[limits]]\nscope = \"team\"\nmodels = [\"cluade-*\"]\nmax_concurrent = 1\nrequests_per_day = 1\n\
         [[limits]]\nscope = \"model\"\nid = \"untt\"\nmax_concurrent = 1\n\
         [[limits]]\nscope = \"model\"\nid = \"unit\"\nmax_concurrent = 1\n\
         [[limits]]\nscope = \"model\"\nid = \"UNIT\"\nrequests_per_day = 1\n\
         [[limits]]\nscope = \"model\"\nid = \"unit-20260901\"\nmax_concurrent = 1\n\
         [[limits]]\nscope = \"tenant\"\nbudget_usd = 1\nwindow = \"session\"\n\
         [[limits]]\nscope = \"team\"\nbudget_usd = 1\nwindow = \"session\"\nmode = \"soft\"\n\
         [[limits]]\nscope = \"user\"\nbudget_usd = 1\nwindow = \"total\"\n",
    );
    let expected = [
        "the limit of model `unit-20260901`: it holds for calls that use this very name; \"unit\" is the model's id, and a limit for that holds for all its names",
        "the limit of model `untt`: no model of that name has a price; the nearest one is \"unit\"",
        "the limit of scope `team` is for models cluade-*, and no model with a price matches; the nearest one is \"dear\"",
        "the limit of scope `user` has window \"total\", and callers choose the user: a counter is kept for ever for each that they name",
    ];
    assert_eq!(setup.warnings(NOW), expected);
    assert!(compiled("").warnings(NOW).is_empty());
    let budget = "[[limits]]\nscope = \"tenant\"\nbudget_usd = 1\nwindow = \"session\"\n";
    let underived = compiled(&format!("{budget}[sessions]\nderive = false\n"));
    assert_eq!(
        underived.warnings(NOW),
        [
            "the limit of scope `tenant` has a budget for each session, and `sessions.derive` is off: calls that name no session are not bounded by it"
        ]
    );
}

#[test]
fn the_example_of_limits_says_nothing_that_it_does_not_mean() {
    let text = include_str!("../../examples/limits.toml");
    let limits = text.split_once("# The deployment as a whole.").expect("the example has its parts").1;
    let key = "[[tenants]]\nid = \"acme\"\n[[tenants.keys]]\nid = \"k\"\nkey_env = \"key\"\nattributes = { team = \"ml\" }\n\
               caller_attributes = [\"user\"]\n";
    let options = GatewayOptions { config: format!("{key}{limits}"), ..GatewayOptions::default() };
    let setup = setup(&options, "http://127.0.0.1:1", Path::new("/nowhere"));
    assert!(setup.warnings(NOW).is_empty());
    assert_eq!(setup.key_limits(&KeyHash::of("key")).unwrap().len(), 16);
}

#[tokio::test]
async fn explain_tells_what_becomes_of_an_answer_that_uses_more() {
    let limits = "[[limits]]\nscope = \"team\"\nbudget_usd = 1\nwindow = \"day\"\n";
    let asking = |max_tokens, stream| {
        json!({"model": "unit", "max_tokens": max_tokens, "stream": stream, "system": "Be brief.",
            "messages": [{"role": "user", "content": "Hello"}]})
    };
    let reserving = |limits: &str, reservation: &str| {
        let options = GatewayOptions { reservation: reservation.to_owned(), ..options(limits) };
        setup(&options, "http://127.0.0.1:1", Path::new("/nowhere"))
    };
    for (limits, reservation, body, extended_by, fits) in [
        (limits, "extend_tokens = 7", asking(9_000, true), Some(7), false),
        (limits, "", asking(100, true), None, false),
        (limits, "", asking(9_000, false), None, false),
        ("", "", asking(9_000, true), None, false),
        (limits, "output_tokens = \"max\"", asking(9_000, true), None, false),
        (limits, "fit = true", asking(9_000, true), None, true),
        ("", "fit = true", asking(9_000, true), None, false),
    ] {
        let explained = explain(&reserving(limits, reservation), &body, &[]).unwrap();
        assert_eq!((explained.extended_by.map(|slice| slice.get()), explained.fits), (extended_by, fits));
    }
}
