//! A configuration of ten thousand tenants. Alone in its process: it measures memory.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a broken assumption ends the test"
)]

use std::{fmt::Write, path::Path};

use tollgate_config::KeyHash;
use tollgate_store::{Clock, SystemClock};
use tollgate_tests::{GatewayOptions, setup};

const TENANTS: usize = 10_000;

/// Resident memory of this process.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = statm.split(' ').nth(1).expect("a second field").parse().expect("a number");
    pages * 4_096
}

/// Five limits for each tenant: three of its own, one for its team, one for each of its users.
fn config() -> String {
    let mut text = String::from("[[limits]]\nscope = \"user\"\nrequests_per_minute = 10\n");
    for tenant in 0..TENANTS {
        write!(
            text,
            "[[tenants]]\nid = \"tenant-{tenant}\"\nrequests_per_minute = 600\ntokens_per_minute = 150000\n\
             [[tenants.budgets]]\nwindow = \"month\"\nlimit_usd = 500\n\
             [[tenants.keys]]\nid = \"key-{tenant}\"\nkey_env = \"KEY_{tenant}\"\n\
             attributes = {{ team = \"team-{tenant}\", user = \"user-{tenant}\" }}\n\
             [[limits]]\nscope = \"team\"\nid = \"team-{tenant}\"\nmax_concurrent = 20\n",
        )
        .expect("memory");
    }
    text
}

/// The bounds are for a build without optimisation on a busy machine; `--nocapture` shows the figures.
#[test]
fn ten_thousand_tenants_with_five_limits_each_load_fast_and_small() {
    let options = GatewayOptions { config: config(), ..GatewayOptions::default() };
    let clock = SystemClock::new();
    let (before, began) = (resident_bytes(), clock.elapsed());
    let setup = setup(&options, "http://127.0.0.1:1", Path::new("/nowhere"));
    let (took, grown) = (clock.elapsed().saturating_sub(began), resident_bytes().saturating_sub(before));
    println!("{TENANTS} tenants: {} ms, {} MB", took.as_millis(), grown / 1_000_000);
    assert_eq!(setup.key_limits(&KeyHash::of("KEY_9999")).expect("the last key").len(), 5);
    assert!(took.as_secs() < 20, "{took:?}");
    assert!(grown < 150_000_000, "{grown} bytes");
}
