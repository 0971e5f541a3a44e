//! A request's way: route, authenticate, read, inspect, admit, forward, relay.

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::{HeaderValue, Request, Response, Version, header, request::Parts, uri::PathAndQuery};
use hyper::body::Incoming;
use tollgate_config::Scope;
use tollgate_limiter::{ReservationId, Standing};
use tollgate_providers::{ErrorKind, Protocol, RequestFacts};
use tollgate_usage::{Attributes, Session};

use crate::{
    admit::{self, Candidate, Decision},
    app::App,
    attributes,
    auth::{self, Presented},
    body::Body,
    forward::Forward,
    headers,
    once::Named,
    policy::KeyPolicy,
    refuse::{self, Refused},
    request,
    route::{self, Routed},
    server::{OpenRequests, Worker},
    session, upload,
    upstream::Upstream,
};

/// Answers one request.
pub(crate) async fn call(
    worker: Arc<Worker>,
    open: OpenRequests,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    // A reload in the middle of a request does not reach it.
    let app = worker.shared.app.load_full();
    let arrived = app.clock.elapsed();
    let request_id = ReservationId::new(rand::random());
    let id_text: Arc<str> = request_id.to_string().into();
    let (mut parts, body) = request.into_parts();
    let is_http2 = parts.version == Version::HTTP_2;
    if is_http2 {
        headers::join_cookies(&mut parts.headers);
    }
    let speaks = route::protocol_hint(&parts.headers);
    // The head moves on to the provider; its URI is looked at until then.
    let uri = parts.uri.clone();
    let routed = route::route(&app.policy, &parts.method, uri.path(), speaks);
    let protocol =
        routed.as_ref().map_or(speaks.unwrap_or(Protocol::OpenAi), |routed| routed.endpoint.protocol);
    let mut response = match routed {
        Ok(routed) => {
            let worker = worker.index;
            let exchange = Exchange { app: &app, worker, request_id, id_text: &id_text, arrived, routed };
            exchange.run(parts, body).await
        }
        Err(refused) => Answer { response: Err(refused), standing: None },
    }
    .into_response(&app, protocol, &id_text);
    if let Ok(value) = HeaderValue::from_str(&id_text) {
        response.headers_mut().insert(headers::REQUEST_ID, value);
    }
    app.metrics.answered(protocol, response.status());
    let mut response = response.map(|body| body.started(open, is_http2, &app));
    response.body_mut().begun().await;
    Ok(response)
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
    fn into_response(self, app: &App, protocol: Protocol, request_id: &str) -> Response<Body> {
        let mut response = self.response.unwrap_or_else(|refused| {
            tracing::info!(request_id, reason = refused.reason, status = refused.kind.status(), "refused");
            app.metrics.own_answer(refused.reason);
            refused.into_response(protocol, request_id)
        });
        refuse::ratelimit_headers(response.headers_mut(), self.standing.as_ref());
        response
    }
}

/// One request with what its path has told.
struct Exchange<'a> {
    app: &'a Arc<App>,
    worker: usize,
    request_id: ReservationId,
    id_text: &'a Arc<str>,
    arrived: Duration,
    routed: Routed<'a>,
}

/// A request that may be forwarded once it is admitted.
struct Prepared<'a> {
    key: Arc<KeyPolicy>,
    upstream: &'a Upstream,
    facts: Option<Box<RequestFacts>>,
    session: Option<Session>,
    attributes: Attributes,
    /// Those of them that the caller has set.
    caller: Vec<(Scope, Arc<str>)>,
    /// Its own name, if it has one and costs anything.
    named: Option<Arc<Named>>,
    body: upload::Held,
}

impl Exchange<'_> {
    async fn run(self, parts: Parts, body: Incoming) -> Answer {
        let prepared = match self.prepare(&parts, body).await {
            Ok(prepared) => prepared,
            Err(refused) => return refused.into(),
        };
        let candidate = Candidate {
            request_id: self.request_id,
            id_text: self.id_text.clone(),
            key: &prepared.key,
            provider: prepared.upstream.id.clone(),
            endpoint: self.routed.endpoint,
            facts: prepared.facts.as_deref(),
            path: self.routed.path.into(),
            session: prepared.session.clone(),
            attributes: prepared.attributes.clone(),
            caller: &prepared.caller,
            named: prepared.named.clone(),
            arrived: self.arrived,
        };
        let Decision { outcome, standing } = admit::admit(self.app, candidate).await;
        let response = match outcome {
            Ok(call) => {
                let path = self.path(&parts);
                let Prepared { upstream, facts, body, .. } = prepared;
                let (endpoint, request_id) = (self.routed.endpoint, &**self.id_text);
                let forward = Forward { upstream, endpoint, request_id, call, facts };
                forward.send(parts, &path, body).await
            }
            Err(refused) => Err(refused),
        };
        Answer { response, standing }
    }

    /// Everything that is checked before limits are: key, body, model, provider.
    async fn prepare(&self, parts: &Parts, body: Incoming) -> Result<Prepared<'_>, Refused> {
        let presented = auth::presented(&parts.headers, &parts.uri);
        let key = presented.and_then(|presented| self.app.policy.key(&presented.hash)).cloned();
        let (Some(presented), Some(key)) = (presented, key) else { return Err(unauthenticated(presented)) };
        let session = session::named(&parts.headers)?;
        check_framing(parts)?;
        let app = self.app;
        let body = upload::read(body, app.max_body_bytes, &app.large_bodies).await?;
        let facts = request::facts(self.routed.endpoint, &body.bytes)?;
        let model = facts.as_ref().map_or("", |facts| facts.model.as_str());
        if let Some(facts) = &facts {
            request::check_models(&key, facts)?;
        }
        let user = facts.as_ref().and_then(|facts| facts.user.as_deref());
        let caller = attributes::from_caller(&key, &parts.headers, user)?;
        let attributes = attributes::merged(&key, &caller);
        let of_body = |facts: &RequestFacts| session::of_body(app.policy.sessions, &key, &caller, facts);
        let session = session.or_else(|| facts.as_deref().and_then(of_body));
        let upstream = self.routed.upstream(app, self.worker, model)?;
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
        let named = match facts.is_some() && self.routed.endpoint.is_billed() {
            true => app.once.name(&key.key, &parts.headers)?,
            false => None,
        };
        Ok(Prepared { key, upstream, facts, session, attributes, caller, named, body })
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

/// Refuses bodies that two readers could take for two different requests.
fn check_framing(parts: &Parts) -> Result<(), Refused> {
    let refuse = |message: &str| Err(Refused::new(ErrorKind::BadRequest, "bad_request", message));
    if parts.headers.get_all(header::CONTENT_ENCODING).iter().any(headers::is_coded) {
        return refuse(
            "Compressed request bodies are not accepted: send the body without `content-encoding`.",
        );
    }
    Ok(())
}
