//! What a valid configuration turns into.

mod common;

use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{environment, parse};
use tollgate_config::{
    Algorithm, BudgetWindow, Config, Fsync, KeyHash, OpenAiSessionField, OutputReservation, Protocol,
    RateLimit, RunOwner, Scope, Sessions, Store, THRESHOLDS_PERCENT, Unit, Unpriced,
};
use tollgate_limiter::{Amount, DurationMs, Enforcement, MicroUsd, Period, Tokens};

const REFERENCE: &str = r#"
[server]
listen = "0.0.0.0:9000"
admin_listen = "127.0.0.1:9001"
admin_token_env = "ADMIN_TOKEN"
max_body_bytes = 1_000_000
header_timeout_seconds = 5
max_connections = 100
drain_seconds = 7

[store]
kind = "memory"

[usage]
file = "log/usage.jsonl"
fsync = "second"
rotate_bytes = 1_073_741_824
rotate_daily = true
keep_files = 30

[pricing]
file = "/srv/pricing.yaml"
unpriced = "ignore"

[reservation]
output_tokens = "max"
fit = true
extend_tokens = 512
cutoff = false
drain_ms = 1500

[sessions]
derive = false
openai_field = "safety_identifier"

[[providers]]
id = "anthropic"
protocol = "anthropic"
base_url = "https://api.anthropic.com"
api_key_env = "PROVIDER_KEY"

[[providers]]
id = "groq"
protocol = "openai"
base_url = "http://[::1]:8443/openai/"
api_key_file = "key"
usage_in_stream = false
ca_file = "ca.pem"
connect_timeout_ms = 100
response_timeout_seconds = 20
idle_timeout_seconds = 30

[[routes]]
models = ["claude-*"]
provider = "anthropic"

[[routes]]
models = ["*"]
provider = "groq"

[[tenants]]
id = "acme"
requests_per_minute = 600
tokens_per_day = 150_000
output_tokens_per_second = 0

[[tenants.budgets]]
window = "month"
limit_usd = 500
[[tenants.budgets]]
window = "day"
limit_usd = 0.1
mode = "soft"
unpriced = "block"
[[tenants.budgets]]
window = "total"
limit_usd = "10.0"

[[tenants.keys]]
id = "ci"
hash = "sha256:2C26B46B68FFC68FF99B453C1D30413413422D706483BFA0F98A5E886266E7AE"
models = ["claude-*", "gpt-?"]
attributes = { team = "ml", user = "u-17" }
[[tenants.keys]]
id = "dev"
key_env = "DEV_KEY"
"#;

#[test]
fn every_section_is_read() {
    let config = parse(REFERENCE).unwrap();
    assert_eq!(config.server.listen.to_string(), "0.0.0.0:9000");
    assert_eq!(config.server.admin_listen.to_string(), "127.0.0.1:9001");
    assert_eq!(config.server.admin_token.unwrap().expose(), "SENTINEL-admin");
    assert_eq!(config.server.max_body_bytes, 1_000_000);
    assert_eq!(config.server.header_timeout, Duration::from_secs(5));
    assert_eq!(config.server.max_connections, 100);
    assert_eq!(config.server.drain, Duration::from_secs(7));
    assert_eq!(config.store, Store::Memory);
    assert_eq!(config.usage.file, PathBuf::from("/etc/tollgate/log/usage.jsonl"));
    assert_eq!((config.usage.fsync, config.usage.rotate_bytes), (Fsync::Second, Some(1 << 30)));
    assert!(config.usage.rotate_daily);
    assert_eq!(config.usage.keep_files, Some(30));
    assert_eq!(config.pricing.file, Some(PathBuf::from("/srv/pricing.yaml")));
    assert_eq!(config.pricing.unpriced, Unpriced::Ignore);
    assert_eq!(config.reservation.output_tokens, OutputReservation::Max);
    assert_eq!(config.reservation.extend_tokens, Tokens::new(512));
    assert!(!config.reservation.cutoff && config.reservation.fit);
    assert_eq!(config.reservation.drain, Duration::from_millis(1_500));
    let openai_field = Some(OpenAiSessionField::SafetyIdentifier);
    assert_eq!(config.sessions, Sessions { derive: false, openai_field });
    assert_eq!(config.warnings, Vec::<String>::new());
}

#[test]
fn receivers_of_alerts_are_read() {
    let text = format!(
        "{REFERENCE}\n[[alerts]]\nurl_env = \"ALERT_URL\"\nsecret_env = \"DEV_KEY\"\nthresholds = [95, 50, 95]\n\
         scope = \"tenant\"\nid = \"acme\"\n[[alerts]]\nurl = \"http://127.0.0.1:9/hook?x=1\"\n"
    );
    let config = parse(&text).unwrap();
    let [first, second] = &config.alerts[..] else { panic!("two receivers") };
    assert_eq!(first.url.expose(), "https://hooks.example/SENTINEL");
    assert_eq!(first.secret.as_ref().unwrap().expose(), "SENTINEL-dev");
    assert_eq!(&*first.thresholds_percent, [50, 95]);
    assert_eq!((first.scope, first.id.as_deref()), (Some(Scope::Tenant), Some("acme")));
    assert_eq!(*second.thresholds_percent, THRESHOLDS_PERCENT);
    assert_eq!((&second.secret, second.scope, &second.id), (&None, None, &None));
    assert!(!format!("{config:?}").contains("hooks.example"));
}

#[test]
fn providers_and_routes_are_read() {
    let config = parse(REFERENCE).unwrap();
    let [anthropic, groq] = &config.providers[..] else { panic!("two providers") };
    assert_eq!((&*anthropic.id, anthropic.protocol), ("anthropic", Protocol::Anthropic));
    assert_eq!(anthropic.base_url.to_string(), "https://api.anthropic.com");
    assert_eq!((anthropic.base_url.host(), anthropic.base_url.port()), ("api.anthropic.com", 443));
    assert_eq!(anthropic.base_url.path_prefix(), "");
    assert_eq!(anthropic.api_key.as_ref().unwrap().expose(), "SENTINEL-provider");
    assert!(!anthropic.usage_in_stream && anthropic.ca_pem.is_none());
    assert_eq!(anthropic.connect_timeout, Duration::from_secs(10));
    assert_eq!(
        (anthropic.response_timeout, anthropic.idle_timeout),
        (Duration::from_secs(600), Duration::from_secs(600))
    );
    assert_eq!((&*groq.id, groq.protocol), ("groq", Protocol::OpenAi));
    assert_eq!((groq.base_url.host(), groq.base_url.port()), ("[::1]", 8443));
    assert_eq!((groq.base_url.path_prefix(), groq.base_url.is_https()), ("/openai", false));
    assert_eq!(groq.base_url.authority(), "[::1]:8443");
    assert_eq!(groq.api_key.as_ref().unwrap().expose(), "SENTINEL-file");
    assert!(groq.ca_pem.as_ref().unwrap().starts_with(b"-----BEGIN"));
    assert_eq!(groq.connect_timeout, Duration::from_millis(100));
    assert_eq!(
        (groq.response_timeout, groq.idle_timeout),
        (Duration::from_secs(20), Duration::from_secs(30))
    );
    let [claude, rest] = &config.routes[..] else { panic!("two routes") };
    assert!(claude.models.matches("claude-sonnet-5-5") && !claude.models.matches("gpt-5"));
    assert!(rest.models.matches("meta-llama/Llama-3") && rest.models.matches(""));
    assert_eq!((&*claude.provider, &*rest.provider), ("anthropic", "groq"));
}

#[test]
fn tenants_are_read() {
    let config = parse(REFERENCE).unwrap();
    let [tenant] = &config.tenants[..] else { panic!("one tenant") };
    let rate = |unit, window_ms, amount| RateLimit {
        unit,
        window: DurationMs::new(window_ms),
        amount: Amount::new(amount),
        algorithm: Algorithm::SlidingWindow,
    };
    let expected = [
        rate(Unit::Requests, 60_000, 600),
        rate(Unit::Tokens, 86_400_000, 150_000),
        rate(Unit::OutputTokens, 1_000, 0),
    ];
    assert_eq!(tenant.rates, expected);
    let budgets: Vec<_> = tenant.budgets.iter().map(|b| (b.window, b.limit, b.mode, b.unpriced)).collect();
    let expected = [
        (BudgetWindow::Period(Period::Month), MicroUsd::new(500_000_000), Enforcement::Hard, None),
        (BudgetWindow::Period(Period::Day), MicroUsd::new(100_000), Enforcement::Soft, Some(Unpriced::Block)),
        (BudgetWindow::Period(Period::Total), MicroUsd::new(10_000_000), Enforcement::Hard, None),
    ];
    assert_eq!(budgets, expected);
    let [ci, dev] = &tenant.keys[..] else { panic!("two keys") };
    assert_eq!((ci.hash, dev.hash), (KeyHash::of("foo"), KeyHash::of("SENTINEL-dev")));
    assert!(ci.models.as_ref().unwrap().matches("gpt-5") && !ci.models.as_ref().unwrap().matches("gpt-55"));
    assert_eq!(ci.attributes.get("team").map(|team| &**team), Some("ml"));
    assert!(dev.models.is_none() && dev.attributes.is_empty());
}

#[test]
fn runs_are_read() {
    let runs = "[[runs]]\nmax_steps = 50\nmax_seconds = 600\n[[runs]]\ntenant = \"acme\"\nmax_tokens = 0\n\
                [[runs]]\ntenant = \"acme\"\nkey = \"dev\"\nbudget_usd = 1.5\n";
    let config = parse(&format!("{REFERENCE}{runs}")).unwrap();
    let [all, tenant, key] = &config.runs[..] else { panic!("three runs") };
    assert_eq!(
        (&all.owner, all.steps, all.tokens, all.budget),
        (&RunOwner::All, Some(Amount::new(50)), None, None)
    );
    assert_eq!(all.time, Some(DurationMs::new(600_000)));
    assert_eq!((&tenant.owner, tenant.tokens), (&RunOwner::Tenant("acme".into()), Some(Amount::ZERO)));
    assert_eq!((&key.owner, key.budget), (&RunOwner::Key("dev".into()), Some(MicroUsd::new(1_500_000))));
}

#[test]
fn what_is_left_out_has_the_documented_default() {
    let config =
        parse("[[providers]]\nid = \"o\"\nprotocol = \"openai\"\nbase_url = \"https://api.openai.com\"\n")
            .unwrap();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.server.admin_listen.to_string(), "127.0.0.1:8081");
    assert!(config.server.admin_token.is_none());
    assert_eq!((config.server.max_body_bytes, config.server.max_connections), (33_554_432, 10_000));
    assert_eq!(
        (config.server.header_timeout, config.server.drain),
        (Duration::from_secs(10), Duration::from_secs(30))
    );
    assert_eq!(config.usage.file, PathBuf::from("/etc/tollgate/usage.jsonl"));
    assert_eq!((config.usage.fsync, config.usage.rotate_bytes), (Fsync::Never, None));
    assert!(!config.usage.rotate_daily);
    assert_eq!(config.usage.keep_files, None);
    assert_eq!((config.pricing.file, config.pricing.unpriced), (None, Unpriced::Warn));
    assert_eq!(config.reservation.output_tokens, OutputReservation::UpTo(Tokens::new(4_096)));
    assert_eq!(
        (config.reservation.extend_tokens, config.reservation.drain),
        (Tokens::new(1_024), Duration::ZERO)
    );
    assert_eq!(config.sessions, Sessions { derive: true, openai_field: None });
    assert!(config.reservation.cutoff && !config.reservation.fit);
    assert!(config.providers[0].usage_in_stream && config.providers[0].api_key.is_none());
    assert_eq!(config.warnings, ["t.toml:1: tenants: there is none: nobody can make a call"]);
}

#[test]
fn c121_what_limits_nothing_is_warned_of() {
    let text = r#"
[[providers]]
id = "one"
protocol = "openai"
base_url = "https://example.com/v1/"
[[providers]]
id = "two"
protocol = "openai"
base_url = "https://example.org"
[[tenants]]
id = "free"
"#;
    let expected = [
        "t.toml:5: providers[0].base_url: ends in `/v1`, which requests have in their own path: it will be there twice",
        "t.toml:2: providers: \"two\" and \"one\" speak the same protocol and there are no [[routes]]: only calls that \
         name a provider in their path reach one",
        "t.toml:10: tenants[0]: has neither limit nor budget: its calls are not bounded",
    ];
    assert_eq!(parse(text).unwrap().warnings, expected);
}

#[test]
fn c128_debug_shows_no_secret() {
    let shown = format!("{:?}", parse(REFERENCE).unwrap());
    assert!(shown.contains("Secret(…)") && !shown.contains("SENTINEL"), "{shown}");
    let hash = KeyHash::of("SENTINEL-dev").to_string();
    assert_eq!(hash.parse(), Ok(KeyHash::of("SENTINEL-dev")));
    assert!(!shown.contains(&hash["sha256:".len()..]));
}

#[test]
fn a_file_is_read_through_the_environment() {
    let mut environment = environment();
    environment.files.insert("/etc/tollgate/t.toml".into(), REFERENCE.into());
    let config = Config::load(Path::new("/etc/tollgate/t.toml"), &environment).unwrap();
    assert_eq!(config.usage.file, PathBuf::from("/etc/tollgate/log/usage.jsonl"));
    let error = Config::load(Path::new("/nowhere.toml"), &environment).unwrap_err();
    assert_eq!(error.to_string(), "/nowhere.toml: cannot be read: entity not found");
    environment.files.insert("/bad.toml".into(), vec![0xff]);
    let error = Config::load(Path::new("/bad.toml"), &environment).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/bad.toml: cannot be read: invalid utf-8 sequence of 1 bytes from index 0"
    );
}

#[test]
fn a_store_in_redis_has_its_own_fields() {
    let provider = "[[providers]]\nid = \"a\"\nprotocol = \"anthropic\"\nbase_url = \"https://a.example\"\n";
    let store = |fields: &str| match parse(&format!("[store]\nkind = \"redis\"\n{fields}\n{provider}"))
        .unwrap()
        .store
    {
        Store::Redis(redis) => redis,
        other => panic!("{other:?}"),
    };
    let usual = store("url = \"redis://127.0.0.1:6379/0\"");
    assert_eq!((usual.url.expose(), &*usual.prefix), ("redis://127.0.0.1:6379/0", "tollgate"));
    assert_eq!((usual.timeout, usual.retry), (Duration::from_millis(250), Duration::from_secs(5)));
    assert_eq!((usual.local_share.get(), usual.closed), (1, false));
    let all = store(
        "url_env = \"REDIS_URL\"\nprefix = \"p:1\"\ntimeout_ms = 100\nretry_seconds = 2\nlocal_share = 3\n\
         on_failure = \"closed\"",
    );
    assert_eq!((all.url.expose(), &*all.prefix), ("rediss://:SENTINEL@redis.example/0", "p:1"));
    assert_eq!((all.timeout, all.retry), (Duration::from_millis(100), Duration::from_secs(2)));
    assert_eq!((all.local_share.get(), all.closed), (3, true));
    assert!(!format!("{all:?}").contains("SENTINEL"));
}
