//! Bad configurations, each with the exact message.

mod common;

use common::parse;
use proptest::prelude::*;

/// Three lines that every configuration needs.
const PROVIDER: &str =
    "[[providers]]\nid = \"a\"\nprotocol = \"anthropic\"\nbase_url = \"https://a.example\"\n";

/// The problems of `text`.
fn problems(text: &str) -> String {
    parse(text).map(|_| "accepted".to_owned()).unwrap_or_else(|problems| problems)
}

/// Checks that `line` after a section's header (line 1) has the one problem `expected` on line 2.
fn check(header: &str, table: &[(&str, &str)]) {
    for (line, expected) in table {
        let text = format!("{header}\n{line}\n{PROVIDER}");
        assert_eq!(problems(&text), format!("t.toml:2: {expected}"), "{line}");
    }
}

#[test]
fn runs() {
    check(
        "[[runs]]",
        &[
            (
                "max_stepz = 1\nmax_steps = 1",
                "runs[0].max_stepz: unknown field; the nearest known one is `max_steps`",
            ),
            ("max_steps = -1", "runs[0].max_steps: must be from 0 to 10000000000, not -1"),
            ("max_seconds = 1e9", "runs[0].max_seconds: must be an integer, not a decimal number"),
            ("budget_usd = -1", "runs[0].budget_usd: must not be negative"),
            ("tenant = \"acme\"\nmax_steps = 1", "runs[0].tenant: no tenant has the id \"acme\""),
            ("key = \"k\"\nmax_steps = 1", "runs[0].key: no key has the id \"k\""),
        ],
    );
    let nothing =
        "t.toml:1: runs[0]: limits nothing: give it `max_steps`, `max_tokens`, `budget_usd` or `max_seconds`";
    assert_eq!(problems(&format!("[[runs]]\n{PROVIDER}")), nothing);
    let twice = "t.toml:3: runs[1]: whom this run is for is already that of runs[0] (line 1)";
    assert_eq!(problems(&format!("[[runs]]\nmax_steps = 1\n[[runs]]\nmax_steps = 2\n{PROVIDER}")), twice);
}

#[test]
fn sessions() {
    check(
        "[sessions]",
        &[
            ("derive = 1", "sessions.derive: must be true or false, not an integer"),
            (
                "openai_field = \"user\"",
                "sessions.openai_field: must be one of prompt_cache_key, safety_identifier, not \"user\"",
            ),
            ("field = \"x\"", "sessions.field: unknown field; the nearest known one is `derive`"),
        ],
    );
}

#[test]
fn usage() {
    check(
        "[usage]",
        &[
            ("fsync = \"often\"", "usage.fsync: must be one of never, second, always, not \"often\""),
            ("rotate_bytes = 1000", "usage.rotate_bytes: must be from 1048576 to 1099511627776, not 1000"),
            ("rotate_daily = 1", "usage.rotate_daily: must be true or false, not an integer"),
            ("keep_files = 0\nrotate_daily = true", "usage.keep_files: must be from 1 to 100000, not 0"),
            (
                "keep_files = 3",
                "usage.keep_files: needs \"rotate_daily = true\" or \"rotate_bytes\": otherwise there is one file",
            ),
        ],
    );
}

#[test]
fn alerts() {
    check(
        "[[alerts]]",
        &[
            (
                "url = \"hooks.example\"",
                "alerts[0].url: must be a URL that starts with `https://` or `http://`, without user and password",
            ),
            (
                "url = \"https://SENTINEL@hooks.example\"",
                "alerts[0].url: must be a URL that starts with `https://` or `http://`, without user and password",
            ),
            ("url_env = \"NOPE\"", "alerts[0].url_env: the environment variable NOPE is not set"),
        ],
    );
    let with =
        |line: &str| problems(&format!("[[alerts]]\nurl = \"https://hooks.example\"\n{line}\n{PROVIDER}"));
    for (line, expected) in [
        ("thresholds = []", "alerts[0].thresholds: must have 1 to 32 numbers, in percent"),
        ("thresholds = [0]", "alerts[0].thresholds[0]: must be from 1 to 10000, not 0"),
        ("id = \"acme\"", "alerts[0].id: is for a `scope` only: say whose id it is"),
        ("url_env = \"DEV_KEY\"", "alerts[0].url_env: `url` is there too: only one of them is possible"),
        ("uri = \"x\"", "alerts[0].uri: unknown field; the nearest known one is `url`"),
    ] {
        assert_eq!(with(line), format!("t.toml:3: {expected}"), "{line}");
    }
    assert_eq!(
        problems(&format!("[[alerts]]\n{PROVIDER}")),
        "t.toml:1: alerts[0]: `url` or `url_env` is needed"
    );
}

#[test]
fn server() {
    check(
        "[server]",
        &[
            ("listne = \"1\"", "server.listne: unknown field; the nearest known one is `listen`"),
            ("listen = 80", "server.listen: must be a string, not an integer"),
            (
                "listen = \"localhost:80\"",
                "server.listen: must be an IP address and a port such as 127.0.0.1:8080, not \"localhost:80\"",
            ),
            ("max_body_bytes = 0", "server.max_body_bytes: must be from 1 to 1073741824, not 0"),
            ("max_connections = -1", "server.max_connections: must be from 1 to 1000000, not -1"),
            ("drain_seconds = 1.5", "server.drain_seconds: must be an integer, not a decimal number"),
            (
                "header_timeout_seconds = 99999999999999999999999",
                "server.header_timeout_seconds: must be from 1 to 3600, not 99999999999999999999999",
            ),
            (
                "admin_token_env = \"NOPE\"",
                "server.admin_token_env: the environment variable NOPE is not set",
            ),
            (
                "admin_token_env = \"EMPTY\"",
                "server.admin_token_env: the environment variable EMPTY is empty",
            ),
            (
                "admin_token_env = \"BROKEN\"",
                "server.admin_token_env: the environment variable BROKEN contains characters that no credential has: \
                 only visible ASCII without spaces",
            ),
            (
                "admin_token_env = \"sk-SENTINEL\"",
                "server.admin_token_env: must be the name of an environment variable: letters, digits and `_`",
            ),
        ],
    );
    let same = format!("[server]\nlisten = \"127.0.0.1:1\"\nadmin_listen = \"127.0.0.1:1\"\n{PROVIDER}");
    assert_eq!(problems(&same), "t.toml:3: server.admin_listen: must not be the same as `listen`");
    let any_port = format!("[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n{PROVIDER}");
    assert_eq!(problems(&any_port), "accepted");
}

#[test]
fn sections_that_exist_once() {
    check(
        "[store]",
        &[
            ("kind = \"disk\"", "store.kind: must be one of memory, redis, not \"disk\""),
            ("url = \"redis://:SENTINEL@h\"", "store.url: is for kind = \"redis\" only"),
            ("local_share = 3", "store.local_share: is for kind = \"redis\" only"),
        ],
    );
    check(
        "[store]",
        &[
            (
                "url = \"http://:SENTINEL@h\"\nkind = \"redis\"",
                "store.url: must begin with redis://, rediss://, redis-sentinel://, rediss-sentinel://, \
                 redis-cluster://, rediss-cluster://",
            ),
            (
                "url_env = \"REDIS_URL\"\nkind = \"redis\"\nurl = \"redis://h\"",
                "store.url_env: cannot be given together with `url`",
            ),
            (
                "prefix = \"a{b}\"\nkind = \"redis\"\nurl = \"redis://h\"",
                "store.prefix: must be 1 to 64 letters, digits, `.`, `_`, `:` or `-`",
            ),
            (
                "local_share = 0\nkind = \"redis\"\nurl = \"redis://h\"",
                "store.local_share: must be from 1 to 100000, not 0",
            ),
            (
                "timeout_ms = 5\nkind = \"redis\"\nurl = \"redis://h\"",
                "store.timeout_ms: must be from 10 to 5000, not 5",
            ),
            (
                "on_failure = \"open\"\nkind = \"redis\"\nurl = \"redis://h\"",
                "store.on_failure: must be one of local, closed, not \"open\"",
            ),
        ],
    );
    let nowhere = "t.toml:1: store.url: is missing: it or `url_env` must be given";
    assert_eq!(problems(&format!("[store]\nkind = \"redis\"\n{PROVIDER}")), nowhere);
    check(
        "[usage]",
        &[
            ("file = \"\"", "usage.file: must be a file name"),
            ("path = \"x\"", "usage.path: unknown field; the nearest known one is `file`"),
        ],
    );
    check(
        "[pricing]",
        &[("unpriced = \"deny\"", "pricing.unpriced: must be one of ignore, warn, block, not \"deny\"")],
    );
    check(
        "[reservation]",
        &[
            (
                "output_tokens = \"all\"",
                "reservation.output_tokens: must be an integer from 1 to 100000000, or \"max\"",
            ),
            ("output_tokens = 0", "reservation.output_tokens: must be from 1 to 100000000, not 0"),
            ("cutoff = 1", "reservation.cutoff: must be true or false, not an integer"),
            ("fit = \"yes\"", "reservation.fit: must be true or false, not a string"),
            (
                "fit = true\noutput_tokens = 4096",
                "reservation.fit: reserves the whole output limit: set `output_tokens` to \"max\" or leave it out",
            ),
        ],
    );
    let root = |line: &str| problems(&format!("{line}\n{PROVIDER}"));
    assert_eq!(root("[servr]"), "t.toml:1: servr: unknown field; the nearest known one is `server`");
    assert_eq!(root("server = 1"), "t.toml:1: server: must be a table, not an integer");
    assert_eq!(root("tenants = 1"), "t.toml:1: tenants: must be an array, not an integer");
    assert_eq!(root("tenants = [1]"), "t.toml:1: tenants[0]: must be a table, not an integer");
}

#[test]
fn providers() {
    assert_eq!(problems(""), "t.toml:1: providers: at least one [[providers]] is needed");
    assert_eq!(
        problems("\n[[providers]]\n"),
        "t.toml:2: providers[0].id: is missing\nt.toml:2: providers[0].protocol: is missing\n\
         t.toml:2: providers[0].base_url: is missing"
    );
    let gemini = PROVIDER.replace("anthropic", "gemini");
    assert_eq!(
        problems(&gemini),
        "t.toml:3: providers[0].protocol: \"gemini\" is not available in this version; available: \"anthropic\", \
         \"openai\""
    );
    assert_eq!(
        problems(&PROVIDER.replace("anthropic", "cohere")),
        "t.toml:3: providers[0].protocol: must be one of anthropic, openai, not \"cohere\""
    );
    let urls = [
        ("ftp://a.example", "must start with `https://` or `http://`"),
        ("a.example", "must start with `https://` or `http://`"),
        ("https://u:SENTINEL@a.example", "must not contain credentials: use `api_key_env` or `api_key_file`"),
        ("https://a.example/?key=SENTINEL", "must not have a query"),
        ("https://a.example/#x", "must not have a fragment"),
        ("https://", "is not a URL: empty string"),
        ("https://a b", "is not a URL: invalid uri character"),
    ];
    for (url, expected) in urls {
        let text = PROVIDER.replace("https://a.example", url);
        assert_eq!(problems(&text), format!("t.toml:4: providers[0].base_url: {expected}"), "{url}");
    }
    let lines = [
        ("api_key_env = \"NOPE\"", "api_key_env: the environment variable NOPE is not set"),
        ("api_key_file = \"nope\"", "api_key_file: /etc/tollgate/nope cannot be read: entity not found"),
        ("api_key_file = \"empty\"", "api_key_file: the file empty is empty"),
        ("api_key = \"SENTINEL\"", "api_key: unknown field; the nearest known one is `api_key_env`"),
        ("usage_in_stream = true", "usage_in_stream: is for protocol = \"openai\" only"),
        ("ca_file = \"text\"", "ca_file: the file has no PEM certificate"),
        ("connect_timeout_ms = 0", "connect_timeout_ms: must be from 1 to 600000, not 0"),
    ];
    for (line, expected) in lines {
        let text = format!("{PROVIDER}{line}\n");
        assert_eq!(problems(&text), format!("t.toml:5: providers[0].{expected}"), "{line}");
    }
    let both = format!("{PROVIDER}api_key_env = \"PROVIDER_KEY\"\napi_key_file = \"key\"\n");
    assert_eq!(
        problems(&both),
        "t.toml:6: providers[0].api_key_file: `api_key_env` is there too: only one of them is possible"
    );
    assert_eq!(
        problems(&format!("{PROVIDER}{PROVIDER}")),
        "t.toml:6: providers[1].id: this id is already that of providers[0].id (line 2)"
    );
}

#[test]
fn routes() {
    let route = |lines: &str| problems(&format!("{PROVIDER}[[routes]]\n{lines}\n"));
    assert_eq!(
        route("models = [\"*\"]\nprovider = \"b\""),
        "t.toml:7: routes[0].provider: no provider has the id \"b\"; the nearest one is \"a\""
    );
    assert_eq!(route("provider = \"a\""), "t.toml:5: routes[0].models: is missing");
    assert_eq!(
        route("models = []\nprovider = \"a\""),
        "t.toml:6: routes[0].models: must have at least one glob, such as \"claude-*\""
    );
    assert_eq!(
        route("models = [\n\"ok\",\n\"[a\", ]\nprovider = \"a\""),
        "t.toml:8: routes[0].models[1]: must not contain brackets, braces or backslashes: a glob has only `*` and `?`"
    );
}

#[test]
fn tenants() {
    let id = "must be 1 to 64 letters, digits, `.`, `_`, `-`, `@` or `:`, beginning with a letter or digit";
    for bad in ["", "a b", "../x", "é", "-a", &"x".repeat(65)] {
        let text = format!("[[tenants]]\nid = \"{bad}\"\n{PROVIDER}");
        assert_eq!(problems(&text), format!("t.toml:2: tenants[0].id: {id}"));
    }
    let line = |line: &str| problems(&format!("[[tenants]]\nid = \"t\"\n{line}\n{PROVIDER}"));
    assert_eq!(
        line("requests_per_minut = 1"),
        "t.toml:3: tenants[0].requests_per_minut: unknown field; the nearest known one is `requests_per_minute`"
    );
    assert_eq!(
        line("tokens_per_day = -1"),
        "t.toml:3: tenants[0].tokens_per_day: must be from 0 to 10000000000, not -1"
    );
    assert_eq!(
        line("tokens_per_day = 10_000_000_001"),
        "t.toml:3: tenants[0].tokens_per_day: must be from 0 to 10000000000, not 10000000001"
    );
    assert_eq!(line("tokens_per_day = 10_000_000_000"), "accepted");
    assert_eq!(line("tokens_per_day = 1\ntokens_per_day = 2"), "t.toml:4: not TOML: duplicate key");
    assert_eq!(
        problems(&format!("[[tenants]]\nid = \"t\"\n[[tenants]]\nid = \"t\"\n{PROVIDER}")),
        "t.toml:4: tenants[1].id: this id is already that of tenants[0].id (line 2)"
    );
}

#[test]
fn budgets() {
    let budget =
        |lines: &str| problems(&format!("[[tenants]]\nid = \"t\"\n[[tenants.budgets]]\n{lines}\n{PROVIDER}"));
    let limits = [
        ("-1", "must not be negative"),
        ("\"-0.5\"", "must not be negative"),
        ("0.0000001", "must not have more than 6 digits after the point"),
        ("1e3", "must be an amount in USD such as 500, 0.25 or \"0.25\""),
        ("inf", "must be an amount in USD such as 500, 0.25 or \"0.25\""),
        ("nan", "must be an amount in USD such as 500, 0.25 or \"0.25\""),
        ("\"$5\"", "must be an amount in USD such as 500, 0.25 or \"0.25\""),
        ("true", "must be an amount in USD, not true or false"),
        ("0x10", "must be an amount in USD, not an integer"),
        ("9_007_199_254.740_992", "must not be above 9007199254.740991"),
        ("9_007_199_255", "must not be above 9007199254.740991"),
    ];
    for (limit, expected) in limits {
        let text = format!("window = \"day\"\nlimit_usd = {limit}");
        assert_eq!(
            budget(&text),
            format!("t.toml:5: tenants[0].budgets[0].limit_usd: {expected}"),
            "{limit}"
        );
    }
    for limit in ["0", "0.0", "\"0\"", "1_000.000_001", "9_007_199_254.740_991"] {
        assert_eq!(budget(&format!("window = \"day\"\nlimit_usd = {limit}")), "accepted", "{limit}");
    }
    let lines = [
        (
            "window = \"year\"",
            "window: must be one of minute, hour, day, week, month, total, session, not \"year\"",
        ),
        ("window = \"day\"\nmode = \"off\"", "mode: must be one of hard, soft, not \"off\""),
        (
            "window = \"day\"\nunpriced = \"ignore\"",
            "unpriced: must not be laxer than `pricing.unpriced` (which is \"warn\" if it is left out)",
        ),
    ];
    for (lines, expected) in lines {
        let line = 4 + lines.matches('\n').count();
        let text = format!("{lines}\nlimit_usd = 1");
        assert_eq!(budget(&text), format!("t.toml:{line}: tenants[0].budgets[0].{expected}"), "{lines}");
    }
    assert_eq!(
        budget(
            "window = \"day\"\nlimit_usd = 1\n[[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = 2\nmode = \"soft\""
        ),
        "t.toml:7: tenants[0].budgets[1].window: this window is already that of tenants[0].budgets[0].window (line 4)"
    );
}

#[test]
fn keys() {
    let key = |lines: &str| {
        problems(&format!("[[tenants]]\nid = \"t\"\n[[tenants.keys]]\nid = \"k\"\n{lines}\n{PROVIDER}"))
    };
    let hash = "must be `sha256:` and 64 hexadecimal digits: `tollgate key new` prints it";
    let multibyte = "é".repeat(32);
    for bad in [
        "SENTINEL",
        "sha256:",
        "sha256:00",
        &format!("sha256:{}", "+0".repeat(32)),
        &format!("sha256:{multibyte}"),
    ] {
        assert_eq!(
            key(&format!("hash = \"{bad}\"")),
            format!("t.toml:5: tenants[0].keys[0].hash: {hash}"),
            "{bad}"
        );
    }
    let good = format!("hash = \"sha256:{}\"", "0a".repeat(32));
    assert_eq!(
        key(""),
        "t.toml:3: tenants[0].keys[0].hash: is missing: `hash` (or `key_env`) says which key this is"
    );
    assert_eq!(
        key(&format!("{good}\nkey_env = \"DEV_KEY\"")),
        "t.toml:6: tenants[0].keys[0].key_env: `hash` is there too: only one of them is possible"
    );
    assert_eq!(
        key("key_env = \"NOPE\""),
        "t.toml:5: tenants[0].keys[0].key_env: the environment variable NOPE is not set"
    );
    assert_eq!(
        key(&format!("{good}\nattributes = {{ taem = \"ml\" }}")),
        "t.toml:6: tenants[0].keys[0].attributes.taem: unknown attribute; the nearest known one is `team`, all are org, \
         team, project, user, customer, business_unit"
    );
    assert_eq!(
        key(&format!(
            "{good}\nattributes = {{ team = \"ml\" }}\ncaller_attributes = [\"user\", \"team\", \"usr\", \"user\", 1]"
        )),
        "t.toml:7: tenants[0].keys[0].caller_attributes[1]: is fixed by `attributes`: a call cannot set it\n\
         t.toml:7: tenants[0].keys[0].caller_attributes[2]: unknown attribute; the nearest known one is `user`, all are \
         org, team, project, user, customer, business_unit\n\
         t.toml:7: tenants[0].keys[0].caller_attributes[3]: is there twice\n\
         t.toml:7: tenants[0].keys[0].caller_attributes[4]: must be a string, not an integer"
    );
    assert_eq!(
        key(&format!("{good}\nattributes = {{ team = 1, user = \"\" }}")),
        "t.toml:6: tenants[0].keys[0].attributes.team: must be a string, not an integer\n\
         t.toml:6: tenants[0].keys[0].attributes.user: must be 1 to 128 characters, none of them a control character"
    );
    assert_eq!(
        key(&format!("{good}\n[[tenants]]\nid = \"u\"\n[[tenants.keys]]\nid = \"k\"\n{good}")),
        "t.toml:9: tenants[1].keys[0].id: this id is already that of tenants[0].keys[0].id (line 4)\n\
         t.toml:10: tenants[1].keys[0].hash: this key is already that of tenants[0].keys[0].hash (line 5)"
    );
}

#[test]
fn all_problems_are_reported_at_once_in_the_order_of_the_file() {
    let text = "[server]\nlisten = 1\n[store]\nkind = \"x\"\n[[tenants]]\nid = \"\"\n[[tenants.budgets]]\nwindow = 1\n";
    let lines: Vec<_> =
        problems(text).lines().map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(" ")).collect();
    let expected = [
        "t.toml:1 providers",
        "t.toml:2 server.listen",
        "t.toml:4 store.kind",
        "t.toml:6 tenants[0].id",
        "t.toml:7 tenants[0].budgets[0].limit_usd",
        "t.toml:8 tenants[0].budgets[0].window",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn bad_syntax_is_reported_with_its_lines_and_nothing_else() {
    assert_eq!(problems("[server\nlisten = 1\n"), "t.toml:1: not TOML: unclosed table, expected `]`");
    assert_eq!(
        problems("\n\nx = \n"),
        "t.toml:3: not TOML: string values must be quoted, expected literal string"
    );
}

/// Lines that say something, right or wrong, so that random texts get past the syntax.
fn line() -> impl Strategy<Value = String> {
    let name = "server|listen|providers|tenants|tenants\\.keys|tenants\\.budgets|id|hash|limit_usd|window|models|[a-z]{1,3}";
    let value = prop_oneof![
        "\"[^\"\\\\\n]{0,8}\"",
        "-?[0-9]{1,20}",
        "[0-9]{1,4}\\.[0-9]{1,9}",
        "true",
        "\\[\"a\\*\"\\]",
        "\\{ team = 1 \\}"
    ];
    prop_oneof![
        (name, value).prop_map(|(name, value)| format!("{name} = {value}")),
        name.prop_map(|name| format!("[[{name}]]")),
        name.prop_map(|name| format!("[{name}]")),
    ]
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = parse(&text);
    }

    #[test]
    fn no_document_panics_and_every_problem_has_a_line(lines in proptest::collection::vec(line(), 0..30)) {
        let text = lines.join("\n");
        if let Err(problems) = parse(&text) {
            for problem in problems.lines() {
                let line = problem.split(':').nth(1).and_then(|line| line.parse::<usize>().ok());
                prop_assert!(line.is_some_and(|line| (1..=lines.len().max(1)).contains(&line)), "{problem}");
            }
            prop_assert!(!problems.is_empty() && !problems.contains("SENTINEL"));
        }
    }
}
