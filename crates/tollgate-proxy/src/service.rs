//! A request's way: route, authenticate, read, inspect, admit, forward, relay.

use std::{
    convert::Infallible,
    iter,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Request, Response, StatusCode, Version, header, request::Parts, uri::PathAndQuery};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tollgate_limiter::{ReservationId, Standing};
use tollgate_providers::{
    Endpoint, ErrorKind, Meter, Protocol, RequestError, RequestFacts, Rewrites, StreamFilter, inspect,
    is_stream_options_rejection, rewrite,
};
use tollgate_usage::Session;

use crate::{
    admit::{self, Candidate, Decision},
    auth::{self, Presented},
    body::{self, Body},
    call::Call,
    headers,
    policy::KeyPolicy,
    refuse::{self, Refused},
    relay::{Relay, Tail},
    route::{self, Routed},
    server::{OpenRequests, Worker},
    upstream::{Upstream, UpstreamError},
};

/// The most bytes of a provider's 4xx that are read to see what it complains of.
const COMPLAINT_BYTES_MAX: usize = 64 * 1024;

/// The longest model or tier: both end up in events and messages.
const NAME_BYTES_MAX: usize = 256;

/// The longest session id.
const SESSION_BYTES_MAX: usize = 128;

/// Answers one request.
pub(crate) async fn call(
    worker: Arc<Worker>,
    open: OpenRequests,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let arrived = worker.app.clock.elapsed();
    let request_id = ReservationId::new(rand::random());
    let id_text = request_id.to_string();
    let (parts, body) = request.into_parts();
    let is_http2 = parts.version == Version::HTTP_2;
    let speaks = route::protocol_hint(&parts.headers);
    // The head moves on to the provider; its URI is looked at until then.
    let uri = parts.uri.clone();
    let routed = route::route(&worker, &parts.method, &uri, speaks);
    let protocol =
        routed.as_ref().map_or(speaks.unwrap_or(Protocol::OpenAi), |routed| routed.endpoint.protocol);
    let mut response = match routed {
        Ok(routed) => {
            let exchange = Exchange { worker: &worker, request_id, id_text: &id_text, arrived, routed };
            exchange.run(parts, body).await
        }
        Err(refused) => Answer { response: Err(refused), standing: None },
    }
    .into_response(&worker, protocol, &id_text);
    if let Ok(value) = HeaderValue::try_from(id_text) {
        response.headers_mut().insert(headers::REQUEST_ID, value);
    }
    worker.app.metrics.answered(protocol, response.status());
    let tasks = &worker.app.tasks;
    Ok(response.map(|body| if is_http2 { body.counted(open).pumped(tasks) } else { body.counted(open) }))
}

/// What a request is answered with.
struct Answer {
    response: Result<Response<Body>, Refused>,
    standing: Option<Standing>,
}

impl From<Refused> for Answer {
    fn from(refused: Refused) -> Self {
        Self { response: Err(refused), standing: None }
    }
}

impl Answer {
    fn into_response(self, worker: &Worker, protocol: Protocol, request_id: &str) -> Response<Body> {
        let mut response = self.response.unwrap_or_else(|refused| {
            tracing::info!(request_id, reason = refused.reason, status = refused.kind.status(), "refused");
            worker.app.metrics.own_answer(refused.reason);
            refused.into_response(protocol, request_id)
        });
        refuse::ratelimit_headers(response.headers_mut(), self.standing.as_ref());
        response
    }
}

/// One request with what its path has told.
struct Exchange<'a> {
    worker: &'a Arc<Worker>,
    request_id: ReservationId,
    id_text: &'a str,
    arrived: Duration,
    routed: Routed<'a>,
}

/// A request that may be forwarded once it is admitted.
struct Prepared<'a> {
    key: Arc<KeyPolicy>,
    upstream: &'a Upstream,
    facts: Option<RequestFacts>,
    session: Option<Session>,
    body: body::Held,
}

impl Exchange<'_> {
    async fn run(self, parts: Parts, body: Incoming) -> Answer {
        let prepared = match self.prepare(&parts, body).await {
            Ok(prepared) => prepared,
            Err(refused) => return refused.into(),
        };
        let candidate = Candidate {
            request_id: self.request_id,
            key: &prepared.key,
            provider: prepared.upstream.id.clone(),
            endpoint: self.routed.endpoint,
            facts: prepared.facts.as_ref(),
            path: self.routed.path.into(),
            session: prepared.session.clone(),
            arrived: self.arrived,
        };
        let Decision { outcome, standing } = admit::admit(&self.worker.app, candidate).await;
        let response = match outcome {
            Ok(call) => self.forward(call, parts, prepared).await,
            Err(refused) => Err(refused),
        };
        Answer { response, standing }
    }

    /// Everything that is checked before limits are: key, body, model, provider.
    async fn prepare(&self, parts: &Parts, body: Incoming) -> Result<Prepared<'_>, Refused> {
        let presented = auth::presented(&parts.headers, &parts.uri);
        let key = presented.and_then(|presented| self.worker.app.policy.key(&presented.hash)).cloned();
        let (Some(presented), Some(key)) = (presented, key) else { return Err(unauthenticated(presented)) };
        let session = session(parts)?;
        check_framing(parts)?;
        let app = &self.worker.app;
        let body = body::read(body, app.max_body_bytes, &app.large_bodies).await?;
        let facts = self.facts(&body.bytes)?;
        let model = facts.as_ref().map_or("", |facts| facts.model.as_str());
        if let Some(facts) = &facts {
            check_models(&key, facts)?;
        }
        let upstream = self.routed.upstream(self.worker, model)?;
        if upstream.passes_credential() && !presented.in_own_header {
            return Err(Refused::new(
                ErrorKind::Unauthenticated,
                "unauthenticated",
                format!(
                    "Provider `{}` is called with your own credential: send your Tollgate key in \
                     `x-tollgate-key` and the provider's credential where the provider expects it.",
                    upstream.id
                ),
            ));
        }
        Ok(Prepared { key, upstream, facts, session, body })
    }

    fn facts(&self, body: &Bytes) -> Result<Option<RequestFacts>, Refused> {
        if !has_body(self.routed.endpoint) {
            if body.is_empty() {
                return Ok(None);
            }
            let message = "This call takes no body: send it without one.";
            return Err(Refused::new(ErrorKind::BadRequest, "bad_request", message));
        }
        let facts = inspect(self.routed.endpoint, body).map_err(bad_request)?;
        let longest = facts.model.len().max(facts.service_tier.as_ref().map_or(0, String::len));
        if longest > NAME_BYTES_MAX {
            let message = "`model` and `service_tier` are names: send at most 256 bytes.";
            return Err(Refused::new(ErrorKind::BadRequest, "bad_request", message));
        }
        Ok(Some(facts))
    }

    /// Sends an admitted request and turns the provider's answer into ours.
    async fn forward(
        &self,
        mut call: Call,
        parts: Parts,
        prepared: Prepared<'_>,
    ) -> Result<Response<Body>, Refused> {
        let Prepared { upstream, facts, body: held, .. } = prepared;
        let body = held.bytes.clone();
        let path = self.path(&parts);
        let (body, asking) = facts.as_ref().map_or((body.clone(), None), |facts| {
            let output_limit = admit::output_limit_to_put_in(&self.worker.app, facts);
            let with = |usage_in_stream| rewrite(&body, facts, Rewrites { usage_in_stream, output_limit });
            let asks = upstream.usage_in_stream && facts.lacks_usage_in_stream();
            (with(false).unwrap_or_else(|| body.clone()), asks.then(|| with(true)).flatten())
        });
        let left = Arc::new(AtomicBool::new(false));
        call.sending(left.clone());
        if let Some(asking) = asking {
            let mut head =
                upstream.head(parts.method.clone(), &path, parts.headers.clone(), Some(asking.len()));
            // The extra chunk could not be taken out of a compressed stream.
            head.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            let answer = match upstream.send(head, asking, &left).await {
                Ok(answer) => answer,
                Err(error) => return Err(self.unanswered(call, upstream, &error)),
            };
            let status = answer.status();
            if !matches!(status, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY) {
                return Ok(self.relay(call, upstream, facts, answer, true).await);
            }
            match complaint(answer, upstream.idle_timeout).await {
                Ok(Complaint::AboutOurs) => {}
                Ok(Complaint::AboutTheRequest(response)) => {
                    call.answered(status.as_u16(), false);
                    call.failed(status.as_u16());
                    return Ok(response);
                }
                Err(error) => return Err(self.unanswered(call, upstream, &error)),
            }
        }
        let body_bytes = has_body(self.routed.endpoint).then_some(body.len());
        let head = upstream.head(parts.method, &path, parts.headers, body_bytes);
        match upstream.send(head, body, &left).await {
            Ok(answer) => Ok(self.relay(call, upstream, facts, answer, false).await),
            Err(error) => Err(self.unanswered(call, upstream, &error)),
        }
    }

    /// The path and query that the provider sees.
    fn path(&self, parts: &Parts) -> PathAndQuery {
        let original = parts.uri.path_and_query();
        let query = parts.uri.query();
        let without_key = query.and_then(auth::query_without_key);
        match (original, &without_key) {
            (Some(original), None) if original.path() == self.routed.path => original.clone(),
            _ => {
                let query = without_key.as_deref().or(query).filter(|query| !query.is_empty());
                let text = query.map_or_else(
                    || self.routed.path.to_owned(),
                    |query| format!("{}?{query}", self.routed.path),
                );
                PathAndQuery::try_from(text).unwrap_or_else(|_| PathAndQuery::from_static("/"))
            }
        }
    }

    fn unanswered(&self, call: Call, upstream: &Upstream, error: &UpstreamError) -> Refused {
        let cause = std::error::Error::source(error).map(ToString::to_string);
        tracing::warn!(request_id = self.id_text, provider = &*upstream.id, %error, cause, "no answer");
        let (kind, reason) = match error {
            UpstreamError::Unreachable(_) => (ErrorKind::UpstreamUnreachable, "upstream_unreachable"),
            UpstreamError::Timeout => (ErrorKind::UpstreamTimeout, "upstream_timeout"),
        };
        call.failed(kind.status());
        Refused::new(kind, reason, format!("Provider `{}`: {error}. Nothing was charged.", upstream.id))
    }

    /// Passes an answer on. An error is passed unchanged and costs nothing.
    async fn relay(
        &self,
        mut call: Call,
        upstream: &Upstream,
        facts: Option<RequestFacts>,
        answer: Response<Incoming>,
        hides_usage: bool,
    ) -> Response<Body> {
        let (mut head, incoming) = answer.into_parts();
        let streamed = is_event_stream(&head.headers);
        let encoded = head.headers.get(header::CONTENT_ENCODING).is_some_and(is_coded);
        headers::strip_connection_headers(&mut head.headers);
        call.answered(head.status.as_u16(), streamed);
        if !head.status.is_success() {
            call.failed(head.status.as_u16());
            let relay = Relay::unmetered(incoming, upstream.idle_timeout);
            return response(head, Body::relay(relay));
        }
        let filter = (hides_usage && streamed && !encoded).then(StreamFilter::new);
        if filter.is_some() {
            head.headers.remove(header::CONTENT_LENGTH);
        }
        let facts = facts.unwrap_or_default();
        let meter = Meter::new(self.routed.endpoint, &facts, streamed);
        let tail = if streamed && !encoded {
            Tail::stream(self.routed.endpoint.protocol, self.id_text.to_owned())
        } else {
            Tail::closed()
        };
        let relay = Relay::new(incoming, &head.headers, (call, meter), filter, tail, upstream.idle_timeout);
        let body = if streamed {
            Body::relay(relay.in_events()).pumped(&self.worker.app.tasks).begun().await
        } else {
            Body::relay(relay)
        };
        response(head, body)
    }
}

/// What became of a provider's 4xx that may be about `stream_options`, which the client never sent.
enum Complaint {
    /// It is about them: the request may be sent again as it came.
    AboutOurs,
    /// It is about something else: the client gets it.
    AboutTheRequest(Response<Body>),
}

async fn complaint(answer: Response<Incoming>, idle_timeout: Duration) -> Result<Complaint, UpstreamError> {
    let (mut head, mut body) = answer.into_parts();
    headers::strip_connection_headers(&mut head.headers);
    let mut read = BytesMut::new();
    while read.len() < COMPLAINT_BYTES_MAX {
        let frame = tokio::time::timeout(idle_timeout, body.frame()).await;
        match frame.map_err(|_elapsed| UpstreamError::Timeout)? {
            None => {
                let is_ours = is_stream_options_rejection(head.status.as_u16(), &read);
                let theirs =
                    |read: BytesMut| Complaint::AboutTheRequest(response(head, Body::whole(read.freeze())));
                return Ok(if is_ours { Complaint::AboutOurs } else { theirs(read) });
            }
            Some(Ok(frame)) => read.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Some(Err(_broken)) => return Err(UpstreamError::Unreachable(None)),
        }
    }
    // Too long to be about one field: pass on what has come and what is still to come.
    let relay = Relay::resumed(read.freeze(), body, idle_timeout);
    Ok(Complaint::AboutTheRequest(response(head, Body::relay(relay))))
}

/// A response of our own with the status and headers of the provider's.
fn response(head: http::response::Parts, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    response
}

/// Refuses a model that the key may not call, be it the request's own or one that a tool names.
fn check_models(key: &KeyPolicy, facts: &RequestFacts) -> Result<(), Refused> {
    let Some(allowed) = &key.models else { return Ok(()) };
    match iter::once(&facts.model).chain(&facts.other_models).find(|model| !allowed.matches(model)) {
        None => Ok(()),
        Some(model) => Err(Refused::new(
            ErrorKind::Forbidden,
            "model_not_allowed",
            format!("Key `{}` may not call model `{model}`. Use one of the models it is allowed.", key.key),
        )),
    }
}

/// Whether calls of this kind have a body that is inspected.
const fn has_body(endpoint: Endpoint) -> bool {
    !matches!(endpoint.call, tollgate_providers::Call::Models)
}

fn is_event_stream(headers: &http::HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.is_some_and(|value| value.trim_start().to_ascii_lowercase().starts_with("text/event-stream"))
}

fn is_coded(content_encoding: &HeaderValue) -> bool {
    !content_encoding.as_bytes().eq_ignore_ascii_case(b"identity")
}

fn unauthenticated(presented: Option<Presented>) -> Refused {
    let message = match presented {
        None => {
            "No key was sent: send your Tollgate key in `authorization: Bearer`, `x-api-key` or `x-tollgate-key`."
        }
        Some(_) => "This key is not known here: check that it is complete and has not been revoked.",
    };
    Refused::new(ErrorKind::Unauthenticated, "unauthenticated", message)
}

fn bad_request(error: RequestError) -> Refused {
    Refused::new(ErrorKind::BadRequest, "bad_request", error.message)
}

/// Refuses bodies that two readers could take for two different requests.
fn check_framing(parts: &Parts) -> Result<(), Refused> {
    let refuse = |message: &str| Err(Refused::new(ErrorKind::BadRequest, "bad_request", message));
    if parts.headers.get_all(header::CONTENT_ENCODING).iter().any(is_coded) {
        return refuse(
            "Compressed request bodies are not accepted: send the body without `content-encoding`.",
        );
    }
    Ok(())
}

fn session(parts: &Parts) -> Result<Option<Session>, Refused> {
    let mut values = parts.headers.get_all(headers::SESSION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let id = value.as_bytes();
    let valid = !id.is_empty()
        && id.len() <= SESSION_BYTES_MAX
        && id.iter().all(u8::is_ascii_graphic)
        && values.next().is_none();
    match std::str::from_utf8(id) {
        Ok(id) if valid => Ok(Some(Session { id: id.into(), derived: false })),
        _ => {
            let message = "`x-tollgate-session` must be sent once, with 1 to 128 visible ASCII characters and no spaces.";
            Err(Refused::new(ErrorKind::BadRequest, "bad_request", message))
        }
    }
}
