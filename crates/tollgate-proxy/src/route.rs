//! Which call of which protocol, and which provider it goes to.

use http::{HeaderMap, Method, Uri};
use tollgate_providers::{Endpoint, ErrorKind, Protocol, RouteError, route as endpoint};

use crate::{headers, refuse::Refused, server::Worker, upstream::Upstream};

/// The prefix of paths that name their provider.
const PROVIDER_PREFIX: &str = "/provider/";

/// What the path tells.
pub(crate) struct Routed<'a> {
    pub(crate) endpoint: Endpoint,
    /// The path as the provider's API has it.
    pub(crate) path: &'a str,
    named: Option<&'a Upstream>,
}

/// The protocol that the headers show, for paths that do not.
pub(crate) fn protocol_hint(headers: &HeaderMap) -> Option<Protocol> {
    let anthropic =
        headers.contains_key(headers::ANTHROPIC_VERSION) || headers.contains_key(headers::X_API_KEY);
    anthropic.then_some(Protocol::Anthropic)
}

/// Routes by method and path: `/v1/…` or `/provider/<id>/v1/…`.
pub(crate) fn route<'a>(
    worker: &'a Worker,
    method: &Method,
    uri: &'a Uri,
    hint: Option<Protocol>,
) -> Result<Routed<'a>, Refused> {
    let full = uri.path();
    let (named, path) = match full.strip_prefix(PROVIDER_PREFIX) {
        Some(rest) => {
            let (id, _) = rest.split_once('/').ok_or_else(unknown_path)?;
            let upstream = worker.upstreams.iter().find(|upstream| &*upstream.id == id);
            (Some(upstream.ok_or_else(unknown_provider)?), &rest[id.len()..])
        }
        None => (None, full),
    };
    let hint = named.map(|upstream| upstream.protocol).or(hint);
    let endpoint = endpoint(method.as_str(), path, hint).map_err(|error| match error {
        RouteError::UnknownPath => unknown_path(),
        RouteError::WrongMethod { allowed } => Refused::new(
            ErrorKind::MethodNotAllowed,
            "method_not_allowed",
            format!("`{path}` takes {allowed}, not {method}."),
        ),
    })?;
    if let Some(upstream) = named.filter(|upstream| upstream.protocol != endpoint.protocol) {
        return Err(Refused::new(
            ErrorKind::NotFound,
            "unknown_path",
            format!("Provider `{}` speaks {}, which has no `{path}`.", upstream.id, upstream.protocol.name()),
        ));
    }
    Ok(Routed { endpoint, path, named })
}

impl Routed<'_> {
    /// The provider: the one the path names, the one the first matching route names, or the only one
    /// of the protocol.
    pub(crate) fn upstream<'w>(&self, worker: &'w Worker, model: &str) -> Result<&'w Upstream, Refused>
    where
        Self: 'w,
    {
        let speaks = |upstream: &&Upstream| upstream.protocol == self.endpoint.protocol;
        if let Some(named) = self.named {
            return worker
                .upstreams
                .iter()
                .find(|upstream| upstream.id == named.id)
                .ok_or_else(|| no_route(self, model));
        }
        if let Some(id) = worker.app.policy.route(model) {
            let routed = worker.upstreams.iter().find(|upstream| &*upstream.id == id);
            return routed.filter(speaks).ok_or_else(|| no_route(self, model));
        }
        let mut candidates = worker.upstreams.iter().filter(speaks);
        match (candidates.next(), candidates.next()) {
            (Some(only), None) => Ok(only),
            _ => Err(no_route(self, model)),
        }
    }
}

fn unknown_path() -> Refused {
    // The path is not repeated: a key that was put into it by mistake would be, too.
    let message = "This path is not served: only calls that can be metered pass. Check the base URL.";
    Refused::new(ErrorKind::NotFound, "unknown_path", message)
}

fn unknown_provider() -> Refused {
    let message = "The provider that the path names is not configured.";
    Refused::new(ErrorKind::NotFound, "unknown_path", message)
}

fn no_route(routed: &Routed<'_>, model: &str) -> Refused {
    let message = format!(
        "No provider that speaks {} is configured for model `{model}`: add a route for it, or name a provider \
         in the path (`/provider/<id>{}`).",
        routed.endpoint.protocol.name(),
        routed.path
    );
    Refused::new(ErrorKind::NotFound, "no_route", message)
}
