//! A sentinel makes a replica the primary while three proxies are under load.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::task::JoinHandle;
use tollgate_store_redis::{Settings, testing::RedisServer};
use tollgate_tests::{Client, PATIENCE, eventually};

use crate::deployment::{Deployment, body, tenant};

/// Calls that go on until they are told to end, some of them refused.
struct Load {
    ended: Arc<AtomicBool>,
    admitted: Arc<AtomicUsize>,
    unavailable: Arc<AtomicUsize>,
    callers: Vec<JoinHandle<()>>,
}

impl Load {
    /// Four callers of each proxy.
    fn begin(deployment: &Deployment) -> Self {
        let (ended, admitted, unavailable) = (Arc::default(), Arc::default(), Arc::default());
        let mut load = Self { ended, admitted, unavailable, callers: Vec::new() };
        for gateway in deployment.gateways.iter().chain(&deployment.gateways).chain(&deployment.gateways) {
            load.callers.push(tokio::spawn(load.caller(Client::new(gateway.address()))));
        }
        load
    }

    fn caller(&self, client: Client) -> impl Future<Output = ()> + use<> {
        let (ended, admitted) = (self.ended.clone(), self.admitted.clone());
        let unavailable = self.unavailable.clone();
        async move {
            while !ended.load(Ordering::SeqCst) {
                let answer = client.post("/v1/messages", "key_of_t", &body(100), &[]).await;
                let counted = match answer.status {
                    200 => &admitted,
                    503 => &unavailable,
                    other => panic!("{other}"),
                };
                counted.fetch_add(1, Ordering::SeqCst);
                // A proxy that refuses at once is not asked without end.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    }

    /// Waits for so many more calls that are admitted.
    async fn until_admitted(&self, more: usize) {
        let wanted = self.admitted.load(Ordering::SeqCst) + more;
        eventually("calls are admitted", || self.admitted.load(Ordering::SeqCst) >= wanted).await;
    }

    async fn end(self) {
        self.ended.store(true, Ordering::SeqCst);
        for caller in self.callers {
            caller.await.unwrap();
        }
    }
}

fn info(server: &RedisServer, section: &str) -> String {
    server.command(&["INFO", section]).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_under_load_loses_no_spend_in_the_end() {
    let primary = RedisServer::start().unwrap();
    let port = primary.port().to_string();
    let replica = RedisServer::start_with(&["--save", "", "--replicaof", "127.0.0.1", &port]).unwrap();
    let sentinel = RedisServer::start_sentinel(&primary).unwrap();
    eventually("the replica follows", || info(&replica, "replication").contains("master_link_status:up"))
        .await;
    eventually("the sentinel knows it", || info(&sentinel, "sentinel").contains("slaves=1")).await;
    let settings = Settings {
        url: format!("redis-sentinel://127.0.0.1:{}/0?sentinelServiceName=main", sentinel.port()),
        timeout: Duration::from_millis(250),
        ..primary.settings("tollgate")
    };
    let config = tenant("[[tenants.budgets]]\nwindow = \"day\"\nlimit_usd = 1\nmode = \"hard\"");
    let mut deployment = Deployment::guarded_by(&config, primary, &settings);

    let load = Load::begin(&deployment);
    load.until_admitted(50).await;
    // From now on the replica hears of nothing.
    replica.freeze().unwrap();
    deployment.server.command(&["CLIENT", "KILL", "TYPE", "replica"]).unwrap();
    load.until_admitted(100).await;
    deployment.server.kill();
    replica.thaw().unwrap();
    load.until_admitted(100).await;
    let unavailable = load.unavailable.load(Ordering::SeqCst);
    load.end().await;

    assert!(unavailable > 0, "a hard budget passes nothing while nobody can say what is left of it");
    assert!(info(&replica, "replication").contains("role:master"));
    let is_repaired = || deployment.stores.iter().map(|shared| shared.store().repaired()).sum::<u64>() > 0;
    eventually("what the replica had not heard of is sent again", is_repaired).await;
    let expected = deployment.cost_pico_usd();
    let agreed = async {
        while deployment.at_rest().await.spent.as_millionths() != expected {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let agreed = tokio::time::timeout(PATIENCE, agreed).await.is_ok();
    assert!(agreed, "{:?}, and the events say {expected}", deployment.at_rest().await);
    for copy in 0..3 {
        assert_eq!(deployment.status(copy).settlements_lost, 0);
    }
}
