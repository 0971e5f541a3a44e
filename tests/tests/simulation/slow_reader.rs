//! HTTP/2 clients that read slowly or not at all, on a runtime whose time is paused.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::http2::{Builder, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tollgate_config::Config;
use tollgate_limiter::TimestampMs;
use tollgate_mock::{InMemoryMock, Options};
use tollgate_pricing::PriceTable;
use tollgate_proxy::{Dial, InMemoryProxy, Setup};
use tollgate_store::{Clock, MemoryStore};
use tollgate_tests::UNIT_PRICES;
use tollgate_usage::WriterOptions;

use crate::{clock::VirtualClock, life::NamedKeys};

const CONFIG: &str = "[usage]\nfile = \"usage.jsonl\"\n\
    [[providers]]\nid = \"anthropic\"\nprotocol = \"anthropic\"\nbase_url = \"http://mock\"\napi_key_env = \"provider\"\n\
    [[tenants]]\nid = \"t\"\n[[tenants.keys]]\nid = \"k\"\nkey_env = \"key_of_t\"\n";

/// A proxy on connections of memory.
struct Running {
    proxy: InMemoryProxy,
    clock: Arc<dyn Clock>,
    directory: tempfile::TempDir,
}

impl Running {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = Config::parse(CONFIG, "t.toml", directory.path(), &NamedKeys).unwrap();
        let mut setup = Setup::new(config, Arc::new(PriceTable::from_yaml(UNIT_PRICES).unwrap()));
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::new(TimestampMs::new(1_795_996_800_000)));
        let store = Arc::new(MemoryStore::new(clock.clone()));
        setup.restore(&store, |_, _| {}).unwrap();
        let mock = InMemoryMock::new(Options::default());
        let dial: Dial = Arc::new(move |_| Ok(mock.connect()));
        let proxy = setup.start_in_memory(store, clock.clone(), dial, WriterOptions::default()).unwrap();
        Self { proxy, clock, directory }
    }

    /// A connection whose streams have windows of so many bytes, and its task.
    async fn connect(&self, window: u32) -> (SendRequest<Full<Bytes>>, JoinHandle<()>) {
        let mut builder = Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).initial_stream_window_size(window);
        let io = TokioIo::new(self.proxy.connect().unwrap());
        let (sender, connection) = builder.handshake(io).await.unwrap();
        (sender, tokio::spawn(async move { drop(connection.await) }))
    }

    fn outcomes(&self) -> Vec<String> {
        self.proxy.flush_usage().unwrap();
        let usage = std::fs::read_to_string(self.directory.path().join("usage.jsonl")).unwrap();
        let events = usage.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.map(|event| event["outcome"].as_str().unwrap().to_owned()).collect()
    }
}

/// Asks for an answer of some 300 kB.
async fn ask(sender: &mut SendRequest<Full<Bytes>>, key: &str, stream: bool) -> Response<Incoming> {
    let body = json!({"model": "unit", "max_tokens": 100_000, "stream": stream,
        "messages": [{"role": "user", "content": "Hello"}]});
    let request = http::Request::post("http://proxy/v1/messages")
        .header("x-api-key", key)
        .header("x-mock-text-bytes", "300000")
        .header("x-mock-events", "30")
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap();
    sender.send_request(request).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn c110_an_http_2_answer_that_nobody_reads_is_given_up_and_never_looks_whole() {
    for stream in [true, false] {
        let running = Running::start();
        let (mut sender, _connection) = running.connect(1_000).await;
        let answer = ask(&mut sender, "key_of_t", stream).await;
        assert_eq!(answer.status(), StatusCode::OK);
        sleep(Duration::from_secs(130)).await;
        assert_eq!(running.outcomes(), ["client_gone"], "stream: {stream}");
        let body = answer.into_body().collect().await.map(|body| body.to_bytes().len());
        assert!(body.is_err(), "stream: {stream}: {body:?} bytes look whole");
    }
}

#[tokio::test(start_paused = true)]
async fn an_http_2_client_that_reads_slowly_is_not_given_up() {
    for stream in [true, false] {
        let running = Running::start();
        let (mut sender, _connection) = running.connect(16_384).await;
        let mut body = ask(&mut sender, "key_of_t", stream).await.into_body();
        let (mut bytes, begun) = (0, running.clock.elapsed());
        while let Some(frame) = body.frame().await {
            let frame = frame.unwrap_or_else(|error| {
                panic!("after {bytes} bytes and {:?}: {error}", running.clock.elapsed() - begun)
            });
            let read = frame.into_data().map_or(0, |data| data.len());
            bytes += read;
            // 500 bytes a second.
            sleep(Duration::from_millis(2 * u64::try_from(read).unwrap())).await;
        }
        assert!(
            bytes > 300_000 && running.clock.elapsed() - begun > Duration::from_secs(300),
            "{bytes} bytes"
        );
        assert_eq!(running.outcomes(), ["complete"], "stream: {stream}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_leaves_its_answers_unread_is_closed() {
    for (key, status) in [("wrong", StatusCode::UNAUTHORIZED), ("key_of_t", StatusCode::OK)] {
        let running = Running::start();
        let (mut sender, connection) = running.connect(1).await;
        let mut answers = Vec::new();
        for _ in 0..20 {
            answers.push(ask(&mut sender, key, true).await);
        }
        assert!(answers.iter().all(|answer| answer.status() == status));
        let ended = timeout(Duration::from_secs(150), connection).await;
        assert!(ended.is_ok(), "{status}: the connection is still there");
    }
}
