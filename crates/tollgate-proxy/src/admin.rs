//! The second listener: health, readiness, metrics.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::sync::CancellationToken;
use tollgate_store::StoreStatus;

use crate::{
    app::App,
    server::{self, CLIENT_STALL_MAX, Shared},
    stall::StallGuard,
};

/// The most connections at a time: this listener is for a few scrapers and probes.
const CONNECTIONS_MAX: usize = 64;

const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves until `ended`: health is answered while the proxy drains, so that it can be watched.
pub(crate) async fn run(listener: TcpListener, shared: Arc<Shared>, ended: CancellationToken) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let next = async {
            let permit = permits.clone().acquire_owned().await.ok()?;
            Some((permit, listener.accept().await))
        };
        let accepted = tokio::select! {
            accepted = next => accepted,
            () = ended.cancelled() => return,
        };
        let (permit, stream) = match accepted {
            Some((permit, Ok((stream, _peer)))) => (permit, stream),
            Some((_, Err(error))) => {
                server::pause_after(&error).await;
                continue;
            }
            None => return,
        };
        let (shared, ended) = (shared.clone(), ended.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answer = answer(&shared, &request);
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(StallGuard::new(TokioIo::new(stream), CLIENT_STALL_MAX), service);
            tokio::select! {
                _ = connection => {}
                () = ended.cancelled() => {}
            }
            drop(permit);
        });
    }
}

fn answer(shared: &Shared, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return json(StatusCode::METHOD_NOT_ALLOWED, r#"{"error":"use GET"}"#);
    }
    match request.uri().path() {
        "/healthz" => json(StatusCode::OK, r#"{"status":"ok"}"#),
        "/readyz" => ready(shared),
        "/metrics" => metrics(&shared.app.load()),
        _ => {
            json(StatusCode::NOT_FOUND, r#"{"error":"not found: /healthz, /readyz and /metrics are served"}"#)
        }
    }
}

/// Ready from the first accepted request until the stop signal. An outage of the usage file or a
/// configuration that was not taken over is told, but does not take the proxy out of rotation (ADR 0020).
fn ready(shared: &Shared) -> Response<Full<Bytes>> {
    let app = shared.app.load();
    let usage = if app.usage.healthy() { "ok" } else { "failing" };
    let status = app.store.status();
    let store = if status.available { "ok" } else { "unavailable" };
    let (code, word) = if shared.stop.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else {
        (StatusCode::OK, "ready")
    };
    let mut body = serde_json::json!({ "status": word, "store": store, "usage": usage, "config": "ok" });
    if let Some(warning) = status.warning {
        body["store_warning"] = warning.into();
    }
    if let Some(problem) = shared.reload.problem() {
        body["config"] = "rejected".into();
        body["config_problem"] = problem.into();
    }
    json(code, body.to_string())
}

fn metrics(app: &App) -> Response<Full<Bytes>> {
    let mut text = app.metrics.encode();
    let (dropped, not_held) = (app.usage.dropped(), app.usage.not_held());
    let store = app.store.status();
    // The registry's text ends with an end mark that nothing may follow.
    let end = text.rfind("# EOF").unwrap_or(text.len());
    text.insert_str(
        end,
        &format!(
            "# HELP tollgate_usage_events_dropped Usage events lost because the file could not be written.\n\
             # TYPE tollgate_usage_events_dropped counter\n\
             tollgate_usage_events_dropped_total {dropped}\n\
             # HELP tollgate_journal_failures Open calls that could not be written down.\n\
             # TYPE tollgate_journal_failures counter\n\
             tollgate_journal_failures_total {not_held}\n{}",
            store_metrics(&store)
        ),
    );
    let mut response = Response::new(Full::new(Bytes::from(text)));
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn store_metrics(store: &StoreStatus) -> String {
    let StoreStatus { available, outages, settlements_waiting, settlements_lost, .. } = store;
    format!(
        "# HELP tollgate_store_available Whether the store answers.\n\
         # TYPE tollgate_store_available gauge\n\
         tollgate_store_available {}\n\
         # HELP tollgate_store_outages Times the store ceased to answer.\n\
         # TYPE tollgate_store_outages counter\n\
         tollgate_store_outages_total {outages}\n\
         # HELP tollgate_store_settlements_waiting Settlements that wait for the store.\n\
         # TYPE tollgate_store_settlements_waiting gauge\n\
         tollgate_store_settlements_waiting {settlements_waiting}\n\
         # HELP tollgate_store_settlements_lost Settlements given up: their reservations stay charged.\n\
         # TYPE tollgate_store_settlements_lost counter\n\
         tollgate_store_settlements_lost_total {settlements_lost}\n",
        u8::from(*available)
    )
}

fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
