//! Which call of which protocol, and which provider it goes to.

use std::sync::Arc;

use http::{HeaderMap, Method};
use tollgate_providers::{Endpoint, ErrorKind, Protocol, RouteError, route as endpoint};

use crate::{
    app::App,
    headers,
    policy::{Policy, ProviderName},
    refuse::Refused,
    upstream::Upstream,
};

/// The prefix of paths that name their provider.
const PROVIDER_PREFIX: &str = "/provider/";

/// What the path tells.
pub(crate) struct Routed<'a> {
    pub(crate) endpoint: Endpoint,
    /// The path as the provider's API has it.
    pub(crate) path: &'a str,
    named: Option<&'a ProviderName>,
}

/// The protocol that the headers show, for paths that do not.
pub(crate) fn protocol_hint(headers: &HeaderMap) -> Option<Protocol> {
    let anthropic =
        headers.contains_key(headers::ANTHROPIC_VERSION) || headers.contains_key(headers::X_API_KEY);
    anthropic.then_some(Protocol::Anthropic)
}

/// Routes by method and path: `/v1/…` or `/provider/<id>/v1/…`.
pub(crate) fn route<'a>(
    policy: &'a Policy,
    method: &Method,
    full: &'a str,
    hint: Option<Protocol>,
) -> Result<Routed<'a>, Refused> {
    let (named, path) = match full.strip_prefix(PROVIDER_PREFIX) {
        Some(rest) => {
            let (id, _) = rest.split_once('/').ok_or_else(unknown_path)?;
            let named = policy.providers.iter().find(|provider| &*provider.id == id);
            (Some(named.ok_or_else(unknown_provider)?), &rest[id.len()..])
        }
        None => (None, full),
    };
    let hint = named.map(|provider| provider.protocol).or(hint);
    let endpoint = endpoint(method.as_str(), path, hint).map_err(|error| match error {
        RouteError::UnknownPath => unknown_path(),
        RouteError::WrongMethod { allowed } => Refused::new(
            ErrorKind::MethodNotAllowed,
            "method_not_allowed",
            format!("`{path}` takes {allowed}, not {method}."),
        ),
    })?;
    if let Some(named) = named.filter(|provider| provider.protocol != endpoint.protocol) {
        return Err(Refused::new(
            ErrorKind::NotFound,
            "unknown_path",
            format!("Provider `{}` speaks {}, which has no `{path}`.", named.id, named.protocol.name()),
        ));
    }
    Ok(Routed { endpoint, path, named })
}

impl Routed<'_> {
    /// The provider: the one the path names, the one the first matching route names, or the only one
    /// of the protocol.
    pub(crate) fn provider<'p>(&self, policy: &'p Policy, model: &str) -> Result<&'p Arc<str>, Refused>
    where
        Self: 'p,
    {
        let speaks = |provider: &&ProviderName| provider.protocol == self.endpoint.protocol;
        let called = |id: &str| policy.providers.iter().find(|provider| &*provider.id == id);
        let found = match (self.named, policy.route(model)) {
            (Some(named), _) => called(&named.id),
            (None, Some(id)) => called(id).filter(speaks),
            (None, None) => {
                let mut candidates = policy.providers.iter().filter(speaks);
                candidates.next().filter(|_| candidates.next().is_none())
            }
        };
        found.map(|provider| &provider.id).ok_or_else(|| no_route(self, model))
    }

    /// How a worker reaches that provider.
    pub(crate) fn upstream<'w>(
        &self,
        app: &'w App,
        worker: usize,
        model: &str,
    ) -> Result<&'w Upstream, Refused>
    where
        Self: 'w,
    {
        let id = self.provider(&app.policy, model)?;
        let found = app.upstreams(worker).iter().find(|upstream| upstream.id == *id);
        found.map(|upstream| &**upstream).ok_or_else(|| no_route(self, model))
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
