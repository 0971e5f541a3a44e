//! What the mock saw: requests, open answers, clients that left, and the bill.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use tokio::sync::watch;

use crate::usage::{Bill, Usage};

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct Received {
    /// The connection it came on, numbered from 0 in the order of acceptance.
    pub connection: u64,
    /// Its method.
    pub method: Method,
    /// Its path and query.
    pub uri: Uri,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its whole body.
    pub body: Bytes,
}

/// How much has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted.
    pub connections: u64,
    /// Requests received in full.
    pub requests: u64,
    /// Answers that are under way: begun or hanging, and neither complete nor abandoned.
    pub open_answers: u64,
    /// Stream events (or pieces of plain bodies) handed to the connection.
    pub events_sent: u64,
    /// Answers that the client did not wait for.
    pub client_disconnects: u64,
}

/// The records of one mock, shared by its connections.
#[derive(Debug)]
pub(crate) struct Records {
    counts: watch::Sender<Counts>,
    requests: Mutex<VecDeque<Received>>,
    request_limit: usize,
    bills: Mutex<BTreeMap<String, Bill>>,
    bills_by_label: Mutex<BTreeMap<String, Bill>>,
}

impl Records {
    pub(crate) fn new(request_limit: usize) -> Self {
        Self {
            counts: watch::Sender::new(Counts::default()),
            requests: Mutex::default(),
            request_limit,
            bills: Mutex::default(),
            bills_by_label: Mutex::default(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Counts> {
        self.counts.subscribe()
    }

    pub(crate) fn requests(&self) -> Vec<Received> {
        lock(&self.requests).iter().cloned().collect()
    }

    pub(crate) fn bills(&self) -> BTreeMap<String, Bill> {
        lock(&self.bills).clone()
    }

    /// Counts a connection and returns its number.
    pub(crate) fn connection(&self) -> u64 {
        let mut number = 0;
        self.counts.send_modify(|counts| {
            number = counts.connections;
            counts.connections += 1;
        });
        number
    }

    /// Keeps a request, dropping the oldest above the limit, and returns its number.
    pub(crate) fn request(&self, received: Received) -> u64 {
        if self.request_limit > 0 {
            let mut requests = lock(&self.requests);
            if requests.len() >= self.request_limit {
                requests.pop_front();
            }
            requests.push_back(received);
        }
        let mut number = 0;
        self.counts.send_modify(|counts| {
            counts.requests += 1;
            number = counts.requests;
        });
        number
    }

    pub(crate) fn opened(&self) {
        self.counts.send_modify(|counts| counts.open_answers += 1);
    }

    pub(crate) fn event_sent(&self) {
        self.counts.send_modify(|counts| counts.events_sent += 1);
    }

    pub(crate) fn closed(&self, by_client: bool) {
        self.counts.send_modify(|counts| {
            counts.open_answers = counts.open_answers.saturating_sub(1);
            counts.client_disconnects += u64::from(by_client);
        });
    }

    pub(crate) fn bills_by_label(&self) -> BTreeMap<String, Bill> {
        lock(&self.bills_by_label).clone()
    }

    pub(crate) fn bill(&self, model: &str, label: Option<&str>, usage: &Usage) {
        add(&self.bills, model, usage);
        if let Some(label) = label {
            add(&self.bills_by_label, label, usage);
        }
    }
}

fn add(bills: &Mutex<BTreeMap<String, Bill>>, name: &str, usage: &Usage) {
    let mut bills = lock(bills);
    if let Some(bill) = bills.get_mut(name) {
        bill.add(usage);
    } else {
        bills.entry(name.to_owned()).or_default().add(usage);
    }
}

/// A panic of another thread leaves these collections whole, so a poisoned lock is taken all the same.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
