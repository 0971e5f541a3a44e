//! Servers that ask who speaks to them: TLS, users with passwords, sentinels with passwords of their own.

#![expect(
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use tollgate_limiter::{
    Amount, CounterKey, Enforcement, Entry, Limit, Period, Plan, ReservationId, Rule, Verdict,
};
use tollgate_store::{Attempt, Store, StoreError};
use tollgate_store_redis::{RedisStore, Settings, testing::RedisServer};

/// Tells the inner test where its server is, and why there is no connection to it, if there is to be none.
const INNER_URL: &str = "TOLLGATE_TEST_REDIS_URL";
const INNER_REASON: &str = "TOLLGATE_TEST_REDIS_REASON";

/// Longer than a failed attempt to connect takes.
const WHILE: Duration = Duration::from_secs(3);

fn settings(url: String) -> Settings {
    Settings { url, prefix: "tollgate".to_owned(), timeout: Duration::from_millis(1_000) }
}

/// One decision, or that there is no connection.
async fn decide(url: &str) -> Result<Verdict, StoreError> {
    let store = RedisStore::connect(&settings(url.to_owned())).unwrap();
    // Whether there is one shows in the call.
    let _ = tokio::time::timeout(WHILE, store.connected()).await;
    let (key, rule) = (CounterKey::new("acme", "usd"), Rule::Calendar(Period::Day));
    let limit = Arc::new(Limit { key, rule, amount: Amount::new(10), enforcement: Enforcement::Hard });
    let plan = Plan::new(vec![Entry { limit, charge: Amount::new(1) }]).unwrap();
    store.reserve(ReservationId::new(1), Arc::new(plan), Attempt::First).await
}

fn is_admitted(answer: &Result<Verdict, StoreError>) -> bool {
    matches!(answer, Ok(Verdict::Admitted(_)))
}

/// Gives a user all that the store needs (behind a sentinel `ROLE` too), and takes everything from those who do not say who they are.
fn close(server: &RedisServer) {
    let rights =
        ["ACL", "SETUSER", "gate", "on", ">secret", "~tollgate:*", "+@all", "-@dangerous", "+info", "+role"];
    server.command(&rights).unwrap();
    server.command(&["ACL", "SETUSER", "default", "off"]).unwrap();
}

/// A server for TLS that shows the certificate in a file, and the port for that.
fn start_with_tls(certificate: &str, key: &str) -> (RedisServer, u16) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let files = ["--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", certificate];
    let port_for_tls = port.to_string();
    let options = ["--save", "", "--tls-port", &port_for_tls, "--tls-auth-clients", "no"];
    (RedisServer::start_with(&[options.as_slice(), &files].concat()).unwrap(), port)
}

/// The names of files with the certificate and the key of `localhost`.
fn certify(folder: &Path, name: &str, change: impl FnOnce(&mut rcgen::CertificateParams)) -> [String; 2] {
    let mut about = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    change(&mut about);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = about.self_signed(&key).unwrap();
    [("crt", certificate.pem()), ("key", key.serialize_pem())].map(|(ending, text)| {
        let file = folder.join(format!("{name}.{ending}"));
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    })
}

/// The authorities that are trusted are those of the platform, or of `SSL_CERT_FILE`: so the store runs in a process of
/// its own, with and without it.
#[tokio::test]
async fn over_tls_a_user_is_known_by_its_password_and_a_server_by_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key] = certify(folder.path(), "redis", |_| ());
    let (server, port) = start_with_tls(&certificate, &key);
    close(&server);
    let of_old = |about: &mut rcgen::CertificateParams| about.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let [expired, key] = certify(folder.path(), "expired", of_old);
    let (_old, port_of_old) = start_with_tls(&expired, &key);
    // As `openssl req -x509` makes one.
    let of_authority = |about: &mut rcgen::CertificateParams| {
        about.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    };
    let [authority, key] = certify(folder.path(), "authority", of_authority);
    let (_authority, port_of_authority) = start_with_tls(&authority, &key);

    let inner = |url: String, trusted: Option<&str>, reason: &str| {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "inner_decision_over_tls", "--ignored"]);
        command.env(INNER_URL, &url).env(INNER_REASON, reason);
        if let Some(trusted) = trusted {
            command.env("SSL_CERT_FILE", trusted);
        }
        (url, command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    };
    let of = |user: &str, host: &str, port: u16| format!("rediss://{user}@{host}:{port}/0");
    let trusted = Some(certificate.as_str());
    // All at once: those that fail wait for a connection.
    let all = [
        inner(of("gate:secret", "localhost", port), trusted, ""),
        inner(of("gate:guessed", "localhost", port), trusted, "WRONGPASS"),
        inner(of("gate:secret", "localhost", port), None, "invalid peer certificate: UnknownIssuer"),
        inner(of("gate:secret", "127.0.0.1", port), trusted, "invalid peer certificate: NotValidForName"),
        inner(of("u:secret", "localhost", port_of_old), Some(&expired), "invalid peer certificate: Expired"),
        inner(
            of("u:secret", "localhost", port_of_authority),
            Some(&authority),
            "the certificate of an authority",
        ),
        inner(of("gate:secret", "localhost", server.port()), trusted, "perhaps it has no TLS on this port"),
        inner(format!("redis://u:p@localhost:{port}/0"), None, "perhaps it asks for TLS on this port"),
        inner("redis://no.host.invalid/0".to_owned(), None, "failed to lookup address"),
    ];
    for (url, mut inner) in all {
        assert!(inner.wait().unwrap().success(), "{url}");
    }
}

/// Run by the test above.
#[tokio::test]
#[ignore = "needs the server of another test"]
async fn inner_decision_over_tls() {
    let answer = decide(&env::var(INNER_URL).unwrap()).await;
    let reason = env::var(INNER_REASON).unwrap();
    match &answer {
        Err(StoreError::NotApplied(why)) => assert!(!reason.is_empty() && why.contains(&reason), "{why}"),
        answer => assert!(reason.is_empty() && is_admitted(answer), "{answer:?}"),
    }
}

#[tokio::test]
async fn sentinels_and_the_server_have_users_and_passwords_of_their_own() {
    let server = RedisServer::start().unwrap();
    server.command(&["ACL", "SETUSER", "watch", "on", ">watching", "+@all", "~*", "&*"]).unwrap();
    close(&server);
    let lines = "sentinel auth-user main watch\nsentinel auth-pass main watching\nrequirepass guarded\n\
                 user finder on >finding +@all ~* &*";
    let sentinel = RedisServer::start_sentinel_with(&server, lines).unwrap();
    let url = |user: &str, query: &str| {
        format!("redis-sentinel://{user}@127.0.0.1:{}/0?sentinelServiceName=main{query}", sentinel.port())
    };
    let with_user = url("gate:secret", "&sentinelUsername=finder&sentinelPassword=finding");
    let answer = decide(&with_user).await;
    assert!(is_admitted(&answer), "{answer:?}");
    let answer = decide(&url("gate:secret", "&sentinelPassword=guarded")).await;
    assert!(is_admitted(&answer), "{answer:?}");
    let wrong = [
        url("gate:secret", ""),
        url("gate:secret", "&sentinelUsername=finder&sentinelPassword=guessed"),
        url("gate:guessed", "&sentinelPassword=guarded"),
    ];
    // All at once: each waits for a connection.
    for answer in wrong.map(|url| tokio::spawn(async move { decide(&url).await })) {
        assert!(matches!(answer.await.unwrap(), Err(StoreError::NotApplied(_))));
    }
}
