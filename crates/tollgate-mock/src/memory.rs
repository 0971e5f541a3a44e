//! The mock on connections of memory, for simulations.

use std::collections::BTreeMap;

use tokio::io::DuplexStream;

use crate::mock::{Options, Server};
use crate::record::{Counts, Received};
use crate::usage::Bill;

/// How many bytes a connection holds in each direction: few, so that little is on its way when it ends.
const CONNECTION_BYTES: usize = 4 * 1024;

/// A mock without a socket or a thread: it runs on the runtime that calls it, by that one's time.
#[derive(Debug)]
pub struct InMemoryMock {
    server: Server,
}

impl InMemoryMock {
    /// A mock; [`Options::listen`] means nothing to it.
    pub fn new(options: Options) -> Self {
        Self { server: Server::new(options) }
    }

    /// The client's end of a new connection.
    pub fn connect(&self) -> DuplexStream {
        let (near, far) = tokio::io::duplex(CONNECTION_BYTES);
        tokio::spawn(self.server.serve(far));
        near
    }

    /// What the calls with each label (`x-mock-label`) would be charged.
    pub fn billed_by_label(&self) -> BTreeMap<String, Bill> {
        self.server.records.bills_by_label()
    }

    /// The requests received, oldest first, as many as [`Options::request_limit`] keeps.
    pub fn requests(&self) -> Vec<Received> {
        self.server.records.requests()
    }

    /// How much has happened so far.
    pub fn counts(&self) -> Counts {
        self.server.records.counts()
    }
}
