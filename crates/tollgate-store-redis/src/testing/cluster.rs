//! A Redis Cluster to test against.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
    time::Duration,
};

use super::{RedisServer, on_a_free_port};
use crate::Settings;

/// Hash slots of a cluster.
const SLOTS: usize = 16_384;
/// After how long a node that does not answer is taken for dead.
const NODE_TIMEOUT_MS: &str = "1000";

/// A Redis Cluster of a test's own: some primaries, and perhaps a replica of the first.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts so many primaries, which share the slots, and waits until they agree.
    ///
    /// # Errors
    ///
    /// There is no `redis-server` of 7.0 or later, or they do not come up.
    pub fn start(primaries: usize) -> io::Result<Self> {
        let nodes = (0..primaries).map(|_| node()).collect::<io::Result<Vec<_>>>()?;
        for (number, node) in nodes.iter().enumerate() {
            let (from, to) = (SLOTS * number / primaries, SLOTS * (number + 1) / primaries - 1);
            node.command(&["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()])?;
            // Otherwise two of them may begin with the same epoch.
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()])?;
        }
        let cluster = Self { nodes };
        for number in 1..primaries {
            cluster.meet(number)?;
        }
        cluster.wait_until(|info| info.contains("cluster_state:ok"))?;
        Ok(cluster)
    }

    /// Adds a replica of the first primary and waits until it has its data.
    ///
    /// # Errors
    ///
    /// As for the start.
    pub fn add_replica(&mut self) -> io::Result<()> {
        let primary = self.nodes[0].command(&["CLUSTER", "MYID"])?;
        self.nodes.push(node()?);
        let number = self.nodes.len() - 1;
        self.meet(number)?;
        let replica = &self.nodes[number];
        wait(|| Ok(replica.command(&["CLUSTER", "REPLICATE", &primary]).is_ok()))?;
        wait(|| Ok(replica.command(&["INFO", "replication"])?.contains("master_link_status:up")))?;
        // So that all nodes know of it.
        self.wait_until(|info| info.contains(&format!("cluster_known_nodes:{}", number + 1)))
    }

    /// The nodes: first the primaries in the order of their slots.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The same, to be killed and restarted.
    pub fn nodes_mut(&mut self) -> &mut [RedisServer] {
        &mut self.nodes
    }

    /// How to reach it, under a prefix. It names the last primary, and the others are found out.
    pub fn settings(&self, prefix: &str) -> Settings {
        let others: Vec<_> =
            self.nodes.iter().map(|node| format!("node=127.0.0.1:{}", node.port())).collect();
        let url = format!("redis-cluster://127.0.0.1:{}?{}", self.nodes[0].port(), others.join("&"));
        Settings { url, ..self.nodes[0].settings(prefix) }
    }

    /// Waits until `CLUSTER INFO` of all nodes that answer is as wanted.
    ///
    /// # Errors
    ///
    /// It does not become so.
    pub fn wait_until(&self, is_wanted: impl Fn(&str) -> bool) -> io::Result<()> {
        let infos = || self.nodes.iter().filter_map(|node| node.command(&["CLUSTER", "INFO"]).ok());
        wait(|| Ok(infos().all(|info| is_wanted(&info))))
    }

    /// The number of the primary that has a key's slot.
    ///
    /// # Errors
    ///
    /// No node answers.
    pub fn primary_of(&self, key: &str) -> io::Result<usize> {
        let slot: usize =
            self.nodes[0].command(&["CLUSTER", "KEYSLOT", key])?.parse().map_err(io::Error::other)?;
        let primaries = self.nodes.len().min(3);
        Ok((0..primaries).find(|number| slot < SLOTS * (number + 1) / primaries).unwrap_or(primaries - 1))
    }

    /// All keys of all primaries, with the node's number.
    ///
    /// # Errors
    ///
    /// A node does not answer.
    pub fn keys(&self) -> io::Result<Vec<(usize, String)>> {
        let mut all = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let keys = node.command(&["KEYS", "*"])?;
            all.extend(keys.lines().map(|key| (number, key.to_owned())));
        }
        Ok(all)
    }

    fn meet(&self, number: usize) -> io::Result<()> {
        let (first, other) = (&self.nodes[0], &self.nodes[number]);
        let (port, bus) = (other.port().to_string(), bus_port(other));
        first.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).map(drop)
    }
}

/// A node that knows of no other.
fn node() -> io::Result<RedisServer> {
    on_a_free_port(|| {
        let bus = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port().to_string();
        let options =
            ["--save", "", "--appendonly", "no", "--cluster-enabled", "yes", "--cluster-port", &bus];
        let own = ["--cluster-node-timeout", NODE_TIMEOUT_MS, "--cluster-config-file", "nodes.conf"];
        RedisServer::prepared(&[options.as_slice(), &own].concat())?.running()
    })
}

fn bus_port(node: &RedisServer) -> String {
    let mut options = node.options.iter();
    options.find(|option| *option == "--cluster-port");
    options.next().cloned().unwrap_or_default()
}

fn wait(is_over: impl Fn() -> io::Result<bool>) -> io::Result<()> {
    const ATTEMPTS: usize = 2_000;
    for _ in 0..ATTEMPTS {
        if is_over()? {
            return Ok(());
        }
        // Without reading a clock.
        std::thread::park_timeout(Duration::from_millis(10));
    }
    Err(io::Error::other("the cluster does not come up"))
}
