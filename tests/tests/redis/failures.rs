//! Redis frozen, killed, made to forget scripts and connections, in the middle of traffic.

use std::{sync::Arc, time::Duration};

use tollgate_limiter::{Amount, Entry, Plan, ReservationId, Verdict};
use tollgate_store::{Attempt, Clock as _, Store as _, SystemClock};
use tollgate_store_redis::{Settings, testing::RedisServer};
use tollgate_tests::{Answer, Client, PATIENCE, count, eventually, parallel};

use crate::{
    deployment::{Deployment, body, tenant},
    lossy::{Lossy, Mode},
};

/// Tenant `t` has a hard budget, tenant `u` only a rate limit.
fn two_tenants() -> String {
    let budget = "[[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = 1\nmode = \"hard\"";
    let other = "[[tenants]]\nid = \"u\"\nrequests_per_minute = 300\n[[tenants.keys]]\nid = \"k2\"\nkey_env = \"key_of_u\"\n";
    format!("{}{other}", tenant(budget))
}

/// A call without a hard budget.
async fn call_of_u(deployment: &Deployment, copy: usize) -> Answer {
    Client::new(deployment.gateways[copy].address()).post("/v1/messages", "key_of_u", &body(100), &[]).await
}

/// Calls of `t` that are answered after the fault: one a copy and a second one.
fn begin_slow_calls(deployment: &Deployment) -> Vec<tokio::task::JoinHandle<Answer>> {
    let call = |copy: usize| {
        let client = Client::new(deployment.gateways[copy % 3].address());
        let slow = ["x-mock-first-byte-delay-ms: 1500"];
        tokio::spawn(async move { client.post("/v1/messages", "key_of_t", &body(100), &slow).await })
    };
    (0..6).map(call).collect()
}

/// How many calls have reached a provider.
fn sent(deployment: &Deployment) -> u64 {
    deployment.gateways.iter().map(|gateway| gateway.mock.counts().requests).sum()
}

/// Breaks Redis while calls are open, looks at what passes, repairs it, and looks at what was counted.
async fn outage(
    mut deployment: Deployment,
    fault: impl FnOnce(&mut RedisServer),
    repair: impl FnOnce(&mut RedisServer),
) {
    for copy in 0..3 {
        assert_eq!(deployment.call(copy, &[]).await.status, 200);
    }
    let slow = begin_slow_calls(&deployment);
    eventually("all of them are sent", || sent(&deployment) == 9).await;
    fault(&mut deployment.server);
    let clock = SystemClock::new();
    for round in 0..20 {
        let copy = round % 3;
        assert_eq!(call_of_u(&deployment, copy).await.status, 200, "without a hard budget it passes");
        let refused = deployment.call(copy, &[]).await;
        assert_eq!((refused.status, refused.header("retry-after")), (503, "5"));
        assert_eq!(refused.header("x-tollgate-reason"), "store_unavailable");
    }
    let took = clock.elapsed();
    assert!(took < Duration::from_secs(20) / 2, "40 calls took {took:?}: not each waits for a time-out");
    for copy in 0..3 {
        assert!(!deployment.status(copy).available);
        let ready = Client::new(deployment.gateways[copy].admin_address()).get("/readyz", &[]).await;
        assert_eq!((ready.status, ready.json()["store"].as_str()), (200, Some("unavailable")));
    }
    for call in slow {
        assert_eq!(call.await.unwrap().status, 200, "what was admitted goes on");
    }
    repair(&mut deployment.server);
    deployment.at_rest().await;
    for copy in 0..3 {
        assert_eq!(deployment.call(copy, &[]).await.status, 200);
        assert_eq!(deployment.status(copy).settlements_lost, 0);
    }
    books_agree(&deployment).await;
}

/// What Redis has counted is what the events say, and nothing is open.
async fn books_agree(deployment: &Deployment) {
    let day = deployment.at_rest().await;
    assert_eq!(day.spent.as_millionths(), deployment.cost_pico_usd());
}

#[tokio::test]
async fn c123_a_frozen_redis_refuses_hard_budgets_only_and_loses_nothing() {
    let deployment = Deployment::in_earnest(&two_tenants());
    outage(deployment, |server| server.freeze().unwrap(), |server| server.thaw().unwrap()).await;
}

#[tokio::test]
async fn a_redis_that_is_killed_and_comes_back_with_its_data_has_counted_right() {
    let options = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""];
    let deployment = Deployment::with_server(&two_tenants(), RedisServer::start_with(&options).unwrap());
    outage(deployment, RedisServer::kill, |server| server.restart().unwrap()).await;
}

#[tokio::test]
async fn c38_a_redis_that_can_be_read_and_not_written_refuses_hard_budgets() {
    let config = two_tenants();
    let send = |server: &RedisServer, words: &[&str]| drop(server.command(words).unwrap());
    let full = |server: &mut RedisServer| send(server, &["CONFIG", "SET", "maxmemory", "1"]);
    let free = |server: &mut RedisServer| send(server, &["CONFIG", "SET", "maxmemory", "0"]);
    outage(Deployment::in_earnest(&config), full, free).await;
    let replica = |server: &mut RedisServer| send(server, &["REPLICAOF", "127.0.0.1", "1"]);
    let primary = |server: &mut RedisServer| send(server, &["REPLICAOF", "NO", "ONE"]);
    outage(Deployment::in_earnest(&config), replica, primary).await;
}

/// A copy that dies with calls open leaves them charged as they were reserved. No other copy notices.
#[tokio::test]
async fn c18_a_copy_that_dies_takes_no_more_than_it_had_reserved() {
    let config = tenant("[[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = \"0.01\"\nmode = \"hard\"");
    let mut deployment = Deployment::in_earnest(&config);
    let dying = deployment.stores.remove(2);
    let store = dying.store();
    let key = tollgate_tests::counter("t", "micro_usd", "day", 10_000);
    let entry = Entry { limit: Arc::new(key), charge: Amount::new(100) };
    let plan = Arc::new(Plan::new(vec![entry]).unwrap());
    for id in 0..50 {
        let verdict = store.reserve(ReservationId::new(id), Arc::clone(&plan), Attempt::First).await.unwrap();
        assert!(matches!(verdict, Verdict::Admitted(_)));
    }
    drop((store, dying, deployment.gateways.remove(2)));
    // Half of the budget is the dead copy's; the others have the rest.
    let statuses =
        parallel(&deployment.all(), 60, &body(100), &["x-mock-input-tokens: 1", "x-mock-output-tokens: 100"])
            .await;
    let (passed, refused) = (count(&statuses, 200), count(&statuses, 402));
    assert_eq!(passed + refused, 60);
    let day = deployment.at_rest_with(5_000).await;
    assert!(passed > 0 && day.spent.units() <= 5_000 && day.spent.units() > 3_500, "{day:?}");
}

#[tokio::test]
async fn scripts_and_connections_that_redis_drops_cost_no_call_its_budget() {
    let deployment = Deployment::in_earnest(&two_tenants());
    for round in 0..12 {
        let words: &[&str] =
            if round % 2 == 0 { &["SCRIPT", "FLUSH"] } else { &["CLIENT", "KILL", "TYPE", "normal"] };
        let (all, body) = (deployment.all(), body(100));
        let statuses = parallel(&all, 9, &body, &[]);
        let (statuses, dropped) = tokio::join!(statuses, async { deployment.server.command(words) });
        dropped.unwrap();
        assert_eq!(count(&statuses, 200) + count(&statuses, 503), 9, "{statuses:?}");
    }
    books_agree(&deployment).await;
}

/// Of answers on their way from Redis one in ten is lost, and its connection with it, for each copy.
#[tokio::test]
async fn c32_lost_answers_count_once() {
    count_once(Mode::LoseAnswers { one_in: 10 }).await;
}

/// Of questions on their way to Redis one in ten is lost.
#[tokio::test]
async fn lost_questions_count_once_or_never() {
    count_once(Mode::LoseQuestions { one_in: 10 }).await;
}

/// One in sixty is later than anybody waits, and all behind it.
#[tokio::test]
async fn late_answers_count_once() {
    count_once(Mode::DelayAnswers { one_in: 60 }).await;
}

async fn count_once(mode: Mode) {
    let (lossy, deployment) = lossy_deployment();
    lossy.set(mode);
    let (mut rounds, mut passed) = (0, 0);
    // After an error all is refused for a while, and quickly.
    let enough = async {
        while rounds < 25 || passed <= 9 {
            let statuses = parallel(&deployment.all(), 9, &body(100), &[]).await;
            assert_eq!(count(&statuses, 200) + count(&statuses, 503), 9, "{statuses:?}");
            (rounds, passed) = (rounds + 1, passed + count(&statuses, 200));
        }
    };
    tokio::time::timeout(PATIENCE, enough).await.expect("calls pass again");
    lossy.set(Mode::Pass);
    books_agree(&deployment).await;
    let events: usize = deployment.gateways.iter().map(|gateway| gateway.usage_events().len()).sum();
    assert_eq!(passed, events, "calls passed and recorded, in {rounds} rounds");
    assert!(lossy.lost() > 0);
}

/// A budget of ten calls, on connections that lose answers: never more than ten are sent to a provider.
#[tokio::test]
async fn a_hard_budget_is_not_passed_over_connections_that_lose_answers() {
    let (lossy, deployment) = lossy_deployment_with("limit_usd = \"0.001\"");
    lossy.set(Mode::LoseAnswers { one_in: 5 });
    for _ in 0..10 {
        // Each reserves more than 100 micro-USD and uses what it has reserved.
        parallel(&deployment.all(), 9, &body(100), &["x-mock-output-tokens: 100"]).await;
    }
    lossy.set(Mode::Pass);
    books_agree(&deployment).await;
    let sent = sent(&deployment);
    assert!((1..10).contains(&sent), "{sent} calls of more than a tenth each");
    assert!(deployment.at_rest().await.spent.units() <= 1_000);
}

fn lossy_deployment() -> (Lossy, Deployment) {
    lossy_deployment_with("limit_usd = 1")
}

fn lossy_deployment_with(limit: &str) -> (Lossy, Deployment) {
    let server = RedisServer::start().unwrap();
    let lossy = Lossy::start(server.port());
    let config = tenant(&format!("[[tenants.budgets]]\nwindow = \"day\"\n{limit}\nmode = \"hard\""));
    let settings = Settings {
        url: format!("redis://127.0.0.1:{}/0", lossy.port()),
        timeout: Duration::from_millis(250),
        ..server.settings("tollgate")
    };
    let deployment = Deployment::start(&config, None, server, &settings);
    (lossy, deployment)
}
