//! An admitted request on its way to its provider, and the answer's way back.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Response, StatusCode, header, request::Parts, uri::PathAndQuery};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tollgate_providers::{
    Endpoint, ErrorKind, Meter, RequestFacts, Rewrites, StreamFilter, is_stream_options_rejection, rewrite,
};

use crate::{
    body::Body,
    call::Call,
    headers,
    refuse::Refused,
    relay::{Relay, Tail},
    request::has_body,
    upload::Held,
    upstream::{Upstream, UpstreamError},
};

/// The most bytes of a provider's 4xx that are read to see what it complains of.
const COMPLAINT_BYTES_MAX: usize = 64 * 1024;

/// An admitted request that is about to be sent.
pub(crate) struct Forward<'a> {
    pub(crate) upstream: &'a Upstream,
    pub(crate) endpoint: Endpoint,
    pub(crate) request_id: &'a str,
    pub(crate) call: Call,
    pub(crate) facts: Option<Box<RequestFacts>>,
}

impl<'a> Forward<'a> {
    /// Sends the request and turns the provider's answer into ours.
    ///
    /// All that is done before the first wait is done here, so that what a waiting request keeps in
    /// memory is little.
    pub(crate) fn send(
        mut self,
        parts: Parts,
        path: &PathAndQuery,
        held: Held,
    ) -> impl Future<Output = Result<Response<Body>, Refused>> + Send + use<'a> {
        let (body, asking) = self.bodies(&held.bytes);
        let left = Arc::new(AtomicBool::new(false));
        self.call.sending(left.clone());
        let upstream = self.upstream;
        let body_bytes = has_body(self.endpoint).then_some(body.len());
        let sending = match asking {
            None => {
                let head = upstream.head(parts.method, path, parts.headers, body_bytes);
                Sending::AsItIs(upstream.send(head, body, left))
            }
            Some(asking) => Sending::Asking(Box::pin(ask(upstream, parts, path.clone(), asking, body, left))),
        };
        async move {
            // Its share of the memory is given back with the answer's head.
            let _held = held;
            let answered = match sending {
                Sending::AsItIs(answer) => answer.await.map(|answer| Answered::Answer(answer, false)),
                Sending::Asking(answered) => answered.await,
            };
            match answered {
                Ok(Answered::Answer(answer, hides_usage)) => Ok(self.relay(answer, hides_usage)),
                Ok(Answered::Complaint(response)) => {
                    let status = response.status().as_u16();
                    self.call.answered(status, false);
                    self.call.failed(status);
                    Ok(response)
                }
                Err(error) => Err(self.unanswered(&error)),
            }
        }
    }

    /// The body to be sent, and the one that also asks for usage where the request does not.
    fn bodies(&self, body: &Bytes) -> (Bytes, Option<Bytes>) {
        let Some(facts) = &self.facts else { return (body.clone(), None) };
        let output_limit = self.call.quote().and_then(|quote| quote.limit_to_send);
        let with = |usage_in_stream| rewrite(body, facts, Rewrites { usage_in_stream, output_limit });
        let asks = self.upstream.usage_in_stream && facts.lacks_usage_in_stream();
        (with(false).unwrap_or_else(|| body.clone()), asks.then(|| with(true)).flatten())
    }

    fn unanswered(self, error: &UpstreamError) -> Refused {
        let Self { upstream, call, request_id, .. } = self;
        let cause = std::error::Error::source(error).map(ToString::to_string);
        tracing::warn!(request_id, provider = &*upstream.id, %error, cause, "no answer");
        let (kind, reason) = match error {
            UpstreamError::Unreachable(_) => (ErrorKind::UpstreamUnreachable, "upstream_unreachable"),
            UpstreamError::Timeout => (ErrorKind::UpstreamTimeout, "upstream_timeout"),
        };
        call.failed(kind.status());
        Refused::new(kind, reason, format!("Provider `{}`: {error}. Nothing was charged.", upstream.id))
    }

    /// Passes an answer on. An error is passed unchanged and costs nothing.
    fn relay(self, answer: Response<Incoming>, hides_usage: bool) -> Response<Body> {
        let Self { upstream, endpoint, request_id, mut call, facts, .. } = self;
        let (mut head, incoming) = answer.into_parts();
        let is_event_stream = is_of_type(&head.headers, "text/event-stream");
        // Not every server says what it sends. JSON is no stream of events, but as long if it was to be one.
        let asked = facts.as_ref().is_some_and(|facts| facts.stream);
        let in_events = is_event_stream || (asked && !is_of_type(&head.headers, "application/json"));
        let streamed = in_events || asked;
        let encoded = head.headers.get(header::CONTENT_ENCODING).is_some_and(headers::is_coded);
        headers::strip_connection_headers(&mut head.headers);
        call.answered(head.status.as_u16(), streamed);
        announce_limit(&mut head.headers, &call);
        if !head.status.is_success() {
            call.failed(head.status.as_u16());
            let relay = Relay::unmetered(incoming, upstream.idle_timeout);
            return response(head, Body::relay(relay));
        }
        let filter = (hides_usage && in_events && !encoded).then(StreamFilter::new);
        if in_events && !encoded {
            // Less may come than the provider announces, or an event of ours more.
            head.headers.remove(header::CONTENT_LENGTH);
        }
        let facts = facts.unwrap_or_default();
        let meter = Meter::new(endpoint, &facts, in_events);
        let tail = if in_events && !encoded {
            Tail::stream(endpoint.protocol, request_id.to_owned())
        } else {
            Tail::closed()
        };
        let relay = Relay::new(incoming, &head.headers, (call, meter), filter, tail, upstream.idle_timeout);
        let body = if streamed { Body::relay(relay.in_events()).on_a_task() } else { Body::relay(relay) };
        response(head, body)
    }
}

/// A request on its way.
enum Sending<P, A> {
    /// With the body that the client sent, or one with an output limit put in.
    AsItIs(P),
    /// With a body that asks for usage, and once more without should the provider not know that.
    Asking(Pin<Box<A>>),
}

/// What came of it.
enum Answered {
    /// An answer; in the second place, whether it holds usage that the client did not ask for.
    Answer(Response<Incoming>, bool),
    /// A provider's error that has been looked into.
    Complaint(Response<Body>),
}

/// Asks for usage in the stream, and without it if that is what the provider complains of.
async fn ask(
    upstream: &Upstream,
    parts: Parts,
    path: PathAndQuery,
    asking: Bytes,
    body: Bytes,
    left: Arc<AtomicBool>,
) -> Result<Answered, UpstreamError> {
    let mut head = upstream.head(parts.method.clone(), &path, parts.headers.clone(), Some(asking.len()));
    // The extra chunk could not be taken out of a compressed stream.
    head.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let answer = upstream.send(head, asking, left.clone()).await?;
    if !matches!(answer.status(), StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY) {
        return Ok(Answered::Answer(answer, true));
    }
    match complaint(answer, upstream.idle_timeout).await? {
        Complaint::AboutOurs => {}
        Complaint::AboutTheRequest(response) => return Ok(Answered::Complaint(response)),
    }
    let head = upstream.head(parts.method, &path, parts.headers, Some(body.len()));
    Ok(Answered::Answer(upstream.send(head, body, left).await?, false))
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

/// Tells of an output limit that is lower than the request's own.
fn announce_limit(map: &mut http::HeaderMap, call: &Call) {
    let fitted = call.quote().filter(|quote| quote.is_fitted);
    if let Some(limit) = fitted.and_then(|quote| quote.limit_to_send) {
        map.insert(headers::OUTPUT_LIMIT, limit.into());
    }
}

/// Whether the body is of the media type `expected`.
fn is_of_type(headers: &http::HeaderMap, expected: &str) -> bool {
    let value = headers.get(header::CONTENT_TYPE).map(|value| value.as_bytes().trim_ascii_start());
    let beginning = value.and_then(|value| value.get(..expected.len()));
    beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(expected.as_bytes()))
}
