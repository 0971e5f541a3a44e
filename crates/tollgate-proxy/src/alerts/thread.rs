//! The thread that keeps a record of alerts and posts them.

use std::{
    cell::RefCell,
    io,
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc, watch},
    task::{AbortHandle, LocalSet},
};
use tokio_util::sync::CancellationToken;
use tollgate_config::Alert;
use tollgate_store::Clock;

use crate::{error::StartError, metrics::Metrics, network::Network};

use super::{
    alert::BudgetAlert,
    crossing::{Crossing, wants},
    lines::{COUNTED, Lines},
    post::Receiver,
    record::Record,
};

/// The wait after a failed post, doubled each time up to the longest.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LONGEST: Duration = Duration::from_secs(300);

/// How long an alert is tried to be posted, from the moment it is about.
const TRIED_MS: u64 = 24 * 3_600_000;

/// The running thread. Dropping it stops it; what is not posted yet is posted after the next start.
pub(crate) struct AlertThread {
    stop: CancellationToken,
    receivers: watch::Sender<Vec<Alert>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread works with.
struct Work {
    record: RefCell<Record>,
    lines: RefCell<Lines>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    network: Network,
    news: Notify,
}

impl AlertThread {
    /// Reads the record beside `usage_file` and starts.
    pub(crate) fn start(
        usage_file: &Path,
        alerts: &[Alert],
        crossings: mpsc::Receiver<Crossing>,
        (clock, metrics, network): (Arc<dyn Clock>, Arc<Metrics>, Network),
    ) -> Result<Self, StartError> {
        // A URL or CA that cannot be used is found now.
        for alert in alerts {
            Receiver::new(alert, &network)?;
        }
        let record = Record::open(beside(usage_file), clock.now()).map_err(|error| {
            StartError::Worker(io::Error::new(error.kind(), format!("record of alerts: {error}")))
        })?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Worker)?;
        let (receivers, changes) = watch::channel(alerts.to_vec());
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let run = move || {
            let (record, lines, news) = (record.into(), RefCell::default(), Notify::new());
            let work = Rc::new(Work { record, lines, clock, metrics, network, news });
            let tasks = LocalSet::new();
            tasks.block_on(&runtime, run(work, crossings, changes, stopped));
        };
        let thread =
            std::thread::Builder::new().name("alerts".to_owned()).spawn(run).map_err(StartError::Worker)?;
        Ok(Self { stop, receivers, thread: Some(thread) })
    }

    /// Puts other receivers in place.
    pub(crate) fn set(&self, alerts: &[Alert]) {
        self.receivers.send_replace(alerts.to_vec());
    }
}

impl Drop for AlertThread {
    fn drop(&mut self) {
        self.stop.cancel();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread for alerts ended with a panic");
        }
    }
}

/// `usage.jsonl.alerts`
fn beside(usage_file: &Path) -> PathBuf {
    let mut name = usage_file.to_owned().into_os_string();
    name.push(".alerts");
    name.into()
}

/// Until it is stopped: then what has been found is recorded, and posted after the next start.
async fn run(
    work: Rc<Work>,
    mut crossings: mpsc::Receiver<Crossing>,
    mut changes: watch::Receiver<Vec<Alert>>,
    stop: CancellationToken,
) {
    let mut posting: Vec<AbortHandle> = Vec::new();
    loop {
        let alerts = changes.borrow_and_update().clone();
        posting.drain(..).for_each(|task| task.abort());
        posting.extend(alerts.iter().filter_map(|alert| spawn(&work, alert)));
        loop {
            tokio::select! {
                Some(crossing) = crossings.recv() => work.note(&crossing),
                Ok(()) = changes.changed() => break,
                () = tokio::time::sleep(COUNTED), if work.lines.borrow().is_counting() => {
                    work.lines.borrow_mut().tell(work.clock.now());
                }
                () = stop.cancelled() => {
                    while let Ok(crossing) = crossings.try_recv() {
                        work.note(&crossing);
                    }
                    work.lines.borrow_mut().tell_all();
                    return;
                }
            }
        }
    }
}

fn spawn(work: &Rc<Work>, alert: &Alert) -> Option<AbortHandle> {
    match Receiver::new(alert, &work.network) {
        Ok(receiver) => Some(tokio::task::spawn_local(post_all(work.clone(), receiver)).abort_handle()),
        Err(error) => {
            tracing::error!(%error, "a receiver of alerts cannot be used");
            None
        }
    }
}

/// Posts what a receiver has not taken, one after the other. One that fails is tried again after the others.
async fn post_all(work: Rc<Work>, receiver: Receiver) {
    let mut wait = RETRY_FIRST;
    let mut failed: Option<String> = None;
    loop {
        let Some(alert) = work.next_for(&receiver, failed.as_deref()) else {
            work.news.notified().await;
            continue;
        };
        let Err(problem) = receiver.post(&alert).await else {
            work.metrics.alert_posts.inc();
            work.taken(&alert, &receiver);
            wait = RETRY_FIRST;
            continue;
        };
        work.metrics.alert_failures.inc();
        let (alert_id, receiver_name) = (&alert.id, &receiver.name);
        if work.clock.now().get().saturating_sub(alert.at.get()) > TRIED_MS {
            tracing::error!(alert_id, receiver_name, problem, alert = alert.body, "an alert is given up");
            work.taken(&alert, &receiver);
            continue;
        }
        tracing::warn!(alert_id, receiver_name, problem, "an alert was not taken: it is posted again");
        failed = Some(alert.id);
        tokio::time::sleep(wait).await;
        wait = wait.saturating_mul(2).min(RETRY_LONGEST);
    }
}

impl Work {
    /// A budget has crossed a threshold: told once.
    fn note(&self, crossing: &Crossing) {
        let alert = BudgetAlert::new(crossing);
        let now = self.clock.now();
        match self.record.borrow_mut().add(alert.clone(), now) {
            Ok(false) => return,
            Ok(true) => {}
            Err(error) => tracing::error!(%error, "the record of alerts cannot be written"),
        }
        self.metrics.budget_threshold(&crossing.limit, crossing.percent);
        self.lines.borrow_mut().crossed(crossing, &alert, now);
        self.news.notify_waiters();
    }

    fn next_for(&self, receiver: &Receiver, after: Option<&str>) -> Option<BudgetAlert> {
        let wanted = |alert: &BudgetAlert| wants(&receiver.alert, alert.scope, &alert.value, alert.percent);
        self.record.borrow().next_for(&receiver.name, after, wanted).cloned()
    }

    fn taken(&self, alert: &BudgetAlert, receiver: &Receiver) {
        if let Err(error) = self.record.borrow_mut().taken(&alert.id, &receiver.name) {
            tracing::error!(%error, "the record of alerts cannot be written");
        }
    }
}
