//! Servers that ask who speaks to them: TLS, users with passwords, sentinels with passwords of their own.

#![expect(
    clippy::unwrap_used,
    reason = "a test may fail; helpers beside test functions are no tests to clippy"
)]

use std::{
    env, fs,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use tollgate_limiter::{
    Amount, CounterKey, Enforcement, Entry, Limit, Period, Plan, ReservationId, Rule, Verdict,
};
use tollgate_store::{Attempt, Store, StoreError};
use tollgate_store_redis::{RedisStore, Settings, testing::RedisServer};

/// Tells the inner test where its server is.
const INNER_URL: &str = "TOLLGATE_TEST_REDIS_URL";

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

/// The authorities that are trusted are those of the platform, or of `SSL_CERT_FILE`: so the store runs in a process of
/// its own, once with and once without it.
#[tokio::test]
async fn over_tls_a_user_is_known_by_its_password_and_a_server_by_its_certificate() {
    let authority = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("redis.crt"), folder.path().join("redis.key"));
    fs::write(&certificate, authority.cert.pem()).unwrap();
    fs::write(&key, authority.signing_key.serialize_pem()).unwrap();
    let [certificate, key] = [&certificate, &key].map(|path| path.to_str().unwrap());
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = RedisServer::start_with(&[
        "--save",
        "",
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        certificate,
        "--tls-key-file",
        key,
        "--tls-ca-cert-file",
        certificate,
        "--tls-auth-clients",
        "no",
    ])
    .unwrap();
    close(&server);

    let inner = |user: &str, trusts: bool| {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "inner_decision_over_tls", "--ignored"]);
        command.env(INNER_URL, format!("rediss://{user}@localhost:{port}/0"));
        if trusts {
            command.env("SSL_CERT_FILE", certificate);
        }
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    // All at once: those that fail wait for a connection.
    let [mut right, mut password, mut certificate] =
        [inner("gate:secret", true), inner("gate:guessed", true), inner("gate:secret", false)];
    assert!(right.wait().unwrap().success());
    assert!(!password.wait().unwrap().success(), "a wrong password");
    assert!(!certificate.wait().unwrap().success(), "a certificate nobody vouches for");
}

/// Run by the test above.
#[tokio::test]
#[ignore = "needs the server of another test"]
async fn inner_decision_over_tls() {
    let answer = decide(&env::var(INNER_URL).unwrap()).await;
    assert!(is_admitted(&answer), "{answer:?}");
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
