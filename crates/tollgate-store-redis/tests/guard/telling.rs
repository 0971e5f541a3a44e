//! Calls that end while an emptied Redis is told what was spent, by copies whose usage files have them, or have them not
//! yet: each counts once.

use std::{
    num::NonZeroU64,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::task::JoinSet;
use tollgate_limiter::{
    Admission, Amount, Enforcement, Entry, ExactAmount, Limit, Plan, ReservationId, TimestampMs, Verdict,
};
use tollgate_store::{Attempt, FallbackStore, Held, Store as _, SystemClock};
use tollgate_store_redis::{Guard, SharedStore, Spend, testing::RedisServer};

use super::{PATIENCE, PAUSE, budget, says, start, until};

/// What each call has used of each of its limits.
const USED: ExactAmount = ExactAmount::whole(3);

/// A copy, and its usage files.
struct Copy {
    server: RedisServer,
    shared: SharedStore,
    limits: Vec<Arc<Limit>>,
    files: Arc<Files>,
}

#[derive(Default)]
struct Files {
    events: Mutex<Vec<(ReservationId, TimestampMs)>>,
    reading: Mutex<Reading>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Reading {
    #[default]
    Goes,
    /// The next one waits before it reads.
    Stops,
    /// One waits.
    Waits,
    Fails,
    HasFailed,
}

impl Copy {
    /// Of which each call meets all of `limits`.
    async fn start(limits: Vec<Arc<Limit>>) -> Self {
        let (server, files) = (RedisServer::start().unwrap(), Arc::<Files>::default());
        let spent = {
            let (files, limits) = (Arc::clone(&files), limits.clone());
            move |each: Spend<'_>| files.read(&limits, each)
        };
        let guard = Guard { copy: "one".into(), copies: NonZeroU64::MIN, spent: Arc::new(spent) };
        let shared = start(&server.settings("tollgate"), guard, Arc::new(SystemClock::new()));
        let copy = Self { server, shared, limits, files };
        copy.until_told().await;
        copy
    }

    async fn until_told(&self) {
        until(async || says(&self.server, &["EXISTS", "tollgate:ready"], |exists| exists == "1")).await;
    }

    fn caller(&self) -> Caller {
        let (store, limits, files) = (self.shared.store(), self.limits.clone(), Arc::clone(&self.files));
        Caller { store, limits, files }
    }

    /// All that ended counts once, when it is told and nothing waits.
    async fn assert_exact(&self) {
        self.until_told().await;
        assert_eq!(self.server.immortal_keys().unwrap(), [""; 0]);
        let store = self.shared.store();
        until(async || store.waiting() == 0).await;
        let ended = u64::try_from(self.files.events.lock().unwrap().len()).unwrap();
        for view in store.inspect(&self.limits).await.unwrap() {
            let wanted = (ExactAmount::whole(USED.units() * ended), Amount::ZERO);
            assert_eq!((view.spent, view.held), wanted, "{ended} calls, {:?}", view.key);
        }
        assert!(store.status().available && store.status().outages == 0);
    }
}

impl Files {
    fn read(&self, limits: &[Arc<Limit>], each: Spend<'_>) -> Result<(), String> {
        let mut reading = self.reading.lock().unwrap();
        if *reading == Reading::Stops {
            *reading = Reading::Waits;
            reading = self.changed.wait_while(reading, |reading| *reading == Reading::Waits).unwrap();
        }
        if matches!(*reading, Reading::Fails | Reading::HasFailed) {
            *reading = Reading::HasFailed;
            return Err("no space left on device".to_owned());
        }
        for (call, at) in self.events.lock().unwrap().iter() {
            limits.iter().for_each(|limit| each(Some(*call), limit, *at..=*at, USED));
        }
        Ok(())
    }

    fn set(&self, reading: Reading) {
        *self.reading.lock().unwrap() = reading;
        self.changed.notify_all();
    }

    async fn until(&self, reading: Reading) {
        until(async || *self.reading.lock().unwrap() == reading).await;
    }
}

struct Caller {
    store: FallbackStore,
    limits: Vec<Arc<Limit>>,
    files: Arc<Files>,
}

impl Caller {
    async fn begin(&self, id: u128) -> Option<Held> {
        let entry = |limit: &Arc<Limit>| Entry { limit: Arc::clone(limit), charge: Amount::new(5) };
        let plan = Arc::new(Plan::new(self.limits.iter().map(entry).collect()).unwrap());
        let id = ReservationId::new(id);
        match self.store.reserve(id, Arc::clone(&plan), Attempt::First).await {
            Ok(Verdict::Admitted(Admission { at, .. })) => Some(Held { id, plan, at }),
            _ => None,
        }
    }

    async fn begin_ten(&self) -> Vec<Held> {
        let mut open = Vec::new();
        for id in 0..10 {
            open.push(self.begin(id).await.unwrap());
        }
        open
    }

    /// As a call that ends: its event is written, and then it is settled.
    async fn end(&self, held: &Held) {
        self.files.events.lock().unwrap().push((held.id, held.at));
        let _ = self.store.settle(held, &vec![USED; self.limits.len()]).await;
    }
}

fn soft() -> Arc<Limit> {
    Arc::new(Limit { enforcement: Enforcement::Soft, ..Limit::clone(&budget(0)) })
}

/// Calls without a hard budget go on while Redis is emptied and told what was spent, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_that_pass_while_an_emptied_redis_is_told_count_once() {
    let copy = Copy::start(vec![soft()]).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for client in 0..4 {
        let (caller, is_over) = (copy.caller(), is_over.clone());
        clients.spawn(async move {
            for call in 0.. {
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
                if let Some(held) = caller.begin(client << 32 | call).await {
                    tokio::time::sleep(PAUSE).await;
                    caller.end(&held).await;
                }
            }
        });
    }
    let ended = || copy.files.events.lock().unwrap().len();
    for _ in 0..3 {
        let before = ended();
        until(async || ended() > before + 20).await;
        copy.server.command(&["FLUSHALL"]).unwrap();
        copy.until_told().await;
    }
    is_over.store(true, Ordering::SeqCst);
    while clients.join_next().await.is_some() {}
    copy.assert_exact().await;
}

/// Some are told of, as their events were written before the usage file was read, and one is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_that_end_while_the_usage_files_are_read_count_once() {
    let copy = Copy::start(vec![budget(0), budget(1)]).await;
    let caller = copy.caller();
    let open = caller.begin_ten().await;
    caller.end(&open[0]).await;
    copy.files.set(Reading::Stops);
    copy.server.command(&["FLUSHALL"]).unwrap();
    caller.end(&open[1]).await;
    copy.files.until(Reading::Waits).await;
    for held in &open[2..9] {
        caller.end(held).await;
    }
    copy.files.set(Reading::Goes);
    copy.until_told().await;
    caller.end(&open[9]).await;
    copy.assert_exact().await;
}

/// The usage files cannot be read at first.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_that_end_before_the_usage_files_can_be_read_count_once() {
    let copy = Copy::start(vec![budget(0)]).await;
    let caller = copy.caller();
    let open = caller.begin_ten().await;
    copy.files.set(Reading::Fails);
    copy.server.command(&["FLUSHALL"]).unwrap();
    copy.files.until(Reading::HasFailed).await;
    for held in &open {
        caller.end(held).await;
    }
    copy.files.set(Reading::Goes);
    copy.assert_exact().await;
}

/// Of two counters one cannot be told for a while: the other has been told without the calls that end meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_that_end_while_a_telling_is_broken_off_count_once() {
    let copy = Copy::start(vec![budget(0), budget(1)]).await;
    let caller = copy.caller();
    let open = caller.begin_ten().await;
    caller.end(&open[0]).await;
    let [first, second] = [0, 1].map(|number| format!("tollgate:{{tenant {number}}}:c:micro_usd:day"));
    // As one command: no part is told before the counters are spoilt.
    let spoil = "redis.call('FLUSHALL') redis.call('HSET', KEYS[1], 'field', 'value')";
    copy.server.command(&["EVAL", spoil, "1", &second]).unwrap();
    until(async || says(&copy.server, &["EXISTS", &first], |exists| exists == "1")).await;
    assert_eq!(
        copy.server.immortal_keys().unwrap(),
        [second.as_str()],
        "what is told so far has a time to live"
    );
    for held in &open[1..] {
        caller.end(held).await;
    }
    copy.server.command(&["DEL", &second]).unwrap();
    copy.assert_exact().await;
}

/// An end does not wait until a large usage file is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn usage_files_that_are_read_keep_no_end_waiting() {
    let copy = Copy::start(vec![budget(0)]).await;
    copy.files.set(Reading::Stops);
    copy.server.command(&["FLUSHALL"]).unwrap();
    copy.files.until(Reading::Waits).await;
    let Copy { shared, files, server: _server, .. } = copy;
    let end = tokio::task::spawn_blocking(move || drop(shared));
    let ended = tokio::time::timeout(PATIENCE, end).await;
    files.set(Reading::Goes);
    assert!(ended.is_ok());
}
