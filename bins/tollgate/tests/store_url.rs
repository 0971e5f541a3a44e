//! URLs of a store that cannot be used: what is said of them, and what the program exits with.
#![allow(clippy::expect_used, reason = "in a test, a broken assumption ends the test")]

use std::{fs, path::Path, process::Command};

/// A refused input or a failed check, and a bad configuration.
const CHECKED: i32 = 1;
const SERVED: i32 = 78;

const CONFIG: &str = "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n\
    [[providers]]\nid = \"anthropic\"\nprotocol = \"anthropic\"\nbase_url = \"http://127.0.0.1:1\"\napi_key_env = \"KEY\"\n\
    [[tenants]]\nid = \"t\"\n[[tenants.keys]]\nid = \"k\"\nkey_env = \"KEY\"\n[store]\nkind = \"redis\"\n";

/// What a command says of a configuration in which the store is `url`, as it stands there or in the environment, and
/// what it exits with.
fn said(folder: &Path, command: &str, url: &str, is_in_environment: bool) -> (String, Option<i32>) {
    let file = folder.join("tollgate.toml");
    let line = if is_in_environment { "url_env = \"URL\"".to_owned() } else { format!("url = \"{url}\"") };
    fs::write(&file, format!("{CONFIG}{line}\n")).expect("written");
    let mut program = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    program.args([command, "--config"]).arg(&file).env("KEY", "key_of_t").env("URL", url);
    let output = program.env("SSL_CERT_FILE", folder.join("no.pem")).output().expect("the program runs");
    let said = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&said).into_owned(), output.status.code())
}

#[test]
fn a_url_of_a_store_that_cannot_be_used_is_a_bad_configuration_and_its_password_is_not_printed() {
    let folder = tempfile::tempdir().expect("a folder");
    for (url, says) in [
        ("redis-cluster://u:s3cr3t@127.0.0.1:1?node=u:s3cr3t@127.0.0.1:2", "`node=host:port`"),
        ("redis-sentinel://u:s3cr3t@one:1?sentinelServiceName=main&node=u:s3cr3t@two:2", "`node=host:port`"),
        ("redis-cluster://u:s3cr3t@127.0.0.1:1?node=s3cr3t", "`node=host:port`"),
        ("redis://u:s3cr3t@127.0.0.1:99999", "no number from 1 to 65535"),
        ("rediss://u:s3cr3t@127.0.0.1", "certificates"),
        ("http://u:s3cr3t@127.0.0.1", "redis://"),
    ] {
        for is_in_environment in [false, true] {
            for (command, code) in [("check", CHECKED), ("serve", SERVED)] {
                let (said, exited) = said(folder.path(), command, url, is_in_environment);
                assert_eq!(exited, Some(code), "{command} {url}: {said}");
                assert!(said.contains(says), "{command} {url}: {said}");
                assert!(!said.contains("s3cr3t"), "{command} {url}: {said}");
            }
        }
    }
}

#[test]
fn certificates_that_cannot_be_read_are_not_the_url_s_fault() {
    let folder = tempfile::tempdir().expect("a folder");
    let (said, _) = said(folder.path(), "check", "rediss://127.0.0.1", false);
    assert!(said.contains("SSL_CERT_FILE") && said.contains("no.pem"), "{said}");
    assert!(!said.contains("store.url"), "{said}");
}
