//! A Redis that knows nothing: new, emptied, or come back without its data.

use std::time::Duration;

use tollgate_store_redis::testing::RedisServer;
use tollgate_tests::{Client, PATIENCE, count, eventually, parallel};

use crate::deployment::{Deployment, body, tenant};

/// A budget of nine calls and some, of a tenant.
fn config() -> String {
    tenant("[[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = \"0.001\"\nmode = \"hard\"")
}

/// Waits until hard budgets are decided by all copies.
async fn decided(deployment: &Deployment) {
    let decided = async {
        for copy in 0..3 {
            while deployment.call(copy, &["x-mock-status: 500"]).await.status == 503 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    tokio::time::timeout(PATIENCE, decided).await.expect("hard budgets are decided");
}

/// Spends half of the budget, lets `forget` make Redis forget it, and spends what is left of it.
async fn forgetting(mut deployment: Deployment, forget: impl FnOnce(&mut RedisServer)) {
    decided(&deployment).await;
    let used = ["x-mock-input-tokens: 10", "x-mock-output-tokens: 90"];
    for copy in 0..4 {
        assert_eq!(deployment.call(copy % 3, &used).await.status, 200);
    }
    assert_eq!(deployment.at_rest().await.spent.units(), 400);
    forget(&mut deployment.server);
    // Refused until all three copies have told what they spent, and never decided before.
    decided(&deployment).await;
    assert_eq!(deployment.at_rest().await.spent.units(), 400, "each its own share, and once");
    let used = ["x-mock-input-tokens: 10", "x-mock-output-tokens: 90"];
    let mut passed = 4;
    for call in 0..12 {
        passed += usize::from(deployment.call(call % 3, &used).await.status == 200);
    }
    assert!((9..=10).contains(&passed), "{passed} calls of a tenth each");
    let day = deployment.at_rest().await;
    assert_eq!(day.spent.as_millionths(), deployment.cost_pico_usd());
    assert!(day.spent.units() <= 1_000);
}

#[tokio::test]
async fn an_emptied_redis_refuses_hard_budgets_until_it_knows_what_was_spent() {
    let deployment = Deployment::guarded(&config(), RedisServer::start().unwrap());
    forgetting(deployment, |server| drop(server.command(&["FLUSHALL"]).unwrap())).await;
}

#[tokio::test]
async fn a_redis_that_comes_back_without_its_data_refuses_hard_budgets_until_it_knows_what_was_spent() {
    let deployment = Deployment::guarded(&config(), RedisServer::start().unwrap());
    forgetting(deployment, |server| server.restart().unwrap()).await;
}

/// Calls that are open when Redis forgets everything end before, while and after it is told what was spent: each counts
/// once, in what is told or by itself.
#[tokio::test]
async fn calls_that_end_while_redis_is_told_what_was_spent_count_once() {
    const CALLS: usize = 60;
    let rules = "[[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = 1\nmode = \"hard\"";
    let deployment = Deployment::guarded(&tenant(rules), RedisServer::start().unwrap());
    decided(&deployment).await;
    for _ in 0..3 {
        let sent =
            || -> u64 { deployment.gateways.iter().map(|gateway| gateway.mock.counts().requests).sum() };
        let before = sent();
        let call = |number: usize| {
            let client = Client::new(deployment.gateways[number % 3].address());
            let delay = format!("x-mock-first-byte-delay-ms: {}", 150 + 15 * number);
            tokio::spawn(async move {
                let headers = ["x-mock-input-tokens: 10", "x-mock-output-tokens: 90", &delay];
                client.post("/v1/messages", "key_of_t", &body(100), &headers).await.status
            })
        };
        let calls: Vec<_> = (0..CALLS).map(call).collect();
        eventually("all of them are sent", || sent() == before + CALLS as u64).await;
        deployment.server.command(&["FLUSHALL"]).unwrap();
        for call in calls {
            assert_eq!(call.await.unwrap(), 200);
        }
        decided(&deployment).await;
        assert_eq!(deployment.at_rest().await.spent.as_millionths(), deployment.cost_pico_usd());
    }
}

/// Two of three copies are there: what the third has spent is not known.
#[tokio::test]
async fn a_copy_that_is_missing_keeps_hard_budgets_shut_and_lets_the_rest_pass() {
    let rules = "[[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = 1\nmode = \"hard\"";
    let soft = "[[tenants]]\nid = \"u\"\nrequests_per_minute = 300\n[[tenants.keys]]\nid = \"k2\"\nkey_env = \"key_of_u\"\n";
    let mut deployment =
        Deployment::guarded(&format!("{}{soft}", tenant(rules)), RedisServer::start().unwrap());
    decided(&deployment).await;
    // Its connection ends with it.
    drop(deployment.gateways.pop());
    drop(deployment.stores.pop());
    deployment.server.command(&["FLUSHALL"]).unwrap();
    eventually("the others have told", || {
        deployment.server.command(&["HLEN", "tollgate:copies"]).unwrap() == "2"
    })
    .await;
    let statuses = parallel(&deployment.all(), 6, &body(10), &[]).await;
    assert_eq!(count(&statuses, 503), 6);
    let client = tollgate_tests::Client::new(deployment.gateways[0].address());
    assert_eq!(client.post("/v1/messages", "key_of_u", &body(10), &[]).await.status, 200);
    assert!(!deployment.status(0).available);
}
