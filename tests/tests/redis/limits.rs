//! Limits that three proxies share.

use tollgate_limiter::DurationMs;
use tollgate_tests::{PATIENCE, count, parallel};

use crate::deployment::{Deployment, MONDAY, body, tenant};

const DAY_MS: u64 = 86_400_000;

#[tokio::test]
async fn c05_three_proxies_on_one_redis_admit_50_of_180() {
    let deployment = Deployment::on_monday(&tenant("requests_per_minute = 50"));
    let statuses = parallel(&deployment.all(), 180, &body(10), &[]).await;
    assert_eq!((count(&statuses, 200), count(&statuses, 429)), (50, 130));
}

#[tokio::test]
async fn three_a_second_over_three_proxies_admit_50_49_49_49() {
    let deployment = Deployment::on_monday(&tenant("requests_per_minute = 50"));
    let clock = deployment.clock.clone().unwrap();
    let mut admitted_ms: Vec<u64> = Vec::new();
    for call in 0..4 * 180_u64 {
        let at_ms = call * 1_000 / 3;
        clock.set(MONDAY.saturating_add(DurationMs::new(at_ms)));
        if deployment.call(usize::try_from(call % 3).unwrap(), &[]).await.status == 200 {
            admitted_ms.push(at_ms);
        }
    }
    let within = |start: u64| admitted_ms.iter().filter(|at| (start..start + 60_000).contains(at)).count();
    assert_eq!([0, 60_000, 120_000, 180_000].map(within), [50, 49, 49, 49]);
    assert_eq!(admitted_ms.iter().map(|start| within(*start)).max(), Some(50));
}

/// SPEC §4's reference case, over three proxies on one Redis.
#[tokio::test]
async fn worst_case_overspend_over_one_redis_is_44_admitted_89_012_spent_89_200_bound() {
    let rules = "[[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = \"0.01\"\nmode = \"hard\"";
    let deployment = Deployment::on_monday(&tenant(rules));
    assert_eq!(deployment.call(0, &["x-mock-status: 500"]).await.status, 500);
    let input = deployment.gateways[0].usage_events()[0]["estimated_input_tokens"].as_u64().unwrap();
    let statuses = parallel(
        &deployment.all(),
        120,
        &body(223 - input),
        // The answers wait until every request has been decided.
        &["x-mock-input-tokens: 23", "x-mock-output-tokens: 2000", "x-mock-first-byte-delay-ms: 3000"],
    )
    .await;
    assert_eq!((count(&statuses, 200), count(&statuses, 402)), (44, 76));
    let day = deployment.at_rest().await;
    assert_eq!(day.spent.units(), 89_012);
    assert!(day.spent.units() <= 10_000 + 44 * (2_023 - 223), "the bound is 89,200");
    assert_eq!(deployment.cost_pico_usd(), 89_012_000_000);
}

/// The test begins on 30 November.
#[tokio::test]
async fn c39_a_month_ends_in_redis_for_all_copies_at_once() {
    let rules = "[[tenants.budgets]]\nwindow = \"month\"\nlimit_usd = \"0.0002\"\nmode = \"hard\"";
    let deployment = Deployment::on_monday(&tenant(rules));
    let clock = deployment.clock.clone().unwrap();
    let month = || deployment.gateways[0].counter("t", "micro_usd", "month", 200);
    let statuses = parallel(&deployment.all(), 9, &body(100), &["x-mock-output-tokens: 100"]).await;
    assert_eq!((count(&statuses, 200), count(&statuses, 402)), (1, 8));
    let settled = async {
        while month().await.held.get() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, settled).await.expect("it is settled");
    clock.set(MONDAY.saturating_add(DurationMs::new(DAY_MS - 1)));
    assert_eq!(deployment.call(1, &[]).await.status, 402);
    let before = month().await;
    assert!(before.spent.units() > 100);
    assert_eq!(before.resets_at, Some(MONDAY.saturating_add(DurationMs::new(DAY_MS))));
    clock.set(MONDAY.saturating_add(DurationMs::new(DAY_MS)));
    let after = month().await;
    assert_eq!((after.spent.units(), after.held.get(), after.remaining.get()), (0, 0, 200));
    assert_eq!(deployment.call(2, &[]).await.status, 200);
}
